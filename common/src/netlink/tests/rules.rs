//! Policy rules that differ in what is not evaluated.

use super::objects::{sync, synced};
use super::*;

const NEW: u16 = 32;
const GONE: u16 = 33;

/// A rule of IPv4 that asks table 100, as the kernel tells of it.
fn rule(kind: u16, rest: &[(u16, &[u8])]) -> Vec<u8> {
    message(kind, 0, 0, &[2, 0, 0, 0, 100, 0, 0, 1, 0, 0, 0, 0], rest)
}

fn read(rest: &[(u16, &[u8])]) -> Rule {
    match only(&rule(NEW, rest)) {
        Body::Rule(Action::Set, rule) => rule,
        other => panic!("{other:?}"),
    }
}

/// SW-2: rules that differ only in attributes that are not evaluated are several rules; when one
/// goes, the other is left, and none is taken for one that asks its table about every packet.
#[test]
fn rules_that_hardly_differ_are_several() {
    let no_suppressor = (14, &[0xff; 4][..]);
    let alone: [&[(u16, &[u8])]; 12] = [
        &[],
        &[(12, &[0, 0, 0, 0, 0, 0, 0, 9])],
        &[(13, &[3, 0, 0, 0])],
        &[(20, &[0, 0, 0, 0, 9, 0, 0, 0])],
        &[(20, &[0, 0, 0, 0, 8, 0, 0, 0])],
        &[(22, &[6])],
        &[(22, &[17])],
        &[(23, &[80, 0, 80, 0])],
        &[(24, &[80, 0, 80, 0])],
        &[(10, &[7, 0, 0, 0]), (16, &[0xff, 0, 0, 0])],
        &[(10, &[7, 0, 0, 0]), (16, &[0x0f, 0, 0, 0])],
        // `fwmark 0/0xff`: the mark itself is not told.
        &[(16, &[0xff, 0, 0, 0])],
    ];
    let all: Vec<Vec<(u16, &[u8])>> = alone
        .iter()
        .map(|rest| [rest, &[no_suppressor][..]].concat())
        .chain([vec![(14, &[0; 4][..])]])
        .collect();
    let (mut follower, now) = synced();
    for rest in &all {
        follower.handle(&rule(NEW, rest), now);
    }
    assert_eq!(follower.mirror().rules().len(), all.len());
    assert!(read(&all[0]).is_for_all());
    for rest in &all[1..] {
        let rule = read(rest);
        assert!(rule.has_more && !rule.is_for_all(), "{rule}: {rest:?}");
    }
    for (number, rest) in all.iter().enumerate() {
        follower.handle(&rule(GONE, rest), now);
        let left = follower.mirror().rules();
        assert_eq!(left.len(), all.len() - number - 1);
        assert!(!left.contains(&&read(rest)));
    }
    // These do not select, and tell rules apart all the same.
    let by = |protocol| read(&[no_suppressor, (21, protocol), (11, &[1, 0, 0, 0])]);
    assert!(by(&[4]).is_for_all() && by(&[2]).is_for_all());
    assert_ne!(by(&[4]), by(&[2]));
}

/// SW-2: of rules that are alike in all the kernel may have several: when one goes, it is looked
/// whether there is another one.
#[test]
fn rules_that_are_alike_are_looked_for() {
    let (mut follower, mut now) = synced();
    let (new, gone) = (rule(NEW, &[]), rule(GONE, &[]));
    let count = |follower: &Follower| follower.mirror().rules().len();
    follower.handle(&new, now);
    follower.handle(&new, now);
    follower.handle(&gone, now);
    assert_eq!(count(&follower), 1);
    now += Span::from_millis(20);
    sync(&mut follower, &mut now, &[(NEW, new.clone())]);
    assert_eq!(count(&follower), 1, "there is one left");
    follower.handle(&gone, now);
    assert_eq!(count(&follower), 0);
}
