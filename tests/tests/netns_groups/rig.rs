//! A laboratory that computes, and members on its hosts.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use hostd_client::group::{Element, Group, GroupError, GroupOptions, Operation, Vector};
use hostd_client::{Access, Context, Region};
use lab::observe::{fabric, rows};
use lab::{Builder, Lab, node_dir};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

/// How long a daemon may take to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Rig {
    pub(crate) lab: Lab,
    port: AtomicU16,
}

impl Rig {
    /// A laboratory of so many leaves, spines and hosts.
    pub(crate) fn new(name: &str, size: [u8; 3]) -> Self {
        Self::with(fabric(name), size)
    }

    /// The same of a laboratory that is otherwise as given.
    pub(crate) fn with(lab: Builder, [leaves, spines, hosts]: [u8; 3]) -> Self {
        let lab = lab.size(leaves, spines, hosts).compute();
        Self {
            lab: lab.up().unwrap(),
            port: AtomicU16::new(19_000),
        }
    }

    /// Changes what a switch computes by, or how a host takes part in that, and starts its daemon
    /// again.
    pub(crate) fn configure(&self, node: &str, key: &str, value: impl Into<toml::Value>) {
        self.configure_all(node, [(key, value.into())]);
    }

    /// Changes several such keys.
    pub(crate) fn configure_all<'a>(
        &self,
        node: &str,
        pairs: impl IntoIterator<Item = (&'a str, toml::Value)>,
    ) {
        let (file, section) = match self.lab.hosts().contains(&node) {
            true => ("hostd.toml", "collective"),
            false => ("switchd.toml", "compute"),
        };
        let path = node_dir(self.lab.name(), node).join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut all: toml::Table = text.parse().unwrap();
        let section = all[section].as_table_mut().unwrap();
        let pairs = pairs.into_iter();
        section.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
        std::fs::write(&path, all.to_string()).unwrap();
        self.lab.restart(node).unwrap();
    }

    /// Gives a daemon a secret, a digit 64 times, and starts it again. With IPv6 it also asks by
    /// that from now on: a host its leaf, a leaf the spines.
    pub(crate) fn give_secret(&self, node: &str, digit: char, v6: bool) {
        let file = node_dir(self.lab.name(), node).join("compute.secret");
        let secret: String = std::iter::repeat_n(digit, 64).collect();
        std::fs::write(&file, secret).unwrap();
        let mut pairs = vec![("secret_file", file.display().to_string().into())];
        let plan = self.lab.plan();
        let above = plan.links.iter().filter(|link| link.lower.node == node);
        let address = |node: &str| plan.address(node, v6).unwrap().to_string();
        if self.lab.hosts().contains(&node) {
            let mut leaves = above.map(|link| &link.upper.node);
            pairs.push(("leaf", address(leaves.next().unwrap()).into()));
        } else if node.starts_with("leaf") {
            let parents = above.map(|link| link.upper.addresses[usize::from(v6)].0.to_string());
            pairs.push(("parents", parents.collect::<Vec<_>>().into()));
            pairs.push(("address", address(node).into()));
        }
        self.configure_all(node, pairs);
    }

    /// The value of a metric without labels of a daemon.
    pub(crate) fn metric(&self, node: &str, name: &str) -> u64 {
        let port = match self.lab.hosts().contains(&node) {
            true => 9102,
            false => 9101,
        };
        let url = format!("http://127.0.0.1:{port}/metrics");
        let said = self.lab.host(node).run(["curl", "-sf", &url]).unwrap();
        let said = said.expect_ok();
        let mut lines = said.lines().filter_map(|line| line.split_once(' '));
        let value = lines.find(|(it, _)| *it == name).map(|(_, value)| value);
        let value = value.unwrap_or_else(|| panic!("{node} has no {name}: {said}"));
        value.parse().unwrap()
    }

    /// Where rank 0 of the next group waits.
    pub(crate) fn root(&self) -> SocketAddr {
        self.root_by(false)
    }

    /// The same, by IPv6 if told so.
    pub(crate) fn root_by(&self, v6: bool) -> SocketAddr {
        let port = self.port.fetch_add(1, Ordering::Relaxed);
        SocketAddr::new(self.lab.host("h1").address(v6), port)
    }

    /// A session with the daemon of the host of a rank.
    pub(crate) fn session(&self, rank: usize) -> Context {
        let hosts = self.lab.hosts();
        let host = hosts[rank % hosts.len()];
        let socket = node_dir(self.lab.name(), host).join("hostd.sock");
        Context::connect_within(&socket, PATIENCE).unwrap()
    }

    /// Runs `member` for each of `size` ranks of a group, on a thread of its own; what they
    /// return. `meanwhile` runs on this one.
    pub(crate) fn group<T: Send>(
        &self,
        size: usize,
        member: impl Fn(Context, Group) -> T + Sync,
        meanwhile: impl FnOnce(),
    ) -> Vec<T> {
        self.group_at(self.root(), size, member, meanwhile)
    }

    /// The same, where rank 0 waits at `root`.
    pub(crate) fn group_at<T: Send>(
        &self,
        root: SocketAddr,
        size: usize,
        member: impl Fn(Context, Group) -> T + Sync,
        meanwhile: impl FnOnce(),
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let start = |rank| {
                let (context, member) = (self.session(rank), &member);
                scope.spawn(move || {
                    let group = enter(&context, root, rank, size).unwrap();
                    member(context, group)
                })
            };
            let threads: Vec<_> = (0..size).map(start).collect();
            meanwhile();
            let join = |thread: std::thread::ScopedJoinHandle<'_, T>| thread.join();
            let ends: Vec<_> = threads.into_iter().map(join).collect();
            let unwind = |panic| std::panic::resume_unwind(panic);
            let ends = ends.into_iter().map(|end| end.unwrap_or_else(unwind));
            ends.collect()
        })
    }

    /// `hostallreduce` as a rank, on its host.
    pub(crate) fn tool(&self, root: SocketAddr, rank: usize, words: &[&str]) -> Child {
        let hosts = self.lab.hosts();
        let mut command = self.lab.host(hosts[rank]).command(["hostallreduce"]);
        command
            .args(["--root", &root.ip().to_string()])
            .args(["--port", &root.port().to_string()])
            .args(["--rank", &rank.to_string()])
            .args(["--ranks", &hosts.len().to_string()])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// What a switch says of its jobs.
    pub(crate) fn jobs(&self, node: &str) -> Vec<Value> {
        rows(self.lab.switchctl(node, &["inc", "jobs"]).unwrap())
    }

    /// The number of the one job that runs at a switch.
    pub(crate) fn running(&self, node: &str) -> Option<u64> {
        let jobs = self.jobs(node);
        let mut running = jobs.iter().filter(|job| job["state"] == "running");
        let job = running.next()?["job"].as_u64();
        assert!(running.next().is_none(), "{jobs:?}");
        job
    }

    /// Names of all switches.
    pub(crate) fn switches(&self) -> impl Iterator<Item = &str> {
        let nodes = self.lab.plan().nodes.iter();
        let switches = nodes.filter(|node| node.role.is_switch());
        switches.map(|node| node.name.as_str())
    }

    /// How often hostd of a host counted that groups went on without switches, for this reason.
    pub(crate) fn fallbacks(&self, host: &str, reason: &str) -> bool {
        let status = self.lab.host(host).run(["hostctl", "status"]).unwrap();
        let status = status.expect_ok();
        let line = format!("fallbacks from switches: {reason}");
        status.contains(&line)
    }

    /// Whether hostd of a host has counted such for any reason.
    pub(crate) fn has_fallen_back(&self, host: &str) -> bool {
        self.fallbacks(host, "")
    }

    /// Bytes that a node has sent through an interface.
    pub(crate) fn sent(&self, node: &str, interface: &str) -> u64 {
        let file = format!("/sys/class/net/{interface}/statistics/tx_bytes");
        let said = self.lab.host(node).run(["cat", &file]).unwrap().expect_ok();
        said.trim().parse().unwrap()
    }

    /// The least that a collective of `size` members on vectors of `len` bytes adds to these two
    /// counts. The least of many short ones, for a leaf that waits for a core has its sums sent
    /// again.
    pub(crate) fn least_sent(
        &self,
        size: usize,
        len: usize,
        counts: impl Fn() -> [u64; 2] + Sync,
    ) -> [u64; 2] {
        let least = std::sync::Mutex::new([u64::MAX; 2]);
        let member = |context: Context, mut group: Group| {
            check(&context, &mut group, 4, 0).unwrap();
            for seed in 0..40 {
                group.barrier().unwrap();
                let before = counts();
                group.barrier().unwrap();
                check(&context, &mut group, len, seed).unwrap();
                if group.rank() == 0 {
                    let after = counts();
                    println!("{len} bytes: {before:?} before, {after:?} after");
                    let mut least = least.lock().unwrap();
                    *least = [0, 1].map(|it| least[it].min(after[it] - before[it]));
                }
            }
            assert!(group.uses_switches(), "{:?}", group.fallback());
        };
        self.group(size, member, || {});
        least.into_inner().unwrap()
    }
}

/// Sets a value when it is dropped, by a panic too: members that look for it end.
pub(crate) struct AtEnd<'a>(pub(crate) &'a AtomicUsize, pub(crate) usize);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Relaxed);
    }
}

/// Joins a group, or makes it as rank 0.
pub(crate) fn enter(
    context: &Context,
    root: SocketAddr,
    rank: usize,
    size: usize,
) -> Result<Group, GroupError> {
    let options = GroupOptions::default();
    if rank == 0 {
        Group::create(context, root.port(), size, options)
    } else {
        Group::join(context, root, rank, size, options)
    }
}

/// Whole numbers of a rank.
pub(crate) fn numbers(rank: usize, len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Pcg64Mcg::seed_from_u64(seed << 8 | rank as u64).fill_bytes(&mut bytes);
    bytes
}

/// The sum of the numbers of all ranks, in the type u32.
pub(crate) fn sum(size: usize, len: usize, seed: u64) -> Vec<u8> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let mut sum = vec![0_u32; len / 4];
    for rank in 0..size {
        for (sum, bytes) in sum.iter_mut().zip(numbers(rank, len, seed).chunks(4)) {
            *sum = sum.wrapping_add(word(bytes));
        }
    }
    sum.into_iter().flat_map(u32::to_le_bytes).collect()
}

pub(crate) fn region(context: &Context, bytes: &[u8]) -> Region {
    let region = context.allocate(bytes.len().max(1), Access::LOCAL_WRITE);
    let region = region.unwrap();
    region.write(0, bytes).unwrap();
    region
}

pub(crate) fn read(region: &Region, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes).unwrap();
    bytes
}

/// What rank 0 says, yes or no: an allreduce, so all go on at the same time.
pub(crate) fn told_by_root(context: &Context, group: &mut Group, own: bool) -> bool {
    let memory = region(context, &[u8::from(own && group.rank() == 0), 0, 0, 0]);
    let (sum, element) = (Operation::Sum, Element::U32);
    let vector = Vector::new(&memory, 0, 4);
    group.allreduce(sum, element, vector).unwrap();
    read(&memory, 4)[0] == 1
}

/// An allreduce of which every byte is compared.
pub(crate) fn check(
    context: &Context,
    group: &mut Group,
    len: usize,
    seed: u64,
) -> Result<(), GroupError> {
    let (rank, size) = (group.rank(), group.size());
    let memory = region(context, &numbers(rank, len, seed));
    let vector = Vector::new(&memory, 0, len);
    group.allreduce(Operation::Sum, Element::U32, vector)?;
    let right = read(&memory, len) == sum(size, len, seed);
    assert!(right, "rank {rank} of {size}: {len} bytes, seed {seed}");
    Ok(())
}
