//! The log of the real daemon.

use crate::support::{Rig, eventually, privileged};
use std::fs::File;

/// MG-5: a daemon whose log is on a full disk starts, forwards and ends as others do, and counts
/// the events that are lost. Without a log at all, a wrong configuration is still an exit with a
/// status.
#[test]
fn a_full_log_disk_costs_lines_only() {
    if !privileged() {
        return;
    }
    let full = || {
        let file = File::options().write(true).open("/dev/full");
        file.expect("/dev/full")
    };
    let mut rig = Rig::new("fl");
    rig.start_logging(&[], full());
    assert_eq!(rig.ping("10.2.0.2", 3, 50), 3);
    rig.ip("sw", "route add 10.9.0.0/16 via 10.2.0.2");
    eventually("a way", || rig.ping("10.9.0.1", 1, 20) == 1);
    let metrics = rig.on("sw", "curl", &["-s", "http://127.0.0.1:9101/metrics"]);
    let lost = metrics
        .lines()
        .find_map(|line| line.strip_prefix("log_lost_events_total "));
    assert!(lost.is_some_and(|lost| lost != "0"), "{metrics}");
    assert!(rig.stop().success(), "it ends well");

    let mut wrong = rig.daemon_command(&["workers.count=0"]);
    let status = wrong.stderr(full()).status().expect("switchd");
    assert_eq!(status.code(), Some(1));
}
