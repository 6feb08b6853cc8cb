//! The switches of a scenario: plain queues, or a whole `[qos]` and `[ecmp.dlb]` of switchd's
//! configuration.

use super::keys::{At, bytes, number, place};
use super::raw::Raw;
use crate::network::{NodeId, Plan};
use crate::switch::SwitchSettings;
use common::config::{Refusals, Settings};
use common::time::Span;
use std::sync::Arc;
use switchd::config::{Config, Ecmp};
use toml::Spanned;

/// The settings of all switches of `plan`.
pub(super) fn switches(raw: &Raw, plan: &Plan, poll: Span) -> At<SwitchSettings> {
    let queue = raw.switch.queue.as_ref();
    let queue = bytes(queue, 1 << 20, 4096..=u64::from(u32::MAX / 2))?;
    let packets = number(&raw.switch.packets, "packets", 16..=1 << 24)?;
    let settings = SwitchSettings {
        queue: u32::try_from(queue).expect("in range"),
        packets: u32::try_from(packets.unwrap_or(1 << 16)).expect("in range"),
        mtu: 9000,
        poll,
        qos: (raw.qos.as_ref()).map(|qos| Arc::new(qos.get_ref().clone())),
        dlb: (raw.ecmp.as_ref()).map(|ecmp| Arc::new(ecmp.get_ref().dlb.clone())),
    };
    if let (Some(_), Some(at)) = (&settings.qos, place(&raw.switch.queue)) {
        let reason = "queue has no effect beside [qos]: say qos.queue_depth_bytes";
        return Err((at, reason.to_owned()));
    }
    if let Some(ecmp) = &raw.ecmp {
        let config = Config {
            ecmp: Ecmp {
                dlb: ecmp.get_ref().dlb.clone(),
                ..Ecmp::default()
            },
            ..some_config()
        };
        config.validate().map_err(|it| refused(ecmp, &it))?;
    }
    if let Some(qos) = &raw.qos {
        let config = Config {
            qos: qos.get_ref().clone(),
            ..some_config()
        };
        config.validate().map_err(|it| refused(qos, &it))?;
        for node in plan.hosts..plan.nodes.len() {
            let node = NodeId(u32::try_from(node).expect("few nodes"));
            // No ports come later here, so patterns have to match those that are there.
            if let Some(reason) = settings.idle_patterns(plan, node).into_iter().next() {
                return Err((qos.span().start, reason));
            }
            let compiled = settings.compile(plan, node);
            compiled.map_err(|it| refused(qos, &it))?;
        }
    }
    Ok(settings)
}

/// A configuration with nothing wrong in it: a switch without ports is refused.
fn some_config() -> Config {
    Config {
        ports: vec!["*".to_owned()],
        ..Config::default()
    }
}

/// Refusals of the daemon's, where the table stands that has the keys.
fn refused<T>(table: &Spanned<T>, refusals: &Refusals) -> (usize, String) {
    (table.span().start, refusals.to_string())
}
