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
        csig: (raw.csig.as_ref()).map(|csig| Arc::new(csig.get_ref().clone())),
        int: (raw.int.as_ref()).map(|int| Arc::new(int.get_ref().clone())),
        iqcn: (raw.iqcn.as_ref()).map(|iqcn| Arc::new(iqcn.get_ref().clone())),
        compute: None,
        secret: None,
        model: None,
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
    if let Some(csig) = &raw.csig {
        let config = Config {
            csig: csig.get_ref().clone(),
            ..some_config()
        };
        config.validate().map_err(|it| refused(csig, &it))?;
    }
    if let Some(int) = &raw.int {
        let config = Config {
            int: int.get_ref().clone(),
            ..some_config()
        };
        config.validate().map_err(|it| refused(int, &it))?;
    }
    if let Some(iqcn) = &raw.iqcn {
        let config = SwitchSettings {
            iqcn: settings.iqcn.clone(),
            ..SwitchSettings::default()
        };
        let config = Config {
            ports: some_config().ports,
            ..config.config()
        };
        config.validate().map_err(|it| refused(iqcn, &it))?;
    }
    if let Some(qos) = &raw.qos {
        let config = Config {
            qos: qos.get_ref().clone(),
            ..some_config()
        };
        config.validate().map_err(|it| refused(qos, &it))?;
        if !config.qos.aiecn.model.as_os_str().is_empty() {
            let reason = "qos.aiecn.model: scenarios take the model that ships".to_owned();
            return Err((qos.span().start, reason));
        }
        // No ports come later here, so patterns have to match some that are there.
        if let Some(reason) = settings.idle_patterns(plan) {
            return Err((qos.span().start, reason));
        }
        for node in plan.hosts..plan.nodes.len() {
            let node = NodeId(u32::try_from(node).expect("few nodes"));
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

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    /// Ports of some of the switches can be told apart; a pattern that none has is refused.
    #[test]
    fn sections_are_for_the_switches_that_have_their_ports() {
        let parse = |ports: &str| {
            let text = format!(
                "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 1\n\
                 [[workload]]\nkind = \"permutation\"\nsize = \"1kB\"\n\
                 [[qos.queue]]\nports = [\"{ports}\"]\nqueues = [3]\nlimit_bytes = 20000\n"
            );
            Scenario::parse(&text, "ports", &|file| Err(format!("no {file}")))
        };
        for ports in ["leaf1-spine*", "*"] {
            parse(ports).unwrap_or_else(|refusal| panic!("{ports}: {}", refusal.reason));
        }
        let reason = parse("leaf9-*").expect_err("no such leaf").reason;
        assert!(reason.contains("qos.queue[0].ports[0]"), "{reason}");
        assert!(reason.contains("no port of a switch matches"), "{reason}");
        assert!(!reason.contains("so far"), "{reason}");
    }
}
