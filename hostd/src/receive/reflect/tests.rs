use super::*;

fn tag(signal: Signal, value: u32) -> Option<(Form, Tag)> {
    let neutral = Tag::neutral(Form::Compact, signal, 5);
    Some((Form::Compact, Tag { value, ..neutral }))
}

fn told(reflector: &mut Reflector) -> Option<(u8, Option<(u8, u32)>)> {
    let reflection = reflector.tell()?;
    let tag = reflection.tag.map(|(_, tag)| (tag.kind, tag.value));
    Some((reflection.path, tag))
}

/// CS-8: of what an acknowledgement covers one tag of a signal is told once; signals, and
/// packets without a tag, take turns.
#[test]
fn signals_are_told_in_turns() {
    let mut reflector = Reflector::new(8);
    assert_eq!(told(&mut reflector), None);
    reflector.note(1, tag(Signal::Delay, 7));
    reflector.note(2, tag(Signal::AvailableShare, 3));
    reflector.note(4, None);
    assert_eq!(told(&mut reflector), Some((2, Some((1, 3)))));
    reflector.note(5, tag(Signal::AvailableShare, 4));
    assert_eq!(told(&mut reflector), Some((1, Some((2, 7)))));
    assert_eq!(told(&mut reflector), Some((4, None)));
    assert_eq!(told(&mut reflector), Some((5, Some((1, 4)))));
    assert_eq!(told(&mut reflector), None);
}

/// CS-8: paths that come round in step with acknowledgements are all told of, about as often.
#[test]
fn no_path_is_left_out() {
    let mut reflector = Reflector::new(8);
    let mut of_path = [0; 8];
    for _ in 0..800 {
        for path in 0..8 {
            reflector.note(path, tag(Signal::Delay, 1));
        }
        let (path, _) = told(&mut reflector).expect("a tag");
        of_path[usize::from(path)] += 1;
    }
    assert!(
        of_path.iter().all(|count| (60..140).contains(count)),
        "{of_path:?}"
    );
}

/// CS-8: of what an acknowledgement covers of a path its worst is told, whenever that came; of
/// the next packets anew.
#[test]
fn the_worst_of_a_path_is_told() {
    let mut reflector = Reflector::new(8);
    for (signal, values, worst) in [
        (Signal::AvailableBandwidth, [9, 3, 4, 8], 3),
        (Signal::AvailableShare, [2, 30, 31, 7], 2),
        (Signal::Delay, [0, 5, 1, 4], 5),
    ] {
        for value in values {
            reflector.note(6, tag(signal, value));
        }
        let number = signal.number();
        assert_eq!(told(&mut reflector), Some((6, Some((number, worst)))));
        reflector.note(6, tag(signal, 17));
        assert_eq!(told(&mut reflector), Some((6, Some((number, 17)))));
    }
}

/// CS-8: the worst of a path is told also when packets of other paths came between. Sixteen
/// paths, in any order, two signals; what is told is compared with all packets since that
/// signal was told last.
#[test]
fn the_worst_of_a_path_is_told_among_others() {
    const PATHS: u64 = 16;
    let mut reflector = Reflector::new(16);
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let signals = [Signal::AvailableShare, Signal::Delay];
    let mut since: [Vec<(u8, u32)>; SIGNALS] = Default::default();
    for packets in [8, 64] {
        for _ in 0..2_000 {
            for _ in 0..packets {
                let path = u8::try_from(draw(PATHS)).expect("few");
                let signal = signals[usize::try_from(draw(2)).expect("few")];
                let value = u32::try_from(draw(32)).expect("few");
                reflector.note(path, tag(signal, value));
                since[usize::from(signal.number())].push((path, value));
            }
            let (path, told) = told(&mut reflector).expect("a tag");
            let (number, value) = told.expect("all have one");
            let signal = Signal::from_number(number).expect("it was sent");
            let all = std::mem::take(&mut since[usize::from(number)]);
            let values = all.iter().filter(|(of, _)| *of == path).map(|it| it.1);
            let worst = values.reduce(|one, other| {
                if signal.is_worse(other, one) {
                    other
                } else {
                    one
                }
            });
            assert_eq!(Some(value), worst, "path {path}, {signal:?}");
        }
    }
}

/// CS-8: what came before a signal was told of is not told again, whichever path that was of.
#[test]
fn what_was_told_of_is_out_of_date() {
    for _ in 0..20 {
        let mut reflector = Reflector::new(8);
        reflector.note(1, tag(Signal::Delay, 30));
        reflector.note(2, tag(Signal::Delay, 30));
        reflector.tell().expect("a tag");
        reflector.note(1, tag(Signal::Delay, 3));
        reflector.note(2, tag(Signal::Delay, 3));
        let (_, told) = told(&mut reflector).expect("a tag");
        assert_eq!(told, Some((2, 3)));
    }
}

/// CS-8, CS-9: where one path of many takes tags off, it is told of, for one turn in two with
/// one signal, and the others are told of all the same.
#[test]
fn one_path_without_tags_is_told_among_others() {
    let mut reflector = Reflector::new(16);
    let mut empty = 0;
    let mut of_path = [0; 16];
    for number in 0..16 * 1_000 {
        let path = number % 16;
        let tagged = tag(Signal::Delay, 3).filter(|_| path != 5);
        reflector.note(u8::try_from(path).expect("few"), tagged);
        if number % 8 == 7 {
            let reflection = reflector.tell().expect("something");
            empty += u32::from(reflection.tag.is_none());
            of_path[usize::from(reflection.path)] += 1;
            assert_eq!(reflection.tag.is_none(), reflection.path == 5);
        }
    }
    assert!(empty > 500, "{empty}");
    assert!(of_path.iter().all(|count| *count > 30), "{of_path:?}");
}

/// CS-8: a path that there is not changes nothing.
#[test]
fn paths_that_there_are_not_are_not_told() {
    let mut reflector = Reflector::new(8);
    reflector.note(8, tag(Signal::Delay, 3));
    reflector.note(255, None);
    assert_eq!(told(&mut reflector), None);
}

/// CS-4, CS-8: values of two forms are not compared.
#[test]
fn of_two_forms_the_newer_one_is_told() {
    let mut reflector = Reflector::new(8);
    let expanded = Tag::neutral(Form::Expanded, Signal::Delay, 5);
    reflector.note(
        6,
        Some((
            Form::Expanded,
            Tag {
                value: 900,
                ..expanded
            },
        )),
    );
    reflector.note(6, tag(Signal::Delay, 3));
    assert_eq!(told(&mut reflector), Some((6, Some((2, 3)))));
}

/// CS-8, CS-9: packets without tags are told as such; reserved signals are not told.
#[test]
fn packets_without_tags_are_told() {
    let mut reflector = Reflector::new(8);
    reflector.note(4, None);
    assert_eq!(told(&mut reflector), Some((4, None)));
    assert_eq!(told(&mut reflector), None);
    reflector.note(4, Some((Form::Compact, Tag::of_compact([0xff, 0xff]))));
    assert_eq!(told(&mut reflector), None);
}
