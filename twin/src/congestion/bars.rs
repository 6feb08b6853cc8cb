//! The matrix as a picture: a column for each course, and in it a bar for each algorithm.

use super::{Course, Figures, Line};
use crate::picture::PlotError;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// A figure that is drawn.
struct Shown {
    name: &'static str,
    of: fn(&Figures) -> f64,
    /// Digits after the point.
    digits: usize,
    colour: RGBColor,
}

/// From the top.
const SHOWN: [Shown; 4] = [
    Shown {
        name: "part of the link used",
        of: |it| it.utilisation,
        digits: 2,
        colour: RGBColor(0, 114, 178),
    },
    Shown {
        name: "Jain's index",
        of: |it| it.jain,
        digits: 2,
        colour: RGBColor(0, 158, 115),
    },
    Shown {
        name: "p99 of the queueing delay, µs",
        of: |it| it.queue_delay_p99_us,
        digits: 1,
        colour: RGBColor(213, 94, 0),
    },
    Shown {
        name: "p99 of the slow-down",
        of: |it| it.slowdown_p99,
        digits: 1,
        colour: RGBColor(204, 121, 167),
    },
];

/// Sizes: a bar with the space below it, what stands above bars, the longest bar, what stands
/// before a bar and behind it, the title.
const BAR: i32 = 16;
const ABOVE: i32 = 34;
const LONGEST: f64 = 130.0;
const NAME: i32 = 84;
const VALUE: i32 = 62;
const TITLE: i32 = 40;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// Writes the picture into a file.
///
/// # Errors
/// What the file system says.
pub fn draw(lines: &[Line], file: &Path) -> Result<(), PlotError> {
    let mut courses: Vec<Course> = Vec::new();
    for line in lines {
        if !courses.contains(&line.course) {
            courses.push(line.course);
        }
    }
    let columns: Vec<Vec<&Line>> = courses
        .iter()
        .map(|course| lines.iter().filter(|it| it.course == *course).collect())
        .collect();
    let most = columns.iter().map(Vec::len).max().unwrap_or(0);
    let block = pixels(most) * BAR + ABOVE;
    let size = (width() * pixels(columns.len()), block * 4 + TITLE);
    let size = (size.0.unsigned_abs().max(1), size.1.unsigned_abs());
    let area = SVGBackend::new(file, size).into_drawing_area();
    paint(&area, &columns, block).map_err(|error| PlotError::of(file, &error))
}

fn pixels(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "pixels")]
const fn width() -> i32 {
    NAME + LONGEST as i32 + VALUE
}

fn paint<'a>(area: &Area<'a>, columns: &[Vec<&Line>], block: i32) -> Drawn<'a> {
    area.fill(&WHITE)?;
    for (column, lines) in columns.iter().enumerate() {
        let left = pixels(column) * width();
        if let Some(line) = lines.first() {
            let title = ("sans-serif", 20).into_text_style(area);
            area.draw_text(line.course.title(), &title, (left + NAME, 12))?;
        }
        for (row, shown) in SHOWN.iter().enumerate() {
            let top = TITLE + pixels(row) * block;
            bars(area, lines, (left, top), shown)?;
        }
    }
    area.present()
}

/// Draws the bars of one figure in one course.
#[expect(clippy::cast_possible_truncation, reason = "pixels")]
fn bars<'a>(area: &Area<'a>, lines: &[&Line], (left, top): (i32, i32), shown: &Shown) -> Drawn<'a> {
    let text = ("sans-serif", 14).into_text_style(area);
    let head = ("sans-serif", 16).into_text_style(area);
    area.draw_text(shown.name, &head, (left + NAME, top + 6))?;
    let values = || lines.iter().map(|line| (shown.of)(&line.figures));
    let most = values().fold(f64::MIN_POSITIVE, f64::max);
    for ((line, value), row) in lines.iter().zip(values()).zip(0..) {
        let at = top + ABOVE - 8 + row * BAR;
        area.draw_text(line.algorithm.name(), &text, (left + 10, at))?;
        let end = left + NAME + (value / most * LONGEST) as i32;
        let corners = [(left + NAME, at), (end.max(left + NAME + 1), at + BAR - 4)];
        area.draw(&Rectangle::new(corners, shown.colour.filled()))?;
        area.draw_text(&format!("{value:.*}", shown.digits), &text, (end + 5, at))?;
    }
    Ok(())
}
