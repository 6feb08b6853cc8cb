mod tails;

use super::*;
use crate::bit_set::BitSet;
use crate::connection::steering::SteeringPlan;
use crate::send::flight::News;
use crate::verbs::{EngineConfig, MultipathConfig, PortId, PortSet, Spraying};
use common::wire::roce::Marks;

const TOLERANCE: u32 = 8;

struct Bed {
    sender: Sender,
    steering: Steering,
    counters: QueuePairCounters,
    now: Time,
    multipath: bool,
}

fn micros(n: u64) -> Span {
    Span::from_micros(n)
}

impl Bed {
    fn new(first: u32, multipath: bool) -> Self {
        Self::patient(first, multipath, micros(100_000), 1)
    }

    /// Up to 512 packets may be on their way.
    fn wide(first: u32, window: u32) -> Self {
        Self::of((first, window), true, micros(100_000), 1)
    }

    fn patient(first: u32, multipath: bool, ack_timeout: Span, retry_count: u8) -> Self {
        Self::of((first, 64), multipath, ack_timeout, retry_count)
    }

    fn of(
        (first, window): (u32, u32),
        multipath: bool,
        ack_timeout: Span,
        retry_count: u8,
    ) -> Self {
        let agreed = MultipathConfig::default();
        let rules = Rules {
            tolerance: multipath.then_some((TOLERANCE, micros(1_000))),
            rto_min: micros(4_000),
            rto_initial: micros(50_000),
            ack_delay: micros(100),
            ack_timeout: Some(ack_timeout),
            retry_count,
            rnr_retry: Some(2),
        };
        let agreed = multipath.then_some(&agreed);
        let config = EngineConfig {
            spraying: Spraying::Oblivious,
            ..EngineConfig::default()
        };
        let plan = SteeringPlan {
            identity: 1,
            seed: 1,
            window,
            mtu: 4096,
            congestion: config.congestion,
        };
        Self {
            sender: Sender::new(Psn::new(first), 2 * window, rules),
            steering: Steering::new(agreed, &plan, &config),
            counters: QueuePairCounters::default(),
            now: Time::from_nanos(1_000_000_000),
            multipath,
        }
    }

    /// Where a packet goes that leaves now.
    fn depart(&mut self, other_than: Option<u8>, probe: bool) -> Departed {
        let free = PortSet::NONE.with(PortId::new(0));
        let in_flight = self.sender.flight().in_flight();
        let choice = self
            .steering
            .choose(free, (in_flight, probe), other_than, self.now)
            .expect("credit");
        Departed {
            path: choice.path.path,
            entropy: choice.path.entropy,
            at: self.now,
        }
    }

    fn send(&mut self, packets: u32) {
        for _ in 0..packets {
            assert!(self.sender.may_send_new(&self.steering));
            let departed = self.depart(None, false);
            self.sender.sent(0, 1, departed);
        }
    }

    fn resend(&mut self) -> Vec<u32> {
        let mut sent = Vec::new();
        while let Some(again) = self.sender.retransmission(&self.steering) {
            let departed = self.depart(Some(again.entropy), again.probe);
            assert_ne!(departed.entropy, again.entropy, "another path");
            self.sender.sent_again(again.psn, departed);
            sent.push(again.psn.value());
        }
        sent
    }

    /// The peer has all before `expected`, and those of `acked`, the last of which caused the
    /// answer.
    fn answer(&mut self, expected: u32, acked: &[u32]) -> Verdict {
        self.answer_with(expected, acked, false)
    }

    /// The peer has all before `expected`; `trigger` caused the answer.
    fn answer_to(&mut self, expected: u32, trigger: u32) -> Verdict {
        self.sender.acknowledge(
            &Acknowledgement {
                expected: Psn::new(expected),
                acked: BitSet::default(),
                trigger: Psn::new(trigger),
                loss: false,
                marks: None,
                selective: true,
            },
            self.now,
            &mut self.steering,
            &mut self.counters,
        )
    }

    fn answer_with(&mut self, expected: u32, acked: &[u32], loss: bool) -> Verdict {
        let expected = Psn::new(expected);
        let mut bits = BitSet::default();
        for &psn in acked {
            bits.set(Psn::new(psn).since(expected));
        }
        let ack = Acknowledgement {
            expected,
            acked: bits,
            trigger: acked
                .last()
                .map_or_else(|| expected.minus(1), |&psn| Psn::new(psn)),
            loss,
            marks: None,
            selective: self.multipath,
        };
        self.sender
            .acknowledge(&ack, self.now, &mut self.steering, &mut self.counters)
    }

    fn not_ready(&mut self) -> Result<(), Status> {
        let (steering, counters) = (&mut self.steering, &mut self.counters);
        self.sender
            .not_ready(micros(640), self.now, steering, counters)
    }

    fn pass(&mut self, span: Span) {
        self.now += span;
    }

    fn expire(&mut self) -> Result<(), Status> {
        self.now = self.now.max(self.sender.deadline());
        self.sender
            .expire(self.now, &mut self.steering, &mut self.counters)
    }
}

/// HT-30, HT-43: the window fills, is acknowledged across the wrap, and gets a round-trip time.
#[test]
fn a_window_goes_out_and_is_acknowledged() {
    let mut bed = Bed::new(0xff_fff0, true);
    bed.send(64);
    assert!(!bed.sender.may_send_new(&bed.steering));
    bed.pass(micros(200));
    assert!(matches!(bed.answer(0x30, &[]), Verdict::Valid(_)));
    assert!(bed.sender.flight().is_idle());
    assert_eq!(bed.sender.flight().in_flight(), 0);
    assert_eq!(bed.sender.rtt(), Some(micros(200)));
    assert_eq!(bed.sender.deadline(), Time::NEVER);
    assert_eq!(bed.answer(0x31, &[]), Verdict::Impossible);
    assert_eq!(bed.answer(0x2f, &[]), Verdict::Overtaken);
}

/// HT-41, HT-43: a gap is no loss within the tolerance; past it, it alone is sent again, on another
/// path, and once a round trip.
#[test]
fn only_what_is_lost_is_sent_again() {
    let mut bed = Bed::new(0, true);
    bed.send(40);
    bed.pass(micros(100));
    let acked: Vec<_> = (1..=TOLERANCE).filter(|&psn| psn != 3).collect();
    bed.answer(0, &acked);
    assert!(bed.resend().is_empty(), "within the tolerance");
    let acked: Vec<_> = (1..=TOLERANCE + 1).filter(|&psn| psn != 3).collect();
    bed.answer(0, &acked);
    assert_eq!(bed.resend(), [0]);
    let acked: Vec<_> = (1..30).filter(|&psn| psn != 3).collect();
    bed.answer(0, &acked);
    assert_eq!(bed.resend(), [3], "0 is on its way");
    bed.answer(0, &acked);
    assert!(bed.resend().is_empty());
    assert_eq!(bed.counters.fast_retransmits, 2);
    bed.pass(micros(100));
    bed.answer(40, &[]);
    assert!(bed.sender.flight().is_idle());
}

/// HT-41: what the peer reports as lost is sent again though few packets overtook it.
#[test]
fn the_peers_report_counts() {
    let mut bed = Bed::new(0, true);
    bed.send(10);
    bed.pass(micros(100));
    bed.answer(2, &[4, 6]);
    assert!(bed.resend().is_empty());
    bed.answer_with(2, &[4, 6], true);
    assert_eq!(bed.resend(), [2, 3], "5 is not named");
}

/// HT-41: a packet that left long before one that came is lost.
#[test]
fn time_counts_as_well_as_number() {
    let mut bed = Bed::new(0, true);
    bed.send(1);
    bed.pass(micros(999));
    bed.send(1);
    bed.answer(0, &[1]);
    assert!(bed.resend().is_empty());
    bed.pass(micros(1));
    bed.send(1);
    bed.answer(0, &[1, 2]);
    assert_eq!(bed.resend(), [0]);
}

/// HT-24, HT-43: the tail is probed after two round trips, then the time-out doubles, and after the
/// ACK time-out's retries the peer is given up.
#[test]
fn silence_is_probed_then_backed_off_then_fatal() {
    let mut bed = Bed::new(0, true);
    bed.send(1);
    bed.pass(micros(800));
    bed.answer(1, &[]);
    bed.send(20);
    let start = bed.now;
    assert_eq!(bed.expire(), Ok(()));
    assert_eq!(
        bed.now.since(start),
        micros(1_700),
        "2 RTT and the ACK delay"
    );
    assert_eq!(bed.resend(), [1], "a probe");
    assert_eq!(bed.counters.tail_probes, 1);
    let _ = bed.expire();
    assert_eq!(bed.resend(), [1], "the oldest again");
    let _ = bed.expire();
    assert_eq!(bed.counters.timeouts, 1);
    let first = bed.resend();
    assert_eq!(
        first,
        [1, 2, 3, 4, 5, 6, 7, 8],
        "no more than feels out the network"
    );
    // Probes go on between time-outs, each by another way.
    let mut until_next = || {
        let (before, probes) = (bed.now, bed.counters.tail_probes);
        let timeouts = bed.counters.timeouts;
        while bed.counters.timeouts == timeouts {
            let _ = bed.expire();
            bed.resend();
        }
        (bed.now.since(before), bed.counters.tail_probes - probes)
    };
    let (second, third) = (until_next(), until_next());
    // The ways are searched then.
    assert_eq!((second.1, third.1), (2, 8));
    assert!(
        third.0 > second.0 && third.0 <= second.0.times(2),
        "{second:?} {third:?}"
    );
    let gone = (0..20).any(|_| bed.expire() == Err(Status::RetryExceeded));
    assert!(gone);
    assert!(bed.now.since(start) >= micros(200_000), "two ACK time-outs");
    assert!(bed.now.since(start) < micros(400_000));
}

/// HT-43, HT-63: a peer that was never heard is tried on some eighty ways before it counts as gone:
/// where one of two switches in the middle swallows what it gets, three of four packets have no
/// answer.
#[test]
fn a_peer_that_was_never_heard_is_tried_often() {
    let mut bed = Bed::patient(0, true, micros(536_870), 7);
    bed.send(1);
    let (start, mut tries) = (bed.now, 1);
    while bed.expire().is_ok() {
        tries += bed.resend().len();
    }
    let took = bed.now.since(start);
    assert!(took >= micros(8 * 536_870), "{took}");
    assert!((70..100).contains(&tries), "{tries} times in {took}");
}

/// HT-43, RFC 8985 7.3: a probe leaves also when the window is full, and then nothing else does.
#[test]
fn a_probe_leaves_through_a_full_window() {
    let mut bed = Bed::new(0, true);
    bed.send(1);
    bed.pass(micros(50));
    bed.answer(1, &[]);
    while bed.sender.may_send_new(&bed.steering) {
        bed.send(1);
    }
    let full = bed.sender.flight().in_flight();
    let _ = bed.expire();
    bed.steering.timed_out(bed.now);
    assert!(bed.steering.window() < full, "it narrowed meanwhile");
    assert_eq!(bed.resend(), [1], "the probe alone");
}

/// HT-43, InfiniBand 9.7.6.1.3: with a time-out that is shorter than the waits here there are still
/// as many retries as were asked for before the peer counts as gone.
#[test]
fn short_time_outs_leave_room_for_retries() {
    for retries in [0, 1, 3, 7] {
        let mut bed = Bed::patient(0, false, micros(8), retries);
        bed.send(1);
        let mut repeated = 0;
        let end = loop {
            if let Err(status) = bed.expire() {
                break status;
            }
            while let Some(again) = bed.sender.retransmission(&bed.steering) {
                let departed = bed.depart(None, false);
                bed.sender.sent_again(again.psn, departed);
                repeated += 1;
            }
        };
        assert_eq!((end, repeated), (Status::RetryExceeded, retries));
    }
}

/// HT-43: a plain peer gets everything again from the packet that it misses.
#[test]
fn a_plain_peer_gets_go_back_n() {
    let mut bed = Bed::new(0xff_fffe, false);
    bed.send(6);
    bed.pass(micros(50));
    bed.answer(0, &[]);
    bed.sender.sequence_error(bed.now, &mut bed.steering);
    let mut sent = Vec::new();
    while let Some(again) = bed.sender.retransmission(&bed.steering) {
        let departed = bed.depart(None, false);
        bed.sender.sent_again(again.psn, departed);
        sent.push(again.psn.value());
    }
    assert_eq!(sent, [0, 1, 2, 3]);
    assert!(matches!(bed.answer(4, &[]), Verdict::Valid(_)));
    assert!(bed.sender.flight().is_idle());
}

/// HT-1: a peer without a receive is left alone as long as it says, and not for ever.
#[test]
fn a_peer_without_receives_is_waited_for() {
    let mut bed = Bed::new(0, true);
    bed.send(3);
    for _ in 0..2 {
        let answer = bed.not_ready();
        assert_eq!(answer, Ok(()));
        assert!(
            bed.sender.retransmission(&bed.steering).is_none()
                && !bed.sender.may_send_new(&bed.steering)
        );
        let before = bed.now;
        assert_eq!(bed.expire(), Ok(()));
        assert_eq!(bed.now.since(before), micros(640));
        assert_eq!(bed.resend(), [0], "asks again with the packet itself");
    }
    let answer = bed.not_ready();
    assert_eq!(answer, Err(Status::RnrRetryExceeded));
}

/// HT-39, HT-40: a packet that came and is expected all the same may be sent again, unless its
/// request is done: the application has its memory back.
#[test]
fn what_is_done_is_not_taken_back() {
    for done in [false, true] {
        let mut bed = Bed::new(0, true);
        bed.send(2);
        bed.answer(0, &[1]);
        bed.answer(1, &[]);
        assert_eq!(bed.sender.flight().in_flight(), 0);
        bed.sender.take_back(Psn::new(0), |_| done);
        bed.sender.take_back(Psn::new(1), |_| done);
        assert_eq!(bed.sender.flight().in_flight(), u32::from(!done));
        bed.answer(2, &[]);
        assert!(bed.sender.flight().is_idle());
    }
}

/// HT-1: the retries of a request begin anew with the next one that waits for a receive.
#[test]
fn a_receive_that_came_is_progress() {
    let mut bed = Bed::new(0, true);
    bed.send(4);
    for number in 0..3 {
        for _ in 0..2 {
            assert_eq!(bed.not_ready(), Ok(()), "packet {number}");
            assert_eq!(bed.expire(), Ok(()));
            assert_eq!(bed.resend(), [number]);
        }
        assert!(matches!(bed.answer(number + 1, &[]), Verdict::Valid(_)));
    }
}

/// HT-43: an answer about packets that were never sent changes nothing.
#[test]
fn impossible_answers_change_nothing() {
    let mut bed = Bed::new(100, true);
    bed.send(5);
    assert_eq!(bed.answer(106, &[]), Verdict::Impossible);
    assert_eq!(bed.answer(99, &[]), Verdict::Overtaken);
    let nothing = Verdict::Valid(News::default());
    assert_eq!(bed.answer(100, &[105, 300]), nothing);
    assert_eq!(bed.sender.flight().in_flight(), 5);
    assert!(bed.resend().is_empty());
}

/// HT-43: a report that is repeated without news neither puts the clocks back nor spoils the
/// round-trip time, and what it names is sent again once a round trip; so the loss of a repeated
/// packet is repaired, and if everything fails the time-out comes.
#[test]
fn repeated_reports_are_no_progress() {
    let mut bed = Bed::new(0, true);
    bed.send(64);
    bed.pass(micros(200));
    bed.answer_with(0, &[40], true);
    let rtt = bed.sender.rtt();
    assert_eq!(bed.resend().len(), 40);
    let deadline = bed.sender.deadline();
    let mut repaired = 0;
    for _ in 0..12 {
        bed.pass(micros(1_000));
        if bed.sender.deadline() <= bed.now {
            break;
        }
        bed.answer_with(0, &[40], true);
        repaired += bed.resend().len();
    }
    assert_eq!(bed.sender.rtt(), rtt);
    assert!(repaired >= 40, "{repaired}");
    assert!(deadline < bed.now, "the clocks go on");
}

/// HT-43: the packet that caused an answer came, also when it is beyond the bitmap; but not the one
/// that waits for a receive.
#[test]
fn the_trigger_is_acknowledged() {
    let mut bed = Bed::new(0, true);
    bed.send(20);
    bed.pass(micros(100));
    for (trigger, in_flight) in [(0, 20), (7, 19), (7, 19), (19, 18), (300, 18)] {
        bed.answer_to(0, trigger);
        let (flying, lost) = bed.sender.flight().census();
        assert_eq!(flying + u32::try_from(lost).expect("few"), in_flight);
    }
}

/// HT-42, HT-43: what was trimmed is sent again at once, once for each copy; a report of a copy
/// that has been replaced, or of what was never sent, changes nothing.
#[test]
fn trimmed_packets_are_sent_again_at_once() {
    let mut bed = Bed::new(0xff_fffe, true);
    bed.send(20);
    bed.pass(micros(100));
    bed.answer(0, &[]);
    let trimmed = |psns: &[u32]| {
        let mut marks = Marks {
            base: 0xff_ffc0,
            ..Marks::default()
        };
        for &psn in psns {
            assert_ne!(marks.bit(psn), 0, "within the bitmap");
            marks.trimmed |= marks.bit(psn);
        }
        Acknowledgement {
            expected: Psn::new(0),
            acked: BitSet::default(),
            trigger: Psn::new(0xff_ffff),
            loss: false,
            marks: Some(marks),
            selective: true,
        }
    };
    let report = |bed: &mut Bed, psns: &[u32]| {
        bed.sender.acknowledge(
            &trimmed(psns),
            bed.now,
            &mut bed.steering,
            &mut bed.counters,
        );
        bed.resend()
    };
    // Before the oldest one, never sent, and two of those in flight.
    assert_eq!(report(&mut bed, &[0xff_ffff, 40, 3, 5]), [3, 5]);
    assert_eq!(bed.counters.rx_trims, 2);
    bed.pass(micros(1));
    assert!(report(&mut bed, &[3, 5]).is_empty(), "not the new copies");
    // The shortest round trip may have been measured in a crowd, and this one be far shorter.
    bed.pass(micros(5));
    assert_eq!(report(&mut bed, &[3]), [3], "the new copy");
    assert_eq!(bed.sender.backoff_shift(), 0, "nothing was spurious");
    bed.pass(micros(100));
    bed.answer(18, &[]);
    assert!(bed.sender.flight().is_idle());
}

/// HT-42: acknowledgements take several ways. One that was overtaken by a later one still tells
/// what was trimmed, since that is told once; nothing else of it counts.
#[test]
fn overtaken_answers_tell_of_trims() {
    let mut bed = Bed::new(0, true);
    bed.send(6);
    bed.pass(micros(100));
    bed.answer(2, &[]);
    let marks = Marks {
        base: 0,
        trimmed: 1 << 1 | 1 << 4,
        ..Marks::default()
    };
    let mut acked = BitSet::default();
    acked.set(5);
    let ack = Acknowledgement {
        expected: Psn::new(0),
        acked,
        trigger: Psn::new(5),
        loss: false,
        marks: Some(marks),
        selective: true,
    };
    let (steering, counters) = (&mut bed.steering, &mut bed.counters);
    let verdict = bed.sender.acknowledge(&ack, bed.now, steering, counters);
    assert_eq!(verdict, Verdict::Overtaken);
    assert_eq!((bed.resend(), bed.counters.rx_trims), (vec![4], 1));
    assert_eq!(bed.sender.flight().in_flight(), 4);
}

/// HT-41: a spurious retransmission doubles the tolerance; time without such halves it.
#[test]
fn spurious_retransmissions_double_the_waits() {
    let mut bed = Bed::new(0, true);
    bed.send(30);
    bed.pass(micros(5_000));
    let acked: Vec<_> = (1..=9).collect();
    bed.answer(0, &acked);
    assert_eq!(bed.resend(), [0]);
    // One copy arrives, then, for some reason several times, the other.
    let again = Acknowledgement {
        expected: Psn::new(10),
        acked: BitSet::default(),
        trigger: Psn::new(0),
        loss: false,
        marks: None,
        selective: true,
    };
    for shift in [0, 1, 1, 1] {
        bed.sender
            .acknowledge(&again, bed.now, &mut bed.steering, &mut bed.counters);
        assert_eq!(bed.sender.backoff_shift(), shift, "one cause");
    }
    let acked: Vec<_> = (11..=11 + TOLERANCE).collect();
    bed.answer(10, &acked);
    assert!(bed.resend().is_empty(), "twice the tolerance");
    bed.pass(micros(1_000_001));
    let acked: Vec<_> = (11..=12 + TOLERANCE).collect();
    bed.answer(10, &acked);
    assert_eq!(bed.sender.backoff_shift(), 0);
    assert_eq!(bed.resend(), [10]);
}

/// HT-41: an old acknowledgement that comes late is not taken for a second copy.
#[test]
fn late_acknowledgements_teach_nothing() {
    let mut bed = Bed::new(0, true);
    bed.send(30);
    bed.pass(micros(5_000));
    bed.answer(0, &[1, 2, 3, 4, 5]);
    bed.answer(0, &[1, 2, 3]);
    bed.answer(0, &[1]);
    assert_eq!(bed.sender.backoff_shift(), 0);
}

/// HT-45: for as long as the own port was paused the clocks stand still, once.
#[test]
fn clocks_stand_still_while_the_port_is_paused() {
    let mut bed = Bed::new(0, true);
    bed.sender.paused(micros(70), bed.now);
    assert_eq!(bed.sender.deadline(), Time::NEVER);
    bed.send(1);
    let deadline = bed.sender.deadline();
    bed.sender.paused(micros(70), bed.now);
    assert_eq!(bed.sender.deadline(), deadline);
    // Longer than it takes to give a silent peer up.
    let pause = micros(500_000);
    bed.sender.paused(micros(70) + pause, bed.now);
    bed.sender.paused(micros(70) + pause, bed.now);
    assert_eq!(bed.sender.deadline(), deadline + pause);
    assert_eq!(bed.expire(), Ok(()));
    assert_eq!(bed.counters.timeouts, 1);
    bed.pass(pause);
    bed.sender.paused(micros(70) + pause.times(2), bed.now);
    assert_eq!(bed.expire(), Ok(()), "one time-out is no silence");
}
