//! A vector of each host, added by the switches on their way: beside a ring of the hosts, and while
//! the spine that adds is killed.

use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::load::{Wait, Watch};
use lab::observe::rows;
use lab::topology::{NodeRole, Qos};
use lab::{Lab, LabError, Options};
use serde_json::Value;

use super::stage::{Stage, holds, not_judged, say};
use crate::show;

/// Name of this chapter's laboratory.
pub(super) const NAME: &str = "reduce";

/// Lengths that are compared, and how often a vector of each is reduced.
const SIZES: &str = "8,64K,1M";
const CALLS: &str = "20";

/// While these are reduced the spine is killed: as many as last longer than it takes to see that
/// they run, and to kill it.
const KILLED_SIZE: &str = "1M";
const KILLED_CALLS: &str = "150";

/// The spine that the leaves ask.
const DIES: &str = "spine1";

/// Where the jobs of all members are seen.
const LEAF: &str = "leaf1";

/// How long the members may take until a switch has their job, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How all members ended.
#[derive(Debug, Default)]
struct Run {
    /// What rank 0 says of each length.
    lines: Vec<Value>,
    /// What stood in standard error of rank 0.
    said: String,
    /// Members that failed.
    failed: usize,
}

impl Run {
    /// Every member has ended well, and every result was what it must be.
    fn is_right(&self) -> bool {
        let right = |line: &Value| line["wrong"] == 0;
        self.failed == 0 && !self.lines.is_empty() && self.lines.iter().all(right)
    }

    fn switched(&self) -> bool {
        self.lines.iter().all(|line| line["switched"] == true)
    }
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    switches: Run,
    ring: Run,
    killed: Run,
    /// A job ran when the spine was killed.
    in_the_middle: bool,
    /// The longest wait of a daemon for a core.
    worst: Option<Wait>,
}

/// Runs the chapter; `false` when a result is wrong or a member fails, or when switches do not
/// compute though the machine is not busy.
pub(super) fn run(stage: &Stage) -> Result<bool, LabError> {
    let options = Options {
        name: NAME.to_owned(),
        spines: 1,
        compute: true,
        qos: Qos::Plain,
        ..Options::default()
    };
    let ranks = options.hosts;
    stage.bar.suspend(|| {
        say("Vectors of all hosts, added by the switches");
        println!(
            "  {ranks} hosts on two leaves: each gets the sum of the vectors of all. Leaves add those of their hosts, {DIES} adds\n  \
             those of the leaves. hostallreduce compares every result, bit by bit.",
        );
    });
    let lab = stage.lab(options)?;
    let seen = see(stage, &lab)?;
    let fine = stage.bar.suspend(|| {
        table(&seen);
        say("What has to hold");
        verdict(&seen)
    });
    stage.bar.set_message("taking the fabric down");
    Ok(fine)
}

/// One member a host; killed with this if they have not ended.
struct Members(Vec<Child>);

impl Drop for Members {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Members {
    fn start(lab: &Lab, port: u16, words: [&str; 6]) -> Result<Self, LabError> {
        let hosts: Vec<&str> = lab.plan().names(NodeRole::Host).collect();
        let root = lab.node(hosts[0])?.address(false);
        let mut members = Self(Vec::new());
        for (rank, host) in hosts.iter().enumerate() {
            let mut command = lab.node(host)?.command(["hostallreduce", "--json"]);
            command
                .args(["--rank", &rank.to_string()])
                .args(["--ranks", &hosts.len().to_string()])
                .args(["--root", &root.to_string()])
                .args(["--port", &port.to_string()])
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let process = command.spawn().map_err(LabError::io("hostallreduce"))?;
            members.0.push(process);
        }
        Ok(members)
    }

    /// Waits until all have ended; `look` is called meanwhile.
    fn end(mut self, mut look: impl FnMut()) -> Result<Run, LabError> {
        let fail = LabError::io("hostallreduce");
        let until = Instant::now() + PATIENCE;
        let mut run = Run::default();
        let mut going = true;
        while going {
            look();
            sleep(Duration::from_millis(20));
            going = false;
            for process in &mut self.0 {
                going |= matches!(process.try_wait(), Ok(None));
            }
            if Instant::now() > until {
                return Err(LabError::Timeout {
                    what: "hostallreduce does not end".to_owned(),
                    seconds: PATIENCE.as_secs(),
                    hint: String::new(),
                });
            }
        }
        let outputs: std::io::Result<Vec<_>> = std::mem::take(&mut self.0)
            .into_iter()
            .map(Child::wait_with_output)
            .collect();
        let outputs = outputs.map_err(fail)?;
        run.failed = outputs.iter().filter(|it| !it.status.success()).count();
        run.lines = serde_json::from_slice(&outputs[0].stdout)
            .map(rows)
            .unwrap_or_default();
        run.said = String::from_utf8_lossy(&outputs[0].stderr).into_owned();
        Ok(run)
    }
}

/// Whether a job runs at the leaf.
fn runs(lab: &Lab) -> Result<bool, LabError> {
    let jobs = rows(lab.switchctl(LEAF, &["inc", "jobs"])?);
    Ok(jobs.iter().any(|job| job["state"] == "running"))
}

fn see(stage: &Stage, lab: &Lab) -> Result<Seen, LabError> {
    let mut load = Watch::begin(lab)?;
    let mut port = 18_516;
    let mut start = |algorithm, sizes, calls| {
        port += 1;
        let words = [
            "--algorithm",
            algorithm,
            "--sizes",
            sizes,
            "--iterations",
            calls,
        ];
        Members::start(lab, port, words)
    };
    let mut seen = Seen::default();
    stage.bar.set_message("through the switches");
    seen.switches = start("inc", SIZES, CALLS)?.end(|| load.look())?;
    stage.bar.set_message("around the ring of the hosts");
    seen.ring = start("ring", SIZES, CALLS)?.end(|| load.look())?;
    stage.bar.set_message("while a spine is killed");
    let mut members = start("inc", KILLED_SIZE, KILLED_CALLS)?;
    let until = Instant::now() + PATIENCE;
    while !runs(lab)? && Instant::now() < until {
        load.look();
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(100));
    let root = members.0.first_mut();
    let going = root.is_some_and(|it| matches!(it.try_wait(), Ok(None)));
    seen.in_the_middle = going && runs(lab)?;
    // It is started again at once, but knows nothing of the job.
    lab.kill(DIES)?;
    seen.killed = members.end(|| load.look())?;
    stage.interrupts.settle();
    seen.worst = load.worst().cloned();
    Ok(seen)
}

/// What a vector of each length took.
fn table(seen: &Seen) {
    say("Microseconds for a vector: all hosts have the sum");
    let mut table = show::table(&["bytes", "through the switches", "around the ring", "ratio"]);
    for (ours, ring) in seen.switches.lines.iter().zip(&seen.ring.lines) {
        let [ours_us, ring_us] = [ours, ring].map(|line| line["avg_us"].as_f64().unwrap_or(0.0));
        table.add_row(vec![
            ours["bytes"].to_string(),
            format!("{ours_us:.0}"),
            format!("{ring_us:.0}"),
            format!("{:.2}", ours_us / ring_us.max(f64::MIN_POSITIVE)),
        ]);
    }
    println!("{table}");
    for line in seen.killed.said.lines() {
        println!("  {line}");
    }
}

/// Says what holds, and what a busy machine does not let one say.
fn verdict(seen: &Seen) -> bool {
    let starved = seen.worst.as_ref().filter(|wait| wait.is_starved());
    let told = seen.killed.said.contains("without switches since");
    // A result is right and no member fails however slow the machine is.
    let always = [
        (
            seen.switches.is_right() && seen.ring.is_right(),
            "every result has the right bits, through the switches and around the ring",
        ),
        (
            seen.killed.is_right(),
            "so have those while the spine was killed, and every member has ended well",
        ),
    ];
    let otherwise = [
        (
            seen.switches.switched(),
            "the switches computed all that was asked of them",
        ),
        (
            seen.in_the_middle && told && !seen.killed.switched(),
            "the spine was killed in the middle, and the members said why they went on between the hosts",
        ),
    ];
    for (fine, text) in always {
        holds(fine, text);
    }
    for (fine, text) in otherwise {
        match starved {
            Some(wait) if !fine => not_judged(text, wait),
            _ => holds(fine, text),
        }
    }
    let right = always.iter().all(|(fine, _)| *fine);
    right && (starved.is_some() || otherwise.iter().all(|(fine, _)| *fine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(wrong: u64, switched: bool, said: &str) -> Run {
        Run {
            lines: vec![json!({"wrong": wrong, "switched": switched})],
            said: said.to_owned(),
            failed: 0,
        }
    }

    fn seen(waited: u64) -> Seen {
        Seen {
            switches: run(0, true, ""),
            ring: run(0, false, ""),
            killed: run(0, false, "without switches since collective 9"),
            in_the_middle: true,
            worst: Some(Wait {
                name: "h1".to_owned(),
                waited: Duration::from_millis(waited),
                within: Duration::from_millis(100),
            }),
        }
    }

    #[test]
    fn wrong_results_fail_however_busy_the_machine_is() {
        assert!(verdict(&seen(0)));
        for waited in [0, 90] {
            let mut wrong = seen(waited);
            wrong.killed = run(1, false, "without switches since collective 9");
            assert!(!verdict(&wrong));
            let mut lost = seen(waited);
            lost.switches.failed = 1;
            assert!(!verdict(&lost));
        }
    }

    #[test]
    fn switches_that_do_not_compute_fail_unless_the_machine_is_slow() {
        let other: [fn(&mut Seen); 3] = [
            |seen| seen.switches = run(0, false, ""),
            |seen| seen.in_the_middle = false,
            |seen| seen.killed.said = String::new(),
        ];
        for change in other {
            let [mut quick, mut slow] = [seen(10), seen(90)];
            change(&mut quick);
            change(&mut slow);
            assert!(!verdict(&quick));
            assert!(verdict(&slow));
        }
    }
}
