//! HT-39: applications choose in which order they get their messages, and what steers them.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd::stats::QueuePairStatistics;
use hostd::verbs;
use hostd_client::{
    Access, CompletionStatus, Congestion, Error, ErrorCode, ReceiveRequest, SendRequest, Service,
};
use std::sync::atomic::Ordering;

/// Bytes of a message.
const LEN: usize = 1500;

/// Messages: as many as may be outstanding.
const COUNT: usize = 60;

fn end(daemon: &Daemon) -> End {
    End::new(daemon, 128, (COUNT * LEN, Access::LOCAL_WRITE))
}

/// The queue pair of an application as its daemon has it.
fn standing(daemon: &Daemon, end: &End) -> QueuePairStatistics {
    let report = daemon.report();
    let mut all = report.queue_pairs.into_iter();
    let found = all.find(|(_, standing, _)| standing.qpn == end.queue_pair.number());
    found.expect("it exists").1
}

/// Sends messages, each with its number in all bytes; the numbers of requests as they complete.
fn exchange([first, second]: &mut [End; 2]) -> Vec<u64> {
    for number in 0..COUNT {
        let wr_id = number as u64;
        let local = second.memory.slice(number * LEN, LEN).expect("inside");
        let request = ReceiveRequest { wr_id, local };
        second.queue_pair.post_receive(&request).expect("room");
        let bytes = [u8::try_from(number).expect("few"); LEN];
        first.memory.write(number * LEN, &bytes).expect("inside");
        let local = first.memory.slice(number * LEN, LEN).expect("inside");
        let request = SendRequest::send(wr_id, local);
        first.queue_pair.post_send(&request).expect("room");
    }
    let completed = |end: &mut End| {
        let next = |_| {
            let completion = end.queue.next(PATIENCE).expect("a completion");
            assert_eq!(completion.status, CompletionStatus::Success);
            completion.wr_id
        };
        (0..COUNT).map(next).collect::<Vec<_>>()
    };
    let received = completed(second);
    assert!(
        received.is_sorted(),
        "receives are taken as they were posted"
    );
    completed(first)
}

/// What the receives have, by their number.
fn came(end: &End) -> Vec<u64> {
    let numbers = (0..COUNT).map(|number| {
        let mut bytes = vec![0; LEN];
        end.memory.read(number * LEN, &mut bytes).expect("inside");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "one message");
        bytes[0].into()
    });
    numbers.collect()
}

/// Both applications ask: over a cable that loses one packet in seven, all messages come once and
/// some before those that were sent earlier, and `hostctl` shows it. If one of them does not ask,
/// all is in order.
#[test]
fn applications_choose_their_order() {
    for (services, agreed) in [
        ([Service::Unordered; 2], verbs::Service::Unordered),
        (
            [Service::Idempotent, Service::Unordered],
            verbs::Service::Unordered,
        ),
        (
            [Service::Ordered, Service::Unordered],
            verbs::Service::Ordered,
        ),
    ] {
        let (a, b) = pair(&config());
        let mut ends = [end(&a), end(&b)];
        for (end, service) in ends.iter_mut().zip(services) {
            end.queue_pair.choose_service(service).expect("fresh");
        }
        let [first, second] = &mut ends;
        first.connect(second, b.address);
        let late = first.queue_pair.choose_service(Service::Ordered);
        let code = match late {
            Err(Error::Refused { code, .. }) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code, ErrorCode::InvalidState);
        a.loses.store(7, Ordering::Relaxed);
        let sent = exchange(&mut ends);
        let came = came(&ends[1]);
        let ordered = agreed == verbs::Service::Ordered;
        assert_eq!((sent.is_sorted(), came.is_sorted()), (ordered, ordered));
        for mut numbers in [sent, came] {
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..COUNT as u64), "each once");
        }
        for (daemon, end) in [&a, &b].into_iter().zip(&ends) {
            let known = standing(daemon, end).agreed.expect("multipath");
            assert_eq!(known.service, agreed);
        }
        let early = standing(&b, &ends[1]).counters.early_messages;
        assert_eq!(early > 0, !ordered, "{early} before their turn");
    }
}

/// CC-1 to CC-8: an application chooses the congestion control of what it sends, as its hostd
/// allows, and is told why not in words.
#[test]
fn applications_choose_their_congestion_control() {
    let (a, b) = pair(&config());
    let mut ends = [end(&a), end(&b)];
    let [first, second] = &mut ends;
    let refused = |asked: Result<(), Error>| match asked {
        Err(Error::Refused { code, text }) => (code, text),
        other => panic!("{other:?}"),
    };
    let (code, text) = refused(first.queue_pair.choose_congestion(Congestion::Fixed));
    assert_eq!(code, ErrorCode::InvalidArgument);
    assert!(text.contains("application.congestion"), "{text}");
    let (code, text) = refused(first.queue_pair.choose_congestion(Congestion::Hpcc));
    assert_eq!(code, ErrorCode::InvalidArgument);
    assert!(text.contains("[int] has to be enabled"), "{text}");
    let chosen = first.queue_pair.choose_congestion(Congestion::Swift);
    chosen.expect("fresh");
    first.connect(second, b.address);
    let (code, _) = refused(first.queue_pair.choose_congestion(Congestion::Dctcp));
    assert_eq!(code, ErrorCode::InvalidState);
    exchange(&mut ends);
    let names = [&a, &b].into_iter().zip(&ends);
    let names: Vec<_> = names
        .map(|(it, end)| standing(it, end).congestion)
        .collect();
    assert_eq!(names, ["swift", "auto"]);
}
