//! Wrong configurations, and what the daemons say of them: `cases.txt` has each file between its
//! daemon's name (`### switchd`) and its messages (`=> …`).

use common::config::{Settings, load_text};
use std::path::Path;

const CASES: &str = include_str!("cases.txt");

/// What a daemon says of a file; `option` is the rest of a configuration that would be right.
fn message<T: Settings>(name: &str, text: &str, option: &str) -> String {
    let path = format!("{name}.toml");
    let options = [option.to_owned()];
    match load_text::<T>(text, Path::new(&path), "X", [], &options) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn said(daemon: &str, text: &str) -> String {
    match daemon {
        "switchd" => message::<switchd::config::Config>(daemon, text, "ports=[\"swp*\"]"),
        "hostd" => message::<hostd::config::Config>(daemon, text, "interface=[{name=\"eth0\"}]"),
        other => panic!("{other} is no daemon"),
    }
}

/// MG-1, SW-11: at least fifty wrong configurations, each with exactly the messages it must give.
#[test]
fn every_wrong_configuration_gives_its_message() {
    let cases: Vec<&str> = CASES.split("### ").skip(1).collect();
    assert!(cases.len() >= 50, "{} cases", cases.len());
    let mut wrong = String::new();
    for case in cases {
        let (daemon, rest) = case.split_once('\n').expect("a daemon");
        let (text, wanted) = rest.split_once("=> ").expect("a message");
        let wanted = wanted.trim_end().replace("\n=> ", "\n");
        let said = said(daemon, text);
        if said != wanted {
            wrong += &format!("### {daemon}\n{text}=> {}\n", said.replace('\n', "\n=> "));
        }
    }
    assert!(wrong.is_empty(), "other messages were given:\n{wrong}");
}
