//! hostallreduce: how long collectives between hosts take, in the manner of osu_allreduce.
//!
//! ```text
//!   hostallreduce --rank 0 --ranks 4                    waits for the others, measures, prints
//!   hostallreduce --rank 1 --ranks 4 --root 10.1.1.2    and so on, a process for each rank
//! ```
//!
//! Every process is given the same options beside its rank. Each result is compared with what it
//! must be, byte by byte.
//!
//!   options  what can be asked for;  pattern  the vectors, and what must come of them
//!   measure  one length;             report   numbers for people and for programs
//!   failure  why a measurement fails

mod failure;
mod measure;
mod options;
mod pattern;
mod report;

use clap::Parser;
use failure::Failure;
use hostd_client::Context;
use hostd_client::group::{Group, GroupOptions};
use options::Options;
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

/// Where rank 0 waits.
fn root(options: &Options) -> Result<SocketAddr, Failure> {
    let host = options.root.as_deref().unwrap_or_default();
    let inside = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let plain = inside.unwrap_or(host);
    let mut found = (plain, options.port)
        .to_socket_addrs()
        .map_err(|error| Failure::Usage(format!("--root {host}: {error}")))?;
    let none = || Failure::Usage(format!("--root {host} has no address"));
    found.next().ok_or_else(none)
}

fn run(options: &Options) -> Result<(), Failure> {
    options.check().map_err(Failure::Usage)?;
    let context = Context::connect(&options.socket)?;
    let group_options = GroupOptions {
        join_timeout: options.timeout,
        timeout: options.timeout,
        segment: options.segment,
        job: options.job,
        ..GroupOptions::default()
    };
    let mut group = if options.rank == 0 {
        Group::create(&context, options.port, options.ranks, group_options)?
    } else {
        let root = root(options)?;
        Group::join(&context, root, options.rank, options.ranks, group_options)?
    };
    group.set_algorithm(options.algorithm.into());
    group.set_deterministic(options.deterministic);
    let mut objects = Vec::new();
    let mut told = None;
    if options.rank == 0 && !options.json {
        println!("{}", report::heading());
    }
    for size in options.lengths() {
        let line = measure::measure(&context, &mut group, options, size, &mut told)?;
        if options.rank == 0 && options.json {
            objects.push(line.json());
        } else if options.rank == 0 {
            println!("{}", line.text());
        }
        if line.wrong > 0 {
            let (wrong, bytes) = (line.wrong, line.bytes);
            return Err(Failure::Wrong { wrong, bytes });
        }
    }
    if options.rank == 0 && options.json {
        println!("[{}]", objects.join(","));
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("hostallreduce: rank {}: {failure}", options.rank);
            ExitCode::FAILURE
        }
    }
}
