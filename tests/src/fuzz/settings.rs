//! What operators write: configuration files and requests to the daemons.

use common::config::{Settings, load_text};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::Path;
use switchd::insight::ecn::{Features, Model};

/// A file, and after each NUL one more override (`key=value`).
fn config<T: Settings>(input: &[u8], prefix: &str) -> Option<T> {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.split('\0').map(str::to_owned);
    let file = parts.next().unwrap_or_default();
    let overrides: Vec<_> = parts.collect();
    match load_text(&file, Path::new("fuzz.toml"), prefix, [], &overrides) {
        Ok(config) => Some(config),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// What is accepted can be used.
pub(super) fn switch_config(input: &[u8]) {
    if let Some(config) = config::<switchd::config::Config>(input, switchd::config::ENV_PREFIX) {
        let _ = (config.qos.compile(&[]), config.metrics_address());
        let _ = (config.resync(), config.resolve_ports(&["swp1".to_owned()]));
    }
}

/// SW-24: what is accepted as a model can be used, and written again as the same.
pub(super) fn aiecn_model(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    match Model::parse(&text, Path::new("fuzz.toml")) {
        Ok(model) => {
            let again = Model::parse(&model.to_toml("again"), Path::new("again.toml"));
            assert_eq!(again.expect("it was written"), model);
            for scenario in &model.scenarios {
                let thresholds = scenario.thresholds(150_000);
                assert!(thresholds.kmin <= thresholds.kmax, "{scenario:?}");
                for row in &scenario.seen {
                    let (_, far) = model.nearest(&Features::of_row(*row)).expect("a row");
                    assert!(far.abs() < 1e-9, "{far}");
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What is accepted can be used.
pub(super) fn host_config(input: &[u8]) {
    if let Some(config) = config::<hostd::config::Config>(input, "HOSTD") {
        let _ = (config.engine([0; 32]), config.application.quota.memory());
    }
}

/// A line on an admin socket.
fn request<T: DeserializeOwned + Serialize + PartialEq + Debug>(input: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<T>(input) {
        let again = serde_json::to_vec(&request).expect("JSON");
        assert_eq!(serde_json::from_slice::<T>(&again).ok(), Some(request));
    }
}

pub(super) fn switch_admin(input: &[u8]) {
    request::<switchd::control::api::Request>(input);
}

pub(super) fn host_admin(input: &[u8]) {
    request::<hostd::control::report::Ask>(input);
}
