//! Licences and duplicate versions of the dependencies, against `.deny.toml`, and the compiler that
//! they need.
//!
//! The first two are the same check as `cargo deny check licenses bans`, over `cargo metadata`: it
//! needs no download and takes less than a second, so `make lint` can run it on every machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;

#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Skip>,
}

#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    rust_version: Option<String>,
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn policy() -> Policy {
    let text = std::fs::read_to_string(root().join(".deny.toml")).expect(".deny.toml is readable");
    toml::from_str(&text).expect(".deny.toml is valid")
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata.packages
}

/// Whether an SPDX expression can be satisfied by allowed licences alone.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // Old manifests write "MIT/Apache-2.0" for a choice.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let (value, rest) = alternatives(&tokens, allowed);
    assert!(rest.is_empty(), "not an SPDX expression: {expression}");
    value
}

fn alternatives<'a>(tokens: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut value, mut rest) = conjunction(tokens, allowed);
    while rest.first() == Some(&"OR") {
        let (next, after) = conjunction(&rest[1..], allowed);
        value |= next;
        rest = after;
    }
    (value, rest)
}

fn conjunction<'a>(tokens: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut value, mut rest) = licence(tokens, allowed);
    while rest.first() == Some(&"AND") {
        let (next, after) = licence(&rest[1..], allowed);
        value &= next;
        rest = after;
    }
    (value, rest)
}

fn licence<'a>(tokens: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    match tokens {
        ["(", rest @ ..] => {
            let (value, rest) = alternatives(rest, allowed);
            assert_eq!(rest.first(), Some(&")"), "unbalanced parenthesis");
            (value, &rest[1..])
        }
        [name, "WITH", exception, rest @ ..] => {
            (allowed.contains(&format!("{name} WITH {exception}")), rest)
        }
        [name, rest @ ..] => (allowed.contains(*name), rest),
        [] => panic!("an SPDX expression ends early"),
    }
}

#[test]
fn spdx_expressions_are_evaluated() {
    let allowed: BTreeSet<String> = ["MIT", "ISC", "A WITH B"].map(String::from).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-2.0", false),
        ("GPL-2.0 OR MIT", true),
        ("GPL-2.0/MIT", true),
        ("GPL-2.0 AND MIT", false),
        ("(GPL-2.0 OR ISC) AND MIT", true),
        ("A WITH B", true),
        ("A", false),
    ] {
        assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
    }
}

#[test]
fn every_dependency_has_an_accepted_licence() {
    let allowed = policy().licenses.allow;
    let refused: Vec<String> = packages()
        .iter()
        .filter(|p| !p.license.as_deref().is_some_and(|l| satisfied(l, &allowed)))
        .map(|p| format!("{} {}: {:?}", p.name, p.version, p.license))
        .collect();
    assert!(
        refused.is_empty(),
        "licences not in .deny.toml:\n{}",
        refused.join("\n")
    );
}

#[test]
fn no_dependency_is_there_twice_unless_accepted() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        versions
            .entry(package.name)
            .or_default()
            .insert(package.version);
    }
    let twice: BTreeSet<String> = versions
        .iter()
        .filter(|(_, v)| v.len() > 1)
        .map(|(name, _)| name.clone())
        .collect();
    let accepted: BTreeSet<String> = policy().bans.skip.into_iter().map(|s| s.name).collect();
    let new: Vec<String> = twice
        .difference(&accepted)
        .map(|name| format!("{name}: {:?}", versions[name]))
        .collect();
    assert!(
        new.is_empty(),
        "duplicates not in .deny.toml:\n{}",
        new.join("\n")
    );
    let stale: Vec<&String> = accepted.difference(&twice).collect();
    assert!(
        stale.is_empty(),
        ".deny.toml accepts duplicates that are gone: {stale:?}"
    );
}

/// `1.88` and `1.88.0` as numbers.
fn compiler(version: &str) -> Vec<u32> {
    let parts = version.split('.').chain(["0", "0"]).take(3);
    parts.map(|part| part.parse().expect("a number")).collect()
}

#[test]
fn no_dependency_needs_a_newer_compiler() {
    let packages = packages();
    let own = packages.iter().find(|package| package.name == "common");
    let promised = own.and_then(|package| package.rust_version.as_deref());
    let promised = compiler(promised.expect("`rust-version` in Cargo.toml"));
    let needed = packages.iter().filter_map(|package| {
        let version = package.rust_version.as_deref()?;
        let name = &package.name;
        (compiler(version) > promised).then(|| format!("{name} {}: {version}", package.version))
    });
    let newer: Vec<String> = needed.collect();
    assert!(
        newer.is_empty(),
        "above `rust-version` in Cargo.toml:\n{}",
        newer.join("\n")
    );
}
