//! HT-1, HT-30: a file across the demonstration's fabric, compared with hostperf and the kernel's
//! TCP on the same links.
//!
//! A copy is measured from the start of `hostcp` to its end: connection set-up, checksums on both
//! sides, reads and writes of the page cache. `hostperf` uses the same transport without files, the
//! kernel's TCP the same links without hostd. How close each comes to the line rate depends on the
//! machine, so the copy is judged by its ratio to `hostperf` in the same round.

use crate::measure::{Better, Bound, Figure, Group, Subject, Term};
use crate::rig::wait_until;
use lab::traffic::{Receiver, iperf};
use lab::{Lab, LabError, Output, node_dir};
use rand_core::{Rng, SeedableRng};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// Speed of every link, in bit/s.
const SPEED: u64 = 1_000_000_000;

/// MiB of the file: long enough that starting a process hardly counts.
const MIB: usize = 128;

/// What a copy has to reach of hostperf: the 0.90 of the line's capacity that it has to reach where
/// hostperf reaches 0.999 of it.
const RATIO_MIN: f64 = 0.90;

/// Payload of a packet, and all that a packet in the middle of a message takes of the line beside
/// it: preamble 8, Ethernet 14, IPv4 20, UDP 8, BTH 12, MPEH 8 and its extension 8,
/// ICRC 4, FCS 4, gap 12.
const PAYLOAD: f64 = 2048.0;
const BESIDE: f64 = 98.0;

/// Contenders, in order.
const CONTENDERS: [&str; 3] = ["hostcp", "hostperf", "iperf3, TCP"];
const HOSTCP: usize = 0;
const HOSTPERF: usize = 1;

/// The bench.
struct Copy {
    groups: [Group; 1],
    source: PathBuf,
    /// Servers on the receiving host, and the fabric: none once they are down.
    running: Option<(Receiver, Server, Lab)>,
}

/// `hostperf serve`, killed with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Brings the fabric up and starts the servers.
///
/// # Errors
/// What kept them from coming up.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    // Eight characters at most, and a process number has up to seven digits.
    let name = format!("c{}", std::process::id());
    let lab = Lab::builder().name(&name).size(2, 2, 4).speed(SPEED).up();
    let lab = lab.map_err(|error| error.to_string())?;
    let source = node_dir(lab.name(), "h1").join("source");
    match serve(&lab, &source) {
        Ok((receiver, server)) => Ok(Box::new(Copy {
            groups: [group()],
            source,
            running: Some((receiver, server, lab)),
        })),
        Err(why) => Err(lab.down().err().unwrap_or(why).to_string()),
    }
}

/// Writes the file, and starts what receives it and what hostperf talks to.
fn serve(lab: &Lab, source: &Path) -> Result<(Receiver, Server), LabError> {
    make_file(source).map_err(LabError::io(source.display().to_string()))?;
    let to = lab.node("h4")?;
    let receiver = Receiver::start(to, &node_dir(lab.name(), "h4").join("files"))?;
    let server = Server(to.spawn(["hostperf", "serve"])?);
    // The server does not report that it listens; a client that is too early is refused.
    let from = lab.node("h1")?;
    let words = [
        "hostperf",
        "send",
        "-n",
        "1",
        &to.address(false).to_string(),
    ];
    let answers = || from.run(words).is_ok_and(|output| output.status == 0);
    if wait_until(Duration::from_secs(10), answers) {
        Ok((receiver, server))
    } else {
        Err(LabError::Command {
            command: "hostperf serve".to_owned(),
            reason: "it does not answer".to_owned(),
        })
    }
}

fn group() -> Group {
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let capacity = SPEED as f64 * PAYLOAD / (PAYLOAD + BESIDE) / 1e6;
    let mut figures = vec![
        Figure::ratio(
            &CONTENDERS,
            HOSTCP,
            HOSTPERF,
            Some(Bound::AtLeast(RATIO_MIN)),
        ),
        Figure::ratio(&CONTENDERS, HOSTCP, 2, None),
    ];
    figures.extend([HOSTCP, HOSTPERF].map(|contender| Figure {
        name: format!(
            "{}, share of the capacity for payload",
            CONTENDERS[contender]
        ),
        unit: "",
        of: vec![Term {
            contender,
            weight: 1.0 / capacity,
        }],
        to: Vec::new(),
        bound: None,
    }));
    Group {
        title: format!("h1 to h4, links of 1 Gb/s, a file of {MIB} MiB"),
        unit: "Mbit/s".to_owned(),
        better: Better::High,
        contenders: CONTENDERS.map(str::to_owned).to_vec(),
        figures,
    }
}

impl Copy {
    /// Mbit/s of payload.
    fn measure(&self, contender: usize) -> Result<f64, LabError> {
        let (.., lab) = self.running.as_ref().expect("up until the end");
        let (from, to) = (lab.node("h1")?, lab.node("h4")?);
        let address = to.address(false).to_string();
        match contender {
            HOSTCP => {
                #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
                let bits = (MIB << 23) as f64;
                let (source, target) =
                    (self.source.display().to_string(), format!("{address}:copy"));
                let began = Instant::now();
                printed("hostcp", from.run(["hostcp", "-q", &source, &target])?)?;
                Ok(bits / began.elapsed().as_secs_f64() / 1e6)
            }
            HOSTPERF => {
                let output = from.run(["hostperf", "send", "--json", "-D", "1", &address])?;
                let output = printed("hostperf", output)?;
                rate(&output).ok_or_else(|| LabError::Answer {
                    what: "hostperf".to_owned(),
                    reason: output,
                })
            }
            _ => Ok(iperf(from, to, &["-t", "1"])?.bits_per_second / 1e6),
        }
    }
}

impl Subject for Copy {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, _: usize, contender: usize) -> Result<f64, String> {
        self.measure(contender).map_err(|error| error.to_string())
    }

    fn finish(&mut self) -> Result<(), String> {
        let Some((receiver, server, lab)) = self.running.take() else {
            return Ok(());
        };
        drop((receiver, server));
        lab.down().map_err(|error| error.to_string())
    }
}

/// What a command that succeeded printed.
fn printed(what: &str, output: Output) -> Result<String, LabError> {
    if output.ok() {
        return Ok(output.stdout);
    }
    Err(LabError::Command {
        command: what.to_owned(),
        reason: output.stderr,
    })
}

/// Mbit/s that `hostperf --json` measured.
fn rate(json: &str) -> Option<f64> {
    let all: serde_json::Value = serde_json::from_str(json).ok()?;
    all[0]["mbit_per_second"].as_f64()
}

fn make_file(path: &Path) -> std::io::Result<()> {
    let mut random = rand_pcg::Pcg64::seed_from_u64(1);
    let mut block = vec![0; 1 << 20];
    let mut file = File::create(path)?;
    for _ in 0..MIB {
        random.fill_bytes(&mut block);
        file.write_all(&block)?;
    }
    file.sync_all()
}
