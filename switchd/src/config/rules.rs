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
    use super::matches_pattern;

    #[test]
    fn patterns_match_names_as_a_whole() {
        assert!(matches_pattern("*", "x"));
        assert!(matches_pattern("a*b*c", "a-b-b-c"));
        assert!(!matches_pattern("a*b", "abc"));
        assert!(matches_pattern("up?", "up1") && !matches_pattern("up?", "up10"));
    }
}
