//! The reviewed figures of all shipped scenarios: a change of behaviour shows as a change of
//! `snapshot.txt`.

use super::report;
use super::scenario::Scenario;
use super::simulation::run;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The folder of the shipped scenarios.
pub fn scenarios() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios"))
}

/// The reviewed figures.
pub fn reviewed() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshot.txt"))
}

/// The scenario files of a folder, in the order of their names.
///
/// # Errors
/// The folder cannot be read.
pub fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Runs all shipped scenarios and returns their figures. `watch` is told of each before it runs.
///
/// # Errors
/// What went wrong, in words.
pub fn figures(watch: &mut dyn FnMut(&str)) -> Result<String, String> {
    let files = files(&scenarios()).map_err(|error| error.to_string())?;
    let mut text = String::new();
    for file in files {
        let scenario = Scenario::load(&file).map_err(|error| error.to_string())?;
        watch(&scenario.name);
        let outcome = run(&scenario, scenario.seed).map_err(|failure| failure.to_string())?;
        let _ = writeln!(text, "{}", report::summary(&outcome));
    }
    Ok(text)
}

/// Where two texts first differ, a line of each.
pub fn difference(reviewed: &str, found: &str) -> Option<String> {
    let (mut old, mut new) = (reviewed.lines(), found.lines());
    for line in 1.. {
        let (was, is) = (old.next(), new.next());
        if was.is_none() && is.is_none() {
            return None;
        }
        if was != is {
            let (was, is) = (was.unwrap_or("(nothing)"), is.unwrap_or("(nothing)"));
            return Some(format!("line {line}\n  reviewed: {was}\n  found:    {is}"));
        }
    }
    None
}
