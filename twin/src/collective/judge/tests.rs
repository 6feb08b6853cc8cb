use super::*;
use crate::collective::Branch;
use common::time::Span;

/// How members ended, which nodes died, and whether that is fine.
type Case<const N: usize> = ([Option<MemberEnd>; N], &'static [u32], bool);

const DONE: Option<MemberEnd> = Some(MemberEnd::Done);
const DIED: Option<MemberEnd> = Some(MemberEnd::Died);

fn ended(reason: EndReason, world: Option<u16>) -> Option<MemberEnd> {
    Some(MemberEnd::Failed(reason.number(), world))
}

fn failed(reason: Reason, world: Option<u16>) -> Option<MemberEnd> {
    ended(EndReason::Told(reason), world)
}

/// A level of one branch.
fn level(switches: &[u32], below: std::ops::Range<usize>) -> Vec<Branch> {
    vec![Branch {
        switches: switches.iter().map(|it| NodeId(*it)).collect(),
        below: below.collect(),
        trees: switches.len(),
    }]
}

/// Judges each case of a job whose members have the hosts from zero on.
fn check<const N: usize>(seating: &Seating, cases: &[Case<N>]) {
    let hosts = 0..u32::try_from(N).expect("few");
    let job = Job {
        name: "job".to_owned(),
        start: Span::ZERO,
        hosts: hosts.map(NodeId).collect(),
        trees: 0,
        slots: 1,
        payload: 8,
        deterministic: false,
        tasks: Vec::new(),
    };
    let crash = |node: &u32| Trouble {
        fault: Fault::Crash(NodeId(*node)),
        from: Span::ZERO,
        until: Span::MAX,
    };
    for (ends, dead, is_fine) in cases {
        let troubles: Vec<_> = dead.iter().map(crash).collect();
        let judged = judge(&job, seating, ends, &troubles);
        assert_eq!(judged.is_ok(), *is_fine, "{ends:?} {dead:?}: {judged:?}");
    }
}

/// SW-42: an end that nothing explains is noticed, and one that differs from the others'.
#[test]
fn ends_have_causes_and_are_the_same() {
    let seating = Seating {
        leaves: vec![(NodeId(3), vec![0, 1, 2])],
        above: Vec::new(),
    };
    let lost = failed(Reason::MemberLost, Some(1));
    let missing = failed(Reason::MemberMissing, None);
    let named = failed(Reason::MemberMissing, Some(1));
    let others = failed(Reason::MemberLost, Some(0));
    let gone = ended(EndReason::SwitchLost, None);
    let silent = ended(EndReason::NoAnswer, None);
    let unknown = failed(Reason::UnknownJob, None);
    let parent = failed(Reason::ParentLost, None);
    let cases = [
        ([DONE, DONE, DONE], &[][..], true),
        ([DONE, None, DONE], &[], false),
        ([DONE, lost, DONE], &[], false),
        ([DONE, DIED, DONE], &[], false),
        ([lost, DIED, DONE], &[1], true),
        ([others, DIED, lost], &[1], false),
        ([lost, DIED, named], &[1], false),
        ([named, DIED, named], &[1], false),
        ([lost, DIED, gone], &[1], false),
        ([gone, DIED, gone], &[1], false),
        ([unknown, DIED, unknown], &[1], false),
        ([missing, DIED, missing], &[1], true),
        ([missing, missing, missing], &[], false),
        ([gone, gone, gone], &[3], true),
        ([gone, unknown, DONE], &[3], true),
        ([silent, missing, silent], &[3], true),
        // There is nothing above.
        ([parent, parent, parent], &[3], false),
        ([failed(Reason::Mismatch, Some(1)), DONE, DONE], &[3], false),
        ([failed(Reason::MemberLost, None), DONE, DONE], &[3], false),
    ];
    check(&seating, &cases);
    // The first two at a leaf of their own.
    let seating = Seating {
        leaves: vec![(NodeId(3), vec![0, 1]), (NodeId(4), vec![2])],
        above: vec![level(&[5], 0..2)],
    };
    let cases = [
        ([lost, DIED, missing], &[1][..], true),
        ([missing, DIED, lost], &[1], false),
        ([missing, DIED, missing], &[1], true),
        ([lost, DIED, named], &[1], false),
        ([lost, DIED, DONE], &[1], true),
        ([lost, DIED, gone], &[1], false),
    ];
    check(&seating, &cases);
}

/// SW-42: when a switch has died members are told different things only where each notices it
/// by itself, and nobody is blamed who lives.
#[test]
fn dead_switches_explain_no_more_than_they_must() {
    // Leaves 6, 7 and 8 with two members each, and the spines 9 and 10.
    let seating = Seating {
        leaves: vec![
            (NodeId(6), vec![0, 1]),
            (NodeId(7), vec![2, 3]),
            (NodeId(8), vec![4, 5]),
        ],
        above: vec![level(&[9, 10], 0..3)],
    };
    let lost = failed(Reason::MemberLost, None);
    let [first, third] = [0, 4].map(|world| failed(Reason::MemberLost, Some(world)));
    let missing = failed(Reason::MemberMissing, None);
    let parent = failed(Reason::ParentLost, None);
    let named = failed(Reason::ParentLost, Some(0));
    let gone = ended(EndReason::SwitchLost, None);
    let silent = ended(EndReason::NoAnswer, None);
    let unknown = failed(Reason::UnknownJob, None);
    let cases = [
        // A leaf: what its own members hear is nobody's word.
        ([gone, unknown, lost, lost, lost, lost], &[6][..], true),
        (
            [silent, missing, missing, missing, missing, missing],
            &[6],
            true,
        ),
        ([gone, DONE, lost, DONE, DONE, lost], &[6], true),
        // One that lives says one thing, and what all that live say is the same.
        ([gone, gone, lost, missing, lost, lost], &[6], false),
        ([gone, gone, lost, lost, missing, missing], &[6], false),
        // No member is blamed for its leaf, nor loses it.
        ([gone, gone, first, first, first, first], &[6], false),
        ([gone, gone, third, third, third, third], &[6], false),
        ([gone, gone, gone, gone, lost, lost], &[6], false),
        ([gone, gone, unknown, unknown, lost, lost], &[6], false),
        ([gone, gone, parent, parent, lost, lost], &[6], false),
        // A switch above: each leaf notices by itself, and all its members hear of it.
        ([parent, parent, parent, parent, parent, parent], &[9], true),
        (
            [parent, parent, missing, missing, parent, DONE],
            &[10],
            true,
        ),
        (
            [parent, missing, parent, parent, parent, parent],
            &[9],
            false,
        ),
        ([parent, parent, parent, parent, gone, gone], &[9], false),
        ([parent, parent, lost, lost, parent, parent], &[9], false),
        // Who noticed it is not to blame.
        ([parent, parent, named, named, parent, parent], &[9], false),
        // A switch that has no part in the job.
        (
            [parent, parent, parent, parent, parent, parent],
            &[11],
            false,
        ),
    ];
    check(&seating, &cases);
}
