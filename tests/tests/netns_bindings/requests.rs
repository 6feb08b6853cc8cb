//! Collectives that programs in C and in Python begin and go on with.

use std::path::Path;

use lab::observe::assert_healthy;
use lab::privileged;

use crate::ends::Rig;
use crate::groups::{FORMING, members};
use crate::{c, python};

fn carry_out(rig: &Rig, words: &[String], port: u16) {
    for (rank, output) in members(rig, words, port, |_| String::new())
        .iter()
        .enumerate()
    {
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            said,
            format!("rank {rank}: all as it should be\n"),
            "{wrong}"
        );
        assert!(output.status.success(), "{wrong}");
    }
}

/// HT-50, HT-4: all collectives that return at once, in C and in Python, polled and waited for:
/// exact results, in regions and elsewhere, of several pieces; another call meanwhile is refused, a
/// wait may be too short, and who gives one up is named to the others.
#[test]
fn collectives_that_return_at_once() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("crequest");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/netns_bindings/requests.c");
    carry_out(&rig, &c(&rig.compile(&source)), 7400);
    let words = python("tests/tests/netns_bindings/requests.py");
    carry_out(&rig, &words, 7401);
    rig.with_lab(|lab| assert_healthy(lab, &FORMING));
}
