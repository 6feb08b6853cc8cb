//! The matrix as text.

use super::{Figures, Line};
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, Table};
use std::fmt::Write;

/// What the columns are.
const HEADER: [&str; 9] = [
    "scenario",
    "algorithm",
    "link used",
    "Jain",
    "p99 queue µs",
    "slow-down p50",
    "p99",
    "p99.9",
    "PFC frames",
];

/// Where a page has the matrix: from the first line that begins so to the next one that begins so.
const BEGIN: &str = "<!-- matrix";
const END: &str = "<!-- end of matrix";

fn cells(line: &Line) -> [String; 9] {
    let Figures {
        utilisation,
        jain,
        queue_delay_p99_us,
        slowdown_p50,
        slowdown_p99,
        slowdown_p999,
        pfc_frames,
        seeds: _,
    } = line.figures;
    [
        line.course.title().to_owned(),
        line.algorithm.name().to_owned(),
        format!("{utilisation:.2}"),
        format!("{jain:.2}"),
        format!("{queue_delay_p99_us:.1}"),
        format!("{slowdown_p50:.2}"),
        format!("{slowdown_p99:.2}"),
        format!("{slowdown_p999:.2}"),
        pfc_frames.to_string(),
    ]
}

/// For the terminal.
pub fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header(HEADER);
    for line in lines {
        let cell = |(place, text): (usize, String)| match place {
            0 | 1 => Cell::new(text),
            _ => Cell::new(text).set_alignment(CellAlignment::Right),
        };
        table.add_row(cells(line).into_iter().enumerate().map(cell));
    }
    table
}

/// For a page.
pub fn markdown(lines: &[Line]) -> String {
    let mut text = format!("| {} |\n", HEADER.join(" | "));
    let _ = writeln!(text, "| --- | --- |{}", " ---: |".repeat(HEADER.len() - 2));
    for line in lines {
        let _ = writeln!(text, "| {} |", cells(line).join(" | "));
    }
    text
}

/// The page with `matrix` between its two marks, instead of what is there.
///
/// # Errors
/// Which mark is missing.
pub fn replaced(page: &str, matrix: &str) -> Result<String, String> {
    let begins = |mark: &'static str| move |line: &&str| line.starts_with(mark);
    let missing = |mark| format!("there is no line that begins with {mark:?}");
    let lines: Vec<&str> = page.split_inclusive('\n').collect();
    let begin = lines.iter().position(|line| begins(BEGIN)(line));
    let begin = begin.ok_or_else(|| missing(BEGIN))?;
    let length = lines[begin..].iter().position(|line| begins(END)(line));
    let end = begin + length.ok_or_else(|| format!("after it, {}", missing(END)))?;
    let (before, after) = (lines[..=begin].concat(), lines[end..].concat());
    Ok(format!("{before}\n{matrix}\n{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = "a\n<!-- matrix: so -->\nold\n<!-- end of matrix -->\nb\n";
        let new = replaced(page, "| new |\n").expect("it has marks");
        assert_eq!(
            new,
            "a\n<!-- matrix: so -->\n\n| new |\n\n<!-- end of matrix -->\nb\n"
        );
        assert_eq!(replaced(&new, "| new |\n").as_deref(), Ok(new.as_str()));
        for (page, missing) in [("a\n", BEGIN), ("<!-- matrix -->\n", END)] {
            let refused = replaced(page, "").expect_err("no marks");
            assert!(refused.contains(missing), "{refused}");
        }
    }
}
