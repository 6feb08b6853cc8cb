//! HT-32, HT-46: applications change the sub-paths of their connections, and tell of their traffic.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd::stats::QueuePairStatistics;
use hostd::verbs;
use hostd_client::{
    Access, Error, ErrorCode, Granularity, PathChange, PathIds, PathWeights, SendRequest, Traffic,
    TrafficPattern, TrafficPriority,
};

fn ends(daemons: [&Daemon; 2]) -> [End; 2] {
    let rights = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let mut ends = daemons.map(|daemon| End::new(daemon, 8, (1 << 16, rights)));
    let [first, second] = &mut ends;
    first.connect(second, daemons[1].address);
    ends
}

/// The queue pair of an application as its daemon has it.
fn standing(daemon: &Daemon, end: &End) -> QueuePairStatistics {
    let report = daemon.report();
    let mut all = report.queue_pairs.into_iter();
    let found = all.find(|(_, standing, _)| standing.qpn == end.queue_pair.number());
    found.expect("it exists").1
}

fn refusal(asked: Result<(), Error>) -> (ErrorCode, String) {
    match asked {
        Err(Error::Refused { code, text }) => (code, text),
        other => panic!("{other:?}"),
    }
}

/// HT-32: what an application asks for holds at both sides when the call returns, weights alone are
/// made at once, and what is not possible is refused by name and changes nothing.
#[test]
fn applications_change_their_sub_paths() {
    let (a, b) = pair(&config());
    let mut ends = ends([&a, &b]);
    let change = PathChange {
        remove: PathIds::default().with(1).with(6),
        weights: PathWeights::new(&[(0, 7)]).expect("few"),
        granularity: Some(Granularity::Flowlet),
        reorder_packets: Some(77),
        reorder_time_us: Some(3_000),
        flowlet_timeout_us: Some(70),
        ..PathChange::default()
    };
    ends[0]
        .queue_pair
        .change_paths(&change, PATIENCE)
        .expect("both make it");
    for (daemon, end) in [&a, &b].into_iter().zip(&ends) {
        let agreed = standing(daemon, end).agreed.expect("multipath");
        assert_eq!(agreed.granularity, verbs::Granularity::Flowlet);
        assert_eq!(agreed.reorder_packets, 77);
        assert_eq!(agreed.reorder_time.nanos(), 3_000_000);
        assert_eq!(agreed.flowlet_timeout.nanos(), 70_000);
    }
    let weigh = |path, weight| PathChange {
        weights: PathWeights::new(&[(path, weight)]).expect("few"),
        ..PathChange::default()
    };
    let queue_pair = &mut ends[0].queue_pair;
    let (code, text) = refusal(queue_pair.change_paths(&weigh(1, 3), PATIENCE));
    assert_eq!(code, ErrorCode::InvalidArgument);
    assert_eq!(text, "sub-path 1 is not in force");
    let nothing = refusal(queue_pair.change_paths(&PathChange::default(), PATIENCE));
    assert_eq!(nothing.1, "nothing is to be changed");
    queue_pair
        .change_paths(&weigh(2, 3), PATIENCE)
        .expect("its own");
    let report = a.report();
    let paths = &report.queue_pairs[0].2;
    assert_eq!((paths[0].weight, paths[2].weight), (7, 3));
    let standing = [1, 6].map(|path| paths[path].standing.in_force());
    assert_eq!(standing, [false, false]);
    // The connection carries data as before.
    let local = ends[0].memory.slice(0, 100).expect("inside");
    let receive = ends[1].memory.slice(0, 100).expect("inside");
    let request = hostd_client::ReceiveRequest {
        wr_id: 1,
        local: receive,
    };
    ends[1].queue_pair.post_receive(&request).expect("posted");
    let send = SendRequest::send(2, local);
    ends[0].queue_pair.post_send(&send).expect("posted");
    for end in &mut ends {
        let completion = end.queue.next(PATIENCE).expect("a completion");
        assert_eq!(completion.status, hostd_client::CompletionStatus::Success);
    }
}

/// HT-46: what an application tells is what its daemon knows, before and after it connects; others'
/// queue pairs are none of its business.
#[test]
fn applications_tell_of_their_traffic() {
    let (a, b) = pair(&config());
    let told = Traffic {
        block: 256 << 10,
        pattern: TrafficPattern::AllToAll,
        priority: TrafficPriority::High,
    };
    let rights = Access::LOCAL_WRITE;
    let [mut first, mut second] = [&a, &b].map(|it| End::new(it, 8, (4096, rights)));
    first.queue_pair.describe_traffic(&told).expect("fresh");
    let known = |first: &End| standing(&a, first).traffic;
    let expected = verbs::Traffic {
        block: 256 << 10,
        pattern: common::wire::roce::TrafficPattern::AllToAll,
        priority: common::wire::roce::TrafficPriority::High,
    };
    assert_eq!(known(&first), expected);
    first.connect(&mut second, b.address);
    assert_eq!(known(&first), expected);
    first
        .queue_pair
        .describe_traffic(&Traffic::default())
        .expect("connected");
    assert_eq!(known(&first), verbs::Traffic::default());
    assert_eq!(standing(&b, &second).traffic, verbs::Traffic::default());
}
