//! What is asked of the kernel, through rtnetlink: resolve a neighbour, keep it alive, keep a
//! station of a bridge alive, look up a route.

use super::types::{FdbEntry, NeighbourKey, RouteKind};
use futures_util::TryStreamExt;
use rtnetlink::packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourState};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteVia,
};
use rtnetlink::{Handle, RouteMessageBuilder};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A connection to the kernel for requests. Clones share it.
#[derive(Clone, Debug)]
pub struct Requests {
    handle: Handle,
}

/// The kernel's answer to "how would you send to this address?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteAnswer {
    /// What the kernel would do.
    pub kind: RouteKind,
    /// The interface to leave by.
    pub ifindex: u32,
    /// The next router; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The source address that the kernel would use.
    pub source: Option<IpAddr>,
}

/// One hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteHop {
    /// The interface to leave by.
    pub ifindex: u32,
    /// The next router; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
}

impl Requests {
    /// Connects. Must be called inside a tokio runtime, in the network namespace that is asked;
    /// the returned task ends with the last clone.
    ///
    /// # Errors
    /// The kernel refused the socket.
    pub fn connect() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// Makes the kernel treat the neighbour as one that a packet was just sent to (NTF_USE): an
    /// unknown one is resolved, a stale one is probed, a reachable one stays. The result comes as a
    /// change of the mirror. Not for one that [is static](super::NeighbourState::is_static): the
    /// kernel would forget its address. One that is not `known` may have become so meanwhile (a
    /// routing daemon replaces its own by removing it first): it is left as it is.
    ///
    /// # Errors
    /// The kernel's refusal: the interface is gone or down, permission is lacking, or there is a
    /// neighbour that was not known.
    pub async fn use_neighbour(
        &self,
        key: NeighbourKey,
        known: bool,
    ) -> Result<(), rtnetlink::Error> {
        let neighbours = self.handle.neighbours();
        let request = neighbours
            .add(key.ifindex, key.address)
            .state(NeighbourState::None)
            .flags(NeighbourFlags::Use);
        // Without, the kernel is told to make a new one and no other (NLM_F_EXCL).
        let request = if known { request.replace() } else { request };
        request.execute().await
    }

    /// Makes the bridge treat a station as one that has just sent a frame at its port (NTF_USE), so
    /// that it does not age. A learned station stays a learned one.
    ///
    /// # Errors
    /// The kernel's refusal: the port is gone or has left the bridge, or permission is lacking.
    pub async fn use_station(&self, entry: &FdbEntry) -> Result<(), rtnetlink::Error> {
        let mut request = self
            .handle
            .neighbours()
            .add_bridge(entry.ifindex, &entry.key.mac)
            .state(NeighbourState::Reachable)
            .flags(NeighbourFlags::Use | NeighbourFlags::Controller)
            .replace();
        if entry.key.vlan != 0 {
            let vlan = NeighbourAttribute::Vlan(entry.key.vlan);
            request.message_mut().attributes.push(vlan);
        }
        request.execute().await
    }

    /// Asks how the kernel would send to `destination`, from `source` if given. `None`: it has no
    /// route.
    ///
    /// # Errors
    /// The kernel's refusal, other than having no route.
    pub async fn route_to(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<Option<RouteAnswer>, rtnetlink::Error> {
        let answer = self.ask_route(destination, source, false).await?;
        Ok(answer.as_ref().map(read_answer))
    }

    /// Asks for all hops of the kernel's route to `destination`, from `source` if given, in order
    /// of their interfaces; those that are dead count, too. Empty: it has no route.
    ///
    /// # Errors
    /// The kernel's refusal, other than having no route.
    pub async fn hops_to(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<Vec<RouteHop>, rtnetlink::Error> {
        let answer = self.ask_route(destination, source, true).await?;
        let mut hops = answer.as_ref().map(read_hops).unwrap_or_default();
        hops.sort_unstable();
        Ok(hops)
    }

    /// Asks for a route: what the kernel would do with a packet, or the `entry` of its table.
    async fn ask_route(
        &self,
        destination: IpAddr,
        source: Option<IpAddr>,
        entry: bool,
    ) -> Result<Option<RouteMessage>, rtnetlink::Error> {
        let message = match destination {
            IpAddr::V4(address) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(address, 32)
                .build(),
            IpAddr::V6(address) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(address, 128)
                .build(),
        };
        let mut request = self.handle.route().get(message);
        if entry {
            request.message_mut().header.flags |= RouteFlags::FibMatch;
        }
        if let Some(source) = source {
            let message = request.message_mut();
            message.header.source_prefix_length = if source.is_ipv4() { 32 } else { 128 };
            let source = RouteAddress::from(source);
            message.attributes.push(RouteAttribute::Source(source));
        }
        match request.execute().try_next().await {
            Ok(answer) => Ok(answer),
            Err(rtnetlink::Error::NetlinkError(error)) if is_no_route(error.raw_code()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_no_route(code: i32) -> bool {
    [
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::EACCES,
        libc::EINVAL,
    ]
    .contains(&-code)
}

fn read_hops(message: &RouteMessage) -> Vec<RouteHop> {
    let single = read_answer(message);
    let list = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::MultiPath(hops) => Some(hops),
            _ => None,
        });
    let Some(list) = list else {
        return vec![RouteHop {
            ifindex: single.ifindex,
            gateway: single.gateway,
        }];
    };
    let gateway = |hop: &RouteNextHop| hop.attributes.iter().find_map(gateway_of);
    let hops = list.iter().map(|hop| RouteHop {
        ifindex: hop.interface_index,
        gateway: gateway(hop),
    });
    hops.collect()
}

fn gateway_of(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => address_of(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    }
}

fn read_answer(message: &RouteMessage) -> RouteAnswer {
    let mut answer = RouteAnswer {
        kind: RouteKind::from_number(message.header.kind.into()),
        ifindex: 0,
        gateway: None,
        source: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => answer.ifindex = *index,
            RouteAttribute::PrefSource(address) => answer.source = address_of(address),
            other => answer.gateway = gateway_of(other).or(answer.gateway),
        }
    }
    answer
}

fn address_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
