//! Plots as SVG: lines in one panel, or in several panels above each other with one shared x axis.
//!
//! ```text
//!              title
//!   y │   ╱╲    ╱╲          ── a line
//!     │- - - - - - - - -    - - a level
//!   y │  ──────╲__          ── another one
//!     └────────────────
//!              x
//! ```

use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::{Path, PathBuf};

/// Width of a picture, what names the lines included.
const WIDTH: u32 = 1120;

/// Width of what names the lines, right of the panels, where it hides none of them.
const KEY: u32 = 200;

/// Height of the plot of a panel that is alone, and of one among several.
const HEIGHT: [u32; 2] = [400, 190];

/// What the title of a picture takes above, that of a panel, and the axis below.
const TITLE: u32 = 36;
const PANEL_TITLE: u32 = 24;
const AXIS: u32 = 52;

/// Distance between names of lines.
const NAME: i32 = 19;

/// Space around a panel.
const MARGIN: u32 = 10;

/// Colours of lines, then of levels: apart from each other also for those who see few, and from
/// white.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(106, 61, 154),
    RGBColor(140, 86, 75),
    RGBColor(90, 90, 90),
    RGBColor(0, 0, 0),
];

/// Why a picture was not drawn.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct PlotError {
    file: PathBuf,
    reason: String,
}

impl PlotError {
    /// Why `file` could not be written.
    #[must_use]
    pub fn of(file: &Path, reason: &dyn std::fmt::Display) -> PlotError {
        PlotError {
            file: file.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// A line: its name and its points.
pub type Line = (String, Vec<(f64, f64)>);

/// Lines over a common axis, and what they are measured against.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Panel {
    /// What stands above it, if anything.
    pub title: String,
    /// What the upright axis measures; it begins at zero.
    pub y: String,
    /// What is drawn.
    pub lines: Vec<Line>,
    /// Values that mean something, as dashed lines across the panel.
    pub levels: Vec<(String, f64)>,
}

/// A picture of one panel, or of several above each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture {
    /// What stands above it.
    pub title: String,
    /// What the axis below measures; it begins at zero.
    pub x: String,
    /// From the top.
    pub panels: Vec<Panel>,
}

/// Where it is drawn.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What can go wrong there.
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Picture {
    /// Writes the picture into a file.
    ///
    /// # Errors
    /// What the file system says.
    pub fn draw(&self, file: &Path) -> Result<(), PlotError> {
        let height = self.heights().iter().sum::<u32>() + TITLE;
        let area = SVGBackend::new(file, (WIDTH, height)).into_drawing_area();
        self.paint(&area)
            .map_err(|error| PlotError::of(file, &error))
    }

    /// Heights of the panels: the last one has the axis of all.
    fn heights(&self) -> Vec<u32> {
        let plot = HEIGHT[usize::from(self.panels.len() > 1)];
        let titled = |panel: &Panel| plot + PANEL_TITLE * u32::from(!panel.title.is_empty());
        let mut heights: Vec<_> = self.panels.iter().map(titled).collect();
        if let Some(last) = heights.last_mut() {
            *last += AXIS;
        }
        heights
    }

    fn paint<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        area.fill(&WHITE)?;
        let (title, mut below) = area.split_vertically(TITLE);
        title.titled(&self.title, ("sans-serif", 18))?;
        let across = most(self.points().map(|point| point.0));
        for (number, (panel, height)) in self.panels.iter().zip(self.heights()).enumerate() {
            let (own, rest) = below.split_vertically(height);
            let axis = (number + 1 == self.panels.len()).then_some(self.x.as_str());
            panel.paint(&own, across, axis)?;
            below = rest;
        }
        area.present()
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        lines.flat_map(|(_, points)| points)
    }
}

impl Panel {
    /// Draws the panel; `axis` names the axis below, if this panel has it.
    fn paint<'a>(&self, area: &Area<'a>, across: f64, axis: Option<&str>) -> Drawn<'a> {
        let (plot, key) = area.split_horizontally(WIDTH - KEY);
        let values = self.lines.iter().flat_map(|(_, points)| points);
        let levels = self.levels.iter().map(|level| level.1);
        let up = most(values.map(|point| point.1).chain(levels));
        let mut builder = ChartBuilder::on(&plot);
        if !self.title.is_empty() {
            builder.caption(&self.title, ("sans-serif", 15));
        }
        let mut chart = builder
            .margin(MARGIN)
            .x_label_area_size(if axis.is_some() { AXIS - MARGIN } else { 0 })
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..across, 0.0..up)?;
        let mut mesh = chart.configure_mesh();
        mesh.y_desc(&self.y)
            .axis_desc_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .y_labels(6)
            .y_label_formatter(&|value| short(*value));
        if let Some(axis) = axis {
            mesh.x_desc(axis).x_label_formatter(&|value| short(*value));
        }
        mesh.draw()?;
        let colours = COLOURS.iter().cycle();
        let mut rows = Key { area: &key, row: 0 };
        for ((name, points), colour) in self.lines.iter().zip(colours.clone()) {
            let style = colour.stroke_width(2);
            chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
            rows.add(name, style, &[(0, 18)])?;
        }
        for ((name, value), colour) in self.levels.iter().zip(colours.skip(self.lines.len())) {
            let style = colour.stroke_width(1);
            let ends = [(0.0, *value), (across, *value)];
            chart.draw_series(DashedLineSeries::new(ends, 6, 4, style))?;
            rows.add(name, style, &[(0, 7), (11, 18)])?;
        }
        Ok(())
    }
}

/// What names the lines of a panel.
struct Key<'k, 'a> {
    area: &'k Area<'a>,
    row: i32,
}

impl<'a> Key<'_, 'a> {
    /// Writes a name below the last one, beside a mark of these dashes.
    fn add(&mut self, name: &str, style: ShapeStyle, dashes: &[(i32, i32)]) -> Drawn<'a> {
        let height = NAME * (self.row + 1);
        for (from, to) in dashes {
            let dash = [(*from, height), (*to, height)];
            self.area.draw(&PathElement::new(dash, style))?;
        }
        let text = ("sans-serif", 13).into_text_style(self.area);
        self.area.draw_text(name, &text, (26, height - 7))?;
        self.row += 1;
        Ok(())
    }
}

/// The end of an axis that shows all of these values.
fn most(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most > 0.0 { 1.02 * most } else { 1.0 }
}

/// The label of a value beside an axis: rounded to six decimal places, without trailing zeros.
fn short(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(panels: usize) -> Picture {
        let panel = Panel {
            title: "In use".to_owned(),
            y: "bytes".to_owned(),
            lines: vec![("depth".to_owned(), vec![(0.0, 1.0), (2.0, 3.0)])],
            levels: vec![("full".to_owned(), 4.0)],
        };
        Picture {
            title: "A queue & its limit".to_owned(),
            x: "seconds".to_owned(),
            panels: vec![panel; panels],
        }
    }

    #[test]
    fn panels_share_the_axis_below_and_each_names_its_lines() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("three.svg");
        picture(3).draw(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let count = |word: &str| text.lines().filter(|line| line.trim() == word).count();
        assert_eq!((count("seconds"), count("bytes")), (1, 3));
        assert_eq!((count("depth"), count("full")), (3, 3));
        assert_eq!(count("In use"), 3);
        assert_eq!(count("A queue &amp; its limit"), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let file = Path::new("/nowhere/at/all.svg");
        let error = picture(1).draw(file).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/at/all.svg: "));
    }

    #[test]
    fn axes_hold_what_is_drawn_and_numbers_are_short() {
        assert!(most([3.0, 7.0].into_iter()) > 7.0);
        assert_eq!(most([0.0].into_iter()).to_string(), "1");
        let labels = [0.1 + 0.2, 200.0, 0.0].map(short);
        assert_eq!(labels, ["0.3", "200", "0"]);
    }
}
