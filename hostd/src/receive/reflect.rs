//! \[11\] What an acknowledgement says of the CSIG tags of the packets that it answers (CS-8): the
//! worst tag of one signal and one path. Signals take turns. Each packet since the last one is as
//! likely to name the path: the newest would be of the same path again and again, where packets go
//! round the paths in step with acknowledgements. And the worst of all paths would leave the sender
//! without news of the good ones.

use common::csig::SIGNALS;
use common::wire::csig::{Form, Signal, Tag};
use common::wire::roce::Reflection;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reflector {
    /// By signal: the tag that is told if no other takes its place.
    chosen: [Chosen; SIGNALS],
    /// The same of packets without a tag.
    untagged: Chosen,
    /// The signal that is told next, if there is something new of it.
    next: usize,
    /// State of a linear congruential generator (Knuth's MMIX).
    dice: u64,
}

/// One of several, each as likely.
#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    among: u32,
    path: u8,
    tag: Option<(Form, Tag)>,
}

impl Default for Reflector {
    fn default() -> Self {
        Self {
            chosen: [Chosen::default(); SIGNALS],
            untagged: Chosen::default(),
            next: 0,
            dice: 1,
        }
    }
}

impl Reflector {
    /// A packet came on `path` with this tag, or without one. Reserved signals are not told.
    #[inline]
    pub(crate) fn note(&mut self, path: u8, tag: Option<(Form, Tag)>) {
        let signal = tag.map(|(_, tag)| Signal::from_number(tag.kind));
        let chosen = match signal {
            None => &mut self.untagged,
            Some(None) => return,
            Some(Some(signal)) => &mut self.chosen[usize::from(signal.number())],
        };
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        chosen.among = chosen.among.saturating_add(1);
        let is_next = (self.dice >> 33).is_multiple_of(u64::from(chosen.among));
        let takes_over = if chosen.path == path && chosen.among > 1 {
            is_worse(tag, chosen.tag)
        } else {
            is_next
        };
        if takes_over {
            (chosen.path, chosen.tag) = (path, tag);
        }
    }

    /// What the next acknowledgement says. `None`: no packet came that it could speak of.
    pub(crate) fn tell(&mut self) -> Option<Reflection> {
        let places = (0..SIGNALS).map(|step| (self.next + step) % SIGNALS);
        let mut new = places.filter(|place| self.chosen[*place].among > 0);
        let chosen = if let Some(place) = new.next() {
            self.next = (place + 1) % SIGNALS;
            self.untagged = Chosen::default();
            std::mem::take(&mut self.chosen[place])
        } else {
            std::mem::take(&mut self.untagged)
        };
        (chosen.among > 0).then_some(Reflection {
            path: chosen.path,
            tag: chosen.tag,
        })
    }
}

/// Whether a tag tells of a worse link than another one of its signal did; of two forms, whose
/// values cannot be compared, the newer one counts.
fn is_worse(new: Option<(Form, Tag)>, old: Option<(Form, Tag)>) -> bool {
    let (Some((form, new)), Some((old_form, old))) = (new, old) else {
        return true;
    };
    form != old_form
        || Signal::from_number(new.kind).is_some_and(|it| it.is_worse(new.value, old.value))
}

#[cfg(test)]
mod tests {
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

    /// CS-8: of what an acknowledgement covers one tag of a signal is told once, and signals take
    /// turns.
    #[test]
    fn signals_are_told_in_turns() {
        let mut reflector = Reflector::default();
        assert_eq!(told(&mut reflector), None);
        reflector.note(1, tag(Signal::Delay, 7));
        reflector.note(2, tag(Signal::AvailableShare, 3));
        reflector.note(4, None);
        assert_eq!(told(&mut reflector), Some((2, Some((1, 3)))));
        reflector.note(5, tag(Signal::AvailableShare, 4));
        assert_eq!(told(&mut reflector), Some((1, Some((2, 7)))));
        assert_eq!(told(&mut reflector), Some((5, Some((1, 4)))));
        assert_eq!(told(&mut reflector), None);
    }

    /// CS-8: paths that come round in step with acknowledgements are all told of, about as often.
    #[test]
    fn no_path_is_left_out() {
        let mut reflector = Reflector::default();
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
        let mut reflector = Reflector::default();
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

    /// CS-4, CS-8: values of two forms are not compared.
    #[test]
    fn of_two_forms_the_newer_one_is_told() {
        let mut reflector = Reflector::default();
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
        let mut reflector = Reflector::default();
        reflector.note(4, None);
        assert_eq!(told(&mut reflector), Some((4, None)));
        assert_eq!(told(&mut reflector), None);
        reflector.note(4, Some((Form::Compact, Tag::of_compact([0xff, 0xff]))));
        assert_eq!(told(&mut reflector), None);
    }
}
