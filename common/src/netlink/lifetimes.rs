//! Routes of IPv6 that end by themselves (`ip -6 route … expires`). The kernel does not use one any
//! more when its time is up, and tells so when it has cleared it away, up to half a minute later.

use super::decode::{Action, Body, Message};
use super::mirror::Mirror;
use super::route_set::is_same;
use super::types::{Route, RouteKey};
use crate::time::{Span, Time};
use std::collections::{BTreeSet, HashMap};

/// The kernel may prolong a life without a word, so that everything is dumped this long before a
/// known end. One that was told later than twice that before its end is believed.
const AHEAD: Span = Span::from_secs(1);

/// When which routes end.
#[derive(Debug, Default)]
pub(super) struct Lifetimes {
    ends: HashMap<RouteKey, Vec<(Time, Route)>>,
    /// The same in their order.
    order: BTreeSet<(Time, RouteKey)>,
}

impl Lifetimes {
    /// Notes what a message that is about to be applied says of the end of a route. Returns when
    /// everything is to be dumped because of it.
    pub(super) fn note(&mut self, message: &Message, now: Time) -> Option<Time> {
        let Body::Route(action, key, route) = &message.body else {
            return None;
        };
        if message.lifetime.is_none() && !self.ends.contains_key(key) {
            return None;
        }
        // What it says of a hop that joined or left is said of the others, too.
        let concerns = |known: &Route| known.hops.iter().any(|hop| route.hops.contains(hop));
        let of_key = self.ends.entry(*key).or_default();
        for (end, _) in of_key.extract_if(.., |(_, known)| known == route || concerns(known)) {
            self.order.remove(&(end, *key));
        }
        let left = message.lifetime.filter(|_| *action == Action::Set);
        if let Some(left) = left {
            of_key.push((now + left, route.clone()));
        }
        self.order
            .extend(of_key.iter().map(|(end, _)| (*end, *key)));
        if of_key.is_empty() {
            self.ends.remove(key);
        }
        let left = left.filter(|left| *left > AHEAD.times(2))?;
        Some(now + Span::from_nanos(left.nanos() - AHEAD.nanos()))
    }

    /// When the next route ends.
    pub(super) fn next(&self) -> Option<Time> {
        self.order.first().map(|(end, _)| *end)
    }

    /// A route that has ended by `now` and that the mirror still has.
    pub(super) fn take_ended(&mut self, mirror: &Mirror, now: Time) -> Option<(RouteKey, Route)> {
        while let Some((end, key)) = self.order.first().copied().filter(|(end, _)| *end <= now) {
            let of_key = self.ends.entry(key).or_default();
            let ended = of_key.iter().position(|(its, _)| *its <= end);
            let ended = ended.map(|at| of_key.remove(at).1);
            if !of_key.iter().any(|(its, _)| *its == end) {
                self.order.remove(&(end, key));
            }
            if of_key.is_empty() {
                self.ends.remove(&key);
            }
            let is_known =
                |route: &Route| mirror.routes_of(&key).any(|known| is_same(known, route));
            if let Some(route) = ended.filter(is_known) {
                return Some((key, route));
            }
        }
        None
    }
}
