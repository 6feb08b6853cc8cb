//! What applications ask of the port: its attributes, and the tables of GIDs and partition keys.

use super::refusal::Refusal;
use crate::control::port::Port;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::port::{GIDS_MAX, PortRequest};
use hostd_client::abi::types::ErrorCode;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Answers what an application asks of the port; `watches` says whether it wants its events.
///
/// # Errors
/// The tables have no such entry.
pub(super) fn answer(
    port: &Port,
    request: PortRequest,
    watches: &AtomicBool,
) -> Result<Reply, Refusal> {
    match request {
        PortRequest::Query => Ok(Reply::Port(port.attributes())),
        PortRequest::Gid { from } => gid(port, from),
        PortRequest::Partition { index } => {
            require_partition(port, index).map(|key| Reply::Partition { key })
        }
        PortRequest::Watch { watch } => {
            watches.store(watch, Ordering::Relaxed);
            Ok(Reply::Done)
        }
    }
}

/// The first GID at index `from` or after it.
fn gid(port: &Port, from: u16) -> Result<Reply, Refusal> {
    let entry = port.gid_at_or_after(from).ok_or_else(|| {
        let text = format!(
            "{} has no GID at index {from} or after it; the table ends at {GIDS_MAX}",
            port.name
        );
        Refusal::new(ErrorCode::NotFound, text)
    })?;
    Ok(Reply::Gid(entry))
}

/// Refuses an index without a partition key; the key otherwise.
///
/// # Errors
/// There is none.
pub(super) fn require_partition(port: &Port, index: u16) -> Result<u16, Refusal> {
    let keys = port.partitions.keys();
    keys.get(usize::from(index)).copied().ok_or_else(|| {
        let text = format!(
            "the table of partition keys has {} entries, and no index {index}: \
             transport.partitions of hostd's configuration has them",
            keys.len()
        );
        Refusal::new(ErrorCode::NotFound, text)
    })
}

/// Refuses an address that is none of the port's.
///
/// # Errors
/// It is none.
pub(super) fn require_own(port: &Port, address: IpAddr) -> Result<(), Refusal> {
    if port.has(address) {
        return Ok(());
    }
    let text = format!(
        "{address} is no address of {}: `hostctl show gids` lists them",
        port.name
    );
    Err(Refusal::new(ErrorCode::InvalidArgument, text))
}

/// Refuses a connection between addresses of different families.
///
/// # Errors
/// They are.
pub(super) fn require_family(own: IpAddr, peer: IpAddr) -> Result<(), Refusal> {
    if own.is_ipv4() == peer.is_ipv4() {
        return Ok(());
    }
    let text = format!(
        "the queue pair is bound to {own}, which is of another family than the peer's {peer}"
    );
    Err(Refusal::new(ErrorCode::InvalidArgument, text))
}
