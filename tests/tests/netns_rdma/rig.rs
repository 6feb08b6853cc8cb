//! The laboratory with the guest in it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use guest::{Guest, Nic, Options};
use hostd_client::Context;
use lab::capture::dissect;
use lab::observe::{drops, fabric};
use lab::{Lab, exclusive, namespace, node_dir};
use nix::fcntl::Flock;
use serde_json::Value;

use crate::dissection::assert_well_formed;

/// Longest time for anything in the guest.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Address of the guest's interface.
pub(crate) const MAC: &str = "02:00:00:00:00:02";

/// The rig that tests use just now.
static SHARED: Mutex<Weak<Mutex<Rig>>> = Mutex::new(Weak::new());

/// h1, on which hostd runs, and the guest in the place of h2, two tiers of switches away.
pub(crate) struct Rig {
    // In the order in which they go.
    pub(crate) guest: Guest,
    /// The guest goes with the thread that has booted it, which ends when this does.
    _keeper: Sender<()>,
    pub(crate) lab: Lab,
    /// What was lost before this test.
    lost_before: u64,
    _alone: Flock<std::fs::File>,
}

/// Has `test` use the rig alone. The first test puts it up; the next one takes it over, for it
/// waits here meanwhile. Does nothing where there can be no guest.
#[track_caller]
pub(crate) fn with(test: impl FnOnce(&mut Rig)) {
    if !guest::available() {
        return;
    }
    loop {
        let shared = {
            let mut place = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            place.upgrade().unwrap_or_else(|| {
                let rig = Arc::new(Mutex::new(Rig::new()));
                *place = Arc::downgrade(&rig);
                rig
            })
        };
        if let Ok(mut rig) = shared.lock() {
            rig.afresh();
            return test(&mut rig);
        }
        // A test has failed in it, and nobody knows how it is now. All who wait let it go.
        let spoiled = Arc::downgrade(&shared);
        drop(shared);
        let mut place = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if place.ptr_eq(&spoiled) {
            *place = Weak::new();
        }
    }
}

impl Rig {
    fn new() -> Self {
        let alone = exclusive().unwrap();
        let lab = fabric("roce").size(2, 1, 2).mtu(9000).tap("leaf1", "h1");
        let lab = lab.up().unwrap();
        lab.stop("h2").unwrap();
        let [address, v6] = [false, true].map(|v6| lab.host("h2").address(v6));
        for line in [
            "ip tuntap add dev guest mode tap",
            "ip link set guest mtu 9000 up",
            "ip link add bridge mtu 9000 type bridge forward_delay 0 mcast_snooping 0",
            "ip address flush dev leaf2",
            "ip link set leaf2 master bridge",
            "ip link set guest master bridge",
            "ip link set bridge up",
        ] {
            let output = lab.host("h2").run(line.split(' ')).unwrap();
            output.expect_ok();
        }
        let nic = Nic {
            namespace: namespace(lab.name(), "h2"),
            tap: "guest".to_owned(),
            mac: MAC.to_owned(),
        };
        let (guest, keeper) = boot(Options {
            nic: Some(nic),
            ..Options::default()
        });
        let mut rig = Self {
            guest,
            _keeper: keeper,
            lab,
            lost_before: 0,
            _alone: alone,
        };
        rig.inside(&format!(
            "set -e
            modprobe virtio_net
            ip link set eth0 mtu 9000 up
            ip address add {address}/24 dev eth0
            ip route add default via {}
            ip address add {v6}/64 dev eth0 nodad
            ip -6 route add default via {}
            # No dependency leads from rdma_rxe to it, and without it there is no device.
            modprobe crc32_generic
            modprobe rdma_ucm
            ulimit -l unlimited",
            gateway(address),
            gateway(v6)
        ));
        rig
    }

    /// A new Soft-RoCE device, whose counters are zero.
    fn afresh(&mut self) {
        self.inside(
            "set -e
            if rdma link show rxe0/1 >/dev/null 2>&1; then rdma link delete rxe0; fi
            rdma link add rxe0 type rxe netdev eth0
            rdma link show rxe0/1 | grep -q 'state ACTIVE'",
        );
        self.lost_before = self.lost();
    }

    /// Runs a script in the guest, which must succeed.
    pub(crate) fn inside(&mut self, script: &str) -> String {
        let output = self.guest.run(script, LIMIT);
        output.unwrap_or_else(|error| panic!("{error}")).expect_ok()
    }

    /// Waits until something in the guest listens at a TCP port.
    pub(crate) fn await_port(&mut self, port: usize) {
        self.inside(&format!(
            "until ss -ltn | grep -q :{port}; do sleep 0.1; done"
        ));
    }

    /// Waits until something in the guest listens for connections of RDMA CM.
    pub(crate) fn await_listener(&mut self) {
        self.inside("until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done");
    }

    /// An application's session with h1's hostd.
    pub(crate) fn application(&self) -> Context {
        let socket = node_dir(self.lab.name(), "h1").join("hostd.sock");
        Context::connect(&socket).unwrap()
    }

    /// The guest's IPv4 address.
    pub(crate) fn address(&self) -> IpAddr {
        self.lab.host("h2").address(false)
    }

    /// The index of the GID that an address of the guest has.
    pub(crate) fn gid(&mut self, address: IpAddr) -> String {
        let bits = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let words: Vec<_> = bits
            .segments()
            .iter()
            .map(|it| format!("{it:04x}"))
            .collect();
        let folder = "/sys/class/infiniband/rxe0/ports/1/gids";
        let script = format!(
            "until grep -l {0} {folder}/* 2>/dev/null | head -1 | grep .; do sleep 0.1; done",
            words.join(":")
        );
        let found = self.inside(&script);
        let (_, index) = found
            .trim()
            .rsplit_once('/')
            .expect("the address has a GID");
        index.to_owned()
    }

    /// What the guest's device has counted during this test.
    pub(crate) fn counters(&mut self) -> Value {
        let text = self.inside("rdma -j statistic show link rxe0/1");
        let mut counters: Value = serde_json::from_str(&text).unwrap();
        counters[0].take()
    }

    /// Packets that were lost since the laboratory was put up, as the daemons and the kernel's
    /// devices have counted them.
    fn lost(&self) -> u64 {
        let daemons: u64 = drops(&self.lab).unwrap().values().sum();
        let nodes = self.lab.plan().nodes.iter();
        let devices = nodes.map(|node| {
            let node = self.lab.node(&node.name).unwrap();
            let output = node.run(["ip", "-j", "-s", "link"]).unwrap();
            let links: Value = serde_json::from_str(&output.expect_ok()).unwrap();
            let sums = links.as_array().unwrap().iter().flat_map(|link| {
                ["rx", "tx"].map(|way| link["stats64"][way]["dropped"].as_u64().unwrap_or(0))
            });
            sums.sum::<u64>()
        });
        daemons + devices.sum::<u64>()
    }

    /// Fails unless the guest's device has counted no error of its peer's protocol in this test,
    /// and a capture of what passed has no malformed frame. A machine that does much else may lose
    /// packets, and hostd asks for these again: no more than were lost.
    pub(crate) fn assert_understood(&mut self, file: &Path) {
        let lost = self.lost() - self.lost_before;
        self.assert_counted(file, &[("rcvd_seq_err", lost), ("out_of_seq_request", 0)]);
    }

    /// The same of a test that loses packets itself: only errors of which nobody recovers count.
    pub(crate) fn assert_recovered(&mut self, file: &Path) {
        self.assert_counted(file, &[]);
    }

    /// Fails when the guest's device has counted more than these, or any error that ends requests.
    fn assert_counted(&mut self, file: &Path, limits: &[(&str, u64)]) {
        let counters = self.counters();
        let fatal = ["retry_exceeded_err", "retry_rnr_exceeded_err", "send_err"];
        let fatal = fatal.map(|name| (name, 0));
        for &(name, limit) in limits.iter().chain(&fatal) {
            let value = counters[name].as_u64();
            let value = value.unwrap_or_else(|| panic!("no {name}: {counters}"));
            assert!(
                value <= limit,
                "{name} exceeds {limit}: {counters}{}",
                around_naks(file)
            );
        }
        let sent = counters["sent_pkts"].as_u64();
        assert!(sent.is_some_and(|sent| sent > 0), "{counters}");
        assert_well_formed(file);
    }
}

/// What passed before each NAK of a PSN sequence error in a capture, a line a packet.
fn around_naks(file: &Path) -> String {
    let naks = dissect(file, "infiniband.aeth.syndrome == 0x60", &["frame.number"]).unwrap();
    let mut text = String::new();
    for nak in naks.iter().take(3) {
        let last: u64 = nak.parse().unwrap();
        let filter = format!(
            "frame.number >= {} && frame.number <= {last}",
            last.saturating_sub(40)
        );
        let fields = [
            "frame.time_relative",
            "ip.src",
            "ipv6.src",
            "infiniband.bth.opcode",
            "infiniband.bth.psn",
            "infiniband.aeth.syndrome",
        ];
        for line in dissect(file, &filter, &fields).unwrap() {
            text.push('\n');
            text.push_str(&line);
        }
    }
    text
}

/// Boots a guest that lives until it is dropped or the other value is.
fn boot(options: Options) -> (Guest, Sender<()>) {
    let (keeper, until) = channel::<()>();
    let (give, take) = channel();
    std::thread::spawn(move || {
        // The test may have ended.
        let _ = give.send(Guest::boot(&options));
        let _ = until.recv();
    });
    let guest = take.recv().expect("the thread says how it went");
    (guest.unwrap_or_else(|error| panic!("{error}")), keeper)
}

/// The leaf's address on the link of a host.
fn gateway(host: IpAddr) -> String {
    let text = host.to_string();
    let mark = if host.is_ipv6() { ':' } else { '.' };
    let (network, _) = text.rsplit_once(mark).expect("an address");
    format!("{network}{mark}1")
}
