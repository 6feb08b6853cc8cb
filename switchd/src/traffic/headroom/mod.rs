//! \[6\] Headroom: what still arrives of a lossless class after a pause was sent to its peer.
//!
//! ```text
//!   us    xoff ──turn──▶ own backlog ▶ pause ──cable──▶                            ──▶ silence
//!   peer                                        response ▶ backlog ▶ last frame ──cable
//!                ◀───────────── the peer sends all the time ──────────────▶
//! ```
//!
//! The terms of the wire are those of 802.1Q (annex O, buffer requirements of PFC) as SONiC
//! computes them: the cable both ways, the frame that is on its way out when the pause is due, the
//! pause itself, the peer's response time, and the frame that the peer has begun. A switch in
//! software adds three: frames that lie unread in the receive ring when the threshold is crossed,
//! those that arrive until the worker has come round to sending the pause, and those that arrive
//! while the device sends what it was handed before the pause. A peer in software adds what its
//! device was handed before it read the pause.
//!
//! What arrives comes at the speed of the link, whatever the port itself is shaped to. What lies in
//! the device follows the shaper, which lets it go.
//!
//! The buffer is accounted in cells and a short frame takes a whole one, so bytes on the wire are
//! converted to cells for the worst frame length: the one that takes the most cells in the least
//! line time.

use crate::packet::{cells, wire_len};
use common::time::Span;
use common::units::Rate;
use common::wire::pause::{FRAME_LEN, QUANTUM_BITS};

/// Speed of light in fibre in metres a second, as in SONiC's computation. In copper it is within 10
/// % of this.
pub const LIGHT: u64 = 198_000_000;

/// Response times of a peer: speed in Mbit/s and quanta of 512 bits. 802.1Q gives them for each
/// kind of interface; these are the numbers of SONiC, `pause_quanta` of its headroom computation.
pub const RESPONSE: [(u64, u64); 10] = [
    (100, 1),
    (1_000, 2),
    (10_000, 67),
    (25_000, 80),
    (40_000, 118),
    (50_000, 147),
    (100_000, 394),
    (200_000, 453),
    (400_000, 905),
    (800_000, 905),
];

/// The name of [`Breakdown::response`].
pub const RESPONSE_TERM: &str = "response";

/// The name of [`Breakdown::peer_backlog`].
pub const PEER_BACKLOG: &str = "peer's backlog";

/// How long a bit takes from one end of a link to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    /// Its length in metres.
    Metres(u32),
    /// Measured, one way.
    Delay(Span),
}

/// What headroom depends on.
///
/// 10 Gbit/s over 100 m with frames of 60 to 1514 bytes, a worker that reads each ring of 2048
/// frames at least every 50 µs, and a peer whose response time is not known:
///
/// | term | bytes on the wire | cells |
/// |---|---|---|
/// | cable: 2 · 100 m ÷ 198 000 km/s | 1 263 | 16 |
/// | own backlog: 78 125 + 1 538 − 62 500 | 17 163 | 204 |
/// | pause frame | 84 | 1 |
/// | response: 67 · 512 bits | 4 288 | 52 |
/// | peer's backlog: none | 0 | 0 |
/// | peer's frame | 1 538 | 6 |
/// | unread: 50 µs | 62 500 | 745 |
/// | turn: 50 µs | 62 500 | 745 |
/// | in all | 149 336 | 1 769 |
///
/// A frame of 60 bytes takes 84 on the wire and one cell, so 84 bytes are a cell, save the peer's
/// last frame, which is one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Speed of the link, at which everything arrives.
    pub speed: Rate,
    /// The cable.
    pub cable: Cable,
    /// Longest frame in either direction, in bytes without its check sequence.
    pub longest: u32,
    /// Shortest frame of the class, likewise; 60 if it is not known. Values above `longest` count
    /// as `longest`.
    pub shortest: u32,
    /// How long the peer takes to obey; `None`: the value of [`RESPONSE`] for the speed.
    pub response: Option<Span>,
    /// Frames that the receive ring holds; zero for a switch that accounts a frame when it arrives.
    pub ring: u32,
    /// Longest time between two readings of the receive ring, its worker's scheduling included.
    pub gap: Span,
    /// Most bytes of line time that the own device holds, a frame aside.
    pub own: u64,
    /// Most that the peer's device holds when it obeys, a frame aside; zero for a peer that stops
    /// its device.
    pub peer: u64,
}

/// A part of the headroom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term {
    /// Bytes of line time.
    pub bytes: u64,
    /// Cells that these take at worst.
    pub cells: u64,
}

/// Headroom, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// On the cable, both ways.
    pub cable: Term,
    /// Arrives while the device sends what it was handed before the pause, at least a frame that
    /// has begun. It was handed that before the turn, and sends in that time, too.
    pub own_backlog: Term,
    /// Arrives while the pause frame is sent.
    pub pause: Term,
    /// Arrives while the peer responds.
    pub response: Term,
    /// What the peer's device was handed before the peer obeyed.
    pub peer_backlog: Term,
    /// The frame that the peer has begun when it obeys.
    pub peer_frame: Term,
    /// Frames that had arrived when the threshold was crossed and were not read yet. A frame waits
    /// at most one gap until it is read; behind it lies what arrived in that time.
    pub unread: Term,
    /// Arrives between the reading that crosses the threshold and the end of that turn, where the
    /// pause is sent; the next reading would be a gap later at most.
    pub turn: Term,
}

impl Breakdown {
    /// Every term with its name, for tables.
    pub fn terms(&self) -> [(&'static str, Term); 8] {
        [
            ("cable", self.cable),
            ("own backlog", self.own_backlog),
            ("pause frame", self.pause),
            (RESPONSE_TERM, self.response),
            (PEER_BACKLOG, self.peer_backlog),
            ("peer's frame", self.peer_frame),
            ("unread", self.unread),
            ("turn", self.turn),
        ]
    }

    /// Cells that must be free when the threshold is crossed.
    pub fn cells(&self) -> u64 {
        self.terms()
            .iter()
            .fold(0, |sum, (_, term)| sum.saturating_add(term.cells))
    }

    /// Bytes of line time that it stands for.
    pub fn bytes(&self) -> u64 {
        self.terms()
            .iter()
            .fold(0, |sum, (_, term)| sum.saturating_add(term.bytes))
    }
}

impl Headroom {
    /// Every term.
    pub fn breakdown(&self) -> Breakdown {
        let longest = u64::from(self.longest);
        let line = |bytes| Term {
            bytes,
            cells: self.cells_of(bytes),
        };
        let unnoticed = self.unnoticed();
        let frame = wire_len(longest);
        Breakdown {
            cable: line(self.cable_bytes()),
            own_backlog: self.own_backlog(line(frame), unnoticed),
            pause: line(wire_len(FRAME_LEN as u64)),
            response: line(self.response_bytes()),
            peer_backlog: line(self.peer),
            peer_frame: Term {
                bytes: frame,
                cells: cells(self.longest as usize),
            },
            unread: unnoticed,
            turn: unnoticed,
        }
    }

    /// The same with a peer whose response and backlog take so many cells at most: what is too much
    /// of the backlog goes first.
    #[must_use]
    pub fn with_peer_within(self, most: u64) -> Self {
        let (cells, len) = self.worst_frame();
        // Each of the terms is rounded up to a cell.
        let bytes = most.saturating_sub(1) * len / cells;
        let span = self.speed.time_for(bytes);
        let cut = Self {
            response: self.response.map(|response| response.min(span)),
            ..self
        };
        Self {
            peer: cut.peer.min(bytes.saturating_sub(cut.response_bytes())),
            ..cut
        }
    }

    /// Frames that a receive ring must hold so that it loses none: as many of the shortest frames
    /// as arrive in a gap. Headroom does not help against this loss. Compare with
    /// [`Headroom::ring`].
    pub fn ring_needed(&self) -> u64 {
        let frame = wire_len(u64::from(self.shortest.min(self.longest)));
        round_up(bits(self.speed, self.gap), u128::from(frame) * 8 * NANOS)
    }

    /// Cells and line time of the frame that takes most cells in least time, as (cells, bytes).
    ///
    /// Cells grow by one where a length exceeds a multiple of the cell, so a worst frame is either
    /// the shortest there is, or the first beyond a multiple; of these the first one is the worst,
    /// because the overhead of the wire weighs less on longer ones.
    pub fn worst_frame(&self) -> (u64, u64) {
        let shortest = self.shortest.min(self.longest) as usize;
        let ratio = |len: usize| (cells(len), wire_len(len as u64));
        let first = ratio(shortest);
        let step = shortest.max(1).next_multiple_of(crate::limits::CELL) + 1;
        if step > self.longest as usize {
            return first;
        }
        let second = ratio(step);
        if second.0 * first.1 > first.0 * second.1 {
            second
        } else {
            first
        }
    }

    /// Cells of `bytes` of line time at worst.
    fn cells_of(&self, bytes: u64) -> u64 {
        let (cells, len) = self.worst_frame();
        round_up(u128::from(bytes) * u128::from(cells), u128::from(len))
    }

    fn cable_bytes(&self) -> u64 {
        match self.cable {
            Cable::Metres(metres) => round_up(
                2 * u128::from(metres) * u128::from(self.speed.bps()),
                8 * u128::from(LIGHT),
            ),
            Cable::Delay(delay) => round_up(bits(self.speed, delay).saturating_mul(2), 8 * NANOS),
        }
    }

    fn response_bytes(&self) -> u64 {
        match self.response {
            Some(span) => round_up(bits(self.speed, span), 8 * NANOS),
            None => default_response(self.speed).saturating_mul(QUANTUM_BITS / 8),
        }
    }

    /// What the device has left to send at the end of a turn in which `turn` arrived, at least the
    /// frame that has begun: it sends all the time, so a longer turn leaves less.
    fn own_backlog(&self, frame: Term, turn: Term) -> Term {
        let bytes = self.own.saturating_add(frame.bytes);
        Term {
            bytes: bytes.saturating_sub(turn.bytes).max(frame.bytes),
            cells: self
                .cells_of(bytes)
                .saturating_sub(turn.cells)
                .max(frame.cells),
        }
    }

    /// What arrives during a gap: the smaller of what the line carries and what the receive ring
    /// holds.
    fn unnoticed(&self) -> Term {
        let bytes = round_up(bits(self.speed, self.gap), 8 * NANOS);
        let ring = u64::from(self.ring);
        Term {
            bytes: bytes.min(ring.saturating_mul(wire_len(u64::from(self.longest)))),
            cells: self
                .cells_of(bytes)
                .min(ring.saturating_mul(cells(self.longest as usize))),
        }
    }
}

/// Nanoseconds of a second.
const NANOS: u128 = 1_000_000_000;

/// Bits that pass in `span`, × 10⁹.
fn bits(speed: Rate, span: Span) -> u128 {
    u128::from(speed.bps()) * u128::from(span.nanos())
}

fn round_up(amount: u128, unit: u128) -> u64 {
    u64::try_from(amount.div_ceil(unit)).unwrap_or(u64::MAX)
}

/// Response time of a peer at `speed` in quanta: of the next speed in [`RESPONSE`], and beyond the
/// last in proportion to it.
fn default_response(speed: Rate) -> u64 {
    let known = |&&(mbps, _): &&(u64, u64)| speed <= Rate::from_mbps(mbps);
    match RESPONSE.iter().find(known) {
        Some(&(_, quanta)) => quanta,
        None => {
            let (mbps, quanta) = RESPONSE[RESPONSE.len() - 1];
            round_up(
                u128::from(quanta) * u128::from(speed.bps()),
                u128::from(Rate::from_mbps(mbps).bps()),
            )
        }
    }
}

#[cfg(test)]
mod tests;
