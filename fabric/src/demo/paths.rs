//! What many paths give: throughput of one connection on one path, on all, and while a spine is
//! dead, drawn over time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::units::Rate;
use console::style;
use lab::load::{Wait, Watch};
use lab::observe::rows;
use lab::topology::{Congestion, Qos};
use lab::{Lab, LabError, Options};
use twin::picture::{Panel, Picture};

use super::samples::{Points, rates};
use super::spark;
use super::stage::{Stage, holds, not_judged, say};
use crate::processes::Processes;

/// Name of this chapter's laboratory.
pub(super) const NAME: &str = "paths";

/// Paths: one over each spine.
const SPINES: u8 = 4;

/// Speed of the links between switches, a fourth of that of hosts: what eight daemons carry on two
/// cores.
const SPEED: u64 = 60_000_000;

/// How long each part lasts, and what of it does not count: the time until the last change shows.
const PART: Duration = Duration::from_millis(2500);
const SETTLING: Duration = Duration::from_millis(700);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Rates are those of this time at least.
const WINDOW: Duration = Duration::from_millis(150);

/// The sender, the receiver, and the spine that dies.
const FROM: &str = "h1";
const TO: &str = "h2";
const DIES: &str = "spine1";

/// All paths carry so many times as much as one at least; with one spine of four dead they carry
/// more than one.
const GAIN: f64 = 2.0;

/// Columns and lines on the terminal.
const COLUMNS: usize = 60;
const LINES: usize = 4;

/// A part of the time, with its own throughput.
struct Part {
    name: &'static str,
    from: f64,
    /// Bits per second of all that arrived, headers included.
    rate: f64,
}

/// What was seen.
struct Seen {
    /// Seconds, and Mbit/s.
    points: Points,
    parts: Vec<Part>,
    /// The longest wait of a daemon for a core.
    worst: Option<Wait>,
}

/// Runs the chapter; `false` when many paths carry no more than one, though the machine is not
/// busy.
pub(super) fn run(stage: &Stage, folder: &Path) -> Result<bool, LabError> {
    let options = Options {
        name: NAME.to_owned(),
        spines: SPINES,
        hosts: 2,
        speed: SPEED * u64::from(SPINES),
        fabric_speed: Some(SPEED),
        congestion: Congestion::Marks,
        qos: Qos::Uet,
        ..Options::default()
    };
    stage.bar.suspend(|| {
        say("One connection over one path, over all, and while a spine is dead");
        println!(
            "  {SPINES} spines with links of {}, hosts with links of {}. hostperf writes from {FROM} to {TO} all the time;\n  \
             hostctl set changes the connection meanwhile.",
            Rate::from_bps(SPEED),
            Rate::from_bps(options.speed),
        );
    });
    let lab = stage.lab(options)?;
    let seen = see(stage, &lab)?;
    let drawn = draw(&lab, &seen, folder);
    let fine = stage.bar.suspend(|| {
        terminal(&seen);
        match &drawn {
            Ok(file) => println!("  drawn: {}", file.display()),
            Err(error) => eprintln!("fabric: no picture: {error}"),
        }
        say("What has to hold");
        verdict(&seen)
    });
    stage.bar.set_message("taking the fabric down");
    Ok(fine && drawn.is_ok())
}

/// Starts the traffic; the number of its queue pair.
fn begin(lab: &Lab) -> Result<(Processes, String), LabError> {
    let start = |node: &str, words: &[&str]| {
        let mut command = lab.node(node)?.command(words);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map_err(LabError::io("hostperf"))
    };
    let address = lab.node(TO)?.address(false).to_string();
    let mut processes = Processes(vec![start(TO, &["hostperf", "serve"])?]);
    let writes = ["hostperf", "write", "-D", "600", "-t", "16", &address];
    let until = Instant::now() + Duration::from_secs(10);
    // The server may take a moment until it listens.
    loop {
        processes.0.push(start(FROM, &writes)?);
        for _ in 0..10 {
            sleep(Duration::from_millis(50));
            let pairs = rows(lab.hostctl(FROM, &["show", "qps"])?);
            let ready = pairs.iter().find(|row| row["state"] == "ReadyToSend");
            if let Some(number) = ready.and_then(|row| row["qpn"].as_u64()) {
                return Ok((processes, number.to_string()));
            }
        }
        if Instant::now() > until {
            return Err(LabError::Answer {
                what: "hostperf".to_owned(),
                reason: "it does not connect".to_owned(),
            });
        }
    }
}

/// Bytes that have arrived at the receiver.
fn arrived(lab: &Lab) -> Result<u64, LabError> {
    let end = lab.plan().ends(TO).next();
    let name = end.map_or("", |end| end.interface.as_str());
    let file = format!("/sys/class/net/{name}/statistics/rx_bytes");
    let said = lab.node(TO)?.run(["cat", file.as_str()])?.stdout;
    said.trim().parse().map_err(|_| LabError::Answer {
        what: file,
        reason: said,
    })
}

/// Lets the connection pass through all parts, and looks at it meanwhile.
fn see(stage: &Stage, lab: &Lab) -> Result<Seen, LabError> {
    let (_processes, number) = begin(lab)?;
    let set = |granularity: &str| {
        let words = ["hostctl", "set", &number, "--granularity", granularity];
        let output = lab.node(FROM)?.run(words)?;
        match output.ok() {
            true => Ok(()),
            false => Err(LabError::Answer {
                what: words.join(" "),
                reason: output.stderr,
            }),
        }
    };
    let mut load = Watch::begin(lab)?;
    let mut counts = Vec::new();
    let mut parts = Vec::new();
    let began = Instant::now();
    let mut part = |name: &'static str| -> Result<(), LabError> {
        stage.bar.set_message(name);
        let from = began.elapsed();
        let mut settled = None;
        loop {
            let at = began.elapsed();
            counts.push((at, arrived(lab)?));
            let last = counts.last().copied();
            if at >= from + SETTLING {
                settled = settled.or(last);
            }
            if at >= from + PART {
                let (first, last) = (settled.unwrap_or_default(), last.unwrap_or_default());
                parts.push(Part {
                    name,
                    from: from.as_secs_f64(),
                    rate: rate(first, last),
                });
                return Ok(());
            }
            load.look();
            sleep(LOOK);
        }
    };
    set("flow")?;
    part("one path")?;
    set("packet")?;
    part("all paths")?;
    lab.kill(DIES)?;
    lab.stop(DIES)?;
    part("a spine is dead")?;
    lab.start(DIES)?;
    part("it is back")?;
    stage.interrupts.settle();
    let points = rates(counts, WINDOW);
    let mbits = |(at, bytes)| (at, bytes * 8.0 / 1e6);
    Ok(Seen {
        points: points.into_iter().map(mbits).collect(),
        parts,
        worst: load.worst().cloned(),
    })
}

/// Bits per second between two looks.
#[expect(clippy::cast_precision_loss, reason = "display values")]
fn rate(first: (Duration, u64), last: (Duration, u64)) -> f64 {
    let time = last.0.saturating_sub(first.0).as_secs_f64();
    last.1.saturating_sub(first.1) as f64 * 8.0 / time.max(f64::MIN_POSITIVE)
}

/// The throughput as blocks, and that of each part.
fn terminal(seen: &Seen) {
    say(&format!("Mbit/s that arrive at {TO}"));
    let end = seen.points.last().map_or(0.0, |(at, _)| *at);
    let columns = spark::columns(&seen.points, end, COLUMNS);
    let most = columns.iter().copied().fold(0.0, f64::max);
    for (number, blocks) in spark::blocks(&columns, most, LINES).iter().enumerate() {
        let scale = match number {
            0 => format!("{most:.0}"),
            _ => String::new(),
        };
        println!("  {scale:>6} ┤{}", style(blocks).cyan());
    }
    for part in &seen.parts {
        let rate = style(format!("{:>6.0} Mbit/s", part.rate / 1e6)).bold();
        println!("  from {:>4.1} s  {:<16} {rate}", part.from, part.name);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn draw(lab: &Lab, seen: &Seen, folder: &Path) -> Result<PathBuf, LabError> {
    fs::create_dir_all(folder).map_err(LabError::io(folder.display().to_string()))?;
    let level = |name: &str, bps: u64| (name.to_owned(), bps as f64 / 1e6);
    let moments: Vec<String> = seen
        .parts
        .iter()
        .map(|part| format!("{} from {:.1} s", part.name, part.from))
        .collect();
    let picture = Picture {
        title: format!("One connection from {FROM} to {TO}: {}", moments.join(", ")),
        x: "seconds".to_owned(),
        panels: vec![Panel {
            title: String::new(),
            y: "Mbit/s that arrive".to_owned(),
            lines: vec![("throughput".to_owned(), seen.points.clone())],
            levels: vec![
                level("one path", SPEED),
                level("without a spine", SPEED * u64::from(SPINES - 1)),
                level("all paths", lab.options().speed),
            ],
        }],
    };
    let file = folder.join("paths.svg");
    picture.draw(&file).map_err(|error| LabError::Answer {
        what: "picture".to_owned(),
        reason: error.to_string(),
    })?;
    Ok(file)
}

/// Says what holds, and what a busy machine does not let one say.
fn verdict(seen: &Seen) -> bool {
    let starved = seen.worst.as_ref().filter(|wait| wait.is_starved());
    let of = |name: &str| {
        let part = seen.parts.iter().find(|part| part.name == name);
        part.map_or(0.0, |part| part.rate)
    };
    let one = of("one path").max(1.0);
    let [all, dead, back] =
        ["all paths", "a spine is dead", "it is back"].map(|name| of(name) / one);
    let rows = [
        (
            all >= GAIN,
            format!("all paths carry {all:.2} times as much as one; at least {GAIN}"),
        ),
        (
            dead > 1.0,
            format!("without a spine they carry {dead:.2} times as much as one path"),
        ),
        (
            back >= GAIN,
            format!("when it is back, {back:.2} times as much; at least {GAIN}"),
        ),
    ];
    for (fine, text) in &rows {
        match starved {
            Some(wait) if !fine => not_judged(text, wait),
            _ => holds(*fine, text),
        }
    }
    starved.is_some() || rows.iter().all(|(fine, _)| *fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rates: [f64; 4], waited: u64) -> Seen {
        let names = ["one path", "all paths", "a spine is dead", "it is back"];
        let part = |(name, rate)| Part {
            name,
            from: 0.0,
            rate,
        };
        Seen {
            points: Points::new(),
            parts: names.into_iter().zip(rates).map(part).collect(),
            worst: Some(Wait {
                name: "h1".to_owned(),
                waited: Duration::from_millis(waited),
                within: Duration::from_millis(100),
            }),
        }
    }

    #[test]
    fn few_gains_fail_unless_the_machine_is_slow() {
        assert!(verdict(&seen([1e8, 4e8, 3e8, 4e8], 0)));
        for poor in [
            [1e8, 1.9e8, 3e8, 4e8],
            [1e8, 4e8, 0.9e8, 4e8],
            [1e8, 4e8, 3e8, 1.5e8],
        ] {
            assert!(!verdict(&seen(poor, 10)), "{poor:?}");
            assert!(verdict(&seen(poor, 90)), "{poor:?}");
        }
    }

    #[test]
    fn rates_are_bits_of_what_came_meanwhile() {
        let second = |at| Duration::from_secs(at);
        assert!((rate((second(2), 1_000), (second(4), 3_000)) - 8_000.0).abs() < 1e-6);
    }
}
