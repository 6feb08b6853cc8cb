//! Soft-RoCE as a peer: the RDMA of a Linux kernel that nobody here wrote, in a guest behind a
//! switch.
//!
//! The guest takes the place of a host: its interface `eth0` is a tap in the namespace of h2, in a
//! bridge with the link to the leaf, and has the address that h2 had.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use guest::{Guest, Nic, Options};
use hostd_client::{Access, CompletionStatus, Context, Private, QueuePairOptions, SendRequest};
use lab::capture::dissect;
use lab::observe::{assert_healthy, fabric, rows, switches};
use lab::{Lab, exclusive, namespace, node_dir};

/// Longest time for anything in the guest.
const LIMIT: Duration = Duration::from_secs(120);

/// Address of the guest's interface.
const MAC: &str = "02:00:00:00:00:02";

/// Where `rping` listens.
const PORT: u16 = 7174;

/// A leaf with h1, on which hostd runs, and the guest in the place of h2.
struct Rig {
    guest: Guest,
    lab: Lab,
}

impl Rig {
    fn new(lab: Lab) -> Self {
        let address = lab.host("h2").address(false);
        for line in [
            "ip tuntap add dev guest mode tap",
            "ip link set guest mtu 3000 up",
            "ip link add bridge type bridge forward_delay 0 mcast_snooping 0",
            "ip address flush dev leaf1",
            "ip link set leaf1 master bridge",
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
        let options = Options {
            nic: Some(nic),
            ..Options::default()
        };
        let guest = Guest::boot(&options).unwrap_or_else(|error| panic!("{error}"));
        let mut rig = Self { guest, lab };
        rig.inside(&format!(
            "set -e
            modprobe virtio_net
            ip link set eth0 mtu 3000 up
            ip address add {address}/24 dev eth0
            ip route add default via {}
            # No dependency leads from rdma_rxe to it, and without it there is no device.
            modprobe crc32_generic
            modprobe rdma_ucm
            rdma link add rxe0 type rxe netdev eth0
            rdma link show rxe0/1 | grep -q 'state ACTIVE'",
            gateway(address)
        ));
        rig
    }

    /// Runs a script in the guest, which must succeed.
    fn inside(&mut self, script: &str) -> String {
        let output = self.guest.run(script, LIMIT);
        output.unwrap_or_else(|error| panic!("{error}")).expect_ok()
    }

    fn address(&self) -> IpAddr {
        self.lab.host("h2").address(false)
    }
}

/// The leaf's address on the link of a host.
fn gateway(host: IpAddr) -> String {
    let text = host.to_string();
    let (network, _) = text.rsplit_once('.').expect("an IPv4 address");
    format!("{network}.1")
}

/// SW-1: a Soft-RoCE device behind a switch is up, and answers through it.
#[test]
fn a_soft_roce_device_is_behind_the_switch() {
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::new(switches("roceup").size(1, 1, 2).up().unwrap());
    let devices = rig.inside("ibv_devinfo -d rxe0");
    assert!(devices.contains("PORT_ACTIVE"), "{devices}");
    let guest = rig.address().to_string();
    let words = ["ping", "-n", "-c", "5", "-i", "0.2", "-W", "5", &guest];
    let answers = rig.lab.host("h1").run(words).unwrap().expect_ok();
    assert!(answers.contains("5 received"), "{answers}");
    let ports = rows(rig.lab.switchctl("leaf1", &["show", "ports"]).unwrap());
    for port in ports.iter().filter(|port| port["name"] != "spine1") {
        assert_eq!(port["punted"], 0, "switchd has forwarded: {port}");
        assert!(port["tx_packets"].as_u64() >= Some(5), "{port}");
    }
    assert_healthy(&rig.lab, &[]);
}

/// Values of a field in the frames that a filter selects, as numbers.
fn numbers(file: &Path, filter: &str, field: &str) -> BTreeSet<u32> {
    let number = |text: &String| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let lines = dissect(file, filter, &[field]).unwrap();
    lines.iter().map(number).collect()
}

/// What h1 sees of the fabric while its hostd connects to the guest and sends 16 bytes, and how
/// that ends.
fn send_one(rig: &Rig) -> (PathBuf, CompletionStatus) {
    let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
    let socket = node_dir(rig.lab.name(), "h1").join("hostd.sock");
    let context = Context::connect(&socket).unwrap();
    let mut completions = context.create_completion_queue(8).unwrap();
    let options = QueuePairOptions::default();
    let pair = context.create_queue_pair(&completions, &completions, options);
    let mut pair = pair.unwrap();
    let peer = SocketAddr::new(rig.address(), PORT);
    let connected = pair.connect(peer, Private::EMPTY, LIMIT).unwrap();
    // A standard peer negotiates nothing.
    assert_eq!((connected.paths, connected.mtu), (1, 2048));
    let region = context.allocate(16, Access::LOCAL_WRITE).unwrap();
    // What rping tells of a buffer: address, key and length.
    let advertised = [
        &0x5678_abcd_u64.to_be_bytes()[..],
        &0x1234_u32.to_be_bytes(),
        &48_u32.to_be_bytes(),
    ];
    region.write(0, &advertised.concat()).unwrap();
    let request = SendRequest::send(7, region.slice(0, 16).unwrap());
    pair.post_send(&request).unwrap();
    let completion = completions.next(LIMIT).unwrap();
    (capture.stop().unwrap(), completion.status)
}

/// HT-10: hostd and a Soft-RoCE device connect, and it takes the first SEND, with the bytes that
/// were sent. No frame between them is malformed.
///
/// Each side begins at the PSN that the other has announced (IBTA 12.6.5, Starting PSN: at which
/// the *remote* node begins to transmit). `rping` then reads from the buffer that the SEND told it
/// of, which hostd does not serve, and ends.
#[test]
fn a_soft_roce_device_takes_the_first_send() {
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("roceone").size(1, 1, 2).tap("leaf1", "h1").up();
    let lab = lab.unwrap();
    lab.stop("h2").unwrap();
    let mut rig = Rig::new(lab);
    let server = format!("ulimit -l unlimited; exec rping -s -d -v -C 1 -p {PORT}");
    let server = rig.guest.start(&server).unwrap();
    rig.inside("until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done");
    let (file, status) = send_one(&rig);
    assert_eq!(status, CompletionStatus::Success);
    let output = rig.guest.wait(server, LIMIT).unwrap();
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(
        said.contains("Received rkey 1234 addr 5678abcd len 48 from peer"),
        "{said}"
    );
    assert!(
        dissect(&file, "_ws.malformed", &["frame.number"])
            .unwrap()
            .is_empty()
    );
    let ours = numbers(&file, "infiniband.cm.req", "infiniband.cm.req.startpsn");
    let theirs = numbers(&file, "infiniband.cm.rep", "infiniband.cm.rep.startpsn");
    assert_ne!(ours, theirs);
    let sent = numbers(&file, "infiniband.bth.opcode == 4", "infiniband.bth.psn");
    assert_eq!(sent, theirs, "hostd begins with the PSN of its peer's REP");
    let read = numbers(&file, "infiniband.bth.opcode == 12", "infiniband.bth.psn");
    assert!(
        read.is_subset(&ours),
        "the guest with that of hostd's REQ: {read:?}"
    );
}
