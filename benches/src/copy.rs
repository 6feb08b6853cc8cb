//! HT-1, HT-30: a file across the demonstration's fabric: what of the line's capacity is payload that arrives.
//!
//! Measured from the start of `hostcp` to its end: connection set-up, SHA-256 on both sides, the file's
//! way from and to the page cache. The kernel's TCP takes the same way beside it.

use crate::measure::{Series, print_ratios};
use lab::traffic::{Receiver, iperf};
use lab::{Lab, LabError, node_dir};
use rand_core::{Rng, SeedableRng};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Speed of every link, in bit/s.
const SPEED: u64 = 1_000_000_000;

/// MiB of the file: long enough that starting a process does not count.
const MIB: usize = 512;

/// What a copy has to reach of the capacity.
const RATIO_MIN: f64 = 0.90;

/// Rounds; each measures both once.
const ROUNDS: usize = 3;

/// Payload of a packet, and all that a packet in the middle of a message takes of the line beside it: preamble 8,
/// Ethernet 14, IPv4 20, UDP 8, BTH 12, MPEH 8, ICRC 4, FCS 4, gap 12.
const PAYLOAD: f64 = 2048.0;
const BESIDE: f64 = 90.0;

/// Runs the bench and prints its table.
///
/// # Errors
/// What kept the fabric from coming up or a copy from arriving.
pub fn bench() -> Result<(), String> {
    // Eight characters at most, and a process number has up to seven digits.
    let name = format!("c{}", std::process::id());
    let lab = Lab::builder().name(&name).size(2, 2, 4).speed(SPEED).up();
    let lab = lab.map_err(|error| error.to_string())?;
    let measured = measure(&lab);
    lab.down().map_err(|error| error.to_string())?;
    let series = measured.map_err(|error| error.to_string())?;
    print_ratios("h1 to h4, links of 1 Gb/s", "Mbit/s", &series);
    let ratio = series[1].ratio_to(&series[0]);
    if ratio < RATIO_MIN {
        return Err(format!("{ratio:.3} of the capacity, not {RATIO_MIN}"));
    }
    Ok(())
}

fn measure(lab: &Lab) -> Result<[Series; 3], LabError> {
    let (from, to) = (lab.node("h1")?, lab.node("h4")?);
    let source = node_dir(lab.name(), "h1").join("source");
    let root = node_dir(lab.name(), "h4").join("files");
    make_file(&source).map_err(LabError::io(source.display().to_string()))?;
    let _receiver = Receiver::start(to, &root)?;
    let mut capacity = Series::new("capacity for payload");
    let mut copies = Series::new("hostcp");
    let mut streams = Series::new("iperf3, TCP");
    for _ in 0..ROUNDS {
        #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
        let (speed, bits) = (SPEED as f64, (MIB << 23) as f64);
        capacity
            .rounds
            .push(speed * PAYLOAD / (PAYLOAD + BESIDE) / 1e6);
        let target = format!("{}:copy", to.address(false));
        let began = Instant::now();
        from.run(["hostcp", "-q", &source.display().to_string(), &target])?
            .expect_ok();
        copies
            .rounds
            .push(bits / began.elapsed().as_secs_f64() / 1e6);
        let stream = iperf(from, to, &["-t", "4"])?;
        streams.rounds.push(stream.bits_per_second / 1e6);
    }
    Ok([capacity, copies, streams])
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
