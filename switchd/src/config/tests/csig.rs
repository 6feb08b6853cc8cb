//! `[csig]`: what it makes of ports, and what it refuses.

use super::*;
use crate::config::csig::Csig;
use crate::tables::csig::{Estimator, Mode};
use common::time::Span;
use common::wire::csig::{Form, Signal};

fn refused(text: &str) -> String {
    load(&format!("ports = [\"swp*\"]\n{text}"), &[])
        .expect_err(text)
        .to_string()
}

/// CS-6, CS-7: sections are about the ports and the signals that they name, and the last that says
/// something holds.
#[test]
fn sections_are_about_ports_and_signals() {
    let csig: Csig = toml::from_str(
        r#"
enabled = true
[[port]]
locator = 3
expanded_locator = 300
[[port]]
ports = ["swp1", "swp2"]
mode = "strip"
trusted = false
[[port]]
ports = ["swp2"]
signals = ["share"]
mode = "pass-through"
locator = 4
"#,
    )
    .unwrap();
    let of = |name: &str| {
        let port = csig.of_port(name).expect("it is enabled");
        let rules = Signal::ALL.map(|signal| {
            let rule = port.rule(signal);
            (rule.mode, Form::ALL.map(|form| rule.locator(form)))
        });
        (port.is_trusted, rules)
    };
    let (update, strip) = ((Mode::Update, [3, 300]), (Mode::Strip, [3, 300]));
    assert_eq!(of("swp9"), (true, [update; 3]));
    assert_eq!(of("swp1"), (false, [strip; 3]));
    let share = (Mode::PassThrough, [4, 300]);
    assert_eq!(of("swp2"), (false, [strip, share, strip]));
    assert_eq!(Csig::default().of_port("swp1"), None);
}

/// What is refused, by which key, and why.
const REFUSED: [(&str, &str, &str); 17] = [
    (
        "compact_tpid = 0x0800",
        "csig.compact_tpid",
        "something else",
    ),
    ("compact_tpid = 1500", "csig.compact_tpid", "a length"),
    (
        "expanded_tpid = 0x9900",
        "csig.expanded_tpid",
        "compact_tpid, too",
    ),
    ("window_microseconds = 9", "csig.window_microseconds", "10"),
    (
        "window_microseconds = 1000001",
        "csig.window_microseconds",
        "1000000",
    ),
    (
        "share_window_microseconds = 9",
        "csig.share_window_microseconds",
        "10",
    ),
    (
        "share_window_microseconds = 1000001",
        "csig.share_window_microseconds",
        "1000000",
    ),
    (
        "[csig.bandwidth]\nbuckets = []",
        "csig.bandwidth.buckets",
        "0 buckets",
    ),
    (
        "[csig.bandwidth]\nbuckets = [\"1bps\"]",
        "csig.bandwidth.buckets[0]",
        "not 0",
    ),
    (
        "[csig.bandwidth]\nunit = \"0bps\"",
        "csig.bandwidth.unit",
        "no unit",
    ),
    (
        "[csig.share]\nbuckets_percent = [0.0, 5.0, 5.0]",
        "csig.share.buckets_percent[2]",
        "not above",
    ),
    (
        "[csig.share]\nbuckets_percent = [0.0, nan]",
        "csig.share.buckets_percent[1]",
        "not above",
    ),
    (
        "[csig.share]\nbuckets_percent = [0.0, 101.0]",
        "csig.share.buckets_percent[1]",
        "more than all",
    ),
    (
        "[csig.delay]\nbuckets_microseconds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32]",
        "csig.delay.buckets_microseconds",
        "33 buckets",
    ),
    (
        "[csig.delay]\nunit_nanoseconds = 0",
        "csig.delay.unit_nanoseconds",
        "1",
    ),
    (
        "[[csig.port]]\nports = [\"eth1\"]",
        "csig.port[0].ports[0]",
        "no port",
    ),
    (
        "[[csig.port]]\nlocator = 128",
        "csig.port[0].locator",
        "127",
    ),
];

/// CS-3, MG-1: what is no scale, no TPID and no port is refused with its key.
#[test]
fn what_makes_no_sense_is_refused_by_key() {
    for (text, key, why) in REFUSED {
        let refusal = refused(&format!("[csig]\n{text}\n"));
        assert!(
            refusal.contains(key) && refusal.contains(why),
            "{text}: {refusal}"
        );
        assert!(refusal.contains(':'), "line and column: {refusal}");
    }
    for text in [
        "[csig]\nestimator = \"guess\"",
        "[csig]\nshare_estimator = \"guess\"",
        "[[csig.port]]\nsignals = [\"jitter\"]",
        "[[csig.port]]\nmode = \"drop\"",
        "[[csig.port]]\nexpanded_locator = 65536",
        "[csig]\nwindow = 10",
    ] {
        refused(text);
    }
}

/// CS-4: the share of the capacity is measured as the bandwidth is, or in its own way.
#[test]
fn the_share_is_measured_as_the_bandwidth_or_otherwise() {
    let measures = |text: &str| {
        let csig: Csig = toml::from_str(text).expect(text);
        csig.domain().measures.map(|it| (it.estimator, it.window))
    };
    let (window, dre) = (Estimator::Window, Estimator::Dre);
    let micros = Span::from_micros;
    assert_eq!(measures(""), [(window, micros(100)); 2]);
    let both = "estimator = \"dre\"\nwindow_microseconds = 50";
    assert_eq!(measures(both), [(dre, micros(50)); 2]);
    let own = "share_estimator = \"dre\"\nshare_window_microseconds = 1000";
    assert_eq!(measures(own), [(window, micros(100)), (dre, micros(1000))]);
    let half = "share_window_microseconds = 10";
    assert_eq!(
        measures(half),
        [(window, micros(100)), (window, micros(10))]
    );
}
