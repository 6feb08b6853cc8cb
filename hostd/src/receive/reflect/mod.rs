//! \[11\] What an acknowledgement says of the CSIG tags of the packets that it answers (CS-8): the
//! worst tag of one signal and one path. Signals take turns. Each packet since the last one is as
//! likely to name the path: the newest would be of the same path again and again, where packets go
//! round the paths in step with acknowledgements. And the worst of all paths would leave the sender
//! without news of the good ones. Packets without a tag have a turn of their own: where one path of
//! several takes tags off, there are always others to tell of.

use common::csig::SIGNALS;
use common::wire::csig::{Form, Signal, Tag};
use common::wire::roce::Reflection;

/// What takes turns: the signals, and packets without a tag.
const TURNS: usize = SIGNALS + 1;

/// The last of them.
const UNTAGGED: usize = SIGNALS;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Reflector {
    /// By path and signal.
    worst: Box<[[Worst; SIGNALS]]>,
    /// By turn.
    chosen: [Chosen; TURNS],
    /// The turn that is told next, if there is something new of it.
    next: usize,
    /// State of a linear congruential generator (Knuth's MMIX).
    dice: u64,
}

/// The worst tag of one signal and one path.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    tag: Option<(Form, Tag)>,
    /// The round of the signal that it belongs to: those of other paths go out of date together
    /// when one is told, without a walk over all.
    round: u32,
}

/// One path of several, each packet as likely to name it.
#[derive(Clone, Copy, Debug, Default)]
struct Chosen {
    /// Packets since it was told of last.
    among: u32,
    path: u8,
    /// How often it was told of.
    round: u32,
}

impl Reflector {
    /// Of packets on so many paths.
    pub(crate) fn new(paths: usize) -> Self {
        Self {
            worst: vec![Default::default(); paths].into(),
            chosen: Default::default(),
            next: 0,
            dice: 1,
        }
    }

    /// A packet came on `path` with this tag, or without one. Reserved signals are not told, nor
    /// paths that there are not.
    #[inline]
    pub(crate) fn note(&mut self, path: u8, tag: Option<(Form, Tag)>) {
        let Some(worst) = self.worst.get_mut(usize::from(path)) else {
            return;
        };
        let signal = tag.map(|(_, tag)| Signal::from_number(tag.kind));
        let turn = match signal {
            None => UNTAGGED,
            Some(None) => return,
            Some(Some(signal)) => usize::from(signal.number()),
        };
        let chosen = &mut self.chosen[turn];
        if let Some(worst) = worst.get_mut(turn)
            && (worst.round != chosen.round || is_worse(tag, worst.tag))
        {
            (worst.tag, worst.round) = (tag, chosen.round);
        }
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        chosen.among = chosen.among.saturating_add(1);
        if (self.dice >> 33).is_multiple_of(u64::from(chosen.among)) {
            chosen.path = path;
        }
    }

    /// What the next acknowledgement says. `None`: no packet came that it could speak of.
    pub(crate) fn tell(&mut self) -> Option<Reflection> {
        let mut turns = (0..TURNS).map(|step| (self.next + step) % TURNS);
        let turn = turns.find(|turn| self.chosen[*turn].among > 0)?;
        self.next = (turn + 1) % TURNS;
        let Chosen { path, round, .. } = self.chosen[turn];
        self.chosen[turn] = Chosen {
            among: 0,
            path,
            round: round.wrapping_add(1),
        };
        // Of packets without a tag there is no worst one.
        let worst = self.worst[usize::from(path)].get(turn);
        Some(Reflection {
            path,
            tag: worst.and_then(|worst| worst.tag),
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
mod tests;
