//! A bench in a process of its own, measured turn by turn, so that two builds can be compared.
//!
//! ```text
//!   parent                              child (`bench --serve pipeline`)
//!                                       sets up what is measured
//!            ←  [{"title":…,"unit":…,"better":"low","contenders":[…]}, …]
//!   0 3      →                          measures contender 3 of group 0
//!            ←  71.25
//!   …
//!   end of input                        tears down and ends
//! ```
//!
//! The answer to a turn that fails is `error: ` and the reason. A child without a request waits for
//! its input, and so takes no time from the other.

use crate::measure::{Better, Subject};
use crate::run::Bench;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a child can measure: a group of contenders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The group's title.
    pub title: String,
    /// Unit of its values.
    pub unit: String,
    /// Which values are good.
    pub better: Better,
    /// Names of its contenders.
    pub contenders: Vec<String>,
}

const ERROR: &str = "error: ";

/// The child's side: measures what is asked for on standard input until that ends.
///
/// # Errors
/// What could not be set up or torn down.
pub fn serve(bench: &Bench) -> Result<(), String> {
    let mut subject = bench.set_up()?;
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let served = answer(&mut *subject, input, output);
    let finished = subject.finish();
    served.map_err(|error| error.to_string()).and(finished)
}

fn answer(
    subject: &mut dyn Subject,
    input: impl BufRead,
    mut output: impl Write,
) -> std::io::Result<()> {
    let offer = |group: &crate::measure::Group| Offer {
        title: group.title.clone(),
        unit: group.unit.clone(),
        better: group.better,
        contenders: group.contenders.clone(),
    };
    let offers: Vec<_> = subject.groups().iter().map(offer).collect();
    writeln!(output, "{}", serde_json::to_string(&offers)?)?;
    output.flush()?;
    for line in input.lines() {
        match asked(&line?, &offers).and_then(|(group, one)| subject.turn(group, one)) {
            Ok(value) => writeln!(output, "{value}")?,
            Err(why) => writeln!(output, "{ERROR}{}", why.replace('\n', " "))?,
        }
        output.flush()?;
    }
    Ok(())
}

/// Group and contender that a line asks for.
fn asked(line: &str, offers: &[Offer]) -> Result<(usize, usize), String> {
    let numbers: Vec<usize> = line
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [group, one]
            if offers
                .get(group)
                .is_some_and(|it| one < it.contenders.len()) =>
        {
            Ok((group, one))
        }
        _ => Err(format!("{line:?} asks for nothing that is offered")),
    }
}

/// The parent's side of a child.
#[derive(Debug)]
pub struct Peer {
    name: String,
    child: Child,
    /// None once it is to end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    offers: Vec<Offer>,
}

impl Peer {
    /// Starts `bench --serve NAME` of another build and waits until it is set up.
    ///
    /// # Errors
    /// When it does not start, or does not know how to serve.
    pub fn start(program: &Path, bench: &str) -> Result<Self, String> {
        let name = program.display().to_string();
        let mut child = Command::new(program)
            .args(["--serve", bench])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut peer = Self {
            name,
            child,
            input,
            output,
            offers: Vec::new(),
        };
        let offers = peer.line()?;
        peer.offers = serde_json::from_str(&offers).map_err(|_| {
            format!(
                "{} does not serve {bench}: it has to be built with these benches",
                peer.name
            )
        })?;
        Ok(peer)
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it can measure.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Has it measure one contender once.
    ///
    /// # Errors
    /// What it says went wrong, or that it has ended.
    pub fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let input = self.input.as_mut().expect("open until it is dropped");
        let asked = writeln!(input, "{group} {contender}").and_then(|()| input.flush());
        asked.map_err(|error| format!("{}: {error}", self.name))?;
        let line = self.line()?;
        let value = line.trim().parse();
        value.map_err(|_| {
            let why = line.trim().strip_prefix(ERROR).unwrap_or(&line);
            format!("{}: {why}", self.name)
        })
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(format!("{} ended", self.name)),
            Ok(_) => Ok(line),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Group;

    struct Doubles([Group; 1]);

    impl Subject for Doubles {
        fn groups(&self) -> &[Group] {
            &self.0
        }
        fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
            match (group, contender) {
                (0, 0) => Ok(0.5),
                _ => Err("broken\ntwice".to_owned()),
            }
        }
    }

    #[test]
    fn a_line_asks_and_a_line_answers() {
        let group = Group::beside_first("made up", "ns", Better::Low, &["a", "b"]);
        let mut output = Vec::new();
        let input = b"0 0\n0 1\n0 2\n1 0\nwhat\n0 0\n";
        answer(&mut Doubles([group]), &input[..], &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let lines: Vec<_> = output.lines().collect();
        let offers: Vec<Offer> = serde_json::from_str(lines[0]).unwrap();
        assert_eq!(offers[0].contenders, ["a", "b"]);
        assert_eq!(lines[1], "0.5");
        assert_eq!(lines[2], "error: broken twice");
        assert!(lines[3..6].iter().all(|line| line.starts_with(ERROR)));
        assert_eq!(lines[6], "0.5");
    }

    #[test]
    fn a_program_that_does_not_serve_is_named() {
        let refused = Peer::start(Path::new("/bin/echo"), "pipeline").unwrap_err();
        assert!(
            refused.contains("/bin/echo does not serve pipeline"),
            "{refused}"
        );
        let ended = Peer::start(Path::new("/bin/false"), "pipeline").unwrap_err();
        assert_eq!(ended, "/bin/false ended");
    }
}
