//! The next hops of peers, as the kernel has them, and the addresses that are this daemon's.

use super::{Router, is_link_local};
use crate::control::peers::NoWay;
use common::netlink::{Address, Link, NeighbourKey, RouteKind};
use std::net::IpAddr;

impl Router {
    /// The next hops, at least one, and the address that packets leave from.
    pub(super) async fn find(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<(Vec<NeighbourKey>, IpAddr), NoWay> {
        let refused = |error| NoWay::Unknown(format!("the kernel tells no route: {error}"));
        let closed = |reason| Err(NoWay::Closed(reason));
        let answer = self.requests.route_to(destination, source).await;
        let Some(answer) = answer.map_err(refused)? else {
            return closed(format!("no route to {destination}"));
        };
        match answer.kind {
            RouteKind::Unicast => {}
            RouteKind::Local => return self.find_own(destination).map_err(NoWay::Closed),
            RouteKind::Multicast | RouteKind::Broadcast | RouteKind::Anycast => {
                return closed(format!(
                    "{destination} is no address of one host, and connections are between two"
                ));
            }
            kind => {
                return closed(format!(
                    "no route to {destination}: the kernel's is of the kind {kind:?}"
                ));
            }
        }
        let hops = self.requests.hops_to(destination, source).await;
        let mut next_hops: Vec<NeighbourKey> = Vec::new();
        let mut left_out = answer.ifindex;
        for hop in hops.map_err(refused)? {
            let ifindex = hop.ifindex;
            if self.interface(ifindex).is_none() {
                left_out = ifindex;
            } else if next_hops.iter().all(|other| other.ifindex != ifindex) {
                let address = hop.gateway.unwrap_or(destination);
                next_hops.push(NeighbourKey { ifindex, address });
            }
        }
        let mirror = self.watch.mirror();
        if next_hops.is_empty() {
            let name = mirror.link(left_out).map_or("?", |link| link.name.as_str());
            return closed(format!(
                "the route to {destination} leaves by {name}, which is no interface of hostd"
            ));
        }
        let own = |address: &&Address| {
            address.ifindex == answer.ifindex && address.address.is_ipv4() == destination.is_ipv4()
        };
        let source = source
            .or(answer.source)
            .or_else(|| mirror.addresses().find(own).map(|address| address.address))
            .ok_or_else(|| NoWay::Closed(format!("no own address towards {destination}")))?;
        Ok((next_hops, source))
    }

    /// The way to an address of this host: it begins and ends there, and is paced by the interface
    /// that has the address, or by the first one.
    fn find_own(&self, destination: IpAddr) -> Result<(Vec<NeighbourKey>, IpAddr), String> {
        let mirror = self.watch.mirror();
        let mut names = Vec::new();
        for address in mirror.addresses().filter(|it| it.address == destination) {
            let first = self.interfaces.first().filter(|_| self.is_served(address));
            let on = self.interface(address.ifindex).or(first);
            if let Some(interface) = on {
                let (ifindex, address) = (interface.ifindex, destination);
                return Ok((vec![NeighbourKey { ifindex, address }], destination));
            }
            let link = mirror.link(address.ifindex);
            names.push(link.map_or("?", |link| link.name.as_str()));
        }
        Err(format!(
            "{destination} is this host itself, by {}: hostd reaches itself by the addresses of its \
             interfaces, of lo and of dummies only",
            if names.is_empty() {
                "none of its addresses".to_owned()
            } else {
                names.join(", ")
            }
        ))
    }

    /// Whether an address is one of the daemon's: of one of its interfaces, or one that belongs to
    /// none, as those of `lo` and of dummies do, of which loopback ones are for the host alone.
    pub(super) fn is_served(&self, address: &Address) -> bool {
        if self.interface(address.ifindex).is_some() {
            return true;
        }
        let link = self.watch.mirror().link(address.ifindex);
        let of_none = |link: &Link| link.loopback || link.kind.as_deref() == Some("dummy");
        link.is_some_and(of_none) && !address.address.is_loopback() && !is_link_local(address)
    }

    /// Whether a next hop is this host itself.
    pub(super) fn is_own(&self, key: &NeighbourKey) -> bool {
        let mut all = self.watch.mirror().addresses();
        all.any(|it| it.address == key.address && self.is_served(it))
    }
}
