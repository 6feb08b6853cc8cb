//! What changes of routes and of next hop objects make necessary.

use super::kernel_rules::{is_never_forwarded, object_link};
use super::{Program, Work};
use common::netlink::{Mirror, NextHop, RouteKey, Table};
use std::collections::BTreeSet;

impl Program {
    /// The routes of a key changed. The best one of its prefix is found here.
    pub(super) fn note_route(&mut self, mirror: &Mirror, key: &RouteKey, work: &mut Work) {
        if is_never_forwarded(&key.prefix) {
            return;
        }
        let route = mirror.route(key);
        if key.table == Table::DEFAULT {
            work.port_punts = true;
            match route {
                Some(_) => self.in_other_tables.insert(*key),
                None => self.in_other_tables.remove(key),
            };
            return;
        }
        if key.tos != 0 || key.source.is_some() {
            self.prefixes.set_selective(key, route.is_some());
        } else {
            if self.prefixes.set_local_network(key, route.is_some()) {
                self.note_inside(mirror, key, work);
            }
            self.prefixes.set_route(key, route.is_some());
            work.ports |= self.locals.set_route(key, route);
        }
        work.prefixes.insert(key.prefix);
        if self.prefixes.update_connected(mirror, key.prefix) {
            work.covering.push(key.prefix);
        }
    }

    /// What is inside of a network of the table `local` is the kernel's now, or not any more.
    fn note_inside(&mut self, mirror: &Mirror, network: &RouteKey, work: &mut Work) {
        let inside = mirror.routes().map(|(key, _)| key.prefix);
        let inside = inside.filter(|prefix| network.prefix.contains(prefix));
        let inside: BTreeSet<_> = inside.collect();
        for prefix in &inside {
            self.prefixes.update_connected(mirror, *prefix);
        }
        work.prefixes.extend(inside);
        work.covering.push(network.prefix);
    }

    /// A next hop object changed: networks that its routes connect to may be others now, whose
    /// neighbours are hosts of their own.
    pub(super) fn note_object(&mut self, mirror: &Mirror, id: u32, work: &mut Work) {
        let mut is_news = |id| {
            let link = object_link(mirror, id);
            self.prefixes.set_object_link(id, link)
        };
        if !is_news(id) {
            return;
        }
        let is_member = |object: &&NextHop| {
            let mut members = object.kind.members().into_iter().flatten();
            members.any(|(member, _)| *member == id)
        };
        let groups = mirror.next_hops().filter(is_member).map(|it| it.id);
        let others: BTreeSet<u32> = groups.filter(|id| is_news(*id)).chain([id]).collect();
        for (key, _) in mirror.routes() {
            let mut objects = mirror.routes_of(key).filter_map(|route| route.next_hop);
            if !objects.any(|id| others.contains(&id)) {
                continue;
            }
            work.prefixes.insert(key.prefix);
            if self.prefixes.update_connected(mirror, key.prefix) {
                work.covering.push(key.prefix);
            }
        }
    }
}
