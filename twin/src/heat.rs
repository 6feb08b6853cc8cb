//! A matrix as a picture: a square for each pair, darker for larger values.

use crate::picture::PlotError;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// A square: its value decides how dark it is, and what is written into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// None: it is marked as missing.
    pub value: Option<f64>,
    /// Lines of text.
    pub text: String,
}

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// What stands above it.
    pub title: String,
    /// Of rows and of columns.
    pub names: Vec<String>,
    /// By row, then by column; none: there is no such pair.
    pub cells: Vec<Vec<Option<Cell>>>,
}

/// Width and height of a square, of the names before and above them, and of the title.
const WIDTH: i32 = 190;
const HEIGHT: i32 = 72;
const BEFORE: i32 = 60;
const ABOVE: i32 = 30;
const TITLE: i32 = 40;

/// From one line of text to the next.
const LINE: i32 = 19;

/// What is missing.
const MISSING: RGBColor = RGBColor(213, 94, 0);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Heat {
    /// Writes the picture into a file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn draw(&self, file: &Path) -> Result<(), PlotError> {
        let count = i32::try_from(self.names.len()).unwrap_or(0);
        let size = (BEFORE + WIDTH * count, TITLE + ABOVE + HEIGHT * count);
        let size = (size.0.unsigned_abs().max(640), size.1.unsigned_abs());
        let area = SVGBackend::new(file, size).into_drawing_area();
        self.paint(&area)
            .map_err(|error| PlotError::of(file, &error))
    }

    fn paint<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        area.fill(&WHITE)?;
        let head = ("sans-serif", 18).into_text_style(area);
        let text = ("sans-serif", 13).into_text_style(area);
        area.draw_text(&self.title, &head, (10, 10))?;
        let values = self.cells.iter().flatten().flatten();
        let most = values.filter_map(|cell| cell.value);
        let most = most.fold(f64::MIN_POSITIVE, f64::max);
        for (row, name) in (0..).zip(&self.names) {
            let top = TITLE + ABOVE + row * HEIGHT;
            area.draw_text(name, &head, (10, top + HEIGHT / 3))?;
            let left = BEFORE + row * WIDTH;
            area.draw_text(name, &head, (left + 10, TITLE + 6))?;
        }
        for (row, cells) in (0..).zip(&self.cells) {
            for (column, cell) in (0..).zip(cells) {
                let Some(cell) = cell else { continue };
                let (left, top) = (BEFORE + column * WIDTH, TITLE + ABOVE + row * HEIGHT);
                let colour = cell.value.map_or(MISSING, |value| shade(value / most));
                let corners = [(left, top), (left + WIDTH - 2, top + HEIGHT - 2)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
                for (number, line) in (0..).zip(cell.text.lines()) {
                    area.draw_text(line, &text, (left + 6, top + 8 + number * LINE))?;
                }
            }
        }
        area.present()
    }
}

/// From almost white to a blue on which black text is read.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a colour"
)]
fn shade(part: f64) -> RGBColor {
    let of = |light: f64, dark: f64| (light + (dark - light) * part.clamp(0.0, 1.0)) as u8;
    RGBColor(of(245.0, 110.0), of(249.0, 170.0), of(253.0, 220.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CS-10: each pair has a square, larger values are darker, and what is missing stands out.
    #[test]
    fn pairs_have_squares() {
        let cell = |value: Option<f64>| {
            Some(Cell {
                value,
                text: "one\ntwo".to_owned(),
            })
        };
        let heat = Heat {
            title: "title".to_owned(),
            names: vec!["h1".to_owned(), "h2".to_owned()],
            cells: vec![vec![None, cell(Some(5.0))], vec![cell(None), None]],
        };
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("heat.svg");
        heat.draw(&file).expect("a file");
        let svg = std::fs::read_to_string(&file).expect("written");
        assert_eq!(svg.matches("two").count(), 2);
        assert!(svg.contains("#D55E00") && svg.contains("#6EAADC"), "{svg}");
        assert!(shade(0.2).0 > shade(0.8).0);
    }
}
