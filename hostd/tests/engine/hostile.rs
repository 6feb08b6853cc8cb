//! Frames from anywhere with anything in them: never a panic, never a lost frame, never a byte
//! where it does not belong (HT-3).

use crate::network::{COOKIES, MEMORY, Network, PEERS};
use common::time::Span;
use common::wire::roce::frame;
use hostd::memory::HeapMemory;
use hostd::verbs::{
    Access, ConnectionParameters, DropReason, EngineConfig, MultipathConfig, SendOpcode, Status,
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

/// What no frame may change: a region that is not open to peers, and one of another domain.
struct Closed {
    memories: [HeapMemory; 2],
    rkeys: [u32; 2],
}

impl Closed {
    fn new(network: &mut Network) -> Self {
        let host = &mut network.hosts[1];
        let other = host.engine.create_domain().expect("room");
        let memories = [0x5a, 0xa5].map(|byte| HeapMemory::new(vec![byte; 8192]));
        let rights = [Access::LOCAL_WRITE, Access::LOCAL_WRITE | PEERS];
        let mut rkeys = [0; 2];
        for (n, domain) in [host.domain, other].into_iter().enumerate() {
            let memory = memories[n].clone();
            let keys = host.engine.register(domain, memory, 0, rights[n]);
            rkeys[n] = keys.expect("room").rkey;
        }
        Self { memories, rkeys }
    }

    fn is_untouched(&self) -> bool {
        self.memories[0].to_vec() == vec![0x5a; 8192]
            && self.memories[1].to_vec() == vec![0xa5; 8192]
    }
}

/// Longest message of the transfer that frames are put into.
const MESSAGE: u32 = 50_000;

/// A network in which everything is there that a frame could hit.
fn target(multipath: Option<MultipathConfig>) -> (Network, [u32; 2]) {
    let mut network = Network::new(1, configs());
    network.fill(0);
    let qpns = network.connected(multipath);
    network.hosts[1].engine.listen(1).expect("free");
    for wr_id in 0..8 {
        network.hosts[1].receive_into(qpns[1], wr_id, 0, MESSAGE);
    }
    let send = network.hosts[0].send(1, 0, MESSAGE);
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
    /// in the middle of a transfer, though they have the cookie: memory that peers may not write
    /// stays as it was, also if they name its key, and without WRITEs and atomic operations so does
    /// everything but the receives.
    #[test]
    fn spoiled_frames(
        spoiled in proptest::collection::vec(
            (any::<prop::sample::Index>(), 42_usize..120, any::<u8>(), 0..6_usize, 0..60_usize),
            1..30,
        ),
        plain in any::<bool>(),
    ) {
        let frames = &*RECORDING;
        let (mut network, qpns) = target((!plain).then(MultipathConfig::default));
        let closed = Closed::new(&mut network);
        let sent = network.hosts[0].memory.to_vec();
        let mut may_change = false;
        for (which, at, value, own, cut) in spoiled {
            let mut bytes = which.get(frames).clone();
            if own > 4 {
                bytes = forged_write(qpns[1], closed.rkeys[at % 2]);
            }
            let len = bytes.len();
            // Among the first frames are some that fit, but for the key.
            if at < len - 4 && (own < 5 || value > 99) {
                bytes[at] = value;
            }
            if (1..5).contains(&own) && len > 86 {
                // To a queue pair that is there, as its peer sends it.
                let qpn = qpns[1].to_be_bytes();
                bytes[47..50].copy_from_slice(&qpn[1..]);
                bytes[64..70].copy_from_slice(&COOKIES[1].to_bytes());
                if plain {
                    bytes[42] &= 0x1f;
                }
            }
            may_change |= matches!(bytes[42] & 0x1f, 0x06..=0x0b | 0x0d..=0x10 | 0x12..=0x14);
            let _ = frame::seal(&mut bytes);
            if cut > 50 {
                bytes.truncate(len - cut);
            }
            network.inject(1, &bytes);
            network.inject(0, &bytes);
            network.pass(Span::from_micros(10));
        }
        network.pass(Span::from_millis(30));
        prop_assert!(closed.is_untouched());
        if !may_change {
            prop_assert!(network.hosts[0].memory.to_vec() == sent);
            let memory = network.hosts[1].memory.to_vec();
            let beyond = &memory[MESSAGE as usize..];
            prop_assert!(beyond.iter().all(|byte| *byte == 0));
        }
        network.close();
    }
}

/// The first packet of a WRITE to the memory of `rkey`, as the peer of queue pair `qpn` of a
/// [`target`] with multipath sends it before everything else.
fn forged_write(qpn: u32, rkey: u32) -> Vec<u8> {
    let write = RECORDING.iter().find(|frame| frame[42] == 0xc6);
    let mut bytes = write.expect("recorded").clone();
    bytes[47..50].copy_from_slice(&qpn.to_be_bytes()[1..]);
    bytes[51..54].copy_from_slice(&0xff_fff0_u32.to_be_bytes()[1..]);
    bytes[64..70].copy_from_slice(&COOKIES[1].to_bytes());
    bytes[70..78].fill(0);
    bytes[78..82].copy_from_slice(&rkey.to_be_bytes());
    bytes[90..98].copy_from_slice(b"forged!!");
    // One packet of the smaller path MTU here.
    bytes.truncate(86 + 1024 + 4);
    for (at, before) in [(16, 14), (38, 34)] {
        let len = u16::try_from(bytes.len() - before).expect("short");
        bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
    sealed(bytes)
}

/// HT-3: a WRITE to memory that is not open to peers is refused, one to memory that is arrives: the
/// frames of the test above can do both.
#[test]
fn a_forged_write_that_fits_is_taken_or_refused() {
    for closed_to_peers in [false, true] {
        let (mut network, qpns) = target(Some(MultipathConfig::default()));
        let closed = Closed::new(&mut network);
        let rkey = if closed_to_peers {
            closed.rkeys[0]
        } else {
            network.hosts[1].keys.rkey
        };
        let bytes = forged_write(qpns[1], rkey);
        network.inject(1, &bytes);
        let drops = &network.hosts[1].engine.statistics().drops;
        let refused = drops.get(DropReason::RequestRefused);
        assert_eq!(
            (refused, drops.total()),
            (u64::from(closed_to_peers), refused)
        );
        assert!(closed.is_untouched());
        let memory = network.hosts[1].memory.to_vec();
        let taken = memory.windows(8).any(|bytes| bytes == b"forged!!");
        assert_eq!(taken, !closed_to_peers);
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

/// HT-3: a region that is not open to peers is not written by them, though they know its key: they
/// are told so. The same WRITE to one that is open arrives.
#[test]
fn a_regions_rights_count() {
    for rights in [
        Access::LOCAL_WRITE,
        Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    ] {
        let mut network = Network::new(2, configs());
        let [sender, _] = network.connected(None);
        let memory = network.hosts[1].memory.clone();
        let domain = network.hosts[1].domain;
        let engine = &mut network.hosts[1].engine;
        let keys = engine.register(domain, memory, 0, rights).expect("room");
        let mut write = network.hosts[0].send(1, 0, 100);
        write.opcode = SendOpcode::RdmaWrite;
        write.rkey = keys.rkey;
        let bytes = network.fill(0);
        let engine = &mut network.hosts[0].engine;
        engine.post_send(sender, write).expect("room");
        network.pass(Span::from_millis(5));
        let statuses: Vec<_> = network.hosts[0]
            .completions
            .iter()
            .map(|it| it.status)
            .collect();
        let drops = &network.hosts[1].engine.statistics().drops;
        let refused = (drops.get(DropReason::RequestRefused), drops.total());
        let memory = network.hosts[1].memory.to_vec();
        if rights.allows(Access::REMOTE_WRITE) {
            assert_eq!((statuses, refused), (vec![Status::Success], (0, 0)));
            assert_eq!(memory[..100], bytes[..100]);
        } else {
            assert_eq!((statuses, refused), (vec![Status::RemoteAccess], (1, 1)));
            assert_eq!(memory, vec![0; MEMORY]);
        }
        network.close();
    }
}
