//! Groups of programs in C and in Python that come back to the switches, or do not.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use lab::privileged;

use crate::ends::Rig;
use crate::groups::host;
use crate::{c, python};

/// Members, one on each host.
const RANKS: usize = 2;

/// A group of members that run, and what they say.
struct Running {
    members: Vec<Child>,
    said: Vec<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts a group, and waits until it reduces through the switches.
    fn start(rig: &Rig, words: &[String], port: u16, again: &str) -> Self {
        let start = |rank: usize| {
            let mut words = words.to_vec();
            words.extend([rank, RANKS].map(|it| it.to_string()));
            words.extend([rig.address(host(0)), port.to_string(), again.to_owned()]);
            let mut command = rig.command(host(rank), &words);
            command.stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut members: Vec<_> = (0..RANKS).map(start).collect();
        let pipes = members.iter_mut().map(|it| it.stdout.take().unwrap());
        let mut said: Vec<_> = pipes.map(BufReader::new).collect();
        for said in &mut said {
            let mut first = String::new();
            said.read_line(&mut first).unwrap();
            assert_eq!(first, format!("through switches: {RANKS}\n"), "{again}");
        }
        Self { members, said }
    }

    /// Waits for its end; whether it came back, of which all members say the same.
    fn came_back(mut self) -> bool {
        let ends = self.said.iter_mut().map(|said| {
            let mut rest = String::new();
            said.read_to_string(&mut rest).unwrap();
            rest
        });
        let ends: Vec<_> = ends.collect();
        assert!(
            self.members
                .iter_mut()
                .all(|it| it.wait().unwrap().success())
        );
        assert_eq!(ends[0], ends[1]);
        match ends[0]
            .trim_start_matches("through switches: ")
            .trim()
            .parse()
        {
            Ok(RANKS) => true,
            Ok(0_usize) => false,
            _ => panic!("{ends:?}"),
        }
    }
}

/// HT-50: programs in C and in Python say after which time a group goes back to switches that have
/// failed it, and that it never does. Their leaf is started anew in the middle.
#[test]
fn programs_say_when_to_go_back() {
    if !privileged() {
        return;
    }
    let rig = Rig::computing("cpyagain");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/netns_bindings/again.c");
    let (in_c, in_python) = (
        c(&rig.compile(&source)),
        python("tests/tests/netns_bindings/again.py"),
    );
    let cases = [
        (&in_c, "50", true),
        (&in_c, "never", false),
        (&in_python, "50", true),
        (&in_python, "never", false),
    ];
    let groups: Vec<_> = (7300..)
        .zip(cases)
        .map(|(port, (words, again, _))| Running::start(&rig, words, port, again))
        .collect();
    rig.with_lab(|lab| {
        lab.kill("leaf1").unwrap();
        lab.wait_ready(Duration::from_secs(60)).unwrap();
    });
    for (group, (words, again, back)) in groups.into_iter().zip(cases) {
        assert_eq!(group.came_back(), back, "{words:?}: {again}");
    }
}
