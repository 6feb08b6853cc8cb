//! Marking thresholds that follow the traffic, with the real daemons: an incast in a laboratory
//! with a lossless class.

use lab::observe::{drops, eventually, fabric, rows};
use lab::topology::{Congestion, Qos};
use lab::{Lab, exclusive, node_dir, privileged};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// The switch before the receiver.
const LEAF: &str = "leaf1";

const MODEL: &str = include_str!("../../etc/aiecn.toml");

/// Puts a mode and a model in force at the leaf; what the reload says.
fn reload(lab: &Lab, text: &str, mode: &str, model: &Path) -> Result<(), String> {
    let path = node_dir(lab.name(), LEAF).join("switchd.toml");
    let section = format!(
        "\n[qos.aiecn]\nmode = \"{mode}\"\nmodel = {model:?}\ninterval_microseconds = 20000\n"
    );
    fs::write(path, format!("{text}{section}")).unwrap();
    let answer = lab.switchctl(LEAF, &["reload"]);
    answer.map(|_| ()).map_err(|error| error.to_string())
}

/// The queue of hostd's data to h1, as `switchctl aiecn` shows it.
fn queue(lab: &Lab) -> Option<serde_json::Value> {
    let rows = rows(lab.switchctl(LEAF, &["aiecn"]).unwrap());
    let mut rows = rows.into_iter();
    rows.find(|row| row["port"] == "h1" && row["queue"] == 3)
}

/// Waits until the queue is as wanted, and returns it.
fn wait(lab: &Lab, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let mut found = None;
    eventually(what, Duration::from_secs(40), || {
        found = queue(lab).filter(|row| wanted(row));
        found
            .as_ref()
            .map(|_| ())
            .ok_or_else(|| format!("{:#?}", queue(lab)))
    });
    found.expect("it was found")
}

/// Starts a server on h1 and writers on all others.
fn incast(lab: &Lab) -> Vec<Child> {
    let mut server = lab.host("h1").spawn(["hostperf", "serve"]).unwrap();
    let mut line = String::new();
    let said = server.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut line).unwrap();
    let to = lab.host("h1").address(false).to_string();
    let writer = |host: u8| {
        let words = ["hostperf", "write", "--json", "-D", "120", "-t", "16", &to];
        lab.host(&format!("h{host}")).spawn(words).unwrap()
    };
    std::iter::once(server).chain((2..=4).map(writer)).collect()
}

/// SW-24: the features of an incast are shown; with "ai" its thresholds follow, are told of and
/// counted; a broken model is refused with line and key while all goes on; and without it the
/// thresholds are those of the configuration again. The lossless class loses nothing.
#[test]
fn thresholds_follow_an_incast() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("aiecn")
        .size(2, 1, 4)
        .speed(100_000_000)
        .qos(Qos::Lossless)
        .congestion(Congestion::Marks)
        .up()
        .unwrap();
    let folder = node_dir(lab.name(), LEAF);
    let text = fs::read_to_string(folder.join("switchd.toml")).unwrap();
    let model = folder.join("model.toml");
    fs::write(&model, MODEL).unwrap();
    assert_eq!(queue(&lab), None, "it is off");
    reload(&lab, &text, "static", &model).unwrap();
    let mut processes = incast(&lab);
    let seen = wait(&lab, "features", |row| {
        let of = |name: &str| row["features"][name].as_f64().unwrap_or(0.0);
        of("utilisation") > 0.5 && of("degree") >= 1.0 && of("flows") >= 1.0
    });
    assert_eq!(seen["changes"], 0);
    assert_eq!(seen["in_force"], seen["configured"]);

    reload(&lab, &text, "ai", &model).unwrap();
    let followed = wait(&lab, "other thresholds", |row| {
        let kmax = |of: &str| row[of]["max_bytes"].as_u64().unwrap_or(0);
        row["changes"].as_u64() > Some(0) && kmax("in_force") < kmax("configured")
    });
    assert!(followed["last"]["why"].is_string(), "{followed:#?}");
    let events = rows(lab.switchctl(LEAF, &["events"]).unwrap());
    let told = |event: &&serde_json::Value| event["kind"] == "thresholds" && event["port"] == "h1";
    assert!(events.iter().any(|event| told(&event)), "{events:#?}");

    fs::write(&model, MODEL.replacen("radius = ", "radius = -", 1)).unwrap();
    let reason = reload(&lab, &text, "frozen", &model).unwrap_err();
    assert!(reason.contains("model.toml:7"), "{reason}");
    assert!(reason.contains("radius"), "{reason}");
    let answer = lab.switchctl(LEAF, &["aiecn"]).unwrap();
    assert_eq!(answer["mode"], "ai", "{answer:#?}");

    fs::write(&model, MODEL).unwrap();
    reload(&lab, &text, "static", &model).unwrap();
    wait(&lab, "the configured thresholds", |row| {
        row["in_force"] == row["configured"]
    });
    reload(&lab, &text, "off", &model).unwrap();
    assert_eq!(queue(&lab), None);
    for process in &mut processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let lost = drops(&lab).unwrap();
    let switches = |node: &str| node.starts_with("leaf") || node.starts_with("spine");
    assert!(!lost.keys().any(|(node, _)| switches(node)), "{lost:?}");
}
