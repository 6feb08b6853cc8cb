//! \[11\] Acknowledgements of any kind: what they say, written and read.

use crate::bit_set::BitSet;
use crate::limits;
use crate::verbs::Psn;
use common::wire::roce::{
    AckFlags, AckKind, Aeth, Bth, Headers, Marks, Mpeh, NakCode, Opcode, Operation, Sack,
};

/// Words of a set of packets between the oldest that is not acknowledged and the newest.
pub(crate) const SPAN_WORDS: usize = (limits::SEND_SPAN / 64) as usize;

/// Why a segment is refused, as the NAK says it (IBTA 9.7.5.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Does not fit what came before, or its length is wrong.
    InvalidRequest,
    /// The key, the range or the right is wrong.
    RemoteAccess,
    /// This side could not do it.
    RemoteOperation,
}

/// What the next acknowledgement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Report {
    /// What came so far.
    #[default]
    Acknowledge,
    /// A packet is missing, and what followed was dropped.
    SequenceError,
    /// No receive is posted for the expected packet.
    NotReady,
    /// The expected packet is refused; the queue pair has failed.
    Refused(Refusal),
}

/// The packet that causes an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trigger {
    pub(crate) psn: Psn,
    /// Path it came on.
    pub(crate) path: u8,
    /// One-way delay by both clocks, in units of 2⁵ ns (`CLOCK_SHIFT`) modulo 2¹⁶: the origin is
    /// unknown, but the same for all paths.
    pub(crate) delay: u16,
    /// It was a probe.
    pub(crate) probe: bool,
    /// UDP source port and flow label, which led it here; `None` before the first one.
    pub(crate) entropy: Option<(u16, u32)>,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgement {
    /// The next packet that the peer waits for: all before came.
    pub(crate) expected: Psn,
    /// Which arrived after it: bit i for `expected` + i.
    pub(crate) acked: BitSet<SPAN_WORDS>,
    /// The packet that caused it.
    pub(crate) trigger: Psn,
    /// The peer takes the first gap for a loss.
    pub(crate) loss: bool,
    /// Which packets were marked, and of which the headers alone arrived.
    pub(crate) marks: Option<Marks>,
    /// It names what came out of order, and which packet caused it. That of a plain peer does not.
    pub(crate) selective: bool,
}

/// What the receiver of data has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckFields {
    /// The peer's queue pair.
    pub(crate) destination_qpn: u32,
    pub(crate) report: Report,
    /// The next packet to be delivered.
    pub(crate) expected: Psn,
    /// Messages completed, modulo 2²⁴.
    pub(crate) msn: u32,
    /// Receives that this side has for messages beyond those; `None` sets no limit.
    pub(crate) credits: Option<u32>,
    /// How long the peer waits if no receive is posted: code 0–31.
    pub(crate) min_rnr_timer: u8,
    /// What multipath adds; `None` with a plain peer.
    pub(crate) multipath: Option<SackFields>,
}

/// What multipath adds to an acknowledgement (HT-11, HT-41).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SackFields {
    /// The packet that causes it.
    pub(crate) trigger: Trigger,
    /// Which packets arrived after the last one in order.
    pub(crate) received: [u64; 4],
    /// Newest flowlet of a packet that was delivered.
    pub(crate) flowlet: u16,
    /// Something came out of order since the last acknowledgement.
    pub(crate) reordered: bool,
    /// What is missing is taken for lost.
    pub(crate) loss: bool,
    /// Packets that were marked or trimmed since the last acknowledgement.
    pub(crate) marks: Option<Marks>,
}

impl AckFields {
    /// Whether it tells the peer how many receives there are.
    pub(crate) fn tells_credits(&self) -> bool {
        self.credits.is_some() && self.report == Report::Acknowledge
    }

    /// The headers that say it.
    pub(crate) fn headers(&self) -> Headers {
        let kind = match self.report {
            Report::Acknowledge => AckKind::Ack {
                credits: self
                    .credits
                    .map_or(Aeth::NO_CREDIT_LIMIT, Aeth::credit_code),
            },
            Report::SequenceError => AckKind::Nak(NakCode::PsnSequenceError),
            Report::NotReady => AckKind::ReceiverNotReady {
                timer: self.min_rnr_timer,
            },
            Report::Refused(refusal) => AckKind::Nak(match refusal {
                Refusal::InvalidRequest => NakCode::InvalidRequest,
                Refusal::RemoteAccess => NakCode::RemoteAccessError,
                Refusal::RemoteOperation => NakCode::RemoteOperationalError,
            }),
        };
        // An ACK names the last packet that came in order, a NAK the one it is about. With
        // multipath the bitmap always begins after the last one in order.
        let is_plain = self.multipath.is_none();
        let psn = match kind {
            AckKind::Nak(_) | AckKind::ReceiverNotReady { .. } if is_plain => self.expected,
            _ => self.expected.minus(1),
        };
        let opcode = if is_plain {
            Opcode::Rc(Operation::Acknowledge)
        } else {
            Opcode::Multipath(Operation::Acknowledge)
        };
        let mut headers = Headers::new(Bth::new(opcode, self.destination_qpn, psn.value()));
        headers.aeth = Some(Aeth {
            kind,
            msn: self.msn,
        });
        if let Some(sack) = &self.multipath {
            let flag = |set: bool, mask: u8| if set { mask } else { 0 };
            headers.mpeh = Some(Mpeh {
                path: sack.trigger.path,
                flags: flag(sack.reordered, AckFlags::REORDER)
                    | flag(sack.loss, AckFlags::LOSS)
                    | flag(sack.trigger.probe, AckFlags::PROBE_RESPONSE),
                flowlet: sack.flowlet,
                tag: sack.trigger.delay,
            });
            headers.sack = Some(Sack {
                bitmap: sack.received,
                trigger: sack.trigger.psn.value(),
                marks: sack.marks,
            });
        }
        headers
    }
}

impl Acknowledgement {
    /// Whether it says that packet `psn` was marked.
    pub(crate) fn is_marked(&self, psn: Psn) -> bool {
        self.marks
            .is_some_and(|marks| marks.marked & marks.bit(psn.value()) != 0)
    }

    /// Whether it tells of packets whose payload was cut off.
    pub(crate) fn tells_of_trims(&self) -> bool {
        self.marks.is_some_and(|marks| marks.trimmed != 0)
    }

    /// How many queue pairs share the way to the peer, if it says that.
    pub(crate) fn crowd(&self) -> Option<u32> {
        self.marks?.crowd.count()
    }

    /// The packets of which it says that their payload was cut off.
    pub(crate) fn trimmed(&self) -> impl Iterator<Item = Psn> + use<> {
        let marks = self.marks.unwrap_or_default();
        let mut left = marks.trimmed;
        std::iter::from_fn(move || {
            let index = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(Psn::new(marks.base).plus(index))
        })
    }

    /// What an acknowledgement with these headers says.
    pub(crate) fn read(headers: &Headers, aeth: &Aeth) -> Self {
        let psn = Psn::new(headers.bth.psn);
        let (Some(sack), Some(mpeh)) = (headers.sack, headers.mpeh) else {
            let expected = match aeth.kind {
                AckKind::Ack { .. } => psn.plus(1),
                AckKind::ReceiverNotReady { .. } | AckKind::Nak(_) => psn,
            };
            return Self {
                expected,
                acked: BitSet::default(),
                trigger: expected.minus(1),
                loss: false,
                marks: None,
                selective: false,
            };
        };
        let [a, b, c, d] = sack.bitmap;
        Self {
            expected: psn.plus(1),
            acked: BitSet::from_words([a, b, c, d, 0, 0, 0, 0]),
            trigger: Psn::new(sack.trigger),
            loss: mpeh.has(AckFlags::LOSS),
            marks: sack.marks,
            selective: true,
        }
    }
}
