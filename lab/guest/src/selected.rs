//! Tests of the calling program, run in a guest.

use std::time::Duration;

use super::{Guest, Options};

/// Runs these tests of the calling program, by their full names, in a guest, one at a time. Left
/// out where no guest can be booted, as [`super::available`] says.
///
/// # Panics
/// When one fails there, is not there, or says SKIP, and when they take longer than `limit`.
#[track_caller]
pub fn run_selected(tests: &[&str], limit: Duration) {
    if !super::available() {
        return;
    }
    let mut guest = Guest::boot(&Options::default()).unwrap_or_else(|error| panic!("{error}"));
    run_selected_in(&mut guest, tests, limit);
}

/// Runs these tests of the calling program in `guest`.
///
/// # Panics
/// As [`run_selected`].
#[track_caller]
pub fn run_selected_in(guest: &mut Guest, tests: &[&str], limit: Duration) {
    let program = std::env::current_exe().expect("a test has a path");
    let folder = std::env::current_dir().expect("a test has a working folder");
    let script = format!(
        "cd '{}'\nREQUIRE_NETNS=1 RUST_BACKTRACE=1 exec '{}' \
         --exact --show-output --test-threads=1 {}\n",
        folder.display(),
        program.display(),
        tests.join(" ")
    );
    let output = guest
        .run(&script, limit)
        .unwrap_or_else(|error| panic!("{error}"));
    let both = format!("{}{}", output.stdout, output.stderr);
    assert!(output.ok(), "status {} in the guest", output.status);
    for test in tests {
        assert!(both.contains(&format!("test {test} ... ok")), "no {test}");
    }
    assert!(!both.contains("SKIP"), "the guest can serve it");
}
