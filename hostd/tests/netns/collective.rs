//! Collectives that a switch computes: the daemon itself, over a real link and the steering
//! program, against a switch that is a UDP socket of the kernel at the other end.

use crate::switch::Switch;
use crate::{Host, Link, PATIENCE, Process, configure, program};
use common::reduce::reduce_in_order;
use common::wire::compute;
use hostd_client::abi::collective::FailureReason;
use hostd_client::compute::{Element, Member, Membership, Operation};
use hostd_client::{Access, Context, Error, Region, Slice};
use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const JOB: u32 = 0x00c0_ffee;
const LEN: usize = 40_000;
const MEMBERS: u16 = 4;

/// A switch in the namespace of a host, until it is dropped.
struct Leaf {
    dead: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Leaf {
    fn start(host: &Host, mut switch: Switch) -> Self {
        let bind = || UdpSocket::bind((host.address.as_str(), compute::PORT));
        let socket = netns::inside(host.namespace.name(), bind).expect("a namespace");
        let socket = socket.expect("the port is free");
        let own = socket.local_addr().expect("an address").ip();
        let pause = Some(Duration::from_millis(20));
        socket.set_read_timeout(pause).expect("a time-out");
        let dead = Arc::new(AtomicBool::new(false));
        let stopped = dead.clone();
        let thread = std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else {
                    continue;
                };
                assert_eq!(from.port(), compute::PORT);
                for answer in switch.answer((from.ip(), own), &bytes[..len]) {
                    socket.send_to(&answer, from).expect("sent");
                }
            }
        });
        Self {
            dead,
            thread: Some(thread),
        }
    }

    /// From now on nobody answers.
    fn kill(&mut self) {
        self.dead.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("members keep the rules");
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.kill();
        }
    }
}

/// Whole elements of small values, so that no float is rounded.
fn vector(element: Element, rank: u16) -> Vec<u8> {
    let size = element.len();
    let value = |index: usize| u8::try_from((index + usize::from(rank)) % 2).expect("small");
    let ones: &[u8] = match element {
        Element::F16 => &[0x00, 0x3c],
        Element::Bf16 => &[0x80, 0x3f],
        Element::F32 => &[0, 0, 0x80, 0x3f],
        Element::F64 => &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        _ => &[7, 1, 0, 0, 0, 0, 0, 0],
    };
    let of = |index: usize| ones[..size].iter().map(move |it| it * value(index));
    (0..LEN / size).flat_map(of).collect()
}

/// What comes of the vectors of all members.
fn expected(operation: Operation, element: Element) -> Vec<u8> {
    let vectors: Vec<_> = (0..MEMBERS).map(|rank| vector(element, rank)).collect();
    let mut operations = compute::Operation::ALL.into_iter();
    let wire_operation = operations.find(|it| *it as u8 == operation as u8);
    let mut elements = compute::Element::ALL.into_iter();
    let wire_element = elements.find(|it| *it as u8 == element as u8);
    let (operation, element) = wire_operation.zip(wire_element).expect("the same numbers");
    let mut into = vec![0; LEN];
    let vectors = vectors.iter().map(Vec::as_slice);
    reduce_in_order(operation, element, &mut into, vectors).expect("of one length");
    into
}

/// HT-50, SW-41: members on a host sum vectors of all types through the switch with the right
/// result, though packets are lost; when the switch falls silent each has an error that says so,
/// within 3 s.
#[test]
fn members_reduce_through_the_switch() {
    if !netns::privileged() {
        return;
    }
    let mut link = Link::new();
    link.hosts[1].end("-TERM");
    let address = link.hosts[1].address.clone();
    let settings = format!("[collective]\nleaf = '{address}'\n");
    configure(&mut link.hosts[0], &settings);
    let mut leaf = Leaf::start(&link.hosts[1], Switch::new(JOB, MEMBERS.into(), None, 101));
    let mut members = sum_all(&link.hosts[0]);
    leaf.kill();
    lose_the_switch(&link.hosts[0], &mut members);
    drop(members);
    let host = &link.hosts[0];
    host.wait_for("all are gone", || host.show("collective").is_empty());
}

/// HT-50, SW-40: the same with switchd for the switch, which is killed at the end.
#[test]
fn members_reduce_through_switchd() {
    if !netns::privileged() {
        return;
    }
    if !program("switchd").exists() {
        return netns::skip("switchd is not built");
    }
    let mut link = Link::new();
    link.hosts[1].end("-TERM");
    let address = link.hosts[1].address.clone();
    let settings = format!("[collective]\nleaf = '{address}'\n");
    configure(&mut link.hosts[0], &settings);
    let leaf = &link.hosts[1];
    let admin = leaf.folder.path().join("switchd.sock");
    let log = std::fs::File::create(leaf.folder.path().join("log")).expect("a log");
    let config = leaf.folder.path().join("switchd.toml");
    let text = format!(
        "ports = ['eth0']\n[admin]\nsocket = '{}'\n[metrics]\nlisten = ''\n[compute]\nenabled = true\n",
        admin.display()
    );
    std::fs::write(&config, text).expect("written");
    let mut command = leaf.command("switchd");
    command.arg("-c").arg(config);
    let daemon = command.stdout(Stdio::null()).stderr(log).spawn();
    let switch = Process(daemon.expect("it starts"));
    leaf.wait_for("switchd is ready", || admin.exists());
    let mut members = sum_all(&link.hosts[0]);
    // `ip netns exec` becomes the daemon: it is what is killed.
    drop(switch);
    lose_the_switch(&link.hosts[0], &mut members);
}

/// All members of a host join, and sum vectors of all types.
fn sum_all(host: &Host) -> Vec<(Member, Region)> {
    let socket = host.folder.path().join("hostd.sock");
    let mut members = Vec::new();
    std::thread::scope(|scope| {
        let socket = &socket;
        let joined = (0..MEMBERS).map(|rank| {
            scope.spawn(move || {
                let context = Context::connect(socket).expect("a session");
                let region = context.allocate(LEN, Access::LOCAL_WRITE).expect("memory");
                let membership = Membership::new(JOB, 1, rank, MEMBERS);
                let mut member = Member::join(&context, &membership, PATIENCE).expect("joined");
                let all = region.slice(0, LEN).expect("inside");
                for element in Element::ALL {
                    region.write(0, &vector(element, rank)).expect("inside");
                    let with = (Operation::Sum, element);
                    member.allreduce(with, all, all, PATIENCE).expect("reduced");
                    let mut result = vec![0; LEN];
                    region.read(0, &mut result).expect("inside");
                    assert!(result == expected(Operation::Sum, element), "{element:?}");
                }
                (member, region)
            })
        });
        let joined: Vec<_> = joined.collect();
        members.extend(joined.into_iter().map(|it| it.join().expect("reduced")));
    });
    let rows = host.show("collective");
    assert_eq!(rows.len(), usize::from(MEMBERS), "{rows:?}");
    assert!(
        rows.iter()
            .all(|row| row["completed"] == 8 && row["phase"] == "running"),
        "{rows:?}"
    );
    members
}

/// Nobody answers any more: each member of a host has an error that says so.
fn lose_the_switch(host: &Host, members: &mut [(Member, Region)]) {
    let from = Instant::now();
    for (member, region) in members {
        let all: Slice = region.slice(0, LEN).expect("inside");
        let with = (Operation::Sum, Element::I32);
        let error = member
            .allreduce(with, all, all, PATIENCE)
            .expect_err("nobody answers");
        let lost = matches!(
            error,
            Error::Collective {
                reason: FailureReason::SwitchLost,
                rank: None,
                done: 0,
            }
        );
        assert!(lost, "{error}");
    }
    let after = from.elapsed();
    assert!(
        after < Duration::from_secs(3),
        "all within a lease and a quarter: {after:?}"
    );
    assert!(
        host.show("collective")
            .iter()
            .all(|row| row["end"] == "switch_lost")
    );
}
