//! `[[qos.elephants]]`: classes whose elephants go to a lower queue (SW-17).

use crate::config::qos::{Elephants, Moves};
use crate::config::rules::within;
use crate::tables::elephants;
use common::config::Refusal;
use common::time::Span;

/// Longest ageing time: a flow that pauses for longer than a minute is another one.
const AGEING_MAX: u64 = 60_000;

/// The settings of all sections.
///
/// # Errors
/// The first value out of range, or section that contradicts another.
pub(super) fn compile(all: &[Elephants]) -> Result<Vec<elephants::Settings>, Refusal> {
    let mut compiled = Vec::with_capacity(all.len());
    for (place, one) in all.iter().enumerate() {
        let key = format!("qos.elephants[{place}]");
        let ageing = one.ageing_milliseconds;
        within(&format!("{key}.ageing_milliseconds"), ageing, 1, AGEING_MAX)?;
        compiled.push(elephants::Settings {
            from: one.from,
            to: one.to,
            bytes: one.bytes,
            rate: one.rate,
            ageing: Span::from_millis(ageing),
            moves: match one.moves {
                Moves::Gated => elephants::Moves::Gated,
                Moves::Drained => elephants::Moves::Drained,
            },
        });
        elephants::check(&compiled).map_err(|error| Refusal::new(key, error.to_string()))?;
    }
    Ok(compiled)
}
