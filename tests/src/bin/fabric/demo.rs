//! The demonstration: a real file across a two-leaf, two-spine fabric, over several paths at once.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use common::units::Rate;
use fabric_tests::lab::observe::{Counts, gain, received};
use fabric_tests::lab::topology::Options;
use fabric_tests::lab::traffic::{iperf, ping};
use fabric_tests::lab::{Builder, Lab, LabError, run_dir};
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

use crate::{Interrupts, show, spinner};

/// Name of the demonstration's laboratory.
const NAME: &str = "demo";

/// Least size of the file that is copied, in bytes.
const FILE_SIZE: u64 = 256 << 20;

/// Move a real file across a two-leaf, two-spine fabric and show what happened.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The file to copy; without it, this machine's own shared libraries, joined
    #[arg(long)]
    file: Option<PathBuf>,
    /// Leave the fabric up afterwards
    #[arg(long, env = "KEEP", num_args = 0..=1, default_missing_value = "1")]
    keep: Option<String>,
    /// Speed of every link
    #[arg(long, default_value = "1Gbps")]
    speed: Rate,
}

impl Demo {
    /// Runs the demonstration; fails when the copy is not what was sent.
    pub(crate) fn run(self) -> Result<ExitCode, LabError> {
        let keep = self
            .keep
            .as_deref()
            .is_some_and(|keep| !matches!(keep, "" | "0"));
        let interrupts = Interrupts::watch(NAME)?;
        let bar = spinner();
        let options = Options {
            name: NAME.to_owned(),
            speed: self.speed.bps(),
            ..Options::default()
        };
        let mut builder = Builder::new(options);
        if keep {
            builder = builder.detached();
        }
        say("A fabric: 2 leaves, 2 spines, 4 hosts, each a network namespace with its daemon");
        let lab = interrupts.make(builder, &bar)?;
        bar.set_message("ping and iperf3");
        let result = self.show(&lab, &bar);
        bar.finish_and_clear();
        if keep {
            println!("\nThe fabric is still up:");
            println!("  fabric lab status --name {NAME}");
            println!("  fabric lab exec --name {NAME} leaf1 switchctl ecmp");
            println!("  fabric lab exec --name {NAME} h1 hostctl qps");
            println!("  fabric lab down --name {NAME}");
        } else {
            drop(lab);
            println!("\nThe fabric is down again; KEEP=1 leaves it up to look around.");
        }
        println!("Next: README.md has a tour; `make lab` brings a fabric of your own up.");
        result
    }

    fn show(&self, lab: &Lab, bar: &ProgressBar) -> Result<ExitCode, LabError> {
        kernel_traffic(lab, bar)?;
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                bar.set_message("joining shared libraries of this machine to a file");
                make_file(&run_dir(NAME).join("libraries.bin"))?
            }
        };
        copy(lab, &file, bar)
    }
}

fn say(text: &str) {
    println!("\n\x1b[1m{text}\x1b[0m");
}

/// The kernels of the hosts talk through the fabric.
fn kernel_traffic(lab: &Lab, bar: &ProgressBar) -> Result<(), LabError> {
    let (from, to) = (lab.node("h1")?, lab.node("h4")?);
    let mut lines = Vec::new();
    for (v6, family) in [(false, "IPv4"), (true, "IPv6")] {
        let pings = ping(from, to, v6, 5, Duration::from_millis(50))?;
        let time = pings
            .mean_ms
            .map_or_else(|| "no reply".to_owned(), |ms| format!("{ms:.2} ms"));
        lines.push(format!(
            "  ping    {family}  h1 → h4 ({})  {} of {} replies, {time}",
            to.address(v6),
            pings.received,
            pings.sent
        ));
    }
    for (options, family) in [(&["-t", "2"][..], "IPv4"), (&["-t", "2", "-6"], "IPv6")] {
        let tcp = iperf(from, to, options)?;
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
    Ok(())
}

/// Joins shared libraries of this machine until the file is large enough: real data, no zeros.
fn make_file(path: &Path) -> Result<PathBuf, LabError> {
    let context = || path.display().to_string();
    let mut file = File::create(path).map_err(LabError::io(context()))?;
    let mut size = 0;
    for library in libraries() {
        let mut source =
            File::open(&library).map_err(LabError::io(library.display().to_string()))?;
        size += io::copy(&mut source, &mut file).map_err(LabError::io(context()))?;
        if size >= FILE_SIZE {
            break;
        }
    }
    file.flush().map_err(LabError::io(context()))?;
    Ok(path.to_path_buf())
}

/// Shared libraries of the Rust toolchain and of the system, in a fixed order.
fn libraries() -> Vec<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let toolchain = sysroot
        .map(|root| Path::new(&root).join("lib"))
        .unwrap_or_default();
    let mut found = Vec::new();
    for folder in [
        toolchain,
        "/usr/lib/x86_64-linux-gnu".into(),
        "/usr/bin".into(),
    ] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .filter(|entry| {
                entry
                    .metadata()
                    .is_ok_and(|m| m.is_file() && m.len() > 1 << 20)
            })
            .map(|entry| entry.path())
            .collect();
        files.sort();
        found.extend(files);
    }
    found
}

/// SHA-256 of a file, in hexadecimal.
fn digest(path: &Path) -> Result<String, LabError> {
    let context = || path.display().to_string();
    let mut file = File::open(path).map_err(LabError::io(context()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).map_err(LabError::io(context()))? {
            0 => break,
            length => hash.update(&block[..length]),
        }
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Copies `file` from h1 to h4 with hostcp, compares, and shows the way the packets took.
fn copy(lab: &Lab, file: &Path, bar: &ProgressBar) -> Result<ExitCode, LabError> {
    let (from, to) = (lab.node("h1")?, lab.node("h4")?);
    let size = file
        .metadata()
        .map_err(LabError::io(file.display().to_string()))?
        .len();
    let arrived = run_dir(NAME).join("arrived.bin");
    let mut server = to.spawn([
        "hostcp",
        "serve",
        "--once",
        "--root",
        &run_dir(NAME).display().to_string(),
    ])?;
    let before = received(lab)?;
    bar.suspend(|| say("A file over every path: hostcp, RDMA WRITE sprayed packet by packet"));
    let started = Instant::now();
    let target = format!("{}:{}", to.address(false), arrived.display());
    let status = from
        .command(["hostcp", &file.display().to_string(), &target])
        .status()
        .map_err(LabError::io("hostcp"))?;
    let time = started.elapsed();
    let carried = gain(&before, &received(lab)?);
    let _ = server.kill();
    let _ = server.wait();
    if !status.success() {
        eprintln!("fabric: hostcp failed: {status}");
        return Ok(ExitCode::FAILURE);
    }
    bar.set_message("SHA-256 of both files");
    let digests = [digest(file)?, digest(&arrived)?];
    let same = digests[0] == digests[1];
    bar.suspend(|| {
        let rate = size as f64 * 8.0 / time.as_secs_f64() / 1e6;
        println!(
            "  {size} bytes in {:.2} s: {rate:.0} Mbit/s",
            time.as_secs_f64()
        );
        println!(
            "  SHA-256 at h1  {}\n          at h4  {}",
            digests[0], digests[1]
        );
        println!("  {}", if same { "the same" } else { "NOT the same" });
        paths(&carried);
    });
    Ok(if same {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// How many packets each spine has carried, as the kernel's own counters saw them arrive.
fn paths(carried: &Counts) {
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
    let mut table = show::table(&["spine", "packets h1 → h4", "share", "packets h4 → h1"]);
    for spine in ["spine1", "spine2"] {
        let packets = on(spine, "leaf1");
        let share = packets as f64 * 100.0 / (total.max(1)) as f64;
        table.add_row(vec![
            spine.to_owned(),
            packets.to_string(),
            format!("{share:.1} %"),
            on(spine, "leaf2").to_string(),
        ]);
    }
    say("Packets by spine");
    println!("{table}");
}
