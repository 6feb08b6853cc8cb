//! Incast: seven hosts send to one at once, in a lossless class; first without congestion control,
//! when pauses alone hold the senders, then with it, when marks slow them down. The demo samples
//! the queue in front of the receiver, its marks and the pauses, and draws them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::Duration;

use common::units::Rate;
use console::style;
use lab::load::{self, Wait};
use lab::lossless::Lossless;
use lab::observe::{Counts, drops, gain, rows};
use lab::topology::{Congestion, Qos};
use lab::traffic::Receiver;
use lab::{Lab, LabError, Options, node_dir};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use switchd::control::api::{PriorityGroupRow, QueueRow};
use twin::picture::{Panel, Picture};

use super::samples::{Direction, Pauses, Points, Series, Watch, kind, total};
use super::spark;
use super::stage::{Stage, holds, losses, not_judged, say};
use crate::file;
use crate::show::{self, grouped};

/// Name of this chapter's laboratory.
pub(super) const NAME: &str = "incast";

/// Hosts; the first one receives.
const HOSTS: u8 = 8;

/// Speed of the links: what twelve daemons carry on two cores that they share with seven senders.
const SPEED: u64 = 100_000_000;

/// Bytes that each sender copies: all of them keep the receiver's link busy for six seconds.
const EACH: usize = 10 << 20;

/// Priority, and number of the queue, of hostd's data.
const PRIORITY: u8 = 3;

/// The switch and its port before the receiver.
const LEAF: &str = "leaf1";
const TO: &str = "h1";

/// What a host counts when a packet comes after its copy is done.
const STRAGGLERS: [&str; 2] = ["queue_pair_state", "queue_pair_ended"];

/// Columns and lines of a series on the terminal.
const COLUMNS: usize = 60;
const LINES: usize = 2;

/// Pauses with congestion control are this part of those without at most.
const PART: f64 = 0.5;

/// Runs the chapter; `false` when bytes differ, a switch has lost a packet, another class was
/// paused, or congestion control spares no pauses.
pub(super) fn run(stage: &Stage, folder: &Path) -> Result<bool, LabError> {
    let options = |congestion| Options {
        name: NAME.to_owned(),
        hosts: HOSTS,
        speed: SPEED,
        qos: Qos::Lossless,
        congestion,
        ..Options::default()
    };
    let off = options(Congestion::Off);
    stage.bar.suspend(|| introduce(&off, Lossless::of(&off)));
    let (lab, off) = round(stage, folder, off)?;
    // The next one has its name, also if the last one is to stay.
    lab.down()?;
    stage.bar.suspend(|| {
        say("The same with congestion control (DCTCP): marks slow the senders before they are paused");
    });
    let (_lab, on) = round(stage, folder, options(Congestion::Marks))?;
    let spares = stage.bar.suspend(|| compare(&off, &on));
    stage.bar.set_message("taking the fabric down");
    Ok(off.fine && on.fine && spares)
}

/// What the comparison needs of a round.
struct Round {
    /// All that has to hold in it does.
    fine: bool,
    /// Pauses of the priority.
    pauses: u64,
    worst: Option<Wait>,
}

/// Lets all hosts send once, and shows it.
fn round(stage: &Stage, folder: &Path, options: Options) -> Result<(Lab, Round), LabError> {
    let limits = Lossless::of(&options);
    let controlled = options.congestion != Congestion::Off;
    let lab = stage.lab(options)?;
    let seen = see(stage, &lab)?;
    let name = if controlled {
        "incast-controlled.svg"
    } else {
        "incast.svg"
    };
    let drawn = draw(&lab, &seen, limits, &folder.join(name));
    let fine = stage.bar.suspend(|| {
        say(&format!(
            "{LEAF}'s port to {TO}, queue {PRIORITY}, while they sent"
        ));
        terminal(&lab, &seen, limits);
        match &drawn {
            Ok(()) => println!("  drawn: {}", folder.join(name).display()),
            Err(error) => eprintln!("fabric: no picture: {error}"),
        }
        say("The copies");
        copies(&lab, &seen);
        say("Who was paused: frames that stop a peer (xoff), by the switch that sent them");
        pauses(&seen);
        say("What has to hold");
        verdict(&seen)
    });
    let round = Round {
        fine: fine && drawn.is_ok(),
        pauses: own(&seen.series.all_pauses()),
        worst: seen.worst,
    };
    Ok((lab, round))
}

/// Says what congestion control spares.
#[expect(clippy::cast_precision_loss, reason = "a few thousand pauses")]
fn compare(off: &Round, on: &Round) -> bool {
    say("Pauses without and with congestion control");
    let text = format!(
        "{} pauses without, {} with; at most {PART} of them",
        grouped(off.pauses),
        grouped(on.pauses)
    );
    let fine = on.pauses as f64 <= off.pauses as f64 * PART;
    let mut rounds = [&off.worst, &on.worst].into_iter().flatten();
    let starved = rounds.find(|wait| wait.is_starved());
    match starved {
        Some(wait) if !fine => not_judged(&text, wait),
        _ => holds(fine, &text),
    }
    fine || starved.is_some()
}

fn introduce(options: &Options, limits: Lossless) {
    say("Incast over a lossless class: seven hosts send to one at once");
    println!(
        "  2 leaves, 2 spines, {} hosts, links of {}; h2 to h4 share the leaf of h1, h5 to h8 are behind the spines.\n  \
         hostd's data is of priority {PRIORITY}. A switch that holds more than {} of it from one port has the peer there paused\n  \
         (PFC), until {} are left, and has {} of headroom for what still comes.",
        options.hosts,
        Rate::from_bps(options.speed),
        kb(limits.xoff),
        kb(limits.xon),
        kb(limits.headroom),
    );
}

/// A copy.
struct Copying {
    host: String,
    source: PathBuf,
    process: Option<Child>,
    ended: Option<(Duration, Output)>,
}

/// What was seen.
struct Seen {
    copies: Vec<Copied>,
    series: Series,
    queue: QueueRow,
    headroom: Option<(Direction, PriorityGroupRow)>,
    lost: Counts,
    /// The longest wait of a daemon for a core.
    worst: Option<Wait>,
}

/// What became of a copy.
struct Copied {
    host: String,
    time: Duration,
    /// SHA-256 of what was sent.
    digest: String,
    same: bool,
    /// Why it failed, if it did.
    failure: Option<String>,
    /// How long its host was paused.
    paused: Duration,
}

/// Lets all hosts copy at once, looks at the switches meanwhile, and compares.
fn see(stage: &Stage, lab: &Lab) -> Result<Seen, LabError> {
    stage
        .bar
        .set_message("a file of random bytes for each sender");
    let senders = lab.hosts().into_iter().filter(|host| *host != TO);
    let mut copying = Vec::new();
    for (host, seed) in senders.zip(1..) {
        copying.push(Copying {
            host: host.to_owned(),
            source: source(host, seed)?,
            process: None,
            ended: None,
        });
    }
    let receiver = Receiver::start(lab.node(TO)?, &node_dir(NAME, TO).join("received"))?;
    let before = drops(lab)?;
    let mut watch = Watch::begin(lab, (LEAF, TO, PRIORITY))?;
    let mut load = load::Watch::begin(lab)?;
    for copy in &mut copying {
        let target = format!("{}:{}", lab.node(TO)?.address(false), copy.host);
        let source = copy.source.display().to_string();
        let process = lab.node(&copy.host)?.spawn(["hostcp", &source, &target])?;
        copy.process = Some(process);
    }
    loop {
        watch.next()?;
        load.look();
        let mut done = 0;
        for copy in &mut copying {
            done += usize::from(copy.poll(watch.elapsed())?);
        }
        if done == copying.len() {
            break;
        }
        let all = copying.len();
        stage
            .bar
            .set_message(format!("{done} of {all} copies are done"));
    }
    let (queue, headroom) = (watch.row()?, watch.headroom()?);
    let worst = load.worst().cloned();
    let series = watch.finish()?;
    stage.interrupts.settle();
    stage.bar.set_message("SHA-256 of all files");
    let copies = copying
        .into_iter()
        .filter_map(|copy| copy.judge(lab, receiver.root()).transpose())
        .collect::<Result<_, _>>()?;
    Ok(Seen {
        copies,
        series,
        queue,
        headroom,
        lost: gain(&before, &drops(lab)?),
        worst,
    })
}

/// Random bytes: other ones for each sender, so that files which are exchanged are found.
fn source(host: &str, seed: u64) -> Result<PathBuf, LabError> {
    let path = node_dir(NAME, host).join("source");
    let mut bytes = vec![0; EACH];
    Pcg64::seed_from_u64(seed).fill_bytes(&mut bytes);
    fs::write(&path, bytes).map_err(LabError::io(path.display().to_string()))?;
    Ok(path)
}

impl Copying {
    /// Whether it has ended.
    fn poll(&mut self, now: Duration) -> Result<bool, LabError> {
        let failed = || LabError::io(format!("hostcp on {}", self.host));
        if let Some(mut process) = self.process.take() {
            match process.try_wait().map_err(failed())? {
                None => self.process = Some(process),
                Some(_) => {
                    let output = process.wait_with_output().map_err(failed())?;
                    self.ended = Some((now, output));
                }
            }
        }
        Ok(self.ended.is_some())
    }

    /// Compares what was received with what was sent.
    fn judge(self, lab: &Lab, received: &Path) -> Result<Option<Copied>, LabError> {
        let Some((time, output)) = self.ended else {
            return Ok(None);
        };
        let failure = (!output.status.success()).then(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("{}: {}", output.status, said.trim())
        });
        let digest = file::digest(&self.source)?;
        let same = failure.is_none() && file::digest(&received.join(&self.host))? == digest;
        let pauses = rows(lab.hostctl(&self.host, &["show", "pauses"])?);
        let own = pauses.iter().find(|row| row["priority"] == PRIORITY);
        let paused = own.and_then(|row| row["paused_us"].as_u64());
        Ok(Some(Copied {
            host: self.host,
            time,
            digest,
            same,
            failure,
            paused: Duration::from_micros(paused.unwrap_or(0)),
        }))
    }
}

/// Bytes in thousands.
fn kb(bytes: u64) -> String {
    format!("{} KB", grouped(bytes.div_ceil(1000)))
}

/// The series as blocks.
fn terminal(lab: &Lab, seen: &Seen, limits: Lossless) {
    let end = seen.series.end().as_secs_f64();
    let depth = scaled(seen.series.depth(), 1e-3);
    let kinds = seen.series.paused(|way| kind(lab.plan(), way));
    let columns = |points: &Points| spark::columns(points, end, COLUMNS);
    let greatest = |columns: &[f64]| columns.iter().copied().fold(0.0, f64::max);
    let strip = |name: &str, columns: &[f64], scale: f64, lines: usize| {
        for (number, blocks) in spark::blocks(columns, scale, lines).iter().enumerate() {
            let (name, most) = match number {
                0 => (name, format!("{:.0}", greatest(columns))),
                _ => ("", String::new()),
            };
            println!("  {name:<17}{most:>6} ┤{}", style(blocks).cyan());
        }
    };
    let [marked, _] = seen.series.marked();
    let whole = [
        ("queue, KB", depth, LINES + 1),
        ("CE marks/s", marked, LINES),
        ("pauses/s", total(kinds.values()), LINES),
    ];
    for (name, points, lines) in &whole {
        let columns = columns(points);
        strip(name, &columns, greatest(&columns), *lines);
    }
    // Parts of the same: on one scale.
    let parts: Vec<(&String, Vec<f64>)> =
        kinds.iter().map(|(name, it)| (name, columns(it))).collect();
    let scale = parts
        .iter()
        .map(|(_, columns)| greatest(columns))
        .fold(0.0, f64::max);
    for (name, columns) in &parts {
        strip(&format!("  {name}"), columns, scale, 1);
    }
    let half = COLUMNS / 2;
    let (middle, right) = (format!("{:.1}", end / 2.0), format!("{end:.1} s"));
    println!("  {:>24} 0{middle:>half$}{right:>half$}", "");
    println!(
        "  {} at the deepest; marks begin at {} (Kmin) and are certain from {} (Kmax): {} of {} packets were marked",
        style(kb(seen.queue.watermark_bytes)).bold(),
        kb(limits.kmin),
        kb(limits.kmax),
        grouped(seen.queue.marked_packets),
        grouped(seen.queue.sent_packets),
    );
    if lab.options().congestion == Congestion::Off {
        println!(
            "  hostd does not slow down for marks here: it is the pauses that hold the senders."
        );
    }
}

fn scaled(points: Points, factor: f64) -> Points {
    points
        .into_iter()
        .map(|(at, value)| (at, value * factor))
        .collect()
}

/// Three panels: the queue, its marks, the pauses.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn draw(lab: &Lab, seen: &Seen, limits: Lossless, file: &Path) -> Result<(), LabError> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).map_err(LabError::io(folder.display().to_string()))?;
    let line = |name: &str, points: Points| (name.to_owned(), points);
    let level = |name: &str, bytes: u64| (format!("{name}, {}", kb(bytes)), bytes as f64 / 1e3);
    let [marked, plain] = seen.series.marked();
    let inputs = lab.plan().ends(LEAF).count() as u64 - 1;
    let picture = Picture {
        title: format!(
            "{} hosts send to {TO} at once: {LEAF}'s port to {TO}, queue {PRIORITY}, lossless, {}",
            seen.copies.len(),
            Rate::from_bps(lab.options().speed)
        ),
        x: "seconds since the copies began".to_owned(),
        panels: vec![
            Panel {
                title: String::new(),
                y: "KB in the queue".to_owned(),
                lines: vec![line("depth", scaled(seen.series.depth(), 1e-3))],
                levels: vec![
                    level("Kmin", limits.kmin),
                    level("Kmax", limits.kmax),
                    level(&format!("{inputs} × xoff"), inputs * limits.xoff),
                ],
            },
            Panel {
                title: String::new(),
                y: "packets a second".to_owned(),
                lines: vec![line("marked CE", marked), line("not marked", plain)],
                levels: Vec::new(),
            },
            Panel {
                title: String::new(),
                y: "pauses a second".to_owned(),
                lines: seen
                    .series
                    .paused(|way| kind(lab.plan(), way))
                    .into_iter()
                    .collect(),
                levels: Vec::new(),
            },
        ],
    };
    picture.draw(file).map_err(|error| LabError::Answer {
        what: "picture".to_owned(),
        reason: error.to_string(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "display values")]
fn copies(lab: &Lab, seen: &Seen) {
    let header = [
        "copy",
        "bytes",
        "took",
        "Mbit/s",
        "host was paused",
        "SHA-256",
    ];
    let mut table = show::table(&header);
    let mbits = |bytes: usize, time: Duration| bytes as f64 * 8.0 / time.as_secs_f64() / 1e6;
    for copy in &seen.copies {
        let share = copy.paused.as_secs_f64() * 100.0 / copy.time.as_secs_f64();
        let digest = &copy.digest[..12];
        let result = match (&copy.failure, copy.same) {
            (Some(_), _) => "failed".to_owned(),
            (None, true) => format!("{digest}… on both sides"),
            (None, false) => format!("NOT {digest}…"),
        };
        table.add_row(vec![
            format!("{} → {TO}", copy.host),
            grouped(EACH as u64),
            format!("{:.2} s", copy.time.as_secs_f64()),
            format!("{:.1}", mbits(EACH, copy.time)),
            format!("{:.2} s, {share:.0} %", copy.paused.as_secs_f64()),
            result,
        ]);
    }
    println!("{table}");
    for copy in &seen.copies {
        if let Some(failure) = &copy.failure {
            println!("  hostcp on {}: {failure}", copy.host);
        }
    }
    let last = seen.copies.iter().map(|copy| copy.time).max();
    let all = mbits(EACH * seen.copies.len(), last.unwrap_or(Duration::MAX));
    println!(
        "  {} in all: {:.1} % of {TO}'s {} link, connection set-up included",
        style(format!("{all:.1} Mbit/s")).bold(),
        all * 1e8 / lab.options().speed as f64,
        Rate::from_bps(lab.options().speed),
    );
    println!(
        "  PFC stops links, not flows: h2 to h4 have a link into {LEAF} each, h5 to h8 share those of the spines."
    );
}

/// Pauses of the priority, a line for each switch.
fn pauses(seen: &Seen) {
    let all = seen.series.all_pauses();
    let mut switches: Vec<&str> = all.keys().map(|((switch, _), _)| switch.as_str()).collect();
    switches.dedup();
    for switch in switches {
        let own = all
            .iter()
            .filter(|((way, priority), _)| way.0 == switch && *priority == PRIORITY);
        let peers: Vec<String> = own
            .map(|(((_, peer), _), frames)| format!("{peer} {}", grouped(*frames)))
            .collect();
        println!("  {switch:<7} → {}", peers.join(", "));
    }
    if all.is_empty() {
        println!("  nobody: the senders never overran the port");
    }
    if let Some(((switch, port), group)) = &seen.headroom {
        println!(
            "  what still came then took at most {} of {} of headroom ({switch}, port {port})",
            kb(group.headroom_watermark.bytes),
            kb(group.headroom_limit.bytes)
        );
    }
}

/// Pauses of the lossless priority.
fn own(pauses: &Pauses) -> u64 {
    pauses.values().sum::<u64>() - stray(pauses)
}

/// Pauses of other priorities than the lossless one.
fn stray(pauses: &Pauses) -> u64 {
    let others = pauses
        .iter()
        .filter(|((_, priority), _)| *priority != PRIORITY);
    others.map(|(_, frames)| frames).sum()
}

/// What a switch, and what a host has lost.
fn parted(lab: &Counts) -> (Counts, Counts) {
    let some = lab.iter().filter(|(_, packets)| **packets > 0);
    some.map(|(key, packets)| (key.clone(), *packets))
        .partition(|((node, _), _)| !node.starts_with('h'))
}

/// Says what holds, what does not, and what a busy machine does not let one say.
fn verdict(seen: &Seen) -> bool {
    let copies = &seen.copies;
    let arrived: Vec<&Copied> = copies.iter().filter(|it| it.failure.is_none()).collect();
    let same = arrived.iter().filter(|copy| copy.same).count();
    let (switches, hosts) = parted(&seen.lost);
    let stray = stray(&seen.series.all_pauses());
    let lost: u64 = switches.values().sum();
    let starved = seen.worst.as_ref().filter(|wait| wait.is_starved());
    // Whatever the machine does: what arrives is what was sent, and one class's pauses are not
    // another's.
    let strict = [
        (
            same == arrived.len(),
            format!(
                "{same} of {} copies that arrived are the same bytes",
                arrived.len()
            ),
        ),
        (
            stray == 0,
            format!("priorities other than {PRIORITY} were paused {stray} times"),
        ),
    ];
    // Headroom is for daemons that are late by no more than the laboratory plans for.
    let timely = [
        (
            arrived.len() == copies.len(),
            format!("{} of {} copies arrived", arrived.len(), copies.len()),
        ),
        (lost == 0, format!("switches discarded {lost} packets")),
    ];
    for (fine, text) in &strict {
        holds(*fine, text);
    }
    for (fine, text) in &timely {
        match starved {
            Some(wait) if !fine => not_judged(text, wait),
            _ => holds(*fine, text),
        }
    }
    if lost > 0 {
        losses(&switches);
    }
    if !hosts.is_empty() {
        println!("  Hosts discarded packets themselves:");
        losses(&hosts);
        let late = |(_, reason): &(String, String)| STRAGGLERS.contains(&reason.as_str());
        if hosts.keys().any(late) {
            println!(
                "  queue_pair_…: it came after the copy was done. A host that waited for a processor had taken it for lost,\n  \
                 and sent it twice."
            );
        }
    }
    strict.iter().all(|(fine, _)| *fine)
        && (starved.is_some() || timely.iter().all(|(fine, _)| *fine))
}

#[cfg(test)]
mod tests;
