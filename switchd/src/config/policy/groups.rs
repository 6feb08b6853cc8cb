//! `[[qos.group]]`: thresholds and headroom of priority groups.

use super::headroom::Planned;
use super::limit::dynamic;
use crate::config::facts::PortFacts;
use crate::config::qos::{Group, HeadroomSize, Qos};
use crate::config::rules::cells;
use crate::limits::{CELL, MAX_CELLS};
use crate::tables::policy::{GroupPolicy, Limit, PortPolicy};
use common::config::{Refusal, Refusals, require};

impl Qos {
    /// Puts the groups of a section into a port's policy. Returns what computed headroom is made
    /// of; `share` is what a peer's announcement may take of it, in cells.
    ///
    /// # Errors
    /// The keys that are impossible or contradict others.
    pub(super) fn fill_groups(
        &self,
        place: usize,
        group: &Group,
        facts: &PortFacts,
        share: u64,
        port: &mut PortPolicy,
    ) -> Result<Option<Planned>, Refusals> {
        let key = |name: &str| format!("qos.group[{place}].{name}");
        let mut refusals = Refusals::default();
        let computed = match group.headroom {
            HeadroomSize::Auto => refusals.keep(self.computed(&key("headroom"), facts, share)),
            HeadroomSize::None | HeadroomSize::Bytes(_) => None,
        };
        let headroom = match (group.headroom, &computed) {
            (HeadroomSize::Bytes(bytes), _) => cells(bytes).max(1),
            (_, Some(planned)) => u32::try_from(planned.made_of.cells()).unwrap_or(u32::MAX),
            _ => 0,
        };
        let guaranteed = cells(group.guaranteed_bytes);
        let limit = refusals.keep(group_limit(&key, group, guaranteed));
        let policy = GroupPolicy {
            guaranteed,
            limit: limit.unwrap_or(Limit::Static(MAX_CELLS)),
            headroom,
            xon: cells(group.xon_bytes),
            xon_offset: cells(group.xon_offset_bytes),
        };
        if policy.is_lossless() {
            refusals.keep(check_xon(&key, group, &policy));
        }
        for number in &group.groups {
            if let Some(place) = port.groups.get_mut(usize::from(*number)) {
                *place = policy;
            }
        }
        refusals.or(computed)
    }
}

fn group_limit(
    key: &dyn Fn(&str) -> String,
    group: &Group,
    guaranteed: u32,
) -> Result<Limit, Refusal> {
    match (group.xoff_bytes, group.dynamic_th) {
        (Some(_), Some(_)) => Err(Refusal::new(
            key("dynamic_th"),
            "cannot be combined with xoff_bytes: a threshold is static or dynamic",
        )),
        (Some(xoff), None) => {
            require(
                cells(xoff) >= guaranteed.max(1),
                &key("xoff_bytes"),
                format_args!(
                    "{xoff} lies below the guarantee of {} bytes, or below a cell",
                    group.guaranteed_bytes
                ),
            )?;
            Ok(Limit::Static(cells(xoff) - guaranteed))
        }
        (None, Some(exponent)) => dynamic(&key("dynamic_th"), exponent),
        (None, None) if group.headroom == HeadroomSize::None => Ok(Limit::Static(MAX_CELLS)),
        (None, None) => Err(Refusal::new(
            key("xoff_bytes"),
            "a lossless group needs a threshold: xoff_bytes or dynamic_th",
        )),
    }
}

fn check_xon(
    key: &dyn Fn(&str) -> String,
    group: &Group,
    policy: &GroupPolicy,
) -> Result<(), Refusals> {
    require(
        policy.xon > 0 || policy.xon_offset > 0,
        &key("xon_bytes"),
        "a lossless group has to resume somewhere: xon_bytes or xon_offset_bytes",
    )?;
    let Some(xoff) = group.xoff_bytes else {
        return Ok(());
    };
    // In cells: less than a cell between them is no distance.
    let mut refusals = Refusals::default();
    let mut below = |name: &str, bytes: u32| {
        refusals.require(
            cells(bytes) < cells(xoff),
            &key(name),
            format_args!("{bytes} is not below xoff_bytes, {xoff}, in cells of {CELL} bytes"),
        );
    };
    below("xon_bytes", group.xon_bytes);
    below("xon_offset_bytes", group.xon_offset_bytes);
    refusals.or(())
}
