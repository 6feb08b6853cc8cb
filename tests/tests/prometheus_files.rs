//! The shipped files for Prometheus: rules and their unit tests, by promtool. That dashboards and
//! rules ask for what the daemons have is shown over a laboratory (`netns_prometheus`).

use lab::command::run;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/prometheus")
}

fn promtool(words: [&str; 2], file: &str) {
    let path = folder().join(file).display().to_string();
    let said = run("promtool", &[words[0], words[1], &path]).unwrap();
    println!("{said}");
}

/// MG-5: the rules and the example of a configuration are valid.
#[test]
fn rules_and_configuration_are_valid() {
    promtool(["check", "rules"], "fabric.rules.yml");
    promtool(["check", "config"], "prometheus.yml");
}

/// MG-5: each alert fires when it must, with the text that an operator reads, and is quiet when
/// all is well.
#[test]
fn each_alert_fires_and_is_quiet() {
    promtool(["test", "rules"], "fabric.rules.test.yml");
    let alerts = fs::read_to_string(folder().join("fabric.rules.yml")).unwrap();
    let tests = fs::read_to_string(folder().join("fabric.rules.test.yml")).unwrap();
    let named = |text: &str, key: &str| -> BTreeSet<String> {
        let name = |line: &str| Some(line.trim().strip_prefix(key)?.to_owned());
        text.lines().filter_map(name).collect()
    };
    let alerts = named(&alerts, "- alert: ");
    assert!(alerts.len() > 10, "{alerts:?}");
    let tests = named(&tests, "- name: ");
    for alert in &alerts {
        for outcome in ["fires", "is quiet"] {
            let test = format!("{alert} {outcome}");
            assert!(tests.contains(&test), "no test {test:?}");
        }
    }
    assert_eq!(tests.len(), 2 * alerts.len(), "{tests:?}");
}
