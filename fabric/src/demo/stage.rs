//! What both chapters use: their laboratories, and the printing of results.

use console::style;
use indicatif::ProgressBar;
use lab::load::Wait;
use lab::observe::Counts;
use lab::{Builder, Lab, LabError, Options};

use crate::interrupts::Interrupts;
use crate::show;

/// What the chapters share.
pub(super) struct Stage {
    pub(super) interrupts: Interrupts,
    pub(super) bar: ProgressBar,
    pub(super) keep: bool,
}

impl Stage {
    /// Brings a laboratory up.
    pub(super) fn lab(&self, options: Options) -> Result<Lab, LabError> {
        let builder = Builder::new(options);
        let builder = if self.keep {
            builder.detached()
        } else {
            builder
        };
        self.interrupts.make(builder, &self.bar)
    }
}

/// A heading.
pub(super) fn say(text: &str) {
    println!("\n{}", style(text).bold());
}

/// Something that has to hold, and whether it does.
pub(super) fn holds(fine: bool, text: &str) {
    let mark = if fine {
        style("✓").green()
    } else {
        style("✗").red().bold()
    };
    println!("  {mark} {text}");
}

/// Something that would have to hold on a machine that is not as busy.
pub(super) fn not_judged(text: &str, wait: &Wait) {
    println!("  {} {text}", style("?").yellow().bold());
    println!(
        "    This machine is too slow or too busy to tell: {} waited for a core for {} of {} ms.\n    \
         Nothing follows from it for the fabric. Run the demonstration again when less is going on.",
        wait.name,
        wait.waited.as_millis(),
        wait.within.as_millis(),
    );
}

/// Every packet that daemons have discarded, by reason.
pub(super) fn losses(lost: &Counts) {
    let mut table = show::table(&["node", "reason", "packets"]);
    for ((node, reason), packets) in lost.iter().filter(|(_, packets)| **packets > 0) {
        table.add_row(vec![node.clone(), reason.clone(), packets.to_string()]);
    }
    if table.is_empty() {
        println!("  none: every counter stayed at zero");
    } else {
        println!("{table}");
    }
}
