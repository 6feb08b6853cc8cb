//! Temporary.
use std::sync::OnceLock;
static T: OnceLock<Vec<f64>> = OnceLock::new();
const D: [f64; 16] = [2.0, 1.25, 1.6, 1.0, 1.6, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
pub(crate) fn get(i: usize) -> f64 {
    T.get_or_init(|| {
        let mut v = D.to_vec();
        if let Ok(s) = std::env::var("TUNE") {
            for kv in s.split(',') {
                if let Some((k, x)) = kv.split_once('=') {
                    v[k.parse::<usize>().unwrap()] = x.parse().unwrap();
                }
            }
        }
        v
    })[i]
}
