//! A real Prometheus over a laboratory: it takes what the daemons serve, every expression of the
//! dashboards returns data, and every metric that the alerts name is there.

use lab::command::run;
use lab::observe::{eventually, fabric};
use lab::topology::Qos;
use lab::traffic::Receiver;
use lab::{Lab, exclusive, node_dir, privileged};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Long enough for a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

fn etc() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc")
}

/// Listens on loopback here, and carries each connection to a listener on loopback of a node: the
/// nodes' namespaces have no way to this one. Returns the address here.
fn relay(lab: &Lab, node: &str, port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let namespace = lab::namespace(lab.name(), node);
    // Ends with the test's process: the listener is never closed before.
    thread::spawn(move || {
        for here in listener.incoming() {
            let there = netns::inside(&namespace, || TcpStream::connect(("127.0.0.1", port)));
            // Refused when the daemon is gone: then the scrape fails, and the test with it.
            let (Ok(here), Ok(Ok(there))) = (here, there) else {
                continue;
            };
            let ways = [
                (here.try_clone().unwrap(), there.try_clone().unwrap()),
                (there, here),
            ];
            for (mut from, mut to) in ways {
                thread::spawn(move || {
                    // Ends when either side closes.
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

/// A Prometheus of this test's own, with the shipped rules.
struct Prometheus {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(lab: &Lab) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n".to_owned();
        let rules = fs::canonicalize(etc().join("prometheus/fabric.rules.yml")).unwrap();
        writeln!(
            config,
            "rule_files: ['{}']\nscrape_configs:",
            rules.display()
        )
        .unwrap();
        let switches = ["leaf1", "leaf2", "spine1", "spine2"];
        for (job, port, nodes) in [
            ("switchd", 9101, &switches[..]),
            ("hostd", 9102, &lab.hosts()[..]),
        ] {
            writeln!(config, "  - job_name: {job}\n    static_configs:").unwrap();
            for node in nodes {
                let address = relay(lab, node, port);
                let target = format!("{{targets: ['{address}'], labels: {{instance: {node}}}}}");
                writeln!(config, "      - {target}").unwrap();
            }
        }
        let file = folder.path().join("prometheus.yml");
        fs::write(&file, config).unwrap();
        // A port that was free a moment ago; nobody else takes ports here at random.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            process,
            address,
            _folder: folder,
        }
    }

    /// What the API answers.
    fn ask(&self, path: &str, query: Option<&str>) -> Result<Value, String> {
        let url = format!("http://{}/api/v1/{path}", self.address);
        let mut words = vec!["-sS".to_owned(), "-G".to_owned(), url];
        if let Some(query) = query {
            words.extend(["--data-urlencode".to_owned(), format!("query={query}")]);
        }
        let text = run("curl", &words).map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_str(&text).map_err(|_| text.clone())?;
        if answer["status"] == "success" {
            Ok(answer["data"].take())
        } else {
            Err(text)
        }
    }

    /// The samples that an expression gives now. NaN, as of nothing divided by nothing, is none.
    fn samples(&self, expression: &str) -> Result<Vec<Value>, String> {
        let mut data = self.ask("query", Some(expression))?;
        let Value::Array(mut rows) = data["result"].take() else {
            return Err(format!("{expression}: {data}"));
        };
        rows.retain(|row| row["value"][1] != "NaN");
        Ok(rows)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The expressions of all dashboards, each with where it stands, as Grafana would ask them.
fn dashboards() -> Vec<(String, String)> {
    let mut expressions = Vec::new();
    for name in ["fabric", "switch", "lossless", "hosts"] {
        let text = fs::read_to_string(etc().join(format!("grafana/{name}.json"))).unwrap();
        let board: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(board["uid"], name);
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let asked = expression
                    .replace("$__rate_interval", "1m")
                    .replace("$switch", ".+")
                    .replace("$host", ".+");
                assert!(!asked.contains('$'), "{name}: {expression}");
                expressions.push((format!("{name}, {}", panel["title"]), asked));
            }
        }
    }
    expressions
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
    let all = lab.hosts().len() + 4;
    eventually("all daemons are scraped", PATIENCE, || {
        let up = prometheus.samples("up == 1")?;
        if up.len() == all {
            Ok(())
        } else {
            Err(format!("{up:?}"))
        }
    });
    let mut silent = dashboards();
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

    let data = prometheus.ask("label/__name__/values", None).unwrap();
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
    let evaluated = prometheus.ask("rules", None).unwrap();
    for group in evaluated["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            assert_eq!(rule["health"], "ok", "{rule}");
            assert_ne!(rule["state"], "firing", "{rule}");
        }
    }
    let scraped = prometheus.ask("targets", None).unwrap();
    for target in scraped["activeTargets"].as_array().unwrap() {
        assert_eq!(target["lastError"], "", "{target}");
    }
}
