//! Ports whose packets are the kernel's, all of them or those of some VLANs: what it decides by is
//! more than a table of routes.

use crate::id::PortId;
use crate::tables::PortEntry;
use common::netlink::{Link, Mac, Mirror, Rule, Table};
use common::wire::ethernet;
use common::xdp::{PuntReason, VlanTag};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What is punted of a port, beside routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPunt {
    /// Why every IPv4 packet is, in the program's terms and in words.
    pub v4: Option<(PuntReason, String)>,
    /// Why every IPv6 packet is.
    pub v6: Option<(PuntReason, String)>,
    /// Tags of the kernel's VLAN interfaces on the port, with their names, in order.
    pub vlans: Vec<(VlanTag, String)>,
    /// Those among the tags whose frames the workers route all the same.
    pub served: Vec<VlanTag>,
    /// Stations on the port beside its own, with the names of their interfaces, in order.
    pub stations: Vec<(Mac, String)>,
    /// The interface on the port that takes the frames to every other station, if there is one.
    pub all_stations: Option<String>,
}

impl PortPunt {
    /// The stations that its program is to know, and whether all.
    pub fn other_stations(&self) -> (BTreeSet<Mac>, bool) {
        let listed = self.stations.iter().map(|(mac, _)| *mac).collect();
        (listed, self.all_stations.is_some())
    }

    /// Other stations in words, if there are any.
    pub fn stations_in_words(&self) -> Option<String> {
        const NAMED: usize = 4;
        if let Some(name) = &self.all_stations {
            return Some(format!("all other stations ({name})"));
        }
        let named = self.stations.iter().take(NAMED);
        let mut words: Vec<String> = named
            .map(|(mac, name)| format!("{} ({name})", ethernet::Mac(*mac)))
            .collect();
        if self.stations.len() > NAMED {
            words.push(format!("{} more", self.stations.len() - NAMED));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Interfaces by the number of the one on which they are stacked.
type Stacked<'a> = HashMap<u32, Vec<&'a Link>>;

/// What is punted of each of `ports`. `other_tables` says whether the kernel has routes of IPv4 and
/// of IPv6 in tables that it asks after `main`, `served` for which tags of a port the workers
/// route.
pub(super) fn port_punts(
    mirror: &Mirror,
    ports: &[PortEntry],
    other_tables: (bool, bool),
    served: impl Fn(PortId) -> Vec<VlanTag>,
) -> Vec<PortPunt> {
    let rules = mirror.rules();
    let mut stacked = Stacked::new();
    for link in mirror.links() {
        if let Some(lower) = link.lower {
            stacked.entry(lower).or_default().push(link);
        }
    }
    let of_port = |(number, port): (u16, &PortEntry)| {
        let master = master(mirror, &stacked, port).map(|why| (PuntReason::Master, why));
        let above = above(mirror, &stacked, port);
        let by_rule = |is_v6: bool, other_table: bool| {
            let foreign = foreign_rule(&rules, is_v6, &port.name);
            let why = foreign.or_else(|| {
                let text =
                    "the table default has routes, and routes of several tables are not followed";
                other_table.then(|| text.to_owned())
            })?;
            Some((PuntReason::Rule, why))
        };
        PortPunt {
            v4: master.clone().or_else(|| by_rule(false, other_tables.0)),
            v6: master.or_else(|| by_rule(true, other_tables.1)),
            vlans: vlans(&stacked, port),
            served: served(PortId(number)),
            all_stations: takes_all(&above).map(|link| link.name.clone()),
            stations: stations(&above, port),
        }
    };
    (0_u16..).zip(ports).map(of_port).collect()
}

/// The interface that takes the packets of a port from it, in words.
fn master(mirror: &Mirror, stacked: &Stacked<'_>, port: &PortEntry) -> Option<String> {
    if let Some(index) = mirror.link(port.ifindex)?.master {
        let (kind, name) = mirror.link(index).map_or(("interface", ""), |link| {
            (link.kind.as_deref().unwrap_or("interface"), &link.name)
        });
        return Some(format!("the port belongs to the {kind} {name}"));
    }
    let on_it = stacked.get(&port.ifindex)?;
    // It has the station address of the port, and addresses that only it knows.
    let is_ipvlan = |link: &&&Link| matches!(link.kind.as_deref(), Some("ipvlan" | "ipvtap"));
    if let Some(first) = on_it.iter().find(is_ipvlan) {
        return Some(format!("the ipvlan {} is on the port", first.name));
    }
    let first = takes_all(on_it)?;
    Some(format!("the macvlan {} on the port takes all", first.name))
}

/// The one among `links` that takes frames to any station.
fn takes_all<'a>(links: &[&'a Link]) -> Option<&'a Link> {
    links.iter().find(|link| link.takes_all).copied()
}

/// The interfaces on a port, or on the bond or team that it belongs to: VLANs, what is on them in
/// turn, and macvlans.
fn above<'a>(mirror: &Mirror, stacked: &Stacked<'a>, port: &PortEntry) -> Vec<&'a Link> {
    let master = mirror.link(port.ifindex).and_then(|link| link.master);
    let kind = |index| mirror.link(index)?.kind.as_deref();
    // A bridge floods the frames to stations that it does not know, those on it among them.
    let master = master.filter(|index| kind(*index) != Some("bridge"));
    let mut below: Vec<u32> = master.into_iter().chain([port.ifindex]).collect();
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    while let Some(index) = below.pop() {
        for link in stacked.get(&index).into_iter().flatten() {
            let kind = link.kind.as_deref();
            let is_above = matches!(kind, Some("vlan" | "macvlan" | "macvtap"));
            if is_above && seen.insert(link.index) {
                found.push(*link);
                below.push(link.index);
            }
        }
    }
    found
}

/// The stations among interfaces on a port that are others than its own. One that is down gets
/// nothing.
fn stations(above: &[&Link], port: &PortEntry) -> Vec<(Mac, String)> {
    let up = above.iter().filter(|link| link.up && !link.takes_all);
    let macs = up.filter_map(|link| Some((link.mac?, link.name.clone())));
    let mut stations: Vec<(Mac, String)> = macs.filter(|(mac, _)| *mac != port.mac).collect();
    stations.sort_unstable();
    stations
}

fn vlans(stacked: &Stacked<'_>, port: &PortEntry) -> Vec<(VlanTag, String)> {
    let on_it = stacked.get(&port.ifindex).into_iter().flatten();
    let mut vlans: Vec<(VlanTag, String)> = on_it
        .filter_map(|link| {
            let vlan = link.vlan?;
            let tag = VlanTag {
                is_service: vlan.is_service,
                id: vlan.id,
            };
            Some((tag, link.name.clone()))
        })
        .collect();
    vlans.sort_unstable();
    vlans
}

/// Why the kernel's rules for packets that arrive at `port` are others than to ask `local`, `main`
/// and `default`.
pub(super) fn foreign_rule(rules: &[&Rule], is_v6: bool, port: &str) -> Option<String> {
    let concern_it = |rule: &&&Rule| {
        // A rule of VRFs is for interfaces that belong to one: see `master`. One for an output
        // interface is for sockets that are bound to it.
        let by_input = rule.input.as_ref().is_none_or(|input| input == port);
        let may_match = !rule.is_of_vrf && rule.output.is_none() && by_input;
        // An inverted one is for those that do not match.
        rule.is_v6 == is_v6 && (may_match || rule.is_inverted)
    };
    let rules: Vec<&Rule> = rules.iter().filter(concern_it).copied().collect();
    if let Some(rule) = rules.iter().find(|rule| !rule.is_for_all()) {
        return Some(format!("policy rule \"{rule}\""));
    }
    let tables: Vec<u32> = rules.iter().map(|rule| rule.table).collect();
    let usual = [Table::LOCAL, Table::MAIN, Table::DEFAULT];
    // A kernel without policy routing has no rules.
    if tables.is_empty() || tables == usual || tables == usual[..2] {
        return None;
    }
    let odd = rules.iter().find(|rule| !usual.contains(&rule.table));
    Some(odd.map_or_else(
        || "policy rules do not ask the tables local, main and default in this order".to_owned(),
        |rule| format!("policy rule \"{rule}\""),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(is_v6: bool) -> Vec<Rule> {
        let ask = |(priority, table)| Rule {
            priority,
            table,
            is_v6,
            action: 1,
            ..Rule::default()
        };
        let tables = [
            (0, Table::LOCAL),
            (32_766, Table::MAIN),
            (32_767, Table::DEFAULT),
        ];
        tables.map(ask).to_vec()
    }

    fn why(rules: &[Rule]) -> Option<String> {
        let mut rules: Vec<&Rule> = rules.iter().collect();
        rules.sort_unstable();
        foreign_rule(&rules, false, "swp1")
    }

    /// SW-2: rules that make no difference to what arrives at the port are none of its business;
    /// any other is named.
    #[test]
    fn a_rule_that_may_match_is_named() {
        assert_eq!(why(&[]), None);
        assert_eq!(why(&usual(false)), None);
        assert_eq!(why(&usual(false)[..2]), None);
        let with = |rule: Rule| {
            let mut rules = usual(false);
            rules.push(rule);
            why(&rules)
        };
        let rule = Rule {
            priority: 100,
            table: 100,
            action: 1,
            ..Rule::default()
        };
        for harmless in [
            Rule {
                is_of_vrf: true,
                ..rule.clone()
            },
            Rule {
                is_v6: true,
                ..rule.clone()
            },
            Rule {
                input: Some("swp2".to_owned()),
                ..rule.clone()
            },
            Rule {
                output: Some("swp1".to_owned()),
                ..rule.clone()
            },
        ] {
            assert_eq!(with(harmless.clone()), None, "{harmless}");
        }
        let named = |text: &str| Some(format!("policy rule \"{text}\""));
        assert_eq!(with(rule.clone()), named("100: from all lookup 100"));
        let foreign = [
            Rule {
                input: Some("swp1".to_owned()),
                ..rule.clone()
            },
            Rule {
                source: Some("10.0.0.0/8".parse().unwrap()),
                table: Table::MAIN,
                ..rule.clone()
            },
            Rule {
                action: 6,
                ..rule.clone()
            },
            Rule {
                has_more: true,
                table: Table::MAIN,
                ..rule.clone()
            },
            Rule {
                input: Some("swp2".to_owned()),
                is_inverted: true,
                ..rule.clone()
            },
            Rule {
                output: Some("swp1".to_owned()),
                is_inverted: true,
                ..rule.clone()
            },
        ];
        for foreign in foreign {
            let text = foreign.to_string();
            assert_eq!(with(foreign), named(&text));
        }
        let mut reversed = usual(false);
        reversed[0].priority = 40_000;
        assert!(why(&reversed).unwrap().contains("in this order"));
        assert!(why(&usual(false)[..1]).is_some(), "main is not asked");
    }
}
