//! Texts of peers, for people.

/// What a peer wrote, fit for a terminal: what would move the cursor, change colours or turn the
/// direction of text stands there as an escape.
pub(crate) fn shown(text: &str) -> String {
    let harmful = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if harmful(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-3: what a peer writes does not reach the terminal as a command.
    #[test]
    fn texts_of_peers_are_shown_safely() {
        assert_eq!(shown("a ü/b.txt"), "a ü/b.txt");
        assert_eq!(shown("\x1b[2Jx\n\r"), "\\u{1b}[2Jx\\n\\r");
        assert_eq!(shown("\u{202e}txt\u{9b}"), "\\u{202e}txt\\u{9b}");
    }
}
