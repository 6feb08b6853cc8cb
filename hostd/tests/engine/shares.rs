//! HT-3: what the applications of a host share, and nobody may take from the others.

use crate::network::{Network, PEERS};
use common::time::Span;
use hostd::verbs::{Access, DropReason, EngineConfig, Event, MultipathConfig};

const FIRST_PSN: u32 = 0x00ff_fff0;

/// Where BTH begins over IPv4.
const BTH: usize = 14 + 20 + 8;

fn psn(frame: &[u8]) -> u32 {
    u32::from_be_bytes([0, frame[BTH + 9], frame[BTH + 10], frame[BTH + 11]])
}

/// HT-3, HT-40: nine connections of one application on which a packet is missing and all behind it
/// have come do not take the frames that another application reorders its packets with. When nobody
/// closes the gaps for longer than any sender tries, the frames come back.
#[test]
fn open_gaps_leave_frames_to_others() {
    let config = || EngineConfig {
        reorder_frames: 1024,
        ..EngineConfig::default()
    };
    let multipath = Some(MultipathConfig::default());
    let mut network = Network::new(77, [config(), config()]);
    let pairs: Vec<[u32; 2]> = (0..9).map(|_| network.connected(multipath)).collect();
    network.tap = Some(Vec::new());
    network.impairment.dead[0] = true;
    for [sender, receiver] in &pairs {
        network.hosts[1].receive_into(*receiver, 1, 0, 400_000);
        let send = network.hosts[0].send(1, 0, 400_000);
        let posted = network.hosts[0].engine.post_send(*sender, send);
        posted.expect("room");
    }
    network.pass(Span::from_millis(5));
    for [sender, _] in &pairs {
        let gone = network.hosts[0].engine.destroy_queue_pair(*sender);
        gone.expect("known");
    }
    let sent = network.tap.take().expect("was set");
    let late: Vec<_> = sent.iter().filter(|it| psn(it) != FIRST_PSN).collect();
    assert!(late.len() > 1500, "{}", late.len());
    late.iter().for_each(|frame| network.inject(1, frame));
    let held = network.hosts[1].engine.held_packets();
    assert!((400..=600).contains(&held), "{held} of 1024");

    // The other application.
    let host = &mut network.hosts[1];
    host.domain = host.engine.create_domain().expect("room");
    let rights = Access::LOCAL_WRITE | PEERS;
    let memory = host.memory.clone();
    let keys = host.engine.register(host.domain, memory, 0, rights);
    host.keys = keys.expect("room");
    let lost = |network: &Network| {
        let drops = &network.hosts[1].engine.statistics().drops;
        drops.get(DropReason::ReorderMemory)
    };
    let before = lost(&network);
    assert!(before > 0);
    network.impairment.dead[0] = false;
    network.impairment.skew = Span::from_micros(30);
    let bytes = network.fill(0);
    let [sender, receiver] = network.connected(multipath);
    network.hosts[1].receive_into(receiver, 2, 0, 1_000_000);
    let send = network.hosts[0].send(2, 0, 1_000_000);
    let posted = network.hosts[0].engine.post_send(sender, send);
    posted.expect("room");
    let done = network.run(Span::from_secs(5), |network| {
        let mut completions = network.hosts[1].completions.iter();
        completions.any(|completion| completion.wr_id == 2)
    });
    assert!(done);
    assert_eq!(
        network.hosts[1].memory.to_vec()[..1_000_000],
        bytes[..1_000_000]
    );
    let counters = network.hosts[1].engine.queue_pair_statistics(receiver);
    assert!(
        counters.expect("known").counters.out_of_order > 100,
        "they reorder"
    );
    assert_eq!(lost(&network), before, "a frame for each early packet");

    // Long after: frames run short once more.
    network.pass(Span::from_secs(11));
    late.iter().for_each(|frame| network.inject(1, frame));
    network.pass(Span::from_millis(1));
    let failed = network.hosts[1].events.iter();
    let failed = failed.filter(|event| matches!(event, Event::QueuePairFailed { .. }));
    assert!(failed.count() >= 3);
    assert_eq!(network.hosts[1].engine.held_packets(), 0);
    network.close();
}
