//! Probes between all hosts of a laboratory, with the daemons and signals of real switches.

use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;

use lab::settings::binary;
use lab::{Lab, exclusive, privileged};
use serde_json::Value;

const FABRIC: &str = env!("CARGO_BIN_EXE_fabric");

/// CS-10: every pair of hosts has an answer and a square in the picture; where switches told of the
/// worst port, it is one on the way: on a way over one leaf, that of this leaf to its hosts.
#[test]
fn every_pair_of_hosts_is_probed() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = Lab::builder()
        .name("mesh")
        .size(2, 1, 3)
        .csig()
        .up()
        .unwrap();
    let leaf_of = |host: &str| {
        let plan = lab.plan();
        let leaves = plan.nodes.iter().filter(|node| node.role.is_switch());
        let near = leaves.filter(|node| plan.ends(&node.name).any(|end| end.interface == host));
        near.map(|node| node.name.clone()).next().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("mesh.svg");
    let output = Command::new(FABRIC)
        .args(["lab", "mesh", "--name", "mesh", "--json", "--plot"])
        .arg(&picture)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let pairs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    println!("{pairs:#?}");
    assert_eq!(pairs.len(), 6);
    let mut told = 0;
    for pair in &pairs {
        assert!(pair["median_us"].as_f64().unwrap() > 0.0, "{pair}");
        let [from, to] = ["from", "to"].map(|end| leaf_of(pair[end].as_str().unwrap()));
        for place in ["fullest", "delayed_at"] {
            let Some(place) = pair[place].as_str() else {
                continue;
            };
            told += 1;
            let last = format!("{to} → hosts");
            let on_the_way = place == last
                || (from != to
                    && [format!("{from} → switches"), "spine1 → switches".to_owned()]
                        .contains(&place.to_owned()));
            assert!(on_the_way, "{pair}");
        }
    }
    assert!(told >= pairs.len(), "{told} places");
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.matches("µs").count() >= 6, "{svg}");
}

/// Hosts that know of no laboratory, all of which but the last one serve.
struct Hosts {
    lab: Lab,
    list: Vec<String>,
    servers: Vec<Child>,
}

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

impl Hosts {
    fn new() -> Self {
        let lab = Lab::builder().name("meshrow").size(2, 1, 3);
        let lab = lab.csig().up().unwrap();
        let named = |host: &&str| format!("{host}={}", lab.host(host).address(false));
        let server = binary("hostperf").unwrap().display().to_string();
        let words = [server.as_str(), "serve", "--port", "18999"];
        let serve = |host: &&str| lab.host(host).spawn(words).unwrap();
        let hosts = Self {
            list: HOSTS.iter().map(named).collect(),
            servers: HOSTS[..2].iter().map(serve).collect(),
            lab,
        };
        for host in &HOSTS[..2] {
            lab::observe::eventually("a server", Duration::from_secs(10), || {
                let sessions = hosts.lab.hostctl(host, &["sessions"]).unwrap().to_string();
                sessions.contains("18999").then_some(()).ok_or(sessions)
            });
        }
        hosts
    }

    /// What a host finds that probes all of the list.
    fn probe(&self, host: &str, more: &[&str]) -> String {
        let list = self.list.iter().map(String::as_str);
        let words = [FABRIC, "mesh", "probe"].into_iter().chain(list);
        let output = self.lab.host(host).run(words.chain(more.iter().copied()));
        output.unwrap().expect_ok()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn matrix(more: &[&str], files: &[PathBuf]) -> Output {
    let mut command = Command::new(FABRIC);
    command.args(["mesh", "matrix"]).args(more).args(files);
    command.output().unwrap()
}

/// CS-10: hosts that know of no laboratory probe each other by one list of addresses, each path for
/// itself, and their rows make one matrix. A host that does not serve has no answer, and its reason
/// is told.
#[test]
fn rows_of_hosts_make_a_matrix() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().unwrap();
    let write = |host: &&str| {
        let file = folder.path().join(host);
        std::fs::write(&file, hosts.probe(host, &["--json"])).unwrap();
        file
    };
    let files: Vec<PathBuf> = HOSTS.iter().map(write).collect();
    let text = hosts.probe("h1", &[]);
    for part in ["RTT µs", "locator ", "no answer"] {
        assert!(text.contains(part), "{text}");
    }
    let picture = folder.path().join("mesh.svg");
    let output = matrix(&["--json", "--plot", picture.to_str().unwrap()], &files);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let pairs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(pairs.len(), 6);
    for pair in &pairs {
        if pair["to"] == "h3" {
            assert!(pair["median_us"].is_null(), "{pair}");
            assert!(pair["error"].is_string(), "{pair}");
            continue;
        }
        assert!(pair["median_us"].as_f64().unwrap() > 0.0, "{pair}");
        let paths = pair["paths"].as_array().unwrap();
        let measured = |path: &Value| path["rtt_us"].as_f64() > Some(0.0);
        assert!(paths.iter().any(measured), "{pair}");
        let told = |place: &str| paths.iter().any(|path| path[place].is_string());
        assert!(told("delayed_at") || told("fullest"), "{pair}");
    }
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.matches("µs").count() >= 4, "{svg}");
    let output = matrix(&[], &files);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("no answer").count(), 2, "{text}");
    std::fs::write(&files[0], "[{}]").unwrap();
    let output = matrix(&[], &files);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    assert!(errors.contains("missing field"), "{errors}");
    // Nobody in the list is this host.
    let words = [FABRIC, "mesh", "probe", "10.9.9.9"];
    let output = hosts.lab.host("h1").run(words).unwrap();
    assert!(!output.ok(), "{}", output.stdout);
    assert!(output.stderr.contains("--from"), "{}", output.stderr);
}
