//! Progress in the terminal while something is under way.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A line that shows what is being done.
pub(crate) fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed:>3}  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
