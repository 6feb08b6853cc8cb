//! A series as a row of block characters in the terminal.

use super::samples::Points;

/// Parts of a character cell that are filled, from none to all.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The greatest value in each of `width` equal parts of the time until `end`; a part without one
/// has that of the part before.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "places on a terminal"
)]
pub(super) fn columns(points: &Points, end: f64, width: usize) -> Vec<f64> {
    let mut columns: Vec<Option<f64>> = vec![None; width];
    for (at, value) in points {
        let place = (at / end * width as f64).max(0.0) as usize;
        if let Some(column) = columns.get_mut(place.min(width.saturating_sub(1))) {
            *column = Some(column.map_or(*value, |before| before.max(*value)));
        }
    }
    let mut last = 0.0;
    columns
        .into_iter()
        .map(|column| {
            last = column.unwrap_or(last);
            last
        })
        .collect()
}

/// The columns as lines of text, from the top; `most` is as high as all of them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "places on a terminal"
)]
pub(super) fn blocks(columns: &[f64], most: f64, lines: usize) -> Vec<String> {
    let full = BLOCKS.len() - 1;
    let height = |value: f64| {
        let part = if most > 0.0 { value / most } else { 0.0 };
        let eighths = (part.clamp(0.0, 1.0) * (lines * full) as f64).round() as usize;
        // What is not nothing is seen.
        eighths.max(usize::from(value > 0.0))
    };
    let line = |below: usize| {
        let block = |value: &f64| BLOCKS[height(*value).saturating_sub(below * full).min(full)];
        columns.iter().map(block).collect()
    };
    (0..lines).rev().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_the_greatest_value_and_fill_gaps() {
        let points = vec![(0.0, 1.0), (0.4, 5.0), (0.9, 2.0), (2.1, 7.0), (4.0, 3.0)];
        assert_eq!(columns(&points, 4.0, 4), [5.0, 5.0, 7.0, 3.0]);
        assert_eq!(columns(&Points::new(), 0.0, 2), [0.0, 0.0]);
    }

    #[test]
    fn blocks_stand_on_each_other() {
        let values = [0.0, 0.001, 1.0, 2.0, 3.0, 4.0, 9.0];
        assert_eq!(blocks(&values, 4.0, 2), ["    ▄██", " ▁▄████"]);
        assert_eq!(blocks(&[0.0, 0.0], 0.0, 1), ["  "]);
    }
}
