//! The ranks of one contender, and what they are told.
//!
//! Each rank is at the other end of a Unix socket, which network namespaces do not part. A line
//! `BYTES CALLS` asks for a turn: the rank fills its vector, calls allreduce once, compares every
//! element of the result with what it must be, and calls again so many times. It answers with the
//! seconds that these took, or with what is wrong.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a rank or a daemon may take to come, and a rank for a turn.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What a rank is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Bytes of the vector, of binary32.
    pub(super) bytes: usize,
    /// Calls that are measured.
    pub(super) calls: u32,
}

impl Turn {
    /// Reads a line.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (bytes, calls) = line.trim().split_once(' ')?;
        Some(Self {
            bytes: bytes.parse().ok()?,
            calls: calls.parse().ok()?,
        })
    }
}

/// What stands in the vector of a rank at an element, before it calls.
pub(super) fn given(rank: usize, at: usize) -> f32 {
    small((rank + 1) * (at % 7 + 1))
}

/// What must come of the vectors of `size` ranks.
pub(super) fn expected(size: usize, at: usize) -> f32 {
    small(size * (size + 1) / 2 * (at % 7 + 1))
}

fn small(number: usize) -> f32 {
    u16::try_from(number).map_or(f32::NAN, f32::from)
}

/// The ranks of one contender.
pub(super) struct Crew {
    name: String,
    ranks: Vec<BufReader<UnixStream>>,
}

impl Crew {
    /// Of ranks at the other ends of these, in order.
    pub(super) fn new(name: String, ends: Vec<UnixStream>) -> Result<Self, String> {
        for end in &ends {
            let set = end.set_read_timeout(Some(PATIENCE));
            set.map_err(|error| format!("{name}: {error}"))?;
        }
        let ranks = ends.into_iter().map(BufReader::new).collect();
        Ok(Self { name, ranks })
    }

    /// Of `size` processes that come to `listener` and say their ranks. `is_running` tells whether
    /// they still can, and `log` has what they said.
    pub(super) fn assemble(
        name: String,
        listener: &UnixListener,
        size: usize,
        is_running: &mut dyn FnMut() -> bool,
        log: &Path,
    ) -> Result<Self, String> {
        let fail = |why: &dyn std::fmt::Display| {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            format!("{name}: {why}; its log: {log}")
        };
        let io = |error: std::io::Error| fail(&error);
        listener.set_nonblocking(true).map_err(io)?;
        let mut ends: Vec<Option<UnixStream>> = (0..size).map(|_| None).collect();
        let until = Instant::now() + PATIENCE;
        while ends.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((end, _)) => {
                    end.set_nonblocking(false).map_err(io)?;
                    end.set_read_timeout(Some(PATIENCE)).map_err(io)?;
                    let rank = read_rank(&end).map_err(io)?;
                    let place = ends.get_mut(rank);
                    *place.ok_or_else(|| fail(&format!("there is no rank {rank}")))? = Some(end);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if !is_running() || Instant::now() > until {
                        return Err(fail(&"not all ranks have come"));
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(io(error)),
            }
        }
        Self::new(name.clone(), ends.into_iter().flatten().collect())
    }

    /// Has all ranks call; what a call took the slowest, in seconds.
    pub(super) fn turn(&mut self, turn: Turn) -> Result<f64, String> {
        let name = &self.name;
        let fail = |rank: usize, why: &dyn std::fmt::Display| format!("{name}, rank {rank}: {why}");
        for (rank, end) in self.ranks.iter_mut().enumerate() {
            let asked = writeln!(end.get_mut(), "{} {}", turn.bytes, turn.calls);
            asked.map_err(|error| fail(rank, &error))?;
        }
        let mut slowest: f64 = 0.0;
        for (rank, end) in self.ranks.iter_mut().enumerate() {
            let mut line = String::new();
            end.read_line(&mut line)
                .map_err(|error| fail(rank, &error))?;
            let took: f64 = line.trim().parse().map_err(|_| fail(rank, &line.trim()))?;
            slowest = slowest.max(took);
        }
        Ok(slowest / f64::from(turn.calls))
    }
}

/// The rank that a process says it is, in a line of its own.
fn read_rank(end: &UnixStream) -> std::io::Result<usize> {
    let mut line = String::new();
    BufReader::new(end).read_line(&mut line)?;
    let rank = line.trim().parse();
    rank.map_err(|_| std::io::Error::other(format!("a rank called '{}'", line.trim())))
}
