//! libFuzzer's loop around the target that `FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use fabric_tests::fuzz::TARGETS;
use libfuzzer_sys::fuzz_target;

fn chosen() -> fn(&[u8]) {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|target| target.name == name);
    found.unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is not a target")).run
}

fuzz_target!(|input: &[u8]| {
    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();
    TARGET.get_or_init(chosen)(input);
});
