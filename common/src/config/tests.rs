use super::*;
use serde::Deserialize;

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Example {
    workers: u8,
    #[serde(default)]
    ecmp: Ecmp,
    #[serde(default)]
    port: Vec<Port>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct Ecmp {
    seed: u32,
    fields: Vec<String>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Port {
    name: String,
    speed: Option<crate::units::Rate>,
}

impl Settings for Example {
    fn validate(&self) -> Result<(), Refusal> {
        require(self.workers > 0, "workers", "0 workers forward nothing")?;
        require(self.ecmp.seed < 1000, "ecmp.seed", "is above 999")
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
    let plain = read(TEXT, &[("X_SOCKET", "/run/x"), ("XY_WORKERS", "9")], &[]).unwrap();
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

/// MG-1: unknown keys and impossible values are refused with file, key and reason.
#[test]
fn faults_name_layer_key_and_reason() {
    type Case = (
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
        &'static [&'static str],
    );
    let cases: &[Case] = &[
        ("workers = ", &[], &[], &["/etc/x.toml", "line 1"]),
        (
            "workers = 2\nwrokers = 3",
            &[],
            &[],
            &["/etc/x.toml", "line 2", "wrokers", "unknown"],
        ),
        (
            "workers = \"two\"",
            &[],
            &[],
            &["/etc/x.toml", "line 1", "workers"],
        ),
        ("workers = 300", &[], &[], &["/etc/x.toml", "line 1", "300"]),
        (
            "workers = 0",
            &[],
            &[],
            &["/etc/x.toml", "workers: 0 workers"],
        ),
        ("", &[], &[], &["/etc/x.toml", "workers"]),
        (
            "workers = 1\n[[port]]\nname='a'\nspeed='fast'",
            &[],
            &[],
            &["line 4", "fast", "data rate"],
        ),
        (
            TEXT,
            &[("X_ECMP__SED", "5")],
            &[],
            &["environment variable X_ECMP__SED", "ecmp.sed", "unknown"],
        ),
        (
            TEXT,
            &[("X_WORKERS", "many")],
            &[],
            &["environment variable X_WORKERS", "workers", "many"],
        ),
        (
            TEXT,
            &[("X_WORKERS", "0")],
            &[],
            &["environment variable X_WORKERS", "workers", "0 workers"],
        ),
        (
            TEXT,
            &[],
            &["ecmp.seed=5000"],
            &["--set ecmp.seed=5000", "ecmp.seed", "above 999"],
        ),
        (
            TEXT,
            &[],
            &["ecmp.seed=-1"],
            &["--set ecmp.seed=-1", "ecmp.seed"],
        ),
        (TEXT, &[], &["workers"], &["--set workers", "key=value"]),
        (TEXT, &[], &["a\nb=1"], &["is not a key"]),
        (TEXT, &[], &["..=1"], &["is not a key"]),
    ];
    for (text, environment, options, wanted) in cases {
        let error = read(text, environment, options).unwrap_err();
        for part in *wanted {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
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
