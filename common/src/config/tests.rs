use super::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Example {
    #[serde(default)]
    workers: u8,
    #[serde(default)]
    ecmp: Ecmp,
    #[serde(default)]
    port: Vec<Port>,
}

#[derive(Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct Ecmp {
    seed: u32,
    fields: Vec<String>,
}

#[derive(Debug, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Port {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed: Option<crate::units::Rate>,
}

impl Settings for Example {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.require(self.workers > 0, "workers", "0 workers forward nothing");
        refusals.keep(within("ecmp.seed", self.ecmp.seed.into(), 0, 999));
        for (place, port) in self.port.iter().enumerate() {
            if port.name.is_empty() {
                let key = format!("port[{place}].name");
                refusals.add(Refusal::alone(key, "is empty"));
            }
        }
        let ports = self.port.len();
        let reason = format!("{} workers for {ports} ports", self.workers);
        refusals.require(ports < 3, "port", reason);
        refusals.or(())
    }

    fn derived(&self) -> Vec<Derived> {
        vec![Derived::new("port[0].speed".to_owned(), "5Gbps", "workers")]
    }
}

fn read(text: &str, environment: &[(&str, &str)], options: &[&str]) -> Result<Example, String> {
    let environment = environment.iter().map(|(k, v)| (k.into(), v.into()));
    let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
    load_text(text, Path::new("/etc/x.toml"), "X", environment, &options)
        .map_err(|error| error.to_string())
}

const TEXT: &str = "workers = 2\n[ecmp]\nseed = 1\nfields = [\"a\"]\n[[port]]\nname = \"eth0\"\nspeed = \"1Gbps\"\n";

/// MG-1: file < environment < command line, key by key.
#[test]
fn later_layers_override_single_keys() {
    let not_keys = [
        ("X_SOCKET", "/run/x"),
        ("X_LIBRARY", "/usr/lib/x.so"),
        ("X_PMPI_TIMEOUT", "5"),
        ("XY_WORKERS", "9"),
    ];
    let plain = read(TEXT, &not_keys, &[]).unwrap();
    assert_eq!((plain.workers, plain.ecmp.seed), (2, 1));
    assert_eq!(plain.port[0].speed, Some(crate::units::Rate::from_gbps(1)));
    let layered = read(
        TEXT,
        &[("X_ECMP__SEED", "5"), ("X_WORKERS", "3")],
        &["ecmp.seed = 7", "ecmp.fields=[\"b\", \"c\"]"],
    )
    .unwrap();
    assert_eq!((layered.workers, layered.ecmp.seed), (3, 7));
    assert_eq!(layered.ecmp.fields, ["b", "c"]);
    let replaced = read(TEXT, &[], &["port=[{name=\"eth9\"}]"]).unwrap();
    assert_eq!(replaced.port.len(), 1);
    assert_eq!(replaced.port[0].name, "eth9");
}

/// A file, environment, options, and the message that they give.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
    &'static str,
);

const CASES: &[Case] = &[
    (
        "workers = ",
        &[],
        &[],
        "/etc/x.toml:1:11: string values must be quoted, expected literal string",
    ),
    (
        "workers = 2\nwrokers = 3",
        &[],
        &[],
        "/etc/x.toml:2:1: wrokers: unknown key; did you mean workers?",
    ),
    (
        "workers = 2\nshape = 3",
        &[],
        &[],
        "/etc/x.toml:2:1: shape: unknown key; known here: workers, ecmp, port",
    ),
    (
        "  workers = \"two\"",
        &[],
        &[],
        "/etc/x.toml:1:13: workers: \"two\" {BYTE}",
    ),
    (
        "workers = \"2\"",
        &[],
        &[],
        "/etc/x.toml:1:11: workers: \"2\" {BYTE}",
    ),
    (
        "workers = 1.9",
        &[],
        &[],
        "/etc/x.toml:1:11: workers: 1.9 {BYTE}",
    ),
    (
        "workers = 300",
        &[],
        &[],
        "/etc/x.toml:1:11: workers: 300 {BYTE}",
    ),
    (
        "workers = 0",
        &[],
        &[],
        "/etc/x.toml:1:11: workers: 0 workers forward nothing",
    ),
    (
        "",
        &[],
        &[],
        "/etc/x.toml: workers: 0 workers forward nothing",
    ),
    (
        "workers = 1\n[[port]]\nspeed='1Gbps'",
        &[],
        &[],
        "/etc/x.toml:2:1: port[0].name: is missing",
    ),
    (
        "workers = 1\n[[port]]\nname='a'\nspeed='fast'",
        &[],
        &[],
        "/etc/x.toml:4:7: port[0].speed: \"fast\" is not a data rate: write a whole number and bps, kbps, Mbps, Gbps or Tbps, like 25Gbps",
    ),
    (
        TEXT,
        &[("X_ECMP__SED", "5")],
        &[],
        "environment variable X_ECMP__SED: ecmp.sed: unknown key; did you mean seed?",
    ),
    (
        TEXT,
        &[("X_WORKERS", "many")],
        &[],
        "environment variable X_WORKERS: workers: \"many\" {BYTE}",
    ),
    (
        TEXT,
        &[("X_WORKERS", "0")],
        &[],
        "environment variable X_WORKERS: workers: 0 workers forward nothing",
    ),
    (
        TEXT,
        &[],
        &["ecmp.seed=5000"],
        "--set ecmp.seed=5000: ecmp.seed: 5000 is not within 0 to 999",
    ),
    (
        TEXT,
        &[],
        &["ecmp.seed=-1"],
        "--set ecmp.seed=-1: ecmp.seed: -1 is not a whole number from 0 to 4294967295",
    ),
    (
        TEXT,
        &[],
        &["workers"],
        "--set workers: must have the form key=value",
    ),
    (
        TEXT,
        &[],
        &["a\nb=1"],
        "--set a\nb=1: \"a\\nb\" is not a key",
    ),
    (TEXT, &[], &["..=1"], "--set ..=1: \"..\" is not a key"),
];

/// MG-1: unknown keys and impossible values are refused with place, key and reason, and no value is
/// converted to another type.
#[test]
fn faults_name_place_key_and_reason() {
    const BYTE: &str = "is not a whole number from 0 to 255";
    for (text, environment, options, wanted) in CASES {
        let error = read(text, environment, options).unwrap_err();
        assert_eq!(error, wanted.replace("{BYTE}", BYTE));
    }
}

/// MG-1: all faults of all layers come at once, in the order in which they stand, and what only
/// follows from them is left out.
#[test]
fn all_faults_come_at_once() {
    let text = "wrokers = 1\nworkers = 1.5\n[ecmp]\nseed = 1000\nfields = [1, \"a\", 2]\n\
                [[port]]\nspeed = \"no\"\n[[port]]\nname = 5\n[[port]]\nname = \"\"\nnmae = 1\n";
    let error = read(text, &[("X_ECMP__SEEDS", "1")], &["port_=1", "x"]).unwrap_err();
    assert_eq!(error, "--set x: must have the form key=value");
    let error = read(text, &[("X_ECMP__SEEDS", "1")], &["port_=1"]).unwrap_err();
    assert_eq!(
        error,
        "12 faults:\n\
         /etc/x.toml:1:1: wrokers: unknown key; did you mean workers?\n\
         /etc/x.toml:2:11: workers: 1.5 is not a whole number from 0 to 255\n\
         /etc/x.toml:4:8: ecmp.seed: 1000 is not within 0 to 999\n\
         /etc/x.toml:5:11: ecmp.fields[0]: 1 is not a string in quotes\n\
         /etc/x.toml:5:19: ecmp.fields[2]: 2 is not a string in quotes\n\
         /etc/x.toml:6:1: port[0].name: is missing\n\
         /etc/x.toml:7:9: port[0].speed: \"no\" is not a data rate: write a whole number and bps, kbps, Mbps, Gbps or Tbps, like 25Gbps\n\
         /etc/x.toml:9:8: port[1].name: 5 is not a string in quotes\n\
         /etc/x.toml:11:8: port[2].name: is empty\n\
         /etc/x.toml:12:1: port[2].nmae: unknown key; did you mean name?\n\
         environment variable X_ECMP__SEEDS: ecmp.seeds: unknown key; did you mean seed?\n\
         --set port_=1: port_: unknown key; did you mean port?"
    );
}

/// MG-1: what is in force can be read again, and each value is shown with its origin.
#[test]
fn what_is_in_force_is_shown_with_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, TEXT).unwrap();
    let options = ["ecmp.seed=7".to_owned()];
    let loaded: Loaded<Example> = load(&path, "X_NOT_SET", &options).unwrap();
    let shown = loaded.show().unwrap();
    let file = path.display();
    assert_eq!(
        shown,
        format!(
            "workers = 2  # {file}:1:11\n\
             \n[ecmp]\n\
             fields = [\"a\"]  # {file}:4:10\n\
             seed = 7  # --set ecmp.seed=7\n\
             \n[[port]]\n\
             name = \"eth0\"  # {file}:6:8\n\
             speed = \"1Gbps\"  # {file}:7:9\n"
        )
    );
    assert_eq!(read(&shown, &[], &[]).unwrap(), loaded.settings);
    std::fs::write(&path, "workers = 1\n[[port]]\nname = \"a\"\n").unwrap();
    let loaded: Loaded<Example> = load(&path, "X_NOT_SET", &[]).unwrap();
    let shown = loaded.show().unwrap();
    assert!(shown.contains("seed = 0  # default\n"), "{shown}");
    assert!(
        shown.contains("speed = \"5Gbps\"  # from workers\n"),
        "{shown}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = load::<Example>(Path::new("/nonexistent/x.toml"), "X", &[]).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/x.toml"), "{error}");
}

/// A string that looks like TOML trickery stays a string.
#[test]
fn override_values_cannot_smuggle_keys() {
    let error = read(TEXT, &[], &["ecmp.seed=1\nworkers = 9"]).unwrap_err();
    assert!(error.contains("ecmp.seed"), "{error}");
}
