//! A real Prometheus over a laboratory: it takes what the daemons serve, every expression of the
//! dashboards returns data, and every metric that the alerts name is there.

mod pictures;
mod server;

use lab::observe::{eventually, fabric};
use lab::topology::Qos;
use lab::traffic::Receiver;
use lab::{exclusive, node_dir, privileged};
use serde_json::Value;
use server::{Prometheus, etc};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// Long enough for a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The dashboards, by name.
const BOARDS: [&str; 4] = ["fabric", "switch", "lossless", "hosts"];

fn board(name: &str) -> Value {
    let text = fs::read_to_string(etc().join(format!("grafana/{name}.json"))).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(board["uid"], name);
    board
}

/// The expression of a target as Grafana would ask it, for all switches or hosts, with rates over
/// `interval`.
fn expression(target: &Value, interval: &str) -> String {
    let expression = target["expr"].as_str().unwrap();
    let asked = expression
        .replace("$__rate_interval", interval)
        .replace("$switch", ".+")
        .replace("$host", ".+");
    assert!(!asked.contains('$'), "{expression}");
    asked
}

/// The expressions of all dashboards, each with where it stands.
fn expressions() -> Vec<(String, String)> {
    let mut expressions = Vec::new();
    for name in BOARDS {
        for panel in board(name)["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let asked = expression(target, "1m");
                expressions.push((format!("{name}, {}", panel["title"]), asked));
            }
        }
    }
    expressions
}

/// The metrics and labels that choices of dashboards are taken from: `label_values(metric, label)`.
fn choices() -> Vec<(String, String)> {
    let mut choices = Vec::new();
    for name in BOARDS {
        for variable in board(name)["templating"]["list"].as_array().unwrap() {
            let Some(query) = variable["query"]["query"].as_str() else {
                assert_eq!(variable["type"], "datasource", "{name}");
                continue;
            };
            let inside = query.strip_prefix("label_values(");
            let inside = inside.and_then(|it| it.strip_suffix(')'));
            let (metric, label) = inside.and_then(|it| it.split_once(", ")).expect(query);
            choices.push((metric.to_owned(), label.to_owned()));
        }
    }
    choices
}

/// The daemons' metrics that a text names.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    let prefixes = ["switchd_", "hostd_", "process_"];
    words
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

/// The series that the expressions of the rules select by labels: `metric{label="value"}`.
fn selectors(rules: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in rules
        .lines()
        .filter(|line| line.trim_start().starts_with("expr:"))
    {
        for (open, _) in line.match_indices('{') {
            let start = line[..open]
                .rfind(|it: char| !it.is_ascii_alphanumeric() && it != '_')
                .map_or(0, |before| before + 1);
            let close = line[open..].find('}').unwrap();
            found.insert(line[start..=open + close].to_owned());
        }
    }
    found
}

/// MG-5: Prometheus scrapes every daemon of a fabric with a lossless class under load; it accepts
/// OpenMetrics; every dashboard has data everywhere, and the alerts watch what exists.
#[test]
fn dashboards_and_alerts_find_what_they_ask_for() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("prom").qos(Qos::Lossless).up().unwrap();
    let prometheus = Prometheus::start(&lab);
    let receiver =
        Receiver::start(lab.host("h4"), &node_dir(lab.name(), "h4").join("files")).unwrap();
    let source = node_dir(lab.name(), "h1").join("source");
    fs::write(&source, vec![7; 8 << 20]).unwrap();
    let target = format!("{}:copy", lab.host("h4").address(false));
    let source = source.display().to_string();
    prometheus.wait_for_all(&lab);
    let mut silent = expressions();
    assert!(silent.len() > 50, "{silent:?}");
    // Rates need two scrapes between which something happened.
    eventually("every panel has data", PATIENCE, || {
        let copied = lab.host("h1").run(["hostcp", &source, &target]);
        copied.map_err(|error| error.to_string())?.expect_ok();
        let mut refused = Vec::new();
        silent.retain(|(_, expression)| match prometheus.samples(expression) {
            Ok(rows) => rows.is_empty(),
            Err(error) => {
                refused.push(error);
                true
            }
        });
        if silent.is_empty() {
            Ok(())
        } else {
            Err(format!("{silent:#?} {refused:#?}"))
        }
    });
    drop(receiver);
    let choices = choices();
    assert!(choices.len() >= 3, "{choices:?}");
    for (metric, label) in choices {
        let path = format!("label/{label}/values");
        let values = prometheus.ask(&path, &[("match[]", &metric)]).unwrap();
        let values = values.as_array().unwrap();
        assert!(values.len() > 1, "{label} of {metric}: {values:?}");
    }

    let data = prometheus.ask("label/__name__/values", &[]).unwrap();
    let known: BTreeSet<&str> = data
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let rules = fs::read_to_string(etc().join("prometheus/fabric.rules.yml")).unwrap();
    let asked = metrics(&rules);
    assert!(asked.len() > 10, "{asked:?}");
    for name in &asked {
        assert!(known.contains(name.as_str()), "no daemon has {name}");
    }
    // A label's value that no daemon gives would leave an alert silent for ever.
    let selected = selectors(&rules);
    assert!(selected.len() > 5, "{selected:?}");
    for selector in &selected {
        let rows = prometheus.samples(selector).unwrap();
        assert!(!rows.is_empty(), "no daemon has {selector}");
    }
    let evaluated = prometheus.ask("rules", &[]).unwrap();
    for group in evaluated["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            assert_eq!(rule["health"], "ok", "{rule}");
            assert_ne!(rule["state"], "firing", "{rule}");
        }
    }
    let scraped = prometheus.ask("targets", &[]).unwrap();
    for target in scraped["activeTargets"].as_array().unwrap() {
        assert_eq!(target["lastError"], "", "{target}");
    }
}
