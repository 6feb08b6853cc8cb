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
        own: 0,
        peer: 0,
    }
}

/// SW-12: the example of the documentation, term by term.
#[test]
fn the_example_is_true() {
    let example = Headroom {
        ring: 2048,
        gap: Span::from_micros(50),
        own: 78_125,
        ..link(Rate::from_gbps(10), 100)
    };
    let breakdown = example.breakdown();
    let expected = [
        (1_263, 16),
        (17_163, 204),
        (84, 1),
        (4_288, 52),
        (0, 0),
        (1_538, 6),
        (62_500, 745),
        (62_500, 745),
    ];
    let terms = breakdown.terms().map(|(_, term)| (term.bytes, term.cells));
    assert_eq!(terms, expected);
    assert_eq!((breakdown.bytes(), breakdown.cells()), (149_336, 1_769));
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

/// SW-12: what the device was handed delays the pause, less what it sends in the turn before; what
/// the peer's device has comes on top.
#[test]
fn backlogs_delay_a_pause() {
    let with = |own, peer, gap| {
        let headroom = Headroom {
            own,
            peer,
            ring: u32::MAX,
            gap: Span::from_micros(gap),
            ..link(Rate::from_gbps(10), 5)
        };
        headroom.breakdown()
    };
    // In 10 µs 12,500 bytes leave.
    assert_eq!(
        with(20_000, 0, 10).own_backlog.bytes,
        20_000 + 1_538 - 12_500
    );
    // At least the frame that has begun.
    assert_eq!(with(20_000, 0, 100).own_backlog.bytes, 1_538);
    assert_eq!(with(0, 0, 0).own_backlog.bytes, 1_538);
    let (alone, beside) = (with(0, 0, 10), with(0, 131_072, 10));
    assert_eq!(beside.bytes() - alone.bytes(), 131_072);
    assert_eq!(beside.peer_backlog.cells, 131_072_u64.div_ceil(84));
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
    let backlogs = (0_u64..10_000_000, 0_u64..10_000_000);
    (
        any::<u64>(),
        cable,
        0_u32..10_000,
        0_u32..10_000,
        times,
        0_u32..100_000,
        backlogs,
    )
        .prop_map(
            |(bps, cable, longest, shortest, (response, gap), ring, (own, peer))| Headroom {
                speed: Rate::from_bps(bps >> (bps % 40)),
                cable,
                longest,
                shortest,
                response: response.map(Span::from_nanos),
                ring,
                gap: Span::from_nanos(gap),
                own,
                peer,
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
            Headroom { own: base.own + wide, ..base },
            Headroom { peer: base.peer + wide, ..base },
        ];
        for grown in grown {
            let most = grown.breakdown();
            prop_assert!(most.cells() >= least.cells(), "{grown:?}");
            // A longer turn leaves less of the backlog; both together never shrink.
            let both = |it: &Breakdown| {
                let terms = [it.own_backlog, it.turn];
                terms.iter().fold((0_u64, 0_u64), |(bytes, cells), it| {
                    (bytes.saturating_add(it.bytes), cells.saturating_add(it.cells))
                })
            };
            let (more, less) = (both(&most), both(&least));
            prop_assert!(more.0 >= less.0 && more.1 >= less.1, "{grown:?}");
            let others = |name: &str| name != "own backlog";
            let terms = most.terms().into_iter().zip(least.terms());
            for ((name, more), (_, less)) in terms.filter(|((name, _), _)| others(name)) {
                prop_assert!(more.cells >= less.cells && more.bytes >= less.bytes, "{name}: {grown:?}");
            }
        }
    }
}
