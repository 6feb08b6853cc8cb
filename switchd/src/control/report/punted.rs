//! What is left to the kernel, and why.

use crate::control::api::{PuntedRow, WantedRoutes};
use crate::control::program::{PortPunt, Spec};
use crate::control::state::State;
use common::netlink::{Hop, RouteKey};
use common::wire::ethernet::Mac;
use common::xdp::PuntReason;
use ipnet::IpNet;

/// What alone is left to the kernel at a port whose bridge the workers serve.
const ONLY_TO_BRIDGE: &str = "only packets to the bridge itself that switchd does not route; \
                              between stations it forwards";

impl State {
    /// What is left to the kernel to forward: of ports, and then of prefixes that are `wanted`, at
    /// most `limit` of these.
    pub(in crate::control) fn punted(
        &self,
        wanted: Option<WantedRoutes>,
        limit: usize,
    ) -> Vec<PuntedRow> {
        let mut rows = self.punted_of_ports();
        let mut prefixes: Vec<(IpNet, PuntReason)> = self
            .routing
            .program()
            .punted()
            .filter(|(prefix, _)| wanted.is_none_or(|wanted| wanted.contain(prefix)))
            .collect();
        prefixes.sort_unstable();
        prefixes.truncate(limit);
        rows.extend(prefixes.into_iter().map(|(prefix, reason)| PuntedRow {
            prefix: prefix.to_string(),
            reason: reason.label().to_owned(),
            why: self.why_punted(&prefix, reason),
            ..PuntedRow::default()
        }));
        rows
    }

    fn punted_of_ports(&self) -> Vec<PuntedRow> {
        let mut rows = Vec::new();
        let entries = self.routing.publisher().ports().iter();
        let ports = entries.zip(self.routing.program().port_punts()).enumerate();
        for (number, (entry, punt)) in ports.filter(|(_, (entry, _))| !entry.name.is_empty()) {
            let is_bridged = self.told.is_bridged(number);
            for (prefix, whole) in [("0.0.0.0/0", &punt.v4), ("::/0", &punt.v6)] {
                rows.extend(whole.iter().map(|(reason, why)| PuntedRow {
                    prefix: prefix.to_owned(),
                    port: Some(entry.name.clone()),
                    vlan: None,
                    station: None,
                    reason: reason.label().to_owned(),
                    why: match (reason, is_bridged) {
                        (PuntReason::Master, true) => format!("{why}: {ONLY_TO_BRIDGE}"),
                        _ => why.clone(),
                    },
                }));
            }
            for (tag, name) in punt.vlans.iter().filter(|it| !punt.served.contains(&it.0)) {
                let standard = if tag.is_service { "802.1ad" } else { "802.1Q" };
                rows.extend(["0.0.0.0/0", "::/0"].map(|prefix| PuntedRow {
                    prefix: prefix.to_owned(),
                    port: Some(entry.name.clone()),
                    vlan: Some(format!("{standard} {}", tag.id)),
                    station: None,
                    reason: PuntReason::Vlan.label().to_owned(),
                    why: format!("the kernel's interface {name} receives these frames"),
                }));
            }
            rows.extend(of_stations(&entry.name, punt));
        }
        rows
    }

    fn why_punted(&self, prefix: &IpNet, reason: PuntReason) -> String {
        let (program, mirror) = (self.routing.program(), self.routing.mirror());
        let spec = program.group_of(prefix).map(|id| program.spec(id));
        let hops = spec.map(|spec| program.hops_of_spec(mirror, spec));
        let names = |wanted: &dyn Fn(&Hop) -> bool| {
            let hops = hops.iter().flat_map(|hops| hops.iter());
            let name = |hop: &Hop| {
                let link = mirror.link(hop.ifindex);
                link.map_or_else(|| hop.ifindex.to_string(), |link| link.name.clone())
            };
            let names: Vec<String> = hops.filter(|hop| wanted(hop)).map(name).collect();
            names.join(", ")
        };
        let is_port = |hop: &Hop| {
            let mut ports = self.routing.publisher().ports().iter();
            ports.any(|port| port.ifindex == hop.ifindex)
        };
        // Who is on a link without a gateway the kernel finds out, if it is one of several.
        let is_ours = |hop: &Hop| is_port(hop) && !hop.encapsulated && hop.gateway.is_some();
        match reason {
            PuntReason::NotAPort => format!("leaves by {}, which is no port", names(&|_| true)),
            PuntReason::Encapsulated => {
                format!("is encapsulated on its way by {}", names(&|_| true))
            }
            PuntReason::Mixed => format!(
                "has next hops by ports ({}) and others that only the kernel has ({})",
                names(&is_ours),
                names(&|hop| !is_ours(hop))
            ),
            PuntReason::Selective => {
                let routes: Vec<String> = program.selective_routes(prefix).map(condition).collect();
                format!("has routes for some packets only: {}", routes.join(", "))
            }
            PuntReason::UnknownUnicast => format!(
                "the bridge does not know where the next hop by {} is",
                names(&|_| true)
            ),
            PuntReason::Bridge => format!(
                "no port of switchd leads to the next hop by {} now",
                names(&|_| true)
            ),
            PuntReason::NoArp => format!(
                "nobody is asked for the MAC address of a next hop by {} (arp off), and none is set",
                names(&|_| true)
            ),
            PuntReason::RouteType if matches!(spec, Some(Spec::Object(..))) => {
                "its next hop object is not known to switchd".to_owned()
            }
            PuntReason::Rule => "the table local may be asked before the one with its route, \
                                 and has a wider one, or one that throws"
                .to_owned(),
            PuntReason::RouteType => "the type of its route is not known to switchd".to_owned(),
            // Reasons of ports, not of prefixes.
            PuntReason::Master
            | PuntReason::Vlan
            | PuntReason::Discovery
            | PuntReason::Absent
            | PuntReason::Broadcast
            | PuntReason::Multicast
            | PuntReason::Learning
            | PuntReason::LinkLocal
            | PuntReason::Options
            | PuntReason::Station => {
                debug_assert!(matches!(spec, Some(Spec::Punt(_))));
                reason.label().to_owned()
            }
        }
    }
}

/// Stations on a port beside its own.
fn of_stations(port: &str, punt: &PortPunt) -> Vec<PuntedRow> {
    let all = punt.all_stations.iter();
    let all = all.map(|name| ("any other".to_owned(), name));
    let listed = punt.stations.iter();
    let listed = listed.map(|(mac, name)| (Mac(*mac).to_string(), name));
    let rows = all.chain(listed).flat_map(|(station, name)| {
        ["0.0.0.0/0", "::/0"].map(|prefix| PuntedRow {
            prefix: prefix.to_owned(),
            port: Some(port.to_owned()),
            vlan: None,
            station: Some(station.clone()),
            reason: PuntReason::Station.label().to_owned(),
            why: format!("the interface {name} on the port receives these frames"),
        })
    });
    rows.collect()
}

/// Which packets a route is for.
fn condition(key: &RouteKey) -> String {
    match (key.source, key.tos) {
        (Some(source), _) => format!("from {source}"),
        (None, tos) => format!("tos {tos:#x}"),
    }
}
