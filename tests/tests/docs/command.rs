//! Commands that pages name, held to what the programs say of themselves: `--help` of the binaries
//! that cargo built, and targets of the Makefile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use super::page::root;

/// The programs of the workspace whose commands are checked.
const PROGRAMS: &[&str] = &[
    "fabric",
    "switchd",
    "switchctl",
    "hostd",
    "hostctl",
    "hostcp",
    "hostperf",
    "hostallreduce",
    "bench",
];

/// What `--help` says of a program or of one of its commands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Help {
    commands: BTreeSet<String>,
    /// By name, with the dashes: whether a value follows.
    options: BTreeMap<String, bool>,
    arguments: Vec<Argument>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    name: String,
    many: bool,
    /// The values that it can have; empty: any.
    values: Vec<String>,
}

impl Help {
    fn parse(text: &str) -> Self {
        let mut help = Self::default();
        let mut section = "";
        let mut values_follow = false;
        for line in text.lines() {
            if line.is_empty() {
                continue;
            }
            if !line.starts_with(' ') {
                section = line.trim_end();
                values_follow = false;
                continue;
            }
            let entry = line.trim_start();
            let indent = line.len() - entry.len();
            match section {
                "Commands:" if indent == 2 => {
                    let names = entry.split_whitespace().next();
                    help.commands.extend(names.map(str::to_owned));
                }
                "Options:" if entry.starts_with('-') && indent <= 6 => help.add_options(entry),
                "Arguments:" if indent == 2 => {
                    let name: String = entry
                        .chars()
                        .filter(|c| c.is_alphanumeric() || *c == '_' || *c == ' ')
                        .collect();
                    let head = entry.split("  ").next().unwrap_or_default();
                    help.arguments.push(Argument {
                        name: name.split(' ').next().unwrap_or_default().to_owned(),
                        many: head.contains("..."),
                        values: Vec::new(),
                    });
                }
                _ => {}
            }
            let Some(argument) = help.arguments.last_mut() else {
                continue;
            };
            if section != "Arguments:" {
                continue;
            }
            // In one line, or one value a line.
            if let Some((_, values)) = entry.split_once("[possible values: ") {
                let values = values.trim_end_matches(']').split(", ");
                argument.values.extend(values.map(str::to_owned));
            } else if entry == "Possible values:" {
                values_follow = true;
            } else if values_follow && let Some(value) = entry.strip_prefix("- ") {
                let value = value.split(':').next().unwrap_or_default();
                argument.values.push(value.to_owned());
            }
        }
        help
    }

    fn add_options(&mut self, entry: &str) {
        let head = entry.split("  ").next().unwrap_or_default();
        let takes_value = head.contains('<');
        for name in head.split([' ', ',', '=', '.']) {
            if name.starts_with('-') {
                self.options.insert(name.to_owned(), takes_value);
            }
        }
    }
}

/// The targets of the Makefile.
fn targets() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("Makefile")).expect("the Makefile is readable");
    let heads = text.lines().filter_map(|line| line.split_once(':'));
    heads
        .filter(|(head, _)| !head.starts_with(['\t', '#', '.', ' ']))
        .map(|(head, _)| head.to_owned())
        .collect()
}

/// Where cargo puts binaries: the folder above that of this test.
fn binary(program: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let folder = test.ancestors().nth(2).expect("target/<profile>/deps/test");
    folder.join(program)
}

fn help(path: &[String]) -> Help {
    static KNOWN: Mutex<BTreeMap<Vec<String>, Help>> = Mutex::new(BTreeMap::new());
    if let Some(help) = KNOWN.lock().expect("nobody panicked").get(path) {
        return help.clone();
    }
    let binary = binary(&path[0]);
    let output = Command::new(&binary)
        .args(&path[1..])
        .arg("--help")
        .output()
        .unwrap_or_else(|error| {
            let binary = binary.display();
            panic!("{binary}: {error}; `cargo build --workspace --bins` comes first")
        });
    let help = Help::parse(&String::from_utf8_lossy(&output.stdout));
    let mut known = KNOWN.lock().expect("nobody panicked");
    known.insert(path.to_vec(), help.clone());
    help
}

/// What is wrong with a line of shell.
pub(crate) fn check_line(line: &str) -> Result<(), String> {
    // A comment begins with "#" at the start of a word.
    let mut words = Vec::new();
    for word in split_words(line) {
        if word.starts_with('#') {
            break;
        }
        words.push(word);
    }
    words
        .split(|word| matches!(word.as_str(), "&&" | "|" | ";" | "&" | "||"))
        .try_for_each(check_words)
}

/// What is wrong with a command that a sentence names, `switchctl show pg|queues` say.
pub(crate) fn check_span(span: &str) -> Result<(), String> {
    check_words(&split_words(span))
}

fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(String::new()),
            c => words.last_mut().expect("one at least").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn check_words(words: &[String]) -> Result<(), String> {
    let is_setting = |word: &String| word.contains('=') && !word.starts_with('-');
    let start = words
        .iter()
        .position(|word| !is_setting(word) && word != "sudo")
        .unwrap_or(words.len());
    let Some((program, rest)) = words[start..].split_first() else {
        return Ok(());
    };
    let program = program.rsplit('/').next().unwrap_or_default();
    if program == "make" {
        let targets = targets();
        let named = rest.iter().filter(|word| !is_setting(word));
        let mut named = named.flat_map(|word| word.split('|'));
        return match named.find(|target| !is_placeholder(target) && !targets.contains(*target)) {
            Some(target) => Err(format!("`make {target}` does not exist")),
            None => Ok(()),
        };
    }
    if PROGRAMS.contains(&program) {
        check_program(vec![program.to_owned()], rest)
    } else {
        Ok(())
    }
}

/// Whether a reader puts something else in the place of this word.
fn is_placeholder(word: &str) -> bool {
    word.contains('…') || !word.chars().any(char::is_lowercase)
}

fn check_program(mut path: Vec<String>, words: &[String]) -> Result<(), String> {
    let mut known = help(&path);
    let mut arguments = 0;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.trim_matches(['[', ']', ',']);
        if word.starts_with('-') {
            let (name, value) = word
                .split_once('=')
                .map_or((word, None), |(name, value)| (name, Some(value)));
            match known.options.get(name) {
                None => return Err(format!("`{}` has no {name}", path.join(" "))),
                Some(true) if value.is_none() => _ = words.next(),
                Some(_) => {}
            }
        } else if !known.commands.is_empty() {
            if is_placeholder(word) {
                return Ok(());
            }
            if !known.commands.contains(word) && !known.arguments.is_empty() {
                // `hostcp SOURCE TARGET` beside `hostcp serve`.
                known.commands.clear();
                arguments += 1;
                continue;
            }
            if let Some(unknown) = word.split('|').find(|name| !known.commands.contains(*name)) {
                return Err(format!("`{} {unknown}` does not exist", path.join(" ")));
            }
            path.extend(word.split('|').next().map(str::to_owned));
            known = help(&path);
        } else {
            let last = known.arguments.last().filter(|argument| argument.many);
            let Some(argument) = known.arguments.get(arguments).or(last) else {
                return Err(format!("`{}` takes no {word}", path.join(" ")));
            };
            if argument.name == "COMMAND" {
                let rest: Vec<String> = std::iter::once(word.to_owned())
                    .chain(words.cloned())
                    .collect();
                return check_words(&rest);
            }
            let values = &argument.values;
            let unknown = word.split('|').find(|value| {
                !values.is_empty() && !is_placeholder(value) && !values.iter().any(|v| v == value)
            });
            if let Some(value) = unknown {
                return Err(format!("`{} {value}` does not exist", path.join(" ")));
            }
            arguments += 1;
        }
    }
    Ok(())
}

#[test]
fn help_is_read() {
    let text = "About.\n\nUsage: a [OPTIONS] <NODE> [WHAT]...\n\nCommands:\n  one   The one\n  two   The other\n\n\
                Arguments:\n  <NODE>     A node\n  [WHAT]...  What [possible values: up, down]\n\n\
                Options:\n  -c, --config <FILE>  A file\n      --json           As JSON\n";
    let help = Help::parse(text);
    assert_eq!(help.commands, ["one", "two"].map(str::to_owned).into());
    assert_eq!(help.options["-c"], help.options["--config"]);
    assert!(help.options["--config"] && !help.options["--json"]);
    assert_eq!(help.arguments.len(), 2);
    assert_eq!(help.arguments[0].name, "NODE");
    assert!(help.arguments[1].many);
    assert_eq!(help.arguments[1].values, ["up", "down"]);
}

#[test]
fn commands_that_do_not_exist_are_found() {
    for (line, right) in [
        ("make test", true),
        ("make taste", false),
        ("make bench BENCH=twin  # taste", true),
        ("KEEP=1 make demo && make tset", false),
        ("fabric lab up --leaves 2", true),
        ("fabric lab up --leafs 2", false),
        ("fabric lab link leaf1 spine1 down", true),
        ("fabric lab link leaf1 spine1 sideways", false),
        ("fabric lab exec leaf1 switchctl show pg", true),
        ("fabric lab exec leaf1 switchctl show pgs", false),
        ("fabric lab exec h1 ping -c 3 10.2.4.2", true),
        ("switchctl show buffer|pg", true),
        ("switchctl show buffer|pig", false),
        ("switchctl hold PORT QUEUE [--release]", true),
        ("hostctl show paths", true),
        ("hostctl show pots", false),
        ("ls --all", true),
    ] {
        assert_eq!(
            check_line(line).is_ok(),
            right,
            "{line}: {:?}",
            check_line(line)
        );
    }
}
