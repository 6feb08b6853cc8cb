//! The rows of routing: routes, groups of next hops, next hops, neighbours.

use super::mac_text;
use crate::control::api::{
    GroupRow, NeighbourRow, NextHopRow, NextHopShare, ResilientRow, RouteRow, WantedRoutes,
};
use crate::control::program::Spec;
use crate::control::state::State;
use crate::id::{GroupId, NextHopId, PortId};
use crate::tables::Group;
use crate::tables::dlb::Mode;
use crate::tables::resilient::Allotment;
use common::netlink::NeighbourKey;
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap};

/// The buckets of a resilient group.
fn resilient_row(allotment: &Allotment) -> ResilientRow {
    let terms = allotment.terms();
    ResilientRow {
        buckets: terms.buckets,
        idle_seconds: terms.idle.as_secs_f64(),
        unbalanced_seconds: terms.unbalanced.as_secs_f64(),
        waiting: allotment.waiting(),
    }
}

impl State {
    pub(super) fn next_hop_share(&self, id: NextHopId, percent: f64) -> NextHopShare {
        let hop = self.routing.program().tables().next_hop(id);
        NextHopShare {
            address: hop.map_or_else(String::new, |hop| hop.address.to_string()),
            port: hop.map_or_else(String::new, |hop| self.port_name(hop.port)),
            interface: hop
                .filter(|hop| hop.link_header.is_some())
                .map(|hop| self.interface_name(hop.ifindex)),
            percent,
            band: None,
        }
    }

    /// Next hops by their share of the buckets.
    fn shares(&self, table: &[NextHopId]) -> Vec<NextHopShare> {
        let mut shares: BTreeMap<NextHopId, u32> = BTreeMap::new();
        for hop in table {
            *shares.entry(*hop).or_default() += 1;
        }
        let all: u32 = shares.values().sum();
        let percent = |share: u32| f64::from(share) * 100.0 / f64::from(all.max(1));
        let rows = shares.into_iter();
        rows.map(|(hop, share)| self.next_hop_share(hop, percent(share)))
            .collect()
    }

    /// What a group does, and where it sends.
    fn action(&self, id: GroupId) -> (&'static str, Vec<NextHopShare>) {
        match self.routing.program().tables().group(id) {
            Some(Group::Forward(hop)) => ("forward", vec![self.next_hop_share(*hop, 100.0)]),
            Some(Group::Balance(buckets)) => ("forward", self.shares(buckets.table())),
            Some(Group::Resilient(resilient)) => ("forward", self.shares(resilient.table())),
            Some(Group::Glean { port, ifindex, .. }) => {
                let name = self.port_name(*port);
                let interface = self.interface_name(*ifindex);
                let on_link = NextHopShare {
                    address: String::new(),
                    interface: (interface != name).then_some(interface),
                    port: name,
                    percent: 100.0,
                    band: None,
                };
                ("glean", vec![on_link])
            }
            Some(Group::Local) => ("local", Vec::new()),
            Some(Group::Broadcast) => ("broadcast", Vec::new()),
            Some(Group::Unreachable) => ("unreachable", Vec::new()),
            Some(Group::NoRoute) => ("throw", Vec::new()),
            Some(Group::Prohibit) => ("prohibit", Vec::new()),
            Some(Group::Punt(_)) => ("punt", Vec::new()),
            Some(Group::Blackhole) | None => ("blackhole", Vec::new()),
        }
    }

    /// Routes that are `wanted`, in the order of their prefixes; those that cover an address with
    /// the longest first.
    pub(in crate::control) fn routes(
        &self,
        wanted: Option<WantedRoutes>,
        limit: usize,
    ) -> Vec<RouteRow> {
        let mut routes: Vec<(IpNet, GroupId)> = self
            .routing
            .program()
            .routes()
            .filter(|(prefix, _)| wanted.is_none_or(|wanted| wanted.contain(prefix)))
            .collect();
        // Of a full table only what is shown is sorted.
        if limit < routes.len() {
            routes.select_nth_unstable(limit);
            routes.truncate(limit);
        }
        routes.sort_unstable();
        if let Some(WantedRoutes::Covering(_)) = wanted {
            // The one that decides comes first.
            routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        }
        let mut known: HashMap<GroupId, (&'static str, Vec<NextHopShare>)> = HashMap::new();
        let row = |(prefix, group): (IpNet, GroupId)| {
            let (action, shares) = known.entry(group).or_insert_with(|| self.action(group));
            RouteRow {
                prefix: prefix.to_string(),
                action: (*action).to_owned(),
                group: group.0,
                next_hops: shares.clone(),
            }
        };
        routes.into_iter().map(row).collect()
    }

    fn neighbour_state(&self, key: &NeighbourKey) -> String {
        let neighbour = self.routing.mirror().neighbour(key);
        let state = neighbour.map_or("unknown", |neighbour| neighbour.state.name());
        state.to_ascii_lowercase()
    }

    pub(in crate::control) fn next_hops(&self, limit: usize) -> Vec<NextHopRow> {
        let program = self.routing.program();
        let mut rows: Vec<NextHopRow> = program
            .next_hops()
            .filter_map(|(key, id)| {
                let hop = program.tables().next_hop(id)?;
                Some(NextHopRow {
                    id: id.0,
                    address: key.address.to_string(),
                    port: self.port_name(hop.port),
                    mac: hop.mac.map(mac_text),
                    state: self.neighbour_state(&key),
                })
            })
            .collect();
        rows.sort_by_key(|row| row.id);
        rows.truncate(limit);
        rows
    }

    /// Groups that routes share: with gateways, not the host routes of neighbours.
    pub(in crate::control) fn groups(&self, limit: usize) -> Vec<GroupRow> {
        let program = self.routing.program();
        let mut rows: Vec<GroupRow> = program
            .groups()
            .filter(|(_, spec, _)| matches!(spec, Spec::Hops(..) | Spec::Object(..)))
            .filter_map(|(id, spec, routes)| {
                let (action, mut shares) = self.action(id);
                let mode = self.mode(id);
                if mode != Mode::Off {
                    self.add_bands(&mut shares);
                }
                let object = match spec {
                    Spec::Object(object, _) => Some(*object),
                    _ => None,
                };
                let members = program.hops_of_spec(self.routing.mirror(), spec).len();
                (action == "forward").then_some(GroupRow {
                    group: id.0,
                    object,
                    routes,
                    members,
                    mode: mode.name().to_owned(),
                    resilient: program.allotment(id).map(resilient_row),
                    next_hops: shares,
                })
            })
            .collect();
        rows.sort_by_key(|row| row.group);
        rows.truncate(limit);
        rows
    }

    /// How a group chooses; one that has nothing to choose does not.
    fn mode(&self, id: GroupId) -> Mode {
        let tables = self.routing.program().tables();
        match tables.group(id) {
            Some(Group::Balance(_) | Group::Resilient(_)) => tables.dlb.mode(id),
            _ => Mode::Off,
        }
    }

    /// Adds the quality of the ports.
    fn add_bands(&self, shares: &mut [NextHopShare]) {
        for share in shares {
            let mut ports = self.routing.publisher().ports().iter().zip(0..);
            let port = ports.find(|(port, _)| port.name == share.port);
            share.band = port.map(|(_, id)| self.quality.band(PortId(id)));
        }
    }

    pub(in crate::control) fn neighbours(&self, limit: usize) -> Vec<NeighbourRow> {
        let mirror = self.routing.mirror();
        let mut neighbours: Vec<_> = mirror.neighbours().collect();
        neighbours.sort_unstable_by_key(|neighbour| neighbour.key);
        neighbours.truncate(limit);
        let program = self.routing.program();
        let row = |neighbour: &common::netlink::Neighbour| {
            let link = mirror.link(neighbour.key.ifindex);
            NeighbourRow {
                address: neighbour.key.address.to_string(),
                port: link.map_or_else(String::new, |link| link.name.clone()),
                mac: neighbour.mac.map(mac_text),
                state: neighbour.state.name().to_ascii_lowercase(),
                programmed: program.has_next_hop(&neighbour.key),
            }
        };
        neighbours.into_iter().map(row).collect()
    }
}
