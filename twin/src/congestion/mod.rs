//! Congestion controls side by side: each of hostd's algorithms in the same courses, with the same
//! seeds.
//!
//! ```text
//!   course    what is sent over which network, and what an algorithm needs of it
//!   figures   from outcomes to one line of the matrix
//!   table     the lines, for the terminal and for a page
//!   bars      the lines as a picture
//! ```

mod bars;
mod course;
mod figures;
mod table;

pub use bars::draw;
pub use course::Course;
pub use figures::Figures;
pub use table::{markdown, replaced, table};

use super::simulation::run;
use figures::Run;
pub use hostd::verbs::Congestion;
use serde::Serialize;

/// Which part of the matrix is wanted.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// The algorithms.
    pub algorithms: Vec<Congestion>,
    /// The courses.
    pub courses: Vec<Course>,
    /// Each runs with this many seeds, from 1 on.
    pub seeds: u64,
}

/// An algorithm in a course.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The course.
    pub course: Course,
    /// The algorithm.
    pub algorithm: Congestion,
    /// What came of it.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Matrix {
    /// Runs everything, course by course. `watch` is told of each run before it begins.
    ///
    /// # Errors
    /// What cannot be run, or failed a check.
    pub fn run(&self, watch: &mut dyn FnMut(&str)) -> Result<Vec<Line>, String> {
        let mut lines = Vec::new();
        for &course in &self.courses {
            for &algorithm in &self.algorithms {
                let scenario = course.scenario(algorithm)?;
                let mut runs = Vec::new();
                for seed in 1..=self.seeds {
                    watch(&format!("{}, seed {seed}", scenario.name));
                    let outcome = run(&scenario, seed).map_err(|failure| failure.to_string())?;
                    runs.push(Run::of(course, &outcome));
                }
                lines.push(Line {
                    course,
                    algorithm,
                    figures: Figures::of(runs),
                });
            }
        }
        Ok(lines)
    }
}
