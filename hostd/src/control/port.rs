//! The port as applications see it: how it stands, its GIDs, and who is told what happens to it.

use super::gids::{Gid, GidTable};
use super::link::{Link, LinkState};
use crate::cm::negotiation::path_mtu;
use crate::verbs::Partitions;
use hostd_client::abi::port::{GidEntry, NAME_LEN, PortAttributes, PortEvent, PortState};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The port of the daemon, whatever number of interfaces it has: packets of a connection take all
/// of them, so applications have nothing to choose.
#[derive(Debug)]
pub struct Port {
    /// Name of its first interface.
    pub name: String,
    mac: [u8; 6],
    /// The longest path MTU that the daemon was made for.
    path_mtu_max: u16,
    /// Of all its interfaces, at least one.
    links: Vec<Arc<Link>>,
    /// Its partition keys.
    pub partitions: Partitions,
    gids: Mutex<GidTable>,
}

impl Port {
    /// A port over these `links`, without addresses, in these partitions; `name` and `mac` are
    /// those of the first one.
    pub fn new(
        name: &str,
        mac: [u8; 6],
        path_mtu_max: u16,
        links: Vec<Arc<Link>>,
        partitions: Partitions,
    ) -> Self {
        Self {
            name: name.to_owned(),
            mac,
            path_mtu_max,
            links,
            partitions,
            gids: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, GidTable> {
        self.gids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the addresses that the interface has now; true if its GIDs are others.
    pub fn follow(&self, addresses: impl Iterator<Item = Gid>) -> bool {
        let mut table = self.table();
        let before = table.left_out();
        let changed = table.follow(addresses);
        let left_out = table.left_out();
        drop(table);
        if left_out > before {
            tracing::warn!(
                interface = %self.name,
                left_out,
                "the interface has more addresses than the table of GIDs: applications cannot \
                 choose the last ones"
            );
        }
        changed
    }

    /// Its GIDs.
    pub fn gids(&self) -> GidTable {
        self.table().clone()
    }

    /// The first entry of the table of GIDs at `from` or after it.
    pub fn gid_at_or_after(&self, from: u16) -> Option<GidEntry> {
        let (index, (address, prefix_len)) = self.table().at_or_after(from)?;
        Some(GidEntry {
            index,
            address,
            prefix_len,
        })
    }

    /// Whether `address` is one of its GIDs.
    pub fn has(&self, address: IpAddr) -> bool {
        self.table().contains(address)
    }

    /// Whether packets can pass: if they can through one interface. Otherwise as the first one
    /// stands.
    pub fn state(&self) -> LinkState {
        let mut states = self.links.iter().map(|link| link.state());
        let first = states.clone().next().unwrap_or_default();
        let up = states.find(|state| *state == LinkState::Up);
        up.unwrap_or(first)
    }

    /// How it stands: with the sum of the speeds of those links that are up, or of all if none is,
    /// and with the shortest MTU.
    pub fn attributes(&self) -> PortAttributes {
        let state = self.state();
        let up = |link: &&Arc<Link>| state != LinkState::Up || link.state() == LinkState::Up;
        let speeds = self.links.iter().filter(up);
        let speed = speeds.map(|link| link.now().speeds.link.bps()).sum();
        let mtus = self.links.iter().map(|link| link.now().mtu);
        let link_mtu = mtus.min().unwrap_or_default();
        let mut name = [0; NAME_LEN];
        let len = self.name.len().min(NAME_LEN);
        name[..len].copy_from_slice(&self.name.as_bytes()[..len]);
        let mtu = u16::try_from(link_mtu).unwrap_or(u16::MAX);
        PortAttributes {
            name,
            state: match state {
                LinkState::Up => PortState::Active,
                LinkState::Down => PortState::Down,
                LinkState::NoCarrier => PortState::NoCarrier,
                LinkState::Gone => PortState::Gone,
            },
            mac: self.mac,
            mtu: link_mtu,
            path_mtu: path_mtu(mtu, self.path_mtu_max, false).unwrap_or(0),
            speed,
            gids: self.table().len(),
            partitions: u16::try_from(self.partitions.keys().len()).unwrap_or(u16::MAX),
        }
    }
}

/// Whom to tell what happens to the port.
pub struct Announce(Box<dyn Fn(PortEvent) + Send + Sync>);

impl Announce {
    /// Calls `tell` for each event.
    pub fn new(tell: impl Fn(PortEvent) + Send + Sync + 'static) -> Self {
        Self(Box::new(tell))
    }

    /// Tells.
    pub fn tell(&self, event: PortEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for Announce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announce")
    }
}
