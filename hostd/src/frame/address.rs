//! How packets are addressed: where they go, and by which path.

use crate::verbs::Route;
use common::wire::ethernet::Mac;
use common::wire::roce::Flow;
use common::wire::roce::frame::Addresses;
use std::net::IpAddr;

/// Where packets go, less what differs from path to path.
pub(crate) fn flow(route: &Route, destination: IpAddr, traffic_class: u8) -> Option<Flow> {
    /// Hop limit of what hosts send (the default of Linux).
    const TTL: u8 = 64;
    Some(Flow {
        src_mac: Mac(route.source_mac),
        dst_mac: Mac(route.destination_mac),
        addresses: Addresses::new(route.source, destination)?,
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
