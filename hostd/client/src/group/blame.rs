//! Because of whom members do without switches: nobody is named who may be as good as any other.

use super::seat::Why;
use crate::abi::collective::FailureReason;
use std::net::IpAddr;

/// What a member knows of its leaf, when it joined in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing: it was too early to tell, or it did not join.
    #[default]
    Unknown,
    /// The leaf has answered it.
    Yes,
    /// The leaf answers nothing that it says.
    No,
}

impl Heard {
    pub(super) const ALL: [Self; 3] = [Self::Unknown, Self::Yes, Self::No];

    /// By how the membership of a member that joined has ended.
    pub(super) fn of(end: FailureReason) -> Self {
        match end {
            FailureReason::SwitchLost => Self::No,
            FailureReason::Closed | FailureReason::Memory => Self::Unknown,
            // The leaf says so, or has said that the job forms.
            _ => Self::Yes,
        }
    }
}

/// The reason why all go on without switches, with who is to blame. If the job was never complete
/// that is the first rank whose leaf does not answer it, but answers another member: its messages
/// are dropped, or lost on their way. If the leaf answers nobody it may be the leaf's doing.
pub(super) fn blame(why: Why, heard: &[Heard], leaves: &[Option<IpAddr>]) -> Why {
    let incomplete = matches!(
        why.reason,
        FailureReason::NoAnswer | FailureReason::MemberMissing | FailureReason::SwitchLost
    );
    if !incomplete {
        return why;
    }
    let all = || heard.iter().zip(leaves);
    let answers = |leaf: &Option<IpAddr>| all().any(|(it, at)| *it == Heard::Yes && at == leaf);
    let rank = all().position(|(it, leaf)| *it == Heard::No && answers(leaf));
    Why { rank, ..why }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-50, SW-42: the member that its leaf does not answer is named, if that answers another
    /// one; else nobody is.
    #[test]
    fn only_one_whose_leaf_answers_others_is_named() {
        use Heard::{No, Unknown, Yes};
        let leaf = |number: u8| Some(IpAddr::from([10, 0, number, 1]));
        let leaves = [leaf(1), leaf(1), leaf(2), leaf(2)];
        let whom = |reason, heard: [Heard; 4]| {
            // Whoever noticed it first.
            let rank = Some(1);
            blame(Why { reason, rank }, &heard, &leaves).rank
        };
        for reason in [FailureReason::NoAnswer, FailureReason::MemberMissing] {
            assert_eq!(whom(reason, [Yes, Yes, Yes, No]), Some(3), "another key");
            assert_eq!(whom(reason, [No, Yes, Yes, No]), Some(0), "the first");
            assert_eq!(whom(reason, [Yes, Yes, No, No]), None, "its leaf is silent");
            assert_eq!(whom(reason, [Yes, Yes, Unknown, No]), None, "maybe, too");
            assert_eq!(whom(reason, [No; 4]), None);
            assert_eq!(whom(reason, [Yes; 4]), None);
        }
        assert_eq!(whom(FailureReason::SwitchLost, [Unknown; 4]), None);
        let lost = FailureReason::MemberLost;
        assert_eq!(whom(lost, [Yes, Yes, Yes, No]), Some(1), "a switch says so");
    }

    /// HT-50: the end of a membership tells whether the leaf has answered.
    #[test]
    fn ends_tell_whether_the_leaf_answered() {
        for (end, heard) in [
            (FailureReason::SwitchLost, Heard::No),
            (FailureReason::Closed, Heard::Unknown),
            (FailureReason::NoAnswer, Heard::Yes),
            (FailureReason::MemberMissing, Heard::Yes),
            (FailureReason::Full, Heard::Yes),
        ] {
            assert_eq!(Heard::of(end), heard, "{end:?}");
        }
    }
}
