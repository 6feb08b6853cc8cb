//! Tags that tell of a path: what ports write into them, and what became of them.

use crate::control::api::{CsigRow, IntRow};
use crate::control::state::State;
use crate::drop::DropReason;
use crate::stats::Signed;
use crate::stats::load::available;
use crate::tables::PortEntry;
use crate::tables::csig::{PortCsig, Rule};
use common::csig::SignalName;
use common::time::Time;
use common::units::Rate;
use common::wire::csig::{Form, Signal};
use common::xdp::queue::LINE_OVERHEAD;
use std::collections::BTreeMap;

fn by_signal<T>(csig: &PortCsig, of: impl Fn(&Rule) -> T) -> BTreeMap<String, T> {
    let pairs = Signal::ALL.map(|signal| {
        (
            SignalName::from(signal).name().to_owned(),
            of(csig.rule(signal)),
        )
    });
    pairs.into()
}

impl State {
    /// The ports that know congestion signals.
    pub(in crate::control) fn csig_rows(&self, now: Time) -> Vec<CsigRow> {
        let row = |(number, entry): (usize, &PortEntry)| {
            let csig = entry.csig.as_deref()?;
            Some(self.csig_row(number, entry, csig, now))
        };
        self.known_ports().filter_map(row).collect()
    }

    fn csig_row(&self, number: usize, entry: &PortEntry, csig: &PortCsig, now: Time) -> CsigRow {
        let capacity = entry.speed.or(entry.link);
        let found = capacity.map(|capacity| {
            let [for_bits, for_share] = self.used(number, csig, now);
            (
                available(capacity, for_bits).0,
                available(capacity, for_share).1,
            )
        });
        #[expect(clippy::cast_precision_loss, reason = "a percentage to be read")]
        let percent = found.map(|(_, share)| share as f64 / 1e4);
        let tags = Signed::CSIG.map(|signed| {
            let count = self.port_sum(number, |it| it.csig.signed[signed as usize].get());
            (signed.name().to_owned(), count)
        });
        CsigRow {
            port: entry.name.clone(),
            capacity: capacity.map(Rate::bps),
            available: found.map(|(bits, _)| bits),
            available_percent: percent,
            modes: by_signal(csig, |rule| rule.mode.name().to_owned()),
            locators: by_signal(csig, |rule| rule.locator(Form::Compact)),
            expanded_locators: by_signal(csig, |rule| rule.locator(Form::Expanded)),
            trusted: csig.is_trusted,
            tags: tags.into(),
            bad: self.port_sum(number, |it| it.dropped(DropReason::BadCsig)),
        }
    }

    /// The ports that know telemetry.
    pub(in crate::control) fn int_rows(&self) -> Vec<IntRow> {
        let row = |(number, entry): (usize, &PortEntry)| {
            let int = entry.int?;
            let speed = entry.speed.or(entry.link);
            let tags = Signed::INT.map(|signed| {
                let count = self.port_sum(number, |it| it.int_signed[signed as usize].get());
                (signed.name().to_owned(), count)
            });
            Some(IntRow {
                port: entry.name.clone(),
                speed: speed.map(Rate::bps),
                mode: int.mode.name().to_owned(),
                trusted: int.is_trusted,
                tags: tags.into(),
                bad: self.port_sum(number, |it| it.dropped(DropReason::BadInt)),
            })
        };
        self.known_ports().filter_map(row).collect()
    }

    /// Bits a second that a port sends now, as they are measured for the bandwidth that is
    /// available and for its share: its worker measures them when it sends, this goes on from
    /// there.
    fn used(&self, number: usize, csig: &PortCsig, now: Time) -> [u64; 2] {
        let workers = self.workers.iter().map(|it| &it.stats.ports[number]);
        // Only the worker that owns the port measures.
        let measured = workers.max_by_key(|stats| stats.csig.loads().map(|load| load.since));
        measured.map_or([0; 2], |stats| {
            let sent = stats.tx_bytes.get() + LINE_OVERHEAD * stats.tx_packets.get();
            let loads = stats.csig.loads();
            std::array::from_fn(|of| {
                let (mut load, measure) = (loads[of], csig.domain.measures[of]);
                load.advance(measure, now, sent);
                load.rate(measure)
            })
        })
    }
}
