//! What the steering programs of the ports have been told.

use super::program::PortPunt;
use common::xdp::{
    BridgeMaps, BridgedPort, Prefixes, StationKey, StationPlace, SteerSettings, Verdict,
};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What is tried again at once, at most.
const RETRIES: usize = 1000;

/// What becomes of an entry of which the programs could not be told, for the log.
const UNTOLD: &str = "which is tried again; `switchctl status` counts those behind it";

/// Whether an error about one entry is logged while `waiting` others are to be tried again: a map
/// that is full may refuse 100,000, of which the first says all that there is to say.
fn is_logged(failed_before: bool, waiting: usize) -> bool {
    !failed_before && waiting == 0
}

/// What a port is in its bridge, VLANs of which it is a member, VLANs in which it is routed.
pub(super) type ToldMember = (BridgedPort, [u64; 64], [u64; 64]);

/// What the programs have been told, beside local addresses.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The maps that all ports share; `None` before the ports are open.
    pub(super) prefixes: Option<Arc<Prefixes>>,
    /// Prefixes that could not be told of, with what was to be said: until that has worked, their
    /// packets go where a shorter one, or what was said before, says.
    pub(super) missing: BTreeMap<IpNet, Option<Verdict>>,
    /// By port: addresses of this machine that its program was to learn (`true`) or to forget.
    pub(super) locals: BTreeMap<(usize, IpAddr), bool>,
    /// By port: why its settings, VLANs or place in a bridge could not be told.
    pub(super) troubles: BTreeMap<usize, String>,
    /// By port: its settings; `None` before they are set.
    pub(super) settings: Vec<Option<SteerSettings>>,
    /// By port: what is punted of it.
    pub(super) punts: Vec<PortPunt>,
    /// The maps of bridges that all ports share; `None` before the ports are open.
    pub(super) bridges: Option<Arc<BridgeMaps>>,
    /// By port: what it is in its bridge.
    pub(super) members: Vec<Option<ToldMember>>,
    /// Stations of bridges that could not be told of, with what was to be said.
    pub(super) strangers: BTreeMap<StationKey, Option<StationPlace>>,
    /// Whether the kernel forwards IPv4, and IPv6.
    pub(super) kernel_forwards: [bool; 2],
    /// What packets pass in the kernel and not here; `None`: nothing.
    pub(super) passed_by: Option<String>,
}

impl Told {
    /// Whether the program of a port was told of its bridge: the workers forward between stations.
    pub(super) fn is_bridged(&self, port: usize) -> bool {
        let settings = self.settings.get(port).copied().flatten();
        settings.is_some_and(|settings| settings.bridged.is_some())
    }

    /// A port has another program now, which knows nothing yet.
    pub(super) fn forget_port(&mut self, port: usize) {
        self.forget_failures(port);
        if let Some(settings) = self.settings.get_mut(port) {
            *settings = None;
        }
        if let Some(punts) = self.punts.get_mut(port) {
            *punts = PortPunt::default();
        }
        if let Some(member) = self.members.get_mut(port) {
            *member = None;
        }
    }

    /// What could not be told to a port does not matter any more.
    pub(super) fn forget_failures(&mut self, port: usize) {
        self.locals.retain(|(number, _), _| *number != port);
        self.troubles.remove(&port);
    }

    /// Tells of one station; `None`: it is not known any more.
    pub(super) fn set_station(&mut self, key: StationKey, place: Option<StationPlace>) {
        let Some(bridges) = &self.bridges else {
            return;
        };
        let failed_before = self.strangers.remove(&key).is_some();
        let done = match place {
            Some(place) => bridges.set_station(key, place),
            None => bridges.remove_station(key),
        };
        if let Err(error) = done {
            if is_logged(failed_before, self.strangers.len()) {
                tracing::error!("{key:?}: the steering programs cannot be told, {UNTOLD}: {error}");
            }
            self.strangers.insert(key, place);
        }
    }

    /// Tells of one prefix; `None`: nothing any more.
    pub(super) fn set(&mut self, prefix: IpNet, verdict: Option<Verdict>) {
        let Some(prefixes) = &self.prefixes else {
            return;
        };
        let failed_before = self.missing.remove(&prefix).is_some();
        let done = match verdict {
            Some(verdict) => prefixes.set(prefix, verdict),
            None => prefixes.remove(prefix),
        };
        if let Err(error) = done {
            if is_logged(failed_before, self.missing.len()) {
                tracing::error!(
                    "{prefix}: the steering programs cannot be told, {UNTOLD}: {error}"
                );
            }
            self.missing.insert(prefix, verdict);
        }
    }

    /// Tries again what could not be told of prefixes and stations.
    pub(super) fn retry(&mut self) {
        let prefixes = self.missing.iter().take(RETRIES);
        let prefixes: Vec<_> = prefixes.map(|(key, said)| (*key, *said)).collect();
        for (prefix, verdict) in prefixes {
            self.set(prefix, verdict);
        }
        let stations = self.strangers.iter().take(RETRIES);
        let stations: Vec<_> = stations.map(|(key, said)| (*key, *said)).collect();
        for (key, place) in stations {
            self.set_station(key, place);
        }
    }

    /// What could not be told, a sentence each, ports by the names that `name` gives them.
    pub(super) fn problems(&self, name: impl Fn(usize) -> String) -> Vec<String> {
        let mut problems = Vec::new();
        let of = |count: usize, what| {
            format!(
                "the steering programs cannot be told of {count} {what}, which is tried again: the log has the reason"
            )
        };
        if !self.missing.is_empty() {
            problems.push(of(self.missing.len(), "prefixes that are punted or local"));
        }
        if !self.strangers.is_empty() {
            problems.push(of(self.strangers.len(), "stations of bridges"));
        }
        if !self.locals.is_empty() {
            problems.push(of(self.locals.len(), "addresses of this machine"));
        }
        for (port, why) in &self.troubles {
            let name = name(*port);
            problems.push(format!(
                "{name}: its steering program cannot be told what holds now, which is tried again: {why}"
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::xdp::PuntReason;

    /// MG-5: of a map that refuses many entries the log has the first, and once.
    #[test]
    fn a_full_map_does_not_fill_the_journal() {
        assert!(is_logged(false, 0));
        assert!(!is_logged(false, 1), "one of many");
        assert!(!is_logged(true, 0), "one that is tried again");
    }

    /// SW-1: what the programs' table has no room for is a problem until it has, and is then told.
    #[test]
    fn what_cannot_be_told_is_tried_again() {
        if !netns::privileged() {
            return;
        }
        let prefix = |number: u8| IpNet::new([10, number, 0, 0].into(), 16).unwrap();
        let punted = Some(Verdict::Punt(PuntReason::NotAPort));
        let mut told = Told {
            prefixes: Some(Arc::new(Prefixes::with_room(2).unwrap())),
            ..Told::default()
        };
        let problems = |told: &Told| told.problems(|port| port.to_string());
        told.set(prefix(1), punted);
        told.set(prefix(2), punted);
        assert_eq!(problems(&told), Vec::<String>::new());
        told.set(prefix(3), punted);
        told.retry();
        let [problem] = &problems(&told)[..] else {
            panic!("{:?}", problems(&told));
        };
        assert!(problem.contains("told of 1 prefixes"), "{problem}");
        told.set(prefix(1), None);
        told.retry();
        assert_eq!(problems(&told), Vec::<String>::new());
        // It has the room now, which is not left for another.
        told.set(prefix(4), punted);
        assert_eq!(told.missing, BTreeMap::from([(prefix(4), punted)]));
        told.set(prefix(4), None);
        assert!(told.missing.is_empty());
        told.troubles.insert(7, "no memory".to_owned());
        told.locals.insert((7, [10, 0, 0, 1].into()), true);
        assert_eq!(problems(&told).len(), 2);
        told.forget_port(7);
        assert_eq!(problems(&told), Vec::<String>::new());
    }
}
