//! How packets are addressed: where they go, and by which path.

use crate::verbs::Route;
use common::wire::ethernet::{self, Mac};
use common::wire::roce::Flow;
use common::wire::roce::frame::Addresses;
use std::net::IpAddr;

/// Hop limit of what hosts send (the default of Linux).
const TTL: u8 = 64;

/// Where packets from `source`, an address of this host, go, less what differs from path to path.
/// `None` if the addresses are of different families.
pub(crate) fn flow(
    route: &Route,
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
) -> Option<Flow> {
    Some(Flow {
        src_mac: Mac(route.source_mac),
        dst_mac: Mac(route.destination_mac),
        addresses: Addresses::new(source, destination)?,
        src_port: 0,
        flow_label: 0,
        traffic_class,
        ttl: TTL,
    })
}

/// The way back of a packet from `source` to `destination`, whose frame this is: everything
/// reversed. `None` if nobody can be answered there.
pub(crate) fn back(
    frame: &[u8],
    source: IpAddr,
    destination: IpAddr,
    traffic_class: u8,
) -> Option<Flow> {
    let ethernet = ethernet::Frame::new_checked(frame).ok()?;
    let (from, to) = (ethernet.src(), ethernet.dst());
    let group = |mac: Mac| mac.0[0] & 1 != 0;
    let nobody = source.is_unspecified() || source.is_multicast() || source.is_loopback();
    if group(from) || group(to) || nobody || destination.is_multicast() {
        return None;
    }
    Some(Flow {
        src_mac: to,
        dst_mac: from,
        addresses: Addresses::new(destination, source)?,
        src_port: 0,
        flow_label: 0,
        traffic_class,
        ttl: TTL,
    })
}

/// `flow` on the path that this UDP source port and flow label lead to.
pub(crate) fn on_path(flow: &Flow, src_port: u16, flow_label: u32) -> Flow {
    Flow {
        src_port,
        flow_label,
        ..*flow
    }
}
