//! The dashboards as pictures, for the pages: what each panel asks, over a minute of work.

use super::server::Prometheus;
use super::{BOARDS, board, expression};
use lab::observe::fabric;
use lab::topology::Qos;
use lab::{exclusive, privileged};
use serde_json::Value;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use twin::picture::{Line, Panel, Picture};

/// What a picture shows.
const SHOWN: Duration = Duration::from_secs(60);

/// Lines of a panel, at most: those with the greatest values.
const LINES: usize = 9;

/// The name of a series: the legend with its labels.
fn name(target: &Value, labels: &Value) -> String {
    let mut text = target["legendFormat"].as_str().unwrap_or("").to_owned();
    for (label, value) in labels.as_object().unwrap() {
        let value = value.as_str().unwrap();
        text = text.replace(&format!("{{{{{label}}}}}"), value);
    }
    text
}

/// What the values of a panel measure, in words.
fn unit(panel: &Value) -> &str {
    match panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap() {
        "Bps" => "bytes a second",
        "pps" => "packets a second",
        "cps" | "ops" => "a second",
        "percentunit" => "share",
        "s" => "seconds",
        "bytes" => "bytes",
        _ => "",
    }
}

/// What a panel shows between two moments, in seconds since 1970: lines that are not zero all the
/// time.
fn lines(prometheus: &Prometheus, panel: &Value, (start, end): (u64, u64)) -> Vec<Line> {
    let mut lines = Vec::new();
    for target in panel["targets"].as_array().unwrap() {
        let parameters = [
            ("query", expression(target, "4s")),
            ("start", start.to_string()),
            ("end", end.to_string()),
            ("step", "1".to_owned()),
        ];
        let parameters = parameters.each_ref().map(|(name, text)| (*name, &**text));
        let data = prometheus.ask("query_range", &parameters).unwrap();
        for series in data["result"].as_array().unwrap() {
            let point = |pair: &Value| {
                let value: f64 = pair[1].as_str()?.parse().ok()?;
                let at = pair[0].as_f64()? - start as f64;
                value.is_finite().then_some((at, value))
            };
            let values = series["values"].as_array().unwrap();
            let points = values.iter().filter_map(point).collect();
            lines.push((name(target, &series["metric"]), points));
        }
    }
    let most = |line: &Line| line.1.iter().map(|point| point.1).fold(0.0, f64::max);
    lines.retain(|line| most(line) > 0.0);
    lines.sort_by(|one, other| most(other).total_cmp(&most(one)));
    lines.truncate(LINES);
    lines
}

/// Draws the dashboards for the pages (`make pictures`): seven hosts send to one over a lossless
/// class, and a link between switches is pulled and put back.
#[test]
#[ignore = "draws pictures: make pictures"]
fn draw_the_dashboards() {
    assert!(privileged());
    let _alone = exclusive().unwrap();
    let mut lab = fabric("pictures")
        .size(2, 2, 8)
        .qos(Qos::Lossless)
        .up()
        .unwrap();
    let prometheus = Prometheus::start(&lab);
    prometheus.wait_for_all(&lab);
    let seconds = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    let start = seconds();
    // Each serves one at a time.
    let hosts: Vec<String> = lab.hosts().iter().map(|host| (*host).to_owned()).collect();
    let (to, clients) = hosts.split_last().unwrap();
    let port = |number: usize| (7000 + number).to_string();
    let servers: Vec<_> = (0..clients.len())
        .map(|number| {
            let words = ["hostperf", "serve", "--port", &port(number)];
            lab.host(to).spawn(words).unwrap()
        })
        .collect();
    sleep(Duration::from_secs(5));
    let to = lab.host(to).address(false).to_string();
    let senders: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(number, host)| {
            let words = [
                "hostperf",
                "write",
                &to,
                "--port",
                &port(number),
                "-D",
                "40",
            ];
            lab.host(host).spawn(words).unwrap()
        })
        .collect();
    sleep(Duration::from_secs(20));
    lab.link_down("leaf1", "spine1").unwrap();
    sleep(Duration::from_secs(8));
    lab.link_up("leaf1", "spine1").unwrap();
    for sender in senders {
        netns::Output::from(sender.wait_with_output().unwrap()).expect_ok();
    }
    sleep(SHOWN.saturating_sub(Duration::from_secs(seconds() - start)));
    for mut server in servers {
        server.kill().unwrap();
        server.wait().unwrap();
    }
    draw(&prometheus, (start, start + SHOWN.as_secs()));
}

/// Draws what the dashboards show between two moments.
fn draw(prometheus: &Prometheus, shown: (u64, u64)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    for name in BOARDS {
        let board = board(name);
        let panels = board["panels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|panel| Panel {
                title: panel["title"].as_str().unwrap().to_owned(),
                y: unit(panel).to_owned(),
                lines: lines(prometheus, panel, shown),
                levels: Vec::new(),
            });
        let panels = panels.filter(|panel| !panel.lines.is_empty());
        let picture = Picture {
            title: format!("Dashboard \"{}\"", board["title"].as_str().unwrap()),
            x: "seconds".to_owned(),
            panels: panels.collect(),
        };
        picture
            .draw(&folder.join(format!("dashboard-{name}.svg")))
            .unwrap();
    }
}
