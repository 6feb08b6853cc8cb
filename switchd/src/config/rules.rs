//! Rules that values of several sections share.

use crate::limits::{CELL, CLASSES};
use common::config::{Refusals, within};

/// Whether `name` has the form of `pattern`, in which `*` stands for anything and `?` for one byte.
pub(super) fn matches_pattern(pattern: &str, name: &str) -> bool {
    fn rest(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', after @ ..], _) => {
                rest(after, name) || (!name.is_empty() && rest(pattern, &name[1..]))
            }
            ([b'?', after @ ..], [_, left @ ..]) => rest(after, left),
            ([p, after @ ..], [n, left @ ..]) if p == n => rest(after, left),
            _ => false,
        }
    }
    rest(pattern.as_bytes(), name.as_bytes())
}

/// Whether some name has the form of both patterns.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    fn rest(a: &[u8], b: &[u8]) -> bool {
        match (a, b) {
            ([], []) => true,
            ([b'*', after @ ..], _) => rest(after, b) || (!b.is_empty() && rest(a, &b[1..])),
            (_, [b'*', after @ ..]) => rest(a, after) || (!a.is_empty() && rest(&a[1..], b)),
            ([x, a @ ..], [y, b @ ..]) => (x == y || *x == b'?' || *y == b'?') && rest(a, b),
            _ => false,
        }
    }
    rest(one.as_bytes(), other.as_bytes())
}

/// Bytes in whole cells, rounded down: a limit is not exceeded.
pub(super) fn cells(bytes: u32) -> u32 {
    bytes / u32::try_from(CELL).expect("a small constant")
}

/// Refuses numbers that are no classes, priorities or groups.
pub(super) fn class_numbers(key: &str, numbers: &[u8]) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    for (place, number) in numbers.iter().enumerate() {
        let key = format!("{key}[{place}]");
        refusals.keep(within(&key, u64::from(*number), 0, CLASSES as u64 - 1));
    }
    refusals.or(())
}

#[cfg(test)]
mod tests {
    use super::{matches_pattern, overlap};

    #[test]
    fn patterns_match_names_as_a_whole() {
        assert!(matches_pattern("*", "x"));
        assert!(matches_pattern("a*b*c", "a-b-b-c"));
        assert!(!matches_pattern("a*b", "abc"));
        assert!(matches_pattern("up?", "up1") && !matches_pattern("up?", "up10"));
    }

    #[test]
    fn patterns_overlap_where_a_name_has_both_forms() {
        for (one, other) in [
            ("swp*", "swp1"),
            ("s*1", "*wp1"),
            ("?", "*"),
            ("a?c", "ab*"),
        ] {
            assert!(overlap(one, other) && overlap(other, one), "{one} {other}");
        }
        for (one, other) in [("swp*", "eth1"), ("a?", "abc"), ("*a", "b?b"), ("", "?")] {
            assert!(
                !overlap(one, other) && !overlap(other, one),
                "{one} {other}"
            );
        }
    }
}
