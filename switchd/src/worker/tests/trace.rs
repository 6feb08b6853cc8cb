//! SW-51: what a whole switch tells of the packets that are traced, and that it tells nothing of
//! others.

use super::*;
use crate::egress::remark::set_dscp;
use crate::tables::elephants;
use crate::tables::policy::{Hook, TrimAt, Wred};
use crate::tables::wred::Profile;
use crate::trace::{Collector, Filter, How, MarkedAt, Outcome, Region, Step, Trace, session};

impl Switch {
    /// Follows the packets that `text` describes from the next turn on.
    pub(super) fn follow(&self, number: u8, text: &str) -> Collector {
        let ports: Vec<String> = (0..self.wires.len()).map(|n| format!("p{n}")).collect();
        let filter = Filter::parse(text, &ports).expect("a good filter");
        let (tracers, collector) = session(number, filter, self.workers.len());
        for (tracer, commands) in tracers.into_iter().zip(&self.commands) {
            let command = WorkerCommand::Trace(Some(tracer));
            commands.send(command).expect("the worker listens");
        }
        collector
    }

    /// Ends the trace, and returns what it has found.
    pub(super) fn traced(&mut self, collector: Collector) -> Vec<Trace> {
        for commands in &self.commands {
            let command = WorkerCommand::Trace(None);
            commands.send(command).expect("the worker listens");
        }
        self.turn();
        let (traces, totals) = collector.finish();
        assert_eq!((totals.missed, totals.lost), (0, 0));
        traces
    }
}

/// The names of the steps, and the workers that took them.
fn stages(trace: &Trace) -> Vec<(&'static str, u8)> {
    let stage = |step| match step {
        Step::Received { .. } => "received",
        Step::Noticed { .. } => "noticed",
        Step::Parsed { .. } => "parsed",
        Step::Classified { .. } => "classified",
        Step::Remapped { .. } => "remapped",
        Step::Route { .. } => "route",
        Step::Bridged { .. } => "bridged",
        Step::Unresolved { .. } => "unresolved",
        Step::Crossed { .. } => "crossed",
        Step::Admitted { .. } => "admitted",
        Step::Marked {
            at: MarkedAt::Enqueue,
        } => "marked",
        Step::Marked {
            at: MarkedAt::Dequeue,
        } => "marked late",
        Step::Trimmed { .. } => "trimmed",
        Step::Demoted { .. } => "demoted",
        Step::Enqueued { .. } => "enqueued",
        Step::Sent { .. } => "sent",
        Step::Dropped { .. } => "dropped",
    };
    let records = trace.records.iter();
    records
        .map(|record| (stage(record.step), record.worker))
        .collect()
}

fn names(trace: &Trace) -> Vec<&'static str> {
    stages(trace).into_iter().map(|(name, _)| name).collect()
}

/// SW-51: a packet's steps are told in order, by the workers that took them.
#[test]
fn a_packet_is_followed_from_worker_to_worker() {
    let mut switch = Switch::new(2, 2);
    let collector = switch.follow(1, "in=p0 dst=10.1.0.9");
    let frame = Udp::to("10.1.0.9").frame();
    switch.offer(0, &frame);
    switch.offer(0, &Udp::to("10.1.0.8").frame());
    let left = switch.run();
    let traces = switch.traced(collector);
    assert_eq!(traces.len(), 1, "one matches");
    let trace = &traces[0];
    let first = ["received", "parsed", "classified", "route", "crossed"];
    let then = ["admitted", "enqueued", "sent"];
    let expected: Vec<_> = (first.map(|name| (name, 0)).into_iter())
        .chain(then.map(|name| (name, 1)))
        .collect();
    assert_eq!(stages(trace), expected);
    let steps: Vec<Step> = trace.records.iter().map(|record| record.step).collect();
    let len = u16::try_from(frame.len()).expect("short");
    let (port, egress) = (PortId(0), PortId(1));
    assert_eq!(steps[0], Step::Received { port, len });
    let route = Step::Route {
        group: GroupId(1),
        next_hop: NextHopId(1),
        egress,
        how: How::Single,
    };
    assert_eq!(steps[3..5], [route, Step::Crossed { to: 1 }]);
    let admitted = Step::Admitted {
        region: Region::Service,
        group_cells: 2,
        queue_cells: 1,
    };
    assert_eq!(
        steps[5], admitted,
        "the packet behind it is charged already"
    );
    let (class, packets, bytes) = (0, 1, u32::from(len));
    let enqueued = Step::Enqueued {
        class,
        packets,
        bytes,
    };
    assert_eq!(steps[6], enqueued);
    assert_eq!(trace.outcome(), Outcome::Sent(egress));
    let kept: Vec<&[u8]> = trace.snaps.iter().map(|snap| snap.bytes()).collect();
    assert_eq!(
        kept,
        [&frame[..], &left[1][0][..]],
        "as it came and as it went"
    );
}

/// SW-51: the time in the queue is the time from the turn of its enqueueing to that of its sending.
#[test]
fn waiting_in_a_queue_is_measured() {
    let mut switch = Switch::new(2, 1);
    let collector = switch.follow(1, "");
    switch.wires[1].set_room(0);
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    (0..5).for_each(|_| switch.turn());
    switch.wires[1].set_room(64);
    switch.run();
    let traces = switch.traced(collector);
    let last = traces[0].records.last().expect("a step").step;
    let (port, waited) = (PortId(1), Span::from_micros(50));
    assert_eq!(last, Step::Sent { port, waited });
}

/// SW-51: each loss is told with its reason, at whichever stage it happens.
#[test]
fn losses_are_told_with_their_reason() {
    let good = Udp::to("10.1.0.9").frame();
    let expired = Udp {
        ttl: 1,
        ..Udp::to("10.1.0.9")
    };
    let mut broken = good.clone();
    broken[24] ^= 1;
    let parsed = ["received", "parsed", "classified"];
    let cases = [
        (broken, DropReason::BadChecksum, vec!["received"]),
        (good[..20].to_vec(), DropReason::Truncated, vec!["received"]),
        (
            expired.frame(),
            DropReason::TtlExpired,
            [&parsed[..], &["route"]].concat(),
        ),
        (
            Udp::to("10.77.0.1").frame(),
            DropReason::NoRoute,
            parsed.to_vec(),
        ),
    ];
    for filter in ["", "drop"] {
        for (bytes, reason, steps) in &cases {
            let mut switch = Switch::new(2, 1);
            let collector = switch.follow(1, filter);
            switch.offer(0, bytes);
            switch.run();
            let traces = switch.traced(collector);
            assert_eq!(traces.len(), 1, "{reason:?}");
            assert_eq!(traces[0].outcome(), Outcome::Dropped(*reason));
            assert_eq!(names(&traces[0]), [&steps[..], &["dropped"]].concat());
        }
    }
}

/// SW-51: a packet that finds its queue full, and the one that was admitted before it.
#[test]
fn a_full_queue_is_told_with_the_port() {
    let mut switch = Switch::new(2, 2);
    switch.tables(|tables| tables.traffic = Arc::new(Policy::plain(2, 1)));
    let collector = switch.follow(1, "drop=queue_full");
    switch.wires[1].set_room(0);
    for src_port in [5, 6] {
        let packet = Udp {
            src_port,
            ..Udp::to("10.1.0.9")
        };
        switch.offer(0, &packet.frame());
    }
    switch.run();
    assert_eq!(switch.dropped(DropReason::QueueFull), 1);
    let traces = switch.traced(collector);
    assert_eq!(traces.len(), 1, "the other is not lost");
    let (reason, egress) = (DropReason::QueueFull, Some(PortId(1)));
    let record = traces[0].records.last().expect("a step");
    assert_eq!(
        (record.step, record.worker),
        (Step::Dropped { reason, egress }, 1)
    );
    switch.wires[1].set_room(64);
    switch.run();
}

/// SW-2, SW-51: a packet that waits for its neighbour is followed until it is given up; the answer
/// to its sender is another packet.
#[test]
fn waiting_for_a_neighbour_is_told() {
    let mut switch = Switch::new(2, 1);
    let (port, ifindex, mtu) = (PortId(1), 101, 1500);
    switch.tables(|tables| tables.groups[1] = Group::Glean { port, ifindex, mtu });
    let collector = switch.follow(1, "in=p0");
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    switch.run();
    switch.now += Span::from_secs(4);
    let left = switch.run();
    assert_eq!(left[0].len(), 1, "host unreachable");
    let traces = switch.traced(collector);
    assert_eq!(traces.len(), 1);
    let reason = DropReason::NeighbourTimeout;
    assert_eq!(traces[0].outcome(), Outcome::Dropped(reason));
    assert_eq!(names(&traces[0])[3], "unresolved");
}

/// SW-20: a mark is told where it is made.
#[test]
fn marks_are_told() {
    let always = Profile::deterministic(2);
    for (at_dequeue, mark) in [(false, "marked"), (true, "marked late")] {
        let mut switch = Switch::new(2, 1);
        let mut policy = Policy::plain(2, 4096);
        for port in &mut policy.ports {
            port.queues[0].wred = Some(Wred {
                profile: always,
                at_dequeue,
            });
        }
        switch.tables(|tables| tables.traffic = Arc::new(policy));
        let collector = switch.follow(1, "");
        let mut frame = Udp::to("10.1.0.9").frame();
        frame[15] = 2;
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        for _ in 0..2 {
            switch.offer(0, &frame);
        }
        let left = switch.run();
        let marked = left[1].iter().filter(|bytes| bytes[15] & 3 == 3).count();
        let traces = switch.traced(collector);
        let told = traces.iter().filter(|trace| names(trace).contains(&mark));
        assert_eq!((told.count(), traces.len()), (marked, 2));
        assert!(marked > 0, "at_dequeue {at_dequeue}");
    }
}

/// SW-17, SW-23, SW-33, SW-51: what makes a packet another one, or sends it to another queue, is
/// told where it happens.
#[test]
fn changes_are_told() {
    const DATA: u8 = 8;
    const TRIMMED: u8 = 16;
    const MICE: u8 = 24;
    let told = |change: &dyn Fn(&mut Policy), dscp, packets| {
        let mut switch = Switch::new(2, 1);
        let mut policy = Policy::plain(2, 4096);
        change(&mut policy);
        switch.tables(|tables| tables.traffic = Arc::new(policy));
        let collector = switch.follow(1, "");
        let packet = Udp {
            payload: 900,
            ..Udp::to("10.1.0.9")
        };
        let mut frame = packet.frame();
        assert!(set_dscp(&mut frame, 14, dscp));
        for _ in 0..packets {
            switch.offer(0, &frame);
        }
        assert_eq!(switch.run()[1].len(), packets);
        let trace = switch.traced(collector).pop().expect("the last packet");
        let at = names(&trace).iter().position(|name| *name == "route");
        let steps = trace.records.iter().map(|record| record.step);
        steps.skip(at.expect("a route") + 1).collect::<Vec<_>>()
    };
    let trimmed = told(
        &|policy| {
            policy.trim.trimmable = 1 << DATA;
            policy.trim.trimmed_of[usize::from(DATA)] = TRIMMED;
            policy.ports[1].queues[1].trim = Some(TrimAt {
                bytes: 100,
                rtx_bytes: 100,
            });
        },
        DATA,
        1,
    );
    assert!(
        matches!(
            trimmed[..],
            [
                Step::Trimmed { from: 942, to },
                Step::Admitted { .. },
                Step::Enqueued { class: 2, bytes, .. },
                Step::Sent { .. },
            ] if to < 942 && u32::from(to) == bytes
        ),
        "{trimmed:?}"
    );
    let demoted = told(
        &|policy| {
            policy.elephants = vec![elephants::Settings {
                from: 3,
                to: 1,
                bytes: elephants::MIN_BYTES,
                rate: Rate::from_bps(0),
                ageing: Span::from_millis(1),
                moves: elephants::Moves::Gated,
            }];
        },
        MICE,
        20,
    );
    assert!(
        matches!(
            demoted[..],
            [
                Step::Demoted { class: 1 },
                Step::Admitted { .. },
                Step::Enqueued { class: 1, .. },
                Step::Sent { .. },
            ]
        ),
        "{demoted:?}"
    );
    let remapped = told(
        &|policy| {
            policy.ports.iter_mut().for_each(|port| port.uplink = true);
            policy.hook = Some(Hook {
                priority: 5,
                dscp: 40,
            });
        },
        MICE,
        1,
    );
    assert!(
        matches!(
            remapped[..],
            [
                Step::Remapped {
                    priority: 5,
                    dscp: 40,
                    class: 5
                },
                Step::Admitted { .. },
                Step::Enqueued { class: 5, .. },
                Step::Sent { .. },
            ]
        ),
        "{remapped:?}"
    );
}

/// A trace that was not asked for, or is over, has no records, also of packets that are still on
/// their way; and packets that do not match have none.
#[test]
fn nothing_is_told_of_others() {
    let mut switch = Switch::new(2, 2);
    let collector = switch.follow(1, "in=p1 proto=tcp");
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    switch.run();
    assert_eq!(switch.traced(collector).len(), 0);

    let first = switch.follow(2, "");
    switch.wires[1].set_room(0);
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    switch.run();
    let traces = switch.traced(first);
    assert_eq!(traces[0].outcome(), Outcome::Unknown, "it is still queued");
    let second = switch.follow(3, "");
    switch.wires[1].set_room(64);
    assert_eq!(switch.run()[1].len(), 1);
    assert_eq!(
        switch.traced(second).len(),
        0,
        "it belongs to another trace"
    );
    assert!(switch.workers.iter().all(|worker| !worker.probe.is_on()));
}

/// SW-51: of a frame that is bridged its VLAN, where its destination is, and how it leaves.
#[test]
fn a_bridged_frame_is_followed() {
    let mut switch = Switch::new(2, 1);
    switch.bridge(&[5], |number, port| {
        port.tag = Some(0x8100);
        port.members.insert(5, 5);
        port.pvid = (number == 0).then_some(5);
    });
    let collector = switch.follow(1, "in=p0");
    let station = super::bridge::station;
    let packet = Udp::to("10.1.0.9").frame();
    switch.offer(0, &[&station(1)[..], &station(0), &packet[12..]].concat());
    switch.offer(
        0,
        &[&station(1)[..], &station(0), &[0x88, 0x47], &[0; 60]].concat(),
    );
    switch.run();
    let traces = switch.traced(collector);
    assert_eq!(traces.len(), 2);
    let bridged = Step::Bridged {
        vlan: 5,
        egress: PortId(1),
        untagged: false,
    };
    for (trace, is_ip) in traces.iter().zip([true, false]) {
        let names = names(trace);
        assert_eq!(names.contains(&"parsed"), is_ip, "{names:?}");
        assert!(
            trace.records.iter().any(|it| it.step == bridged),
            "{names:?}"
        );
        assert_eq!(names.last(), Some(&"sent"));
    }
}
