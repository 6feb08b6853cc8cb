//! Rules that values of several sections share.

use crate::limits::{CELL, CLASSES};
use common::config::{Refusal, Refusals, within};

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

/// Whether this is a pattern and not a name.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
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

/// Why no interface can have this name, if that is so: what the kernel refuses.
pub(super) fn no_interface(name: &str) -> Option<String> {
    let why = match name {
        "" => "it is empty",
        "." | ".." => "it is a folder's",
        _ if name.len() > NAME_MAX => "it has more than 15 bytes",
        _ if name.contains(['/', ':']) => "it has a slash or a colon",
        _ if name.contains(char::is_whitespace) => "it has a blank",
        _ => return None,
    };
    Some(format!("{name:?} is not the name of an interface: {why}"))
}

/// Refuses names and patterns in the list `key` that are those of no port.
pub(super) fn check_patterns(
    key: &str,
    patterns: &[String],
    is_port: impl Fn(&str) -> bool,
) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    for (number, pattern) in patterns.iter().enumerate() {
        let reason = matches_nothing(pattern).or_else(|| {
            let is_known = is_port(pattern);
            (!is_known).then(|| format!("{pattern:?} is no port: see ports and [[port]]"))
        });
        if let Some(reason) = reason {
            refusals.add(Refusal::new(format!("{key}[{number}]"), reason));
        }
    }
    refusals.or(())
}

/// The same of a pattern, or of the shortest name that it stands for.
pub(super) fn matches_nothing(pattern: &str) -> Option<String> {
    if pattern.is_empty() {
        return Some("an empty name is no interface".to_owned());
    }
    let shortest = pattern.replace('*', "");
    let has_star = shortest != pattern;
    if has_star && matches!(shortest.as_str(), "" | "." | "..") {
        // A longer one may be a name.
        return None;
    }
    let why = no_interface(&shortest)?;
    Some(if has_star {
        format!("{pattern:?} stands for no interface: {why}")
    } else {
        why
    })
}

/// Bytes of the longest name of an interface (`IFNAMSIZ` less the zero).
const NAME_MAX: usize = 15;

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

/// The same, and no numbers at all: a table that is about nothing was meant otherwise.
pub(super) fn some_class_numbers(key: &str, numbers: &[u8]) -> Result<(), Refusals> {
    if numbers.is_empty() {
        return Err(Refusal::alone(key, "is empty: the table would say nothing").into());
    }
    class_numbers(key, numbers)
}

#[cfg(test)]
mod tests {
    use super::{matches_nothing, matches_pattern, no_interface, overlap};

    /// MG-1: names that the kernel gives no interface are refused, and patterns for such only.
    #[test]
    fn names_are_those_of_interfaces() {
        for right in ["e", "eth0", "enp3s0f0np0.100", "swp-1_2"] {
            assert_eq!(no_interface(right), None);
            assert_eq!(matches_nothing(right), None);
        }
        for (wrong, why) in [
            ("", "it is empty"),
            ("..", "it is a folder's"),
            ("sixteen_bytes_xx", "it has more than 15 bytes"),
            ("a/b", "it has a slash or a colon"),
            ("a:1", "it has a slash or a colon"),
            ("eth 0", "it has a blank"),
            ("eth0\t", "it has a blank"),
        ] {
            let text = format!("{wrong:?} is not the name of an interface: {why}");
            assert_eq!(no_interface(wrong), Some(text.clone()));
            if !wrong.is_empty() {
                assert_eq!(matches_nothing(wrong), Some(text));
            }
        }
        for right in [
            "*",
            "**",
            ".*",
            "eth?",
            "fifteen_bytes_x*",
            "*a*b*c*d*e*f*g*h*i*",
        ] {
            assert_eq!(matches_nothing(right), None, "{right}");
        }
        for wrong in ["sixteen_bytes_xx*", "eth/*", "* *", " "] {
            assert!(matches_nothing(wrong).is_some(), "{wrong}");
        }
    }

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
