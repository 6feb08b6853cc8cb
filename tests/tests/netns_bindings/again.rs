//! Groups of programs in C and in Python that come back to the switches, or do not.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use lab::privileged;

use crate::ends::Rig;
use crate::groups::host;
use crate::{c, python};

/// Members, one on each host.
const RANKS: usize = 2;

/// Runs two members whose leaf is started anew in the middle; whether the group came back.
fn comes_back(rig: &Rig, words: &[String], port: u16, again: &str) -> bool {
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
        assert_eq!(first, "through switches: 1\n", "{again}");
    }
    rig.with_lab(|lab| {
        lab.kill("leaf1").unwrap();
        lab.wait_ready(Duration::from_secs(60)).unwrap();
    });
    let ends = said.into_iter().map(|mut said| {
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        rest
    });
    let ends: Vec<_> = ends.collect();
    assert!(members.iter_mut().all(|it| it.wait().unwrap().success()));
    assert_eq!(ends[0], ends[1], "{again}");
    match ends[0].as_str() {
        "through switches: 1\n" => true,
        "through switches: 0\n" => false,
        other => panic!("{other}"),
    }
}

/// HT-50: programs in C and in Python say after which time a group goes back to switches that have
/// failed it, and that it never does.
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
    for (port, (words, again, back)) in (7300..).zip(cases) {
        assert_eq!(
            comes_back(&rig, words, port, again),
            back,
            "{words:?}: {again}"
        );
    }
}
