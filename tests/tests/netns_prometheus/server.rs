//! A Prometheus of the test's own over a laboratory.

use super::PATIENCE;
use lab::Lab;
use lab::command::run;
use lab::observe::eventually;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// The shipped files.
pub(crate) fn etc() -> PathBuf {
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
pub(crate) struct Prometheus {
    process: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    pub(crate) fn start(lab: &Lab) -> Self {
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
    pub(crate) fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let url = format!("http://{}/api/v1/{path}", self.address);
        let mut words = vec!["-sS".to_owned(), "-G".to_owned(), url];
        for (name, value) in parameters {
            words.extend(["--data-urlencode".to_owned(), format!("{name}={value}")]);
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
    pub(crate) fn samples(&self, expression: &str) -> Result<Vec<Value>, String> {
        let mut data = self.ask("query", &[("query", expression)])?;
        let Value::Array(mut rows) = data["result"].take() else {
            return Err(format!("{expression}: {data}"));
        };
        rows.retain(|row| row["value"][1] != "NaN");
        Ok(rows)
    }

    /// Waits until every daemon of a fabric of two leaves and two spines is scraped.
    pub(crate) fn wait_for_all(&self, lab: &Lab) {
        let all = lab.hosts().len() + 4;
        eventually("all daemons are scraped", PATIENCE, || {
            let up = self.samples("up == 1")?;
            if up.len() == all {
                Ok(())
            } else {
                Err(format!("{up:?}"))
            }
        });
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
