//! A real file across a two-leaf, two-spine fabric, over several paths at once.

use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use comfy_table::Table;
use common::units::Rate;
use console::style;
use indicatif::ProgressBar;
use lab::load::{Wait, Watch};
use lab::observe::{Counts, drops, gain, received, rows};
use lab::traffic::{Receiver, iperf, ping};
use lab::{Lab, LabError, Options, run_dir};
use serde_json::Value;

use super::stage::{Stage, holds, losses, not_judged, say};
use crate::{file, show};

/// Name of this chapter's laboratory.
pub(super) const NAME: &str = "demo";

/// What of iperf3's rate in the same minutes a copy reaches at least. On a machine that is not busy
/// it is 0.9 to 1.05; beside eight busy loops on two cores hostd has to share processors where the
/// kernel's TCP does not.
const LEAST_OF_IPERF: f64 = 0.5;

/// Runs the chapter; `false` when the copy is not what was sent, or slow though the machine is not.
pub(super) fn run(stage: &Stage, file: Option<&Path>, speed: Rate) -> Result<bool, LabError> {
    let options = Options {
        name: NAME.to_owned(),
        speed: speed.bps(),
        ..Options::default()
    };
    stage.bar.suspend(|| {
        say("A fabric: 2 leaves, 2 spines, 4 hosts, each a network namespace with its daemon");
    });
    let lab = stage.lab(options)?;
    stage.bar.set_message("ping and iperf3");
    let before = kernel_traffic(&lab, &stage.bar)?;
    let file = if let Some(file) = file {
        file.to_owned()
    } else {
        let joining = "joining shared libraries of this machine to a file";
        stage.bar.set_message(joining);
        file::make(&run_dir(NAME).join("libraries.bin"))?
    };
    let copied = copy(stage, &lab, &file)?;
    stage.bar.set_message("iperf3 once more");
    let after = iperf(lab.node("h1")?, lab.node("h4")?, IPERF_V4)?.bits_per_second;
    stage.bar.set_message("taking the fabric down");
    let fine = copied.is_some_and(|copied| {
        let mean = f64::midpoint(before, after);
        stage.bar.suspend(|| verdict(&copied, mean))
    });
    Ok(fine)
}

/// What became of a copy that did not fail.
struct Copied {
    same: bool,
    /// Bits of the file per second.
    rate: f64,
    /// The longest wait of a daemon or of hostcp for a core.
    worst: Option<Wait>,
}

/// Says what holds, and what a busy machine does not let one say.
fn verdict(copied: &Copied, iperf: f64) -> bool {
    let ratio = copied.rate / iperf;
    let starved = copied.worst.as_ref().filter(|wait| wait.is_starved());
    let slow = ratio < LEAST_OF_IPERF;
    let judged = !slow || starved.is_none();
    say("What has to hold");
    holds(copied.same, "the copy is the same bytes");
    let text = format!(
        "{:.0} Mbit/s of file are {ratio:.2} of what iperf3 gets in the same minutes ({:.0} Mbit/s); at least {LEAST_OF_IPERF}",
        copied.rate / 1e6,
        iperf / 1e6,
    );
    match starved {
        Some(wait) if slow => not_judged(&text, wait),
        _ => holds(!slow, &text),
    }
    copied.same && (!slow || !judged)
}

/// What iperf3 is asked for: TCP over IPv4 for two seconds.
const IPERF_V4: &[&str] = &["-t", "2"];

/// The kernels of the hosts talk through the fabric; returns the rate of TCP over IPv4, in bits per
/// second.
fn kernel_traffic(lab: &Lab, bar: &ProgressBar) -> Result<f64, LabError> {
    let (from, to) = (lab.node("h1")?, lab.node("h4")?);
    let mut lines = Vec::new();
    for (v6, family) in [(false, "IPv4"), (true, "IPv6")] {
        let pings = ping(from, to, v6, 5, Duration::from_millis(50))?;
        let time = pings
            .mean_ms
            .map_or_else(|| "no reply".to_owned(), |ms| format!("{ms:.2} ms"));
        if pings.lost() > 0 {
            return Err(LabError::Answer {
                what: format!("ping {family}"),
                reason: format!("{} of {} replies came", pings.received, pings.sent),
            });
        }
        lines.push(format!(
            "  ping    {family}  h1 → h4 ({})  {} of {} replies, {time}",
            to.address(v6),
            pings.received,
            pings.sent
        ));
    }
    let mut rates = Vec::new();
    for (options, family) in [(IPERF_V4, "IPv4"), (&["-t", "2", "-6"], "IPv6")] {
        let tcp = iperf(from, to, options)?;
        rates.push(tcp.bits_per_second);
        lines.push(format!(
            "  iperf3  {family}  h1 → h4  {:.0} Mbit/s of TCP payload, {} segments sent again",
            tcp.bits_per_second / 1e6,
            tcp.retransmits
        ));
    }
    bar.suspend(|| {
        say("The kernels' own traffic, forwarded by switchd");
        for line in lines {
            println!("{line}");
        }
    });
    Ok(rates[0])
}

/// Copies `file` from h1 to h4 with hostcp, compares, and shows the way that the packets took.
/// `None`: hostcp failed.
fn copy(stage: &Stage, lab: &Lab, file: &Path) -> Result<Option<Copied>, LabError> {
    let bar = &stage.bar;
    let (from, to) = (lab.node("h1")?, lab.node("h4")?);
    let size = file
        .metadata()
        .map_err(LabError::io(file.display().to_string()))?
        .len();
    let folder = run_dir(NAME).join("received");
    let receiver = Receiver::start(to, &folder)?;
    let (before, lost_before) = (received(lab)?, drops(lab)?);
    bar.suspend(|| {
        say("A file over every path: hostcp, packets sprayed over the sub-paths of one queue pair");
        println!("  {} ({} MB), h1 → h4", file.display(), size / 1_000_000);
    });
    let target = format!("{}:copy", to.address(false));
    let mut load = Watch::begin(lab)?;
    load.add("hostcp's receiver", receiver.pid());
    let started = Instant::now();
    let (status, paths) = bar.suspend(|| {
        let mut process = from
            .command(["hostcp", &file.display().to_string(), &target])
            .stdin(Stdio::null())
            .spawn()
            .map_err(LabError::io("hostcp"))?;
        load.add("hostcp", process.id());
        let mut paths = Vec::new();
        loop {
            load.look();
            if let Some(status) = process.try_wait().map_err(LabError::io("hostcp"))? {
                return Ok((status, paths));
            }
            // The queue pair is gone when the copy is over: look while it is there.
            let now = rows(lab.hostctl("h1", &["show", "paths"])?);
            if !now.is_empty() {
                paths = now;
            }
            sleep(Duration::from_millis(50));
        }
    })?;
    let time = started.elapsed();
    stage.interrupts.settle();
    drop(receiver);
    if !status.success() {
        bar.suspend(|| eprintln!("fabric: hostcp failed: {status}"));
        return Ok(None);
    }
    let carried = gain(&before, &received(lab)?);
    let lost = gain(&lost_before, &drops(lab)?);
    bar.set_message("SHA-256 of both files");
    let digests = [file::digest(file)?, file::digest(&folder.join("copy"))?];
    let same = digests[0] == digests[1];
    bar.set_message("which spine each sub-path leads over");
    let ways = sub_paths(lab, &paths)?;
    let rate = rate(size, time);
    bar.suspend(|| {
        println!(
            "  sha256 at h1  {}\n  sha256 at h4  {}",
            digests[0], digests[1]
        );
        goodput(lab, rate, time);
        say(
            "Sub-paths of the queue pair, a moment before its end (hostctl show paths, traceroute)",
        );
        println!("{ways}");
        say("Packets by spine during the copy, as their network devices counted them");
        println!("{}", by_spine(&carried));
        say("Packets discarded during the copy, on any switch or host, by reason");
        losses(&lost);
    });
    Ok(Some(Copied {
        same,
        rate,
        worst: load.worst().cloned(),
    }))
}

/// Bits per second.
#[expect(
    clippy::cast_precision_loss,
    reason = "a file is far shorter than 2^53 bytes"
)]
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / time.as_secs_f64()
}

/// What of the line's capacity was payload of the file.
#[expect(clippy::cast_precision_loss, reason = "display values")]
fn goodput(lab: &Lab, rate: f64, time: Duration) {
    let share = rate / lab.options().speed as f64 * 100.0;
    println!(
        "  {} of file in {:.2} s, connection set-up included: {share:.1} % \
         of the host's {} link",
        style(format!("{:.0} Mbit/s", rate / 1e6)).bold(),
        time.as_secs_f64(),
        Rate::from_bps(lab.options().speed),
    );
}

/// The sub-paths as hostd saw them, and the spine that each leads over: a traceroute with the same
/// addresses and ports takes the same way.
fn sub_paths(lab: &Lab, paths: &[Value]) -> Result<Table, LabError> {
    let to = lab.node("h4")?.address(false).to_string();
    let mut table = show::table(&[
        "sub-path",
        "UDP source port",
        "over",
        "packets",
        "taken for lost",
        "RTT µs",
    ]);
    for path in paths {
        let port = path["entropy"].as_u64().unwrap_or(0).to_string();
        let sport = format!("--sport={port}");
        let words = [
            "traceroute",
            "-n",
            "-U",
            "-p",
            "4791",
            &sport,
            "-q",
            "1",
            "-f",
            "2",
            "-m",
            "2",
        ];
        let trace = lab
            .node("h1")?
            .run([&words[..], &[to.as_str()]].concat())?
            .stdout;
        let over = lab.plan().nodes.iter().find(|node| {
            lab.plan()
                .ends(&node.name)
                .any(|end| trace.contains(&format!(" {} ", end.addresses[0].0)))
        });
        table.add_row(vec![
            path["path"].to_string(),
            port,
            over.map_or_else(|| "?".to_owned(), |node| node.name.clone()),
            path["tx_packets"].to_string(),
            path["lost"].to_string(),
            path["rtt_us"].to_string(),
        ]);
    }
    Ok(table)
}

/// How many packets each spine has carried.
#[expect(clippy::cast_precision_loss, reason = "display values")]
fn by_spine(carried: &Counts) -> Table {
    let on = |spine: &str, leaf: &str| {
        carried
            .get(&(spine.to_owned(), leaf.to_owned()))
            .copied()
            .unwrap_or(0)
    };
    let total: u64 = ["spine1", "spine2"]
        .map(|spine| on(spine, "leaf1"))
        .iter()
        .sum();
    let mut table = show::table(&["spine", "h1 → h4", "share", "h4 → h1"]);
    for spine in ["spine1", "spine2"] {
        let packets = on(spine, "leaf1");
        let share = packets as f64 * 100.0 / (total.max(1)) as f64;
        let back = on(spine, "leaf2").to_string();
        table.add_row(vec![
            spine.to_owned(),
            packets.to_string(),
            format!("{share:.1} %"),
            back,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(rate: f64, waited: u64) -> Copied {
        Copied {
            same: true,
            rate,
            worst: Some(Wait {
                name: "h1".to_owned(),
                waited: Duration::from_millis(waited),
                within: Duration::from_millis(100),
            }),
        }
    }

    #[test]
    fn a_slow_copy_fails_unless_the_machine_is_slow() {
        let (fast, slow) = (LEAST_OF_IPERF * 1e9, LEAST_OF_IPERF * 0.99e9);
        assert!(verdict(&copied(fast, 0), 1e9));
        assert!(!verdict(&copied(slow, 10), 1e9));
        assert!(verdict(&copied(slow, 90), 1e9));
    }

    #[test]
    fn no_machine_excuses_other_bytes() {
        let other = Copied {
            same: false,
            ..copied(1e9, 90)
        };
        assert!(!verdict(&other, 1e9));
    }
}
