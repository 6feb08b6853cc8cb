//! Probes between all hosts of a laboratory, with the daemons and signals of real switches.

use std::process::Command;

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
