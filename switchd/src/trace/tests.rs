//! Tracers and their collector: what is followed, what is lost, and how it is shown.

use super::tracer::{HAND_OVER, RING_RECORDS};
use super::*;
use crate::drop::DropReason;
use crate::id::{GroupId, NextHopId, PortId, SESSIONS, TraceId};
use crate::ingress::parse::{self, parse};
use crate::limits::MAX_WORKERS;
use crate::packet::{Parsed, Version};
use crate::tables::validation::SourceValidation;
use crate::tables::{NextHop, PortEntry};
use crate::trace::collect::{MAX_OPEN, MAX_RECORDS};
use common::time::{Span, Time};
use common::wire::ethernet::Mac;
use common::wire::roce::frame::{self, Addresses};
use common::wire::roce::{Bth, Flow, Headers, Opcode, Operation};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const PORTS: [&str; 3] = ["swp0", "swp1", "swp2"];

/// A tag that carries priority 3 only.
pub(super) const TAG: [u8; 4] = [0x81, 0, 0x60, 0];

/// A RoCEv2 packet: DSCP 26, source port 49443, destination queue pair 0x54321.
pub(super) fn roce(v6: bool, payload: usize) -> Vec<u8> {
    let v6_host = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    let flow = Flow {
        src_mac: Mac([2, 0, 0, 0, 1, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 1]),
        addresses: if v6 {
            Addresses::V6(v6_host(1), v6_host(2))
        } else {
            Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
        },
        src_port: 49_443,
        flow_label: 0,
        traffic_class: 26 << 2,
        ttl: 64,
    };
    let headers = Headers::new(Bth::new(Opcode::Rc(Operation::SendOnly), 0x05_4321, 1));
    let mut bytes = vec![0; frame::layout(flow.addresses, &headers, payload).len];
    frame::emit(&mut bytes, &flow, &headers, payload);
    frame::seal(&mut bytes).expect("a frame just written");
    bytes
}

/// The same with [`TAG`].
pub(super) fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &TAG, &frame[12..]].concat()
}

fn arrival(port: u16) -> Arrival {
    Arrival {
        port: PortId(port),
        priority: Some(0),
    }
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn filter(text: &str) -> Filter {
    Filter::parse(text, &PORTS).expect("a good filter")
}

fn one(text: &str) -> (Box<Tracer>, Collector) {
    let (mut tracers, collector) = session(5, filter(text), 1);
    (tracers.remove(0), collector)
}

/// Offers a packet as the worker does.
fn offer(tracer: &mut Tracer, now: u64, frame: &[u8]) -> TraceId {
    let own = *frame.first_chunk().expect("a frame");
    let parsed = parse(frame, own).expect("a good frame");
    tracer.begin(at(now), arrival(1), frame, Some(&parsed))
}

fn parse_any(frame: &[u8]) -> Option<Parsed> {
    parse::parse_any(frame, frame.len(), None)
}

fn short(frame: &[u8]) -> u16 {
    u16::try_from(frame.len()).unwrap()
}

fn route(egress: u16) -> Step {
    Step::Route {
        group: GroupId(4),
        next_hop: NextHopId(1),
        egress: PortId(egress),
        how: How::Ecmp,
    }
}

/// Two polls: what has ended is found by the second.
fn found(collector: &mut Collector) -> Vec<Trace> {
    collector.poll();
    collector.poll();
    collector.take()
}

fn entry(name: &str) -> PortEntry {
    PortEntry {
        name: name.to_owned(),
        ifindex: 1,
        mac: [2; 6],
        up: true,
        mtu: 1500,
        speed: None,
        link: None,
        icmp_v4: None,
        icmp_v6: None,
        mtu_v6: u16::MAX,
        burst: 0,
        validation: SourceValidation::Off,
        csig: None,
        int: None,
    }
}

#[test]
fn an_id_says_whose_it_is() {
    let (mut tracers, _collector) = session(SESSIONS - 1, filter(""), MAX_WORKERS);
    for (worker, tracer) in tracers.iter_mut().enumerate() {
        let first = offer(tracer, 0, &roce(false, 0));
        let second = offer(tracer, 0, &roce(false, 0));
        assert_eq!(usize::from(first.worker()), worker);
        assert_eq!(first.to_string(), format!("63.{worker}.1"));
        assert_eq!(second.to_string(), format!("63.{worker}.2"));
    }
    assert!(!TraceId::NONE.is_some());
}

/// SW-51: a packet is followed from one worker to another, its steps in order, its bytes as they
/// came and went.
#[test]
fn a_packet_is_followed_through_workers() {
    let (mut tracers, mut collector) = session(0, filter("in=swp1"), 2);
    let (in_bytes, out_bytes) = (roce(true, 500), roce(true, 100));
    let id = offer(&mut tracers[1], 1_000, &in_bytes);
    tracers[1].step(at(1_000), id, route(2));
    tracers[1].flush();
    // The other worker's records are read first, and have the same time.
    let waited = Span::from_nanos(0);
    tracers[0].sent(at(1_000), id, PortId(2), &out_bytes);
    tracers[0].flush();

    assert_eq!(collector.poll(), 0, "its end is only just known");
    assert_eq!(collector.poll(), 1);
    let trace = collector.take().remove(0);
    let steps: Vec<Step> = trace.records.iter().map(|record| record.step).collect();
    let len = short(&in_bytes);
    let port = PortId(1);
    assert_eq!(steps[0], Step::Received { port, len });
    assert!(matches!(steps[1], Step::Parsed { protocol: 17, .. }));
    assert_eq!(steps[2], route(2));
    let port = PortId(2);
    assert_eq!(steps[3..], [Step::Sent { port, waited }]);
    assert_eq!(trace.outcome(), Outcome::Sent(PortId(2)));
    let workers: Vec<u8> = trace.records.iter().map(|record| record.worker).collect();
    assert_eq!(workers, [1, 1, 1, 0]);

    let (came, went) = (&trace.snaps[0], &trace.snaps[1]);
    assert_eq!((came.direction, came.port), (Direction::In, PortId(1)));
    assert_eq!((went.direction, went.port), (Direction::Out, PortId(2)));
    assert_eq!(came.bytes(), &in_bytes[..SNAP]);
    assert_eq!((came.len, went.len), (len, short(&out_bytes)));
}

/// MG-7: every Nth, at most N.
#[test]
fn as_many_are_followed_as_were_asked_for() {
    let (mut tracer, mut collector) = one("every=3 count=2");
    let followed: Vec<usize> = (0..12)
        .filter(|n| {
            let id = offer(&mut tracer, *n as u64, &roce(false, 0));
            tracer.sent(at(*n as u64), id, PortId(0), &[]);
            id.is_some()
        })
        .collect();
    assert_eq!(followed, [0, 3]);
    tracer.flush();
    assert_eq!(found(&mut collector).len(), 2);
    assert!(collector.is_complete());
}

/// The count is that of all workers together.
#[test]
fn workers_share_the_count() {
    let (mut tracers, mut collector) = session(0, filter("count=3"), 2);
    for tracer in &mut tracers {
        for now in 0..4 {
            let id = offer(tracer, now, &roce(false, 0));
            tracer.sent(at(now), id, PortId(0), &[]);
        }
        tracer.flush();
    }
    assert_eq!(found(&mut collector).len(), 3);
    let totals = collector.totals();
    assert_eq!((totals.begun, totals.found), (6, 3));
    assert!(collector.finish().0.is_empty());
}

/// SW-51: who looks for losses finds them, with their history, and nothing else.
#[test]
fn only_losses_are_found() {
    let (mut tracer, mut collector) = one("drop=queue_full,ttl_expired every=2");
    for now in 0..8 {
        let id = offer(&mut tracer, now, &roce(false, 0));
        tracer.step(at(now), id, route(2));
        let (arrival, bytes) = (arrival(1), &roce(false, 0)[..]);
        match now {
            0 | 1 => tracer.sent(at(now), id, PortId(2), bytes),
            2 => {
                let reason = DropReason::NoRoute;
                tracer.dropped(
                    at(now),
                    id,
                    arrival,
                    None,
                    reason,
                    bytes,
                    parse_any(bytes).as_ref(),
                );
            }
            _ => {
                let reason = DropReason::QueueFull;
                tracer.dropped(
                    at(now),
                    id,
                    arrival,
                    Some(PortId(2)),
                    reason,
                    bytes,
                    parse_any(bytes).as_ref(),
                );
            }
        }
    }
    tracer.flush();
    let found = found(&mut collector);
    let times: Vec<u64> = found
        .iter()
        .map(|trace| trace.records[0].time.nanos())
        .collect();
    assert_eq!(times, [3, 5, 7], "each second one of those that were lost");
    for trace in found {
        assert_eq!(trace.outcome(), Outcome::Dropped(DropReason::QueueFull));
        assert_eq!(trace.records.len(), 4);
    }
}

/// MG-7: packets to one port, also those that would have gone there.
#[test]
fn the_egress_port_is_looked_at() {
    let (mut tracer, mut collector) = one("out=swp2");
    for (now, egress) in [(0, 0), (1, 2), (2, 2)] {
        let id = offer(&mut tracer, now, &roce(false, 0));
        tracer.step(at(now), id, route(egress));
        if now == 2 {
            let reason = DropReason::EgressDown;
            tracer.dropped(
                at(now),
                id,
                arrival(1),
                None,
                reason,
                &[],
                parse_any(&[]).as_ref(),
            );
        } else {
            tracer.sent(at(now), id, PortId(egress), &[]);
        }
    }
    tracer.flush();
    let found = found(&mut collector);
    let outcomes: Vec<Outcome> = found.iter().map(Trace::outcome).collect();
    let lost = Outcome::Dropped(DropReason::EgressDown);
    assert_eq!(outcomes, [Outcome::Sent(PortId(2)), lost]);
}

/// SW-51: a loss is found also if nothing was known of the packet before, and one that does not
/// match is not.
#[test]
fn a_loss_is_noticed() {
    let (mut tracer, mut collector) = one("drop dst=10.0.0.2 in=swp1");
    let bytes = roce(false, 0);
    let mut lose = |now, port, egress, frame: &[u8]| {
        let reason = DropReason::QueueFull;
        tracer.dropped(
            at(now),
            TraceId::NONE,
            arrival(port),
            egress,
            reason,
            frame,
            parse_any(frame).as_ref(),
        );
    };
    lose(1, 1, Some(PortId(2)), &bytes);
    lose(2, 0, None, &bytes);
    lose(3, 1, None, &roce(true, 0));
    lose(4, 1, None, &bytes[..20]);
    lose(5, 1, None, &[]);
    tracer.flush();
    let found = found(&mut collector);
    assert_eq!(found.len(), 1);
    let (port, len) = (PortId(1), short(&bytes));
    assert_eq!(found[0].records[0].step, Step::Noticed { port, len });
    assert_eq!(found[0].egress(), Some(PortId(2)));
    assert_eq!(found[0].snaps[0].bytes(), &bytes[..]);

    // Nobody looks for losses: a packet that was not chosen stays so.
    let (mut tracer, mut collector) = one("every=2");
    let reason = DropReason::QueueFull;
    tracer.dropped(
        at(0),
        TraceId::NONE,
        arrival(1),
        None,
        reason,
        &bytes,
        parse_any(&bytes).as_ref(),
    );
    tracer.flush();
    collector.poll();
    assert_eq!(collector.finish().1, Totals::default());
}

/// SW-51: packets that the parser refuses are followed too.
#[test]
fn what_cannot_be_parsed_is_followed() {
    let (mut tracer, mut collector) = one("in=swp1");
    let id = tracer.begin(at(0), arrival(1), &[1, 2, 3], None);
    let reason = DropReason::Truncated;
    tracer.dropped(
        at(0),
        id,
        arrival(1),
        None,
        reason,
        &[1, 2, 3],
        parse_any(&[1, 2, 3]).as_ref(),
    );
    tracer.flush();
    let found = found(&mut collector);
    assert_eq!(found[0].outcome(), Outcome::Dropped(DropReason::Truncated));
    assert_eq!(found[0].snaps[0].bytes(), [1, 2, 3]);
}

/// What an earlier session left in packets says nothing in a later one.
#[test]
fn ids_of_another_session_are_ignored() {
    let (mut old, _collector) = one("");
    let id = offer(&mut old, 0, &roce(false, 0));
    let (mut tracers, collector) = session(6, filter(""), 1);
    tracers[0].step(at(1), id, route(2));
    tracers[0].sent(at(1), id, PortId(2), &[]);
    tracers[0].dropped(
        at(1),
        id,
        arrival(0),
        None,
        DropReason::NoRoute,
        &[],
        parse_any(&[]).as_ref(),
    );
    tracers[0].flush();
    let (found, totals) = collector.finish();
    assert_eq!((found.len(), totals), (0, Totals::default()));
}

/// Memory is bounded: packets beyond it are not begun, records beyond it are counted, those before
/// stay whole.
#[test]
fn what_does_not_fit_is_counted() {
    let (mut tracer, mut collector) = one("count=10000");
    let bytes = roce(false, 0);
    let capacity = tracer.records.capacity();
    let offered = 100_000;
    let first = offer(&mut tracer, 0, &bytes);
    (1..offered).for_each(|now| {
        offer(&mut tracer, now, &bytes);
    });
    let begun = tracer.counters.begun.get();
    assert!(begun > 1_000, "{begun}");
    assert_eq!(tracer.counters.missed.get(), offered - begun);
    assert_eq!(tracer.counters.lost.get(), 0, "half of the ring is left");

    let steps = 3 * RING_RECORDS as u64;
    (0..steps).for_each(|_| tracer.step(at(1), first, Step::Unresolved { ifindex: 1 }));
    tracer.flush();
    let put = tracer.record_ring.len() as u64;
    assert_eq!(put, RING_RECORDS as u64);
    assert_eq!(tracer.counters.lost.get(), 2 * begun + steps - put);
    assert_eq!(tracer.records.capacity(), capacity, "nothing is allocated");

    collector.poll();
    let trace = &collector.open[&first];
    assert_eq!(trace.records.len(), MAX_RECORDS);
    // There is room again.
    assert!(offer(&mut tracer, 2, &bytes).is_some());
    let (found, totals) = collector.finish();
    assert_eq!(
        found.len() as u64,
        begun,
        "all are there, though none has ended"
    );
    assert_eq!((totals.missed, totals.begun), (offered - begun, begun + 1));
}

/// First bytes that do not fit are counted as well.
#[test]
fn lost_bytes_are_counted() {
    let (mut tracer, _collector) = one("count=10000");
    let id = offer(&mut tracer, 0, &roce(false, 0));
    let room = tracer.snap_ring.capacity() - tracer.snap_ring.len();
    for _ in 0..room + 7 {
        tracer.sent(at(1), id, PortId(0), &[0; 60]);
    }
    assert_eq!(tracer.counters.lost.get(), 7);
}

/// First bytes that control sees before the record of their packet belong to it nevertheless, and
/// those of packets that nobody tells more of do not pile up.
#[test]
fn bytes_that_come_early_are_kept() {
    let (mut tracer, mut collector) = one("count=100");
    let bytes = roce(false, 0);
    let id = offer(&mut tracer, 0, &bytes);
    (0..3).for_each(|_| assert_eq!(collector.poll(), 0));
    tracer.sent(at(1), id, PortId(2), &bytes);
    collector.poll();
    tracer.flush();
    collector.poll();
    collector.poll();
    let found = collector.take();
    let ways: Vec<_> = found[0].snaps.iter().map(|snap| snap.direction).collect();
    assert_eq!(ways, [Direction::In, Direction::Out]);
    for _ in 0..2 * HAND_OVER {
        tracer.snap(at(2), id, Direction::Out, PortId(2), &bytes);
    }
    collector.poll();
    assert_eq!(collector.snaps.len(), HAND_OVER);
}

/// Packets whose end is never told do not pile up.
#[test]
fn the_oldest_are_given_up() {
    let (mut tracer, mut collector) = one("drop");
    let mut first = TraceId::NONE;
    let mut last = TraceId::NONE;
    for now in 0..2 * MAX_OPEN as u64 + 10 {
        last = offer(&mut tracer, now, &roce(false, 0));
        if !first.is_some() {
            first = last;
        }
        // Each second one ends.
        if now % 2 == 0 {
            tracer.sent(at(now), last, PortId(0), &[]);
        }
        if now % 256 == 0 {
            tracer.flush();
            collector.poll();
            collector.poll();
        }
    }
    for _ in 0..MAX_OPEN {
        last = offer(&mut tracer, 0, &roce(false, 0));
        tracer.flush();
        collector.poll();
    }
    assert_eq!(collector.open.len(), MAX_OPEN);
    assert!(collector.order.len() <= 2 * MAX_OPEN);
    assert!(!collector.open.contains_key(&first));
    assert!(collector.open.contains_key(&last));
    assert!(collector.totals().lost > 0);
}

/// MG-7: a stage a line, and the same as JSON.
#[test]
fn a_trace_is_shown() {
    let (mut tracer, mut collector) = one("drop");
    let bytes = roce(false, 0);
    let id = offer(&mut tracer, 5_000, &bytes);
    let classified = Step::Classified {
        dscp: 26,
        pcp: None,
        priority: 3,
        class: 3,
        group: 3,
    };
    let admitted = Step::Admitted {
        region: Region::Headroom,
        group_cells: 700,
        queue_cells: 900,
    };
    for step in [classified, route(2), admitted] {
        tracer.step(at(5_000), id, step);
    }
    let reason = DropReason::QueueFull;
    tracer.dropped(
        at(6_234),
        id,
        arrival(1),
        Some(PortId(2)),
        reason,
        &bytes,
        parse_any(&bytes).as_ref(),
    );
    tracer.flush();
    let trace = found(&mut collector).remove(0);
    let ports = PORTS.map(entry);
    let hop = |n| NextHop {
        port: PortId(2),
        ifindex: 2,
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)),
        mac: None,
        mtu: u16::MAX,
        source: None,
        link_header: None,
    };
    let next_hops = [hop(1), hop(9)];
    let names = Names {
        ports: &ports,
        next_hops: &next_hops,
    };
    let shown = Shown::new(&trace, &names);
    let expected = [
        "trace 5.0.1: 58 bytes from swp1, dropped: queue_full: The egress queue has reached its threshold.",
        "          +0 ns  worker 0   received    port swp1, length 58",
        "          +0 ns  worker 0   parsed      ip 4, protocol 17, ttl 64",
        "          +0 ns  worker 0   classified  dscp 26, priority 3, class 3, group 3",
        "          +0 ns  worker 0   route       group 4, next hop 10.0.0.9, port swp2, how ecmp",
        "          +0 ns  worker 0   admitted    region headroom, group cells 700, queue cells 900",
        "       +1234 ns  worker 0   dropped     reason queue_full, port swp2",
    ];
    assert_eq!(shown.lines(), expected);

    let json = serde_json::to_value(&shown).expect("JSON");
    assert_eq!(json["outcome"], "dropped");
    assert_eq!(json["reason"], "queue_full");
    assert_eq!(json["time_ns"], 5_000);
    assert_eq!(json["steps"][3]["details"]["next_hop"], "10.0.0.9");
    assert_eq!(json["steps"][5]["offset_ns"], 1_234);
    assert!(
        json["frame"]
            .as_str()
            .is_some_and(|hex| hex.starts_with("020000000001"))
    );
    let back: Shown = serde_json::from_value(json).expect("the same");
    assert_eq!(back, shown);
}

/// Every step has a name and says all it has to say; numbers without names are shown as numbers.
#[test]
fn every_step_is_shown() {
    let (class, port) = (1, PortId(7));
    let steps: [(Step, &str); 12] = [
        (
            Step::Noticed { port, len: 60 },
            "noticed     port port 7, length 60",
        ),
        (
            Step::Parsed {
                version: Version::V6,
                protocol: 6,
                ttl: 2,
                fragment: true,
            },
            "parsed      ip 6, protocol 6, ttl 2, fragment true",
        ),
        (
            Step::Remapped {
                priority: 4,
                dscp: 30,
                class,
            },
            "remapped    priority 4, dscp 30, class 1",
        ),
        (
            route(7),
            "route       group 4, next hop 1, port port 7, how ecmp",
        ),
        (Step::Unresolved { ifindex: 9 }, "unresolved  interface 9"),
        (
            Step::Bridged {
                vlan: 5,
                egress: PortId(1),
                untagged: true,
            },
            "bridged     vlan 5, port port 1, untagged true",
        ),
        (Step::Crossed { to: 3 }, "crossed     to worker 3"),
        (
            Step::Marked {
                at: MarkedAt::Dequeue,
            },
            "marked      at dequeue",
        ),
        (
            Step::Trimmed { from: 1500, to: 90 },
            "trimmed     from 1500, to 90",
        ),
        (Step::Demoted { class }, "demoted     class 1"),
        (
            Step::Enqueued {
                class,
                packets: 2,
                bytes: 3_000,
            },
            "enqueued    class 1, packets 2, bytes 3000",
        ),
        (
            Step::Sent {
                port,
                waited: Span::ZERO,
            },
            "sent        port port 7, waited ns 0",
        ),
    ];
    assert_shown(&steps);
}

/// Each step is shown as its text.
fn assert_shown(steps: &[(Step, &str)]) {
    let names = Names {
        ports: &[],
        next_hops: &[],
    };
    let (mut tracer, collector) = one("");
    let id = offer(&mut tracer, 0, &roce(false, 0));
    for (step, _) in steps {
        tracer.step(at(1), id, *step);
    }
    tracer.flush();
    let (found, _) = collector.finish();
    let lines = Shown::new(&found[0], &names).lines();
    for ((step, expected), line) in steps.iter().zip(&lines[3..]) {
        assert_eq!(
            line,
            &format!("          +1 ns  worker 0   {expected}"),
            "{step:?}"
        );
    }
}
