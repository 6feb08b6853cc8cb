//! \[11\] What the receiver has to report, and when (HT-41, HT-42).
//!
//! One acknowledgement covers several packets, or those of a short time. One leaves at once when
//! the peer asks for it, when a packet came twice (the peer may have missed the acknowledgement),
//! and when a loss is suspected.

use super::reflect::Reflector;
use super::share::Share;
use super::telemetry::Observer;
use crate::frame::{DataHeader, Refusal, Report, SackFields, Trigger, under_way};
use crate::verbs::Psn;
use common::time::{Span, Time};
use common::wire::int::Telemetry;
use common::wire::roce::{Crowd, MARK_BITS, Marks, Reflection, Utilisation};

/// Queue pairs in the middle of a message from which on the peer is told how many there are.
const CROWD_MIN: u32 = 2;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    every: u16,
    delay: Span,
    /// Packets since the last acknowledgement.
    pending: u16,
    due: bool,
    deadline: Time,
    report: Report,
    trigger: Trigger,
    /// A packet came that is acknowledged.
    begun: bool,
    /// Something came out of order since the last acknowledgement.
    reordered: bool,
    /// Packets that were marked or trimmed since the last acknowledgement.
    marks: Marks,
    /// Trims that have no place beside them in one acknowledgement.
    more_marks: Marks,
    /// The peer understands them.
    tells_marks: bool,
    /// What CSIG tags said, for a peer that wants to know.
    reflector: Option<Box<Reflector>>,
    /// The same of telemetry.
    observer: Option<Box<Observer>>,
    /// Headers came alone since a packet was delivered.
    cut: bool,
    /// Headers came alone at some time: the network trims.
    trims: bool,
    /// How large a crowd the peer was told of last; zero: of none.
    told: Crowd,
    share: Share,
    /// Newest flowlet of a packet that was delivered in order.
    flowlet: u16,
    /// A plain peer was told to repeat from the expected packet on: by a NAK, or by an RNR NAK.
    /// Once is enough until that packet comes (InfiniBand 9.7.5.1.5).
    told_to_repeat: bool,
    /// The newest packet of a plain peer that was dropped because it was early.
    dropped: Psn,
    /// The peer repeats: nothing new came since …
    repeats: bool,
    /// … and this is the last packet that came for the second time.
    repeated: Psn,
    /// How often the peer began to repeat.
    detours: u8,
}

impl Reports {
    /// Reports after `every` packets or `delay`.
    pub(crate) fn new(every: u32, delay: Span) -> Self {
        Self {
            every: u16::try_from(every.max(1)).unwrap_or(u16::MAX),
            delay,
            pending: 0,
            due: false,
            deadline: Time::NEVER,
            report: Report::Acknowledge,
            trigger: Trigger::default(),
            begun: false,
            reordered: false,
            marks: Marks::default(),
            more_marks: Marks::default(),
            tells_marks: false,
            reflector: None,
            observer: None,
            cut: false,
            trims: false,
            told: Crowd::default(),
            share: Share::default(),
            flowlet: 0,
            told_to_repeat: false,
            dropped: Psn::default(),
            repeats: false,
            repeated: Psn::default(),
            detours: 0,
        }
    }

    /// Reports to a peer that understands marks and trims of packets.
    pub(crate) fn with_marks(mut self) -> Self {
        self.tells_marks = true;
        self
    }

    /// Reports to a peer that understands reflections of CSIG tags, on so many paths.
    pub(crate) fn with_signals(mut self, paths: usize) -> Self {
        self.reflector = Some(Box::new(Reflector::new(paths)));
        self
    }

    /// What the next acknowledgement says of CSIG tags, once.
    pub(crate) fn reflection(&mut self) -> Option<Reflection> {
        self.reflector.as_mut()?.tell()
    }

    /// Reports to a peer that understands what follows from telemetry, on so many paths; `base` is
    /// the round trip of the idle network.
    pub(crate) fn with_telemetry(mut self, base: Span, paths: usize) -> Self {
        self.observer = Some(Box::new(Observer::new(base, paths)));
        self
    }

    /// A data packet came on `path`, with telemetry or without.
    pub(crate) fn observe(&mut self, path: u8, telemetry: Option<&Telemetry>, now: Time) {
        if let Some(observer) = &mut self.observer {
            observer.note(path, telemetry, now);
        }
    }

    /// What the next acknowledgement says of the worst link of a path, once.
    pub(crate) fn utilisation(&mut self) -> Option<Utilisation> {
        self.observer.as_mut()?.tell()
    }

    /// The headers of packet `psn` came without its payload. It is told at once (HT-42); whether it
    /// will be. What one acknowledgement cannot tell of follows in a second one; the sender's own
    /// rules find what does not fit there either.
    pub(crate) fn on_trimmed(&mut self, psn: Psn) -> bool {
        if !self.tells_marks {
            return false;
        }
        self.due = true;
        self.cut = true;
        self.trims = true;
        for marks in [&mut self.marks, &mut self.more_marks] {
            let bit = Self::bit(marks, psn);
            marks.trimmed |= bit;
            if bit != 0 {
                return true;
            }
        }
        false
    }

    /// Whether packets came of which none was delivered.
    pub(crate) fn misses_first(&self) -> bool {
        self.cut
    }

    /// `count` queue pairs of this host are in the middle of a message, and so many packets have
    /// come for all and for this one: the next acknowledgement tells the peer how many share the
    /// link, if it tells of marks or trims anyway, or if that is news and packets of the peer were
    /// trimmed. Small crowds are no business of the peer's: its congestion control manages alone.
    pub(crate) fn on_crowd(&mut self, count: u32, packets: (u64, u64)) {
        let count = self.share.crowd(count, packets);
        let told = if count >= CROWD_MIN {
            Crowd::new(count)
        } else if self.told == Crowd::default() {
            return;
        } else {
            // It was told of more.
            Crowd::new(count.max(1))
        };
        let news = self.trims && told != self.told;
        if self.tells_marks && (news || !self.marks.is_empty()) {
            self.marks.crowd = told;
        }
    }

    /// The bit of packet `psn` in `marks`; zero if it has none.
    fn bit(marks: &mut Marks, psn: Psn) -> u128 {
        if marks.is_empty() {
            // Later packets may be older ones.
            marks.base = psn.minus(MARK_BITS / 2).value();
        }
        marks.bit(psn.value())
    }

    /// The expected packet came.
    pub(crate) fn on_in_order(&mut self, header: &DataHeader, now: Time) {
        self.repeats = false;
        self.count(header, now);
    }

    /// An early packet came. It is acknowledged only if it is `kept`.
    pub(crate) fn on_early(&mut self, header: &DataHeader, kept: bool, now: Time) {
        self.reordered = true;
        if kept {
            self.count(header, now);
        }
    }

    /// The peer sent packet `psn` for the second time: it may have missed the answer.
    pub(crate) fn on_repeated(&mut self, psn: Psn) {
        let goes_on = self.repeats && self.repeated.is_before(psn);
        (self.repeats, self.repeated) = (true, psn);
        let anew = !goes_on;
        self.detours = self.detours.wrapping_add(anew.into());
    }

    /// A packet came for the second time: the peer may have missed the acknowledgement.
    pub(crate) fn on_duplicate(&mut self, header: &DataHeader, now: Time) {
        self.count(header, now);
        self.due = true;
    }

    /// A plain peer's packet came early and was dropped.
    pub(crate) fn on_gap(&mut self, psn: Psn) {
        if !self.told_to_repeat {
            self.told_to_repeat = true;
            self.dropped = psn;
            self.send_at_once(Report::SequenceError);
        }
        if self.dropped.is_before(psn) {
            self.dropped = psn;
        }
    }

    /// The expected packet finds no receive.
    pub(crate) fn on_not_ready(&mut self) {
        self.told_to_repeat = true;
        self.send_at_once(Report::NotReady);
    }

    /// A receive was posted for the packet that had found none.
    pub(crate) fn on_receive_posted(&mut self) {
        self.send_at_once(Report::Acknowledge);
    }

    /// A receive was posted, and the peer believes that there is none.
    pub(crate) fn on_credit(&mut self) {
        self.due = true;
    }

    /// The expected packet is refused.
    pub(crate) fn on_refused(&mut self, refusal: Refusal) {
        self.send_at_once(Report::Refused(refusal));
    }

    /// A packet came after the queue pair stopped receiving. A refusal is repeated, because the
    /// first one may be lost.
    pub(crate) fn on_unreceivable(&mut self) {
        self.due |= self.refuses();
    }

    /// Packet `psn` was delivered: the gap before it is closed, and there was a receive.
    pub(crate) fn on_delivered(&mut self, psn: Psn, flowlet: u16) {
        self.told_to_repeat = false;
        self.flowlet = flowlet;
        self.cut = false;
        // What has not left yet would be wrong now. What was dropped behind it still is missing.
        let missing = self.report == Report::SequenceError && psn.is_before(self.dropped);
        if !missing && !self.refuses() {
            self.report = Report::Acknowledge;
        }
    }

    fn send_at_once(&mut self, report: Report) {
        self.report = report;
        self.due = true;
    }

    /// Whether the report is a refusal.
    pub(crate) fn refuses(&self) -> bool {
        matches!(self.report, Report::Refused(_))
    }

    /// UDP source port and flow label of the packet that causes the acknowledgement: what led it
    /// here is the likeliest to lead back. `None` before the first one.
    pub(crate) fn entropy(&self) -> Option<(u16, u32)> {
        self.trigger.entropy
    }

    /// Which of the own ways answers to a plain peer take. One that repeats what it was told of has
    /// not heard it: the way may be silent, so the next one is tried (HT-24).
    pub(crate) fn detours(&self) -> u8 {
        self.detours
    }

    /// What the next acknowledgement says of the packets before it.
    pub(super) fn report(&self) -> Report {
        self.report
    }

    /// What multipath adds to the next acknowledgement. `expected`: the next packet; `received`:
    /// the packets after it; `loss`: the oldest gap is taken for a loss.
    pub(super) fn sack_fields(&self, expected: Psn, received: [u64; 4], loss: bool) -> SackFields {
        let mut trigger = self.trigger;
        if !self.begun {
            // Nothing came that could have caused it.
            trigger.psn = expected.minus(1);
        }
        SackFields {
            trigger,
            received,
            flowlet: self.flowlet,
            reordered: self.reordered,
            loss,
            marks: (!self.says_nothing()).then_some(self.marks),
        }
    }

    fn says_nothing(&self) -> bool {
        self.marks.is_empty() && self.marks.crowd == Crowd::default()
    }

    /// Counts a packet that will be acknowledged.
    fn count(&mut self, header: &DataHeader, now: Time) {
        if header.congested && self.tells_marks {
            let bit = Self::bit(&mut self.marks, header.psn);
            self.marks.marked |= bit;
            // The next packets have to find room.
            self.due |= bit == 0;
        }
        if let Some(reflector) = &mut self.reflector {
            reflector.note(header.path, header.signal);
        }
        let mut probe = header.probe;
        if self.pending > 0 {
            probe |= self.trigger.probe;
        }
        self.trigger = Trigger {
            psn: header.psn,
            path: header.path,
            delay: under_way(header.tag, now),
            probe,
            entropy: Some(header.entropy),
        };
        self.begun = true;
        self.pending = self.pending.saturating_add(1);
        if self.pending == 1 {
            self.deadline = now + self.delay;
        }
        if self.pending >= self.every || header.ack_request || header.probe {
            self.due = true;
        }
    }

    /// Whether one goes now.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.due || (self.pending > 0 && self.deadline <= now)
    }

    /// When one becomes due without anything else happening.
    pub(crate) fn deadline(&self) -> Time {
        if self.due || self.pending == 0 {
            Time::NEVER
        } else {
            self.deadline
        }
    }

    /// One left. A refusal stays: it is repeated for each repeated packet.
    pub(crate) fn on_left(&mut self) {
        self.pending = 0;
        self.due = false;
        self.deadline = Time::NEVER;
        self.reordered = false;
        if let Some(told) = self.marks.crowd.count() {
            let crowd = Crowd::new(if told >= CROWD_MIN { told } else { 0 });
            self.told = crowd;
        }
        self.marks = std::mem::take(&mut self.more_marks);
        self.due = !self.marks.is_empty();
        self.trigger.probe = false;
        if !self.refuses() {
            self.report = Report::Acknowledge;
        }
    }
}
