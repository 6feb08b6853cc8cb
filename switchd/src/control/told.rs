//! What the steering programs of the ports have been told.

use super::program::PortPunt;
use common::xdp::{
    BridgeMaps, BridgedPort, Prefixes, StationKey, StationPlace, SteerSettings, Verdict,
};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a port is in its bridge, VLANs of which it is a member, VLANs in which it is routed.
pub(super) type ToldMember = (BridgedPort, [u64; 64], [u64; 64]);

/// What the programs have been told, beside local addresses.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The maps that all ports share; `None` before the ports are open.
    pub(super) prefixes: Option<Arc<Prefixes>>,
    /// Prefixes that found no place there: their packets go where a shorter one says.
    pub(super) missing: BTreeSet<IpNet>,
    /// By port: its settings; `None` before they are set.
    pub(super) settings: Vec<Option<SteerSettings>>,
    /// By port: what is punted of it.
    pub(super) punts: Vec<PortPunt>,
    /// The maps of bridges that all ports share; `None` before the ports are open.
    pub(super) bridges: Option<Arc<BridgeMaps>>,
    /// By port: what it is in its bridge.
    pub(super) members: Vec<Option<ToldMember>>,
    /// Stations of bridges that could not be told of.
    pub(super) strangers: BTreeSet<StationKey>,
    /// Whether the kernel forwards IPv4, and IPv6.
    pub(super) kernel_forwards: [bool; 2],
}

impl Told {
    /// A port has another program now, which knows nothing yet.
    pub(super) fn forget_port(&mut self, port: usize) {
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

    /// Tells of one station; `None`: it is not known any more.
    pub(super) fn set_station(&mut self, key: StationKey, place: Option<StationPlace>) {
        let Some(bridges) = &self.bridges else {
            return;
        };
        self.strangers.remove(&key);
        let done = match place {
            Some(place) => bridges.set_station(key, place),
            None => bridges.remove_station(key),
        };
        if let Err(error) = done {
            tracing::error!("{key:?}: the steering programs cannot be told: {error}");
            self.strangers.insert(key);
        }
    }

    /// Tells of one prefix; `None`: nothing any more.
    pub(super) fn set(&mut self, prefix: IpNet, verdict: Option<Verdict>) {
        let Some(prefixes) = &self.prefixes else {
            return;
        };
        self.missing.remove(&prefix);
        let done = match verdict {
            Some(verdict) => prefixes.set(prefix, verdict),
            None => prefixes.remove(prefix),
        };
        if let Err(error) = done {
            tracing::error!("{prefix}: the steering programs cannot be told: {error}");
            self.missing.insert(prefix);
        }
    }
}
