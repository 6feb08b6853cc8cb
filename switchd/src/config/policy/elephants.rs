//! `[[qos.elephants]]`: classes whose elephants go to a lower queue (SW-17).

use crate::config::qos::{Elephants, Moves};
use crate::tables::elephants;
use common::config::{Refusal, Refusals, within};
use common::time::Span;

/// Longest ageing time: a flow that pauses for longer than a minute is another one.
const AGEING_MAX: u64 = 60_000;

/// The settings of all sections.
///
/// # Errors
/// The values out of range, and the first section that contradicts another.
pub(super) fn compile(all: &[Elephants]) -> Result<Vec<elephants::Settings>, Refusals> {
    let mut refusals = Refusals::default();
    let mut compiled = Vec::with_capacity(all.len());
    for (place, one) in all.iter().enumerate() {
        let key = format!("qos.elephants[{place}]");
        let ageing = one.ageing_milliseconds;
        let ageing_key = format!("{key}.ageing_milliseconds");
        refusals.keep(within(&ageing_key, ageing, 1, AGEING_MAX));
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
        if let Err(error) = elephants::check(&compiled) {
            refusals.add(Refusal::new(key, error.to_string()));
            // What comes after it would be compared with it.
            break;
        }
    }
    refusals.or(compiled)
}
