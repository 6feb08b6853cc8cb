//! A device that is up behind the switches, and connection set-up with it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hostd_client::{Access, CompletionStatus, Private, QueuePairOptions, SendRequest};
use lab::capture::dissect;
use lab::observe::rows;

use crate::dissection::{assert_well_formed, numbers};
use crate::peer::Meeting;
use crate::rig::{self, LIMIT, Rig};
use crate::talk::Talk;

/// Where `rping` listens.
const PORT: u16 = 7173;

/// What hostd's application tells the other one in the REQ.
const SAID: &[u8] = b"said in the request";

/// SW-1: a Soft-RoCE device behind switches is up, and answers through them.
#[test]
fn a_soft_roce_device_is_behind_the_switches() {
    rig::with(|rig| {
        let devices = rig.inside("ibv_devinfo -d rxe0");
        assert!(devices.contains("PORT_ACTIVE"), "{devices}");
        let ports = |rig: &Rig| {
            let mut ports = rows(rig.lab.switchctl("leaf2", &["show", "ports"]).unwrap());
            ports.sort_by_key(|port| port["name"].to_string());
            ports
        };
        let before = ports(rig);
        let guest = rig.address().to_string();
        let words = ["ping", "-n", "-c", "5", "-i", "0.2", "-W", "5", &guest];
        let answers = rig.lab.host("h1").run(words).unwrap().expect_ok();
        assert!(answers.contains("5 received"), "{answers}");
        for (before, after) in before.iter().zip(&ports(rig)) {
            let gain = |key: &str| after[key].as_u64().unwrap() - before[key].as_u64().unwrap();
            assert!(gain("tx_packets") >= 5, "switchd has forwarded: {after}");
            assert!(gain("punted") < 5, "and not the kernel: {after}");
        }
    });
}

/// What h1 sees of the fabric while its hostd connects to the guest and sends 16 bytes, and how
/// that ends.
fn send_one(rig: &Rig) -> (PathBuf, CompletionStatus) {
    let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
    let context = rig.application();
    let mut completions = context.create_completion_queue(8).unwrap();
    let options = QueuePairOptions::default();
    let pair = context.create_queue_pair(&completions, &completions, options);
    let mut pair = pair.unwrap();
    let peer = SocketAddr::new(rig.address(), PORT);
    let connected = pair.connect(peer, Private::new(SAID).unwrap(), LIMIT);
    let connected = connected.unwrap();
    // A standard peer negotiates nothing.
    assert_eq!((connected.paths, connected.mtu), (1, 4096));
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
    rig::with(|rig| {
        let server = format!("ulimit -l unlimited; exec rping -s -d -v -C 1 -p {PORT}");
        let server = rig.guest.start(&server).unwrap();
        rig.await_listener();
        let (file, status) = send_one(rig);
        assert_eq!(status, CompletionStatus::Success);
        let output = rig.guest.wait(server, LIMIT).unwrap();
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(
            said.contains("Received rkey 1234 addr 5678abcd len 48 from peer"),
            "{said}"
        );
        assert_well_formed(&file);
        let ours = numbers(&file, "infiniband.cm.req", "infiniband.cm.req.startpsn");
        let theirs = numbers(&file, "infiniband.cm.rep", "infiniband.cm.rep.startpsn");
        assert_ne!(ours, theirs);
        let sent = numbers(&file, "infiniband.bth.opcode == 4", "infiniband.bth.psn");
        assert_eq!(sent, theirs, "hostd begins with the PSN of its peer's REP");
        let private = ["infiniband.cm.req.ip_cm.private"];
        let said = dissect(&file, "infiniband.cm.req", &private).unwrap();
        let hex: String = SAID.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(
            !said.is_empty() && said.iter().all(|it| it.replace(':', "").starts_with(&hex)),
            "where a standard application reads it: {said:?}"
        );
        let read = numbers(&file, "infiniband.bth.opcode == 12", "infiniband.bth.psn");
        assert!(
            read.is_subset(&ours),
            "the guest with that of hostd's REQ: {read:?}"
        );
    });
}

/// HT-10, HT-24: the guest answers the probes of a connection on which hostd has sent nothing yet:
/// after a silence of 16 seconds, by which a peer that is gone is given up, data flows.
#[test]
fn a_silent_soft_roce_device_is_known_to_live() {
    rig::with(|rig| {
        let mut talk = Talk::begin(rig, Meeting::new(7006, false, 1024));
        talk.guest_sends("send", 100);
        let mut other = Talk::begin(rig, Meeting::new(7007, true, 1024));
        std::thread::sleep(Duration::from_secs(16));
        let pairs = rows(rig.lab.hostctl("h1", &["show", "qps"]).unwrap());
        let probes = pairs.iter().map(|row| row["keep_alives"].as_u64().unwrap());
        assert!(probes.clone().all(|probes| probes > 0), "{pairs:?}");
        other.guest_sends("send", 100);
        talk.hostd_sends(false, None, 100);
        talk.end(rig);
        other.end(rig);
    });
}
