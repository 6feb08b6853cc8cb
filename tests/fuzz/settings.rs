//! What operators write: configuration files and requests to the daemons.

use common::config::load_text;
use std::path::Path;
use switchd::config::{Config, ENV_PREFIX};
use switchd::control::api::Request;

/// A file, and after each NUL one more override (`key=value`).
pub(super) fn switch_config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.split('\0').map(str::to_owned);
    let file = parts.next().unwrap_or_default();
    let overrides: Vec<_> = parts.collect();
    let path = Path::new("fuzz.toml");
    if let Err(error) = load_text::<Config>(&file, path, ENV_PREFIX, [], &overrides) {
        assert!(!error.to_string().is_empty());
    }
}

/// A line on the admin socket.
pub(super) fn switch_admin(input: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(input) {
        let again = serde_json::to_vec(&request).expect("JSON");
        assert_eq!(
            serde_json::from_slice::<Request>(&again).ok(),
            Some(request)
        );
    }
}
