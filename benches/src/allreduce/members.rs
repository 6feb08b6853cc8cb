//! hostd's ranks: a thread each, with a session of its own with the daemon of its host.

use super::crew::{Crew, PATIENCE, Turn, expected, given};
use hostd_client::group::{Algorithm, Element, Group, GroupOptions, Operation, Vector};
use hostd_client::{Access, Context};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

/// A rank.
pub(super) struct Member {
    /// Where the daemon of its host listens.
    pub(super) socket: PathBuf,
    /// Where rank 0 waits.
    pub(super) root: SocketAddr,
    /// Its number, and how many there are.
    pub(super) rank: usize,
    pub(super) size: usize,
    /// How they reduce.
    pub(super) algorithm: Algorithm,
}

/// Starts a rank for each. They end when the crew does.
pub(super) fn start(name: String, members: Vec<Member>) -> Result<Crew, String> {
    let mut ends = Vec::new();
    for member in members {
        let (own, other) = UnixStream::pair().map_err(|error| error.to_string())?;
        ends.push(own);
        std::thread::spawn(move || {
            let mut said = &other;
            if let Err(why) = member.serve(&other) {
                // Nobody listens if the bench is over.
                let _ = writeln!(said, "{why}");
            }
        });
    }
    Crew::new(name, ends)
}

impl Member {
    /// Does what it is told until nobody is there any more.
    fn serve(&self, end: &UnixStream) -> Result<(), String> {
        let fail = |error: &dyn std::fmt::Display| error.to_string();
        let context = Context::connect_within(&self.socket, PATIENCE);
        let context = context.map_err(|error| fail(&error))?;
        let options = GroupOptions::default();
        let group = if self.rank == 0 {
            Group::create(&context, self.root.port(), self.size, options)
        } else {
            Group::join(&context, self.root, self.rank, self.size, options)
        };
        let mut group = group.map_err(|error| fail(&error))?;
        group.set_algorithm(self.algorithm);
        let (mut lines, mut said) = (BufReader::new(end), end);
        loop {
            let mut line = String::new();
            let read = lines.read_line(&mut line);
            if read.map_err(|error| fail(&error))? == 0 {
                return Ok(());
            }
            let turn = Turn::parse(&line).ok_or("no turn")?;
            let took = self.call(&context, &mut group, turn)?;
            writeln!(said, "{took}").map_err(|error| fail(&error))?;
        }
    }

    fn call(&self, context: &Context, group: &mut Group, turn: Turn) -> Result<f64, String> {
        let fail = |error: &dyn std::fmt::Display| error.to_string();
        let memory = context.allocate(turn.bytes, Access::LOCAL_WRITE);
        let memory = memory.map_err(|error| fail(&error))?;
        let elements = turn.bytes / 4;
        let bytes = |of: &dyn Fn(usize) -> f32| -> Vec<u8> {
            (0..elements).flat_map(|at| of(at).to_le_bytes()).collect()
        };
        let own = bytes(&|at| given(self.rank, at));
        memory.write(0, &own).map_err(|error| fail(&error))?;
        let mut once = || {
            let vector = Vector::new(&memory, 0, turn.bytes);
            let done = group.allreduce(Operation::Sum, Element::F32, vector);
            done.map_err(|error| fail(&error))
        };
        once()?;
        let mut found = own;
        memory.read(0, &mut found).map_err(|error| fail(&error))?;
        if found != bytes(&|at| expected(self.size, at)) {
            return Err("the result is wrong".to_owned());
        }
        let began = Instant::now();
        for _ in 0..turn.calls {
            once()?;
        }
        let took = began.elapsed().as_secs_f64();
        let switched = self.algorithm == Algorithm::Inc;
        if group.uses_switches() != switched {
            let why = group.fallback().map(|it| it.to_string());
            return Err(why.unwrap_or_else(|| "the switches have computed".to_owned()));
        }
        Ok(took)
    }
}
