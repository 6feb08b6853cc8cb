//! Frames from anywhere with anything in them: never a panic, never a lost frame, never a byte
//! where it does not belong (HT-3).

use crate::network::{MEMORY, Network};
use common::time::Span;
use common::wire::roce::frame;
use hostd::verbs::{
    Access, ConnectionParameters, DropReason, EngineConfig, MultipathConfig, SendOpcode,
};
use proptest::prelude::*;
use std::sync::LazyLock;

fn configs() -> [EngineConfig; 2] {
    [EngineConfig::default(), EngineConfig::default()]
}

/// Frames of a connection's whole life, connection set-up included.
fn recording() -> Vec<Vec<u8>> {
    let mut network = Network::new(1, configs());
    network.tap = Some(Vec::new());
    let qpns = [network.hosts[0].queue_pair(), network.hosts[1].queue_pair()];
    network.hosts[1].engine.listen(1).expect("free");
    let peer = network.hosts[1].address;
    let none = ConnectionParameters::default();
    network.hosts[0]
        .engine
        .connect(qpns[0], peer, 1, &none)
        .expect("legal");
    let mut accepted = false;
    network.run(Span::from_millis(20), |network| {
        for event in network.hosts[1].events.clone() {
            if let hostd::verbs::Event::ConnectRequest { connection, .. } = event
                && !accepted
            {
                accepted = true;
                let engine = &mut network.hosts[1].engine;
                engine.accept(connection, qpns[1], &none).expect("legal");
                network.hosts[1].receive_into(qpns[1], 1, 0, 10_000);
            }
        }
        false
    });
    let send = network.hosts[0].send(1, 0, 9000);
    network.hosts[0]
        .engine
        .post_send(qpns[0], send)
        .expect("connected");
    let mut write = network.hosts[0].send(1, 0, 3000);
    write.opcode = SendOpcode::RdmaWrite;
    write.rkey = network.hosts[1].keys.rkey;
    network.hosts[0]
        .engine
        .post_send(qpns[0], write)
        .expect("connected");
    network.pass(Span::from_millis(10));
    network.tap.take().expect("was set")
}

static RECORDING: LazyLock<Vec<Vec<u8>>> = LazyLock::new(recording);

/// A network in which everything is there that a frame could hit.
fn target(multipath: Option<MultipathConfig>) -> (Network, [u32; 2]) {
    let mut network = Network::new(1, configs());
    let qpns = network.connected(multipath);
    network.hosts[1].engine.listen(1).expect("free");
    for wr_id in 0..8 {
        network.hosts[1].receive_into(qpns[1], wr_id, 0, 10_000);
    }
    let send = network.hosts[0].send(1, 0, 50_000);
    network.hosts[0]
        .engine
        .post_send(qpns[0], send)
        .expect("connected");
    (network, qpns)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// HT-3: random bytes.
    #[test]
    fn any_bytes(frames in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let (mut network, _) = target(Some(MultipathConfig::default()));
        for bytes in &frames {
            network.inject(1, bytes);
        }
        network.pass(Span::from_millis(1));
        let drops = &network.hosts[1].engine.statistics().drops;
        prop_assert!(drops.total() >= frames.len() as u64);
        network.close();
    }

    /// HT-3: real frames with changed bytes behind a right checksum, repeated, cut, in any order,
    /// in the middle of a transfer.
    #[test]
    fn spoiled_frames(
        spoiled in proptest::collection::vec(
            (any::<prop::sample::Index>(), 42_usize..120, any::<u8>(), any::<bool>(), 0..60_usize),
            1..30,
        ),
        plain in any::<bool>(),
    ) {
        let frames = &*RECORDING;
        let (mut network, qpns) = target((!plain).then(MultipathConfig::default));
        for (which, at, value, own, cut) in spoiled {
            let mut bytes = which.get(frames).clone();
            let len = bytes.len();
            if at < len - 4 {
                bytes[at] = value;
            }
            if own {
                // To a queue pair that is there.
                let qpn = qpns[1].to_be_bytes();
                bytes[47..50].copy_from_slice(&qpn[1..]);
            }
            let _ = frame::seal(&mut bytes);
            if cut > 50 {
                bytes.truncate(len - cut);
            }
            network.inject(1, &bytes);
            network.inject(0, &bytes);
            network.pass(Span::from_micros(10));
        }
        network.pass(Span::from_millis(30));
        network.close();
    }
}

/// HT-3, HT-10: frames that are well-formed but not for this connection are dropped, each for its
/// reason.
#[test]
fn strangers_are_dropped_for_their_reason() {
    let frames = &*RECORDING;
    // The first data packet of host 0, by its opcode.
    let data = frames
        .iter()
        .find(|frame| frame[42] == 0xc0)
        .expect("recorded")
        .clone();
    type Spoil = fn(&mut Vec<u8>);
    let cases: [(Spoil, DropReason); 9] = [
        (|_| (), DropReason::UnknownQueuePair),
        (|frame| frame[12] = 9, DropReason::NotRoce),
        (|frame| frame[36] = 9, DropReason::NotRoce),
        (|frame| frame[70] ^= 1, DropReason::BadIcrc),
        (|frame| frame.truncate(50), DropReason::MalformedHeaders),
        (|frame| frame[24] ^= 1, DropReason::MalformedHeaders),
        (
            |frame| {
                frame[43] |= 1;
                frame::seal(frame).expect("a frame");
            },
            DropReason::MalformedTransport,
        ),
        (
            |frame| {
                frame[42] = 0x3f;
                frame::seal(frame).expect("a frame");
            },
            DropReason::UnknownOpcode,
        ),
        (
            |frame| {
                frame[44] = 0;
                frame::seal(frame).expect("a frame");
            },
            DropReason::WrongPartition,
        ),
    ];
    for (spoil, reason) in cases {
        let mut network = Network::new(99, configs());
        let mut bytes = data.clone();
        spoil(&mut bytes);
        network.inject(1, &bytes);
        let drops = &network.hosts[1].engine.statistics().drops;
        assert_eq!(
            (drops.get(reason), drops.total()),
            (1, 1),
            "{reason}: {drops:?}"
        );
        network.close();
    }
}

/// HT-3: packets from another host than the connection's, or for its queue pair in another mode, or
/// before it is ready, change nothing.
#[test]
fn only_the_peer_is_heard() {
    let frames = &*RECORDING;
    let data = frames
        .iter()
        .find(|frame| frame[42] == 0xc0)
        .expect("recorded");
    let mut network = Network::new(1, configs());
    let fresh = network.hosts[1].queue_pair();
    let aim = |qpn: u32, opcode: u8, source: u8| {
        let mut bytes = data.clone();
        bytes[42] = opcode;
        bytes[29] = source;
        bytes[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
        // Ahead of what was sent.
        bytes[51..54].copy_from_slice(&[0xff, 0xff, 0xf5]);
        // The IPv4 header's checksum.
        let mut header = common::wire::ip::v4::Packet::new_checked(&mut bytes[14..34]);
        if let Ok(header) = &mut header {
            header.set_traffic_class(0);
        }
        bytes
    };
    network.inject(1, &sealed(aim(fresh, 0xc0, 1)));
    let [_, receiver] = network.connected(None);
    network.inject(1, &sealed(aim(receiver, 0xc0, 1)));
    network.inject(1, &sealed(aim(receiver, 0x00, 9)));
    network.inject(1, &sealed(aim(receiver, 0x10, 1)));
    let drops = network.hosts[1].engine.statistics().drops.clone();
    assert_eq!(drops.get(DropReason::QueuePairState), 1, "{drops:?}");
    assert_eq!(drops.get(DropReason::WrongPeer), 1, "{drops:?}");
    assert_eq!(drops.get(DropReason::UnknownOpcode), 1, "{drops:?}");
    // An answer that nobody asked for.
    let impossible = drops.get(DropReason::ImpossibleAcknowledgement);
    assert_eq!(impossible, 1, "{drops:?}");
    assert_eq!(drops.total(), 4, "{drops:?}");
    network.close();
}

/// Rewrites header checksum and ICRC.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[24..26].fill(0);
    let checksum = common::wire::checksum::of(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame::seal(&mut bytes).expect("a frame");
    bytes
}

/// HT-3: a region that is not open to peers is not written by them, though they know its key.
#[test]
fn a_regions_rights_count() {
    let mut network = Network::new(2, configs());
    let [sender, _] = network.connected(None);
    let own = Access::LOCAL_WRITE;
    let memory = network.hosts[1].memory.clone();
    let domain = network.hosts[1].domain;
    let keys = network.hosts[1]
        .engine
        .register(domain, memory, 0, own)
        .expect("room");
    let mut write = network.hosts[0].send(1, 0, 100);
    write.opcode = SendOpcode::RdmaWrite;
    write.rkey = keys.rkey;
    network.fill(0);
    network.hosts[0]
        .engine
        .post_send(sender, write)
        .expect("room");
    network.pass(Span::from_millis(5));
    assert_eq!(network.hosts[1].memory.to_vec(), vec![0; MEMORY]);
    network.close();
}
