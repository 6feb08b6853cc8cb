//! \[6\] Headroom: what still arrives of a lossless class after its peer was told to stop.
//!
//! ```text
//!   us    xoff ──turn──▶ own frame ▶ pause ──cable──▶                       ──cable──▶ silence
//!   peer                                             response ▶ last frame ▶
//!                ◀───────────── the peer sends all the time ──────────────▶
//! ```
//!
//! The terms of the wire are those of 802.1Q (annex on PFC buffer requirements) as SONiC computes
//! them: the cable both ways, the frame that is on its way out when the pause is due, the pause
//! itself, the peer's response time, and the frame that the peer has begun. A switch in software
//! adds two: frames that lie unread in the receive ring when the threshold is crossed, and those
//! that arrive until the worker has come round to sending the pause.
//!
//! The buffer is accounted in cells and a short frame takes a whole one, so bytes of the wire are
//! converted at the worst length of frame: what takes most cells in least line time.

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
/// | own frame | 1 538 | 19 |
/// | pause frame | 84 | 1 |
/// | response: 67 · 512 bits | 4 288 | 52 |
/// | peer's frame | 1 538 | 6 |
/// | unread: 50 µs | 62 500 | 745 |
/// | turn: 50 µs | 62 500 | 745 |
/// | in all | 133 711 | 1 584 |
///
/// A frame of 60 bytes takes 84 on the wire and one cell, so 84 bytes are a cell, save the peer's
/// last frame, which is one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Speed of the link.
    pub speed: Rate,
    /// The cable.
    pub cable: Cable,
    /// Longest frame in either direction, in bytes without its check sequence.
    pub longest: u32,
    /// Shortest frame of the class, likewise; 60 if nothing is known. More than `longest` counts as
    /// that.
    pub shortest: u32,
    /// How long the peer takes to obey; `None` for what [`RESPONSE`] says of the speed.
    pub response: Option<Span>,
    /// Frames that the receive ring holds; zero for a switch that accounts a frame when it arrives.
    pub ring: u32,
    /// Longest time between two readings of the receive ring, its worker's scheduling included.
    pub gap: Span,
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
    /// Arrives while a frame of ours, begun before, delays the pause.
    pub own_frame: Term,
    /// Arrives while the pause frame is sent.
    pub pause: Term,
    /// Arrives while the peer responds.
    pub response: Term,
    /// The frame that the peer has begun when it obeys.
    pub peer_frame: Term,
    /// Came before or while the threshold was crossed and was not accounted yet: a frame waits a
    /// gap at most until it is read, and those behind it are as many as came in that time.
    pub unread: Term,
    /// Arrives between the reading that crosses the threshold and the end of that turn, where the
    /// pause is sent; the next reading would be a gap later at most.
    pub turn: Term,
}

impl Breakdown {
    /// Every term with its name, for tables.
    pub fn terms(&self) -> [(&'static str, Term); 7] {
        [
            ("cable", self.cable),
            ("own frame", self.own_frame),
            ("pause frame", self.pause),
            ("response", self.response),
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
        let backlog = self.backlog();
        Breakdown {
            cable: line(self.cable_bytes()),
            own_frame: line(wire_len(longest)),
            pause: line(wire_len(FRAME_LEN as u64)),
            response: line(self.response_bytes()),
            peer_frame: Term {
                bytes: wire_len(longest),
                cells: cells(self.longest as usize),
            },
            unread: backlog,
            turn: backlog,
        }
    }

    /// Frames that a receive ring must hold so that none is lost in it, where no headroom helps:
    /// what arrives in a gap when all are as short as they can be. Compare with [`Headroom::ring`].
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

    /// What arrives during a gap: the smaller of what the line carries and what the receive ring
    /// holds.
    fn backlog(&self) -> Term {
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
mod tests {
    use super::*;
    use crate::limits::CELL;
    use proptest::prelude::*;

    /// A link with frames of an IP MTU of 1500 and nothing of a software switch.
    fn link(speed: Rate, metres: u32) -> Headroom {
        Headroom {
            speed,
            cable: Cable::Metres(metres),
            longest: 1514,
            shortest: 60,
            response: None,
            ring: 0,
            gap: Span::ZERO,
        }
    }

    /// SW-12: the example of the documentation, term by term.
    #[test]
    fn the_example_is_true() {
        let example = Headroom {
            ring: 2048,
            gap: Span::from_micros(50),
            ..link(Rate::from_gbps(10), 100)
        };
        let breakdown = example.breakdown();
        let expected = [
            (1_263, 16),
            (1_538, 19),
            (84, 1),
            (4_288, 52),
            (1_538, 6),
            (62_500, 745),
            (62_500, 745),
        ];
        let terms = breakdown.terms().map(|(_, term)| (term.bytes, term.cells));
        assert_eq!(terms, expected);
        assert_eq!((breakdown.bytes(), breakdown.cells()), (133_711, 1_584));
        // 62 500 bytes are 744 frames of 84 bytes and a part of one.
        assert_eq!(example.ring_needed(), 745);
    }

    /// SW-12: without the terms of software, never less than SONiC's computation for the same link,
    /// whose figures here leave out cells; nor much more.
    #[test]
    fn as_much_as_sonic_at_least() {
        for (gbps, metres, sonic) in [
            (1, 5, 3_134),
            (10, 5, 7_351),
            (100, 5, 28_847),
            (100, 100, 40_842),
            (100, 300, 66_095),
            (400, 5, 63_445),
            (400, 300, 212_435),
        ] {
            let breakdown = link(Rate::from_gbps(gbps), metres).breakdown();
            assert!(breakdown.bytes() >= sonic, "{gbps} Gbit/s, {metres} m");
            // The rest is 38 bytes of header and overhead twice, the pause frame, and rounding.
            assert!(
                breakdown.bytes() <= sonic + 170,
                "{gbps} Gbit/s, {metres} m"
            );
            assert!(breakdown.cells() * CELL as u64 >= breakdown.bytes());
        }
    }

    /// SW-12: with the response and the delay that the mlx5 driver assumes (301 bytes for each
    /// Gbit/s and 2.16 for each Gbit/s and metre, both ways), the same terms.
    #[test]
    fn measured_delays_agree_with_mlx5() {
        for (gbps, metres, xoff) in [
            (10, 5, 7_198),
            (100, 5, 35_260),
            (100, 100, 55_780),
            (100, 300, 98_980),
            (400, 5, 128_800),
            (400, 300, 383_680),
        ] {
            let breakdown = Headroom {
                response: Some(Span::from_nanos(2_408)),
                cable: Cable::Delay(Span::from_nanos(metres * 864 / 100)),
                ..link(Rate::from_gbps(gbps), 0)
            }
            .breakdown();
            // 2.72 × 1500 bytes are the frames there.
            let theirs = xoff - 4_080;
            let ours = breakdown.response.bytes + breakdown.cable.bytes;
            // A nanosecond of rounding, both ways.
            assert!(ours.abs_diff(theirs) <= gbps / 4 + 1, "{ours} {theirs}");
        }
    }

    /// SW-12: software adds two gaps, or what the ring holds if that is less.
    #[test]
    fn a_slow_worker_needs_what_arrives_meanwhile() {
        let slow = |ring| {
            Headroom {
                ring,
                gap: Span::from_millis(5),
                ..link(Rate::from_gbps(1), 5)
            }
            .breakdown()
        };
        let line = slow(u32::MAX);
        assert_eq!((line.unread.bytes, line.turn.bytes), (625_000, 625_000));
        assert_eq!(line.unread.cells, 7_441);
        let ring = slow(64);
        assert_eq!(ring.unread.cells, 64 * 6);
        assert_eq!(ring.unread.bytes, 64 * 1_538);
        assert_eq!(slow(0).unread, Term::default());
    }

    /// SW-12: a speed that the standard has no response time for has that of the next one.
    #[test]
    fn speeds_between_those_of_the_table_take_the_next() {
        let quanta = |mbps| default_response(Rate::from_mbps(mbps));
        assert_eq!((quanta(10), quanta(100), quanta(2_500)), (1, 1, 67));
        assert_eq!((quanta(800_000), quanta(1_600_000)), (905, 1_810));
    }

    fn inputs() -> impl Strategy<Value = Headroom> {
        let cable = prop_oneof![
            any::<u32>().prop_map(Cable::Metres),
            (0..u64::MAX).prop_map(|nanos| Cable::Delay(Span::from_nanos(nanos))),
        ];
        let times = (prop::option::of(0..u64::MAX), 0_u64..1_000_000_000);
        (
            any::<u64>(),
            cable,
            0_u32..10_000,
            0_u32..10_000,
            times,
            0_u32..100_000,
        )
            .prop_map(
                |(bps, cable, longest, shortest, (response, gap), ring)| Headroom {
                    speed: Rate::from_bps(bps >> (bps % 40)),
                    cable,
                    longest,
                    shortest,
                    response: response.map(Span::from_nanos),
                    ring,
                    gap: Span::from_nanos(gap),
                },
            )
    }

    fn farther(cable: Cable, more: u32) -> Cable {
        match cable {
            Cable::Metres(metres) => Cable::Metres(metres.saturating_add(more)),
            Cable::Delay(delay) => Cable::Delay(delay + Span::from_nanos(u64::from(more))),
        }
    }

    proptest! {
        /// SW-12: the worst length is found among all of them.
        #[test]
        fn no_frame_takes_more_cells_in_less_time(shortest in 0_u32..10_000, longest in 0_u32..10_000) {
            let headroom = Headroom { shortest, longest, ..link(Rate::from_gbps(1), 0) };
            let (most, least) = headroom.worst_frame();
            let brute = (shortest.min(longest)..=longest)
                .map(|len| (cells(len as usize), wire_len(u64::from(len))))
                .reduce(|a, b| if b.0 * a.1 > a.0 * b.1 { b } else { a })
                .expect("the longest is one");
            prop_assert_eq!(most * brute.1, brute.0 * least);
        }

        /// SW-12: any train of whole frames fits in the cells that its line time is worth.
        #[test]
        fn any_frames_fit(lens in prop::collection::vec(60_u32..=1514, 1..200), shortest in 60_u32..=1514) {
            let headroom = Headroom { shortest, ..link(Rate::from_gbps(1), 0) };
            let lens: Vec<u32> = lens.into_iter().map(|len| len.max(shortest)).collect();
            let line = lens.iter().map(|&len| wire_len(u64::from(len))).sum();
            let taken: u64 = lens.iter().map(|&len| cells(len as usize)).sum();
            prop_assert!(taken <= headroom.cells_of(line));
        }

        /// SW-12: more of anything never needs less, save that longer shortest frames do.
        #[test]
        fn grows_with_every_input(base in inputs(), more in 1_u32..10_000) {
            let least = base.breakdown();
            let wide = u64::from(more);
            let grown = [
                Headroom { speed: Rate::from_bps(base.speed.bps().saturating_add(wide << 20)), ..base },
                Headroom { cable: farther(base.cable, more), ..base },
                // The shortest frame stays what it is, also where it was cut to the longest.
                Headroom { longest: base.longest + more, shortest: base.shortest.min(base.longest), ..base },
                Headroom { shortest: base.shortest.saturating_sub(more), ..base },
                Headroom { response: base.response.map(|span| span + Span::from_nanos(wide)), ..base },
                Headroom { ring: base.ring + more, ..base },
                Headroom { gap: base.gap + Span::from_nanos(wide), ..base },
            ];
            for grown in grown {
                let most = grown.breakdown();
                prop_assert!(most.cells() >= least.cells(), "{grown:?}");
                for ((name, more), (_, less)) in most.terms().into_iter().zip(least.terms()) {
                    prop_assert!(more.cells >= less.cells && more.bytes >= less.bytes, "{name}: {grown:?}");
                }
            }
        }
    }
}
