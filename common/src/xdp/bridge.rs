//! What the steering programs know of bridges: the ports that belong to one, and the stations that
//! it knows. One pair of maps for all ports of a switch.

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use std::fmt;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};

/// Ports of a switch that may belong to bridges (`PORTS_MAX` in steer.bpf.c).
pub const BRIDGE_PORTS_MAX: u16 = 256;

/// Stations that the map holds (`STATIONS_MAX` in steer.bpf.c).
pub const STATIONS_MAX: u32 = 131_072;

/// The port of a station that is behind an interface which is no port.
const NO_PORT: u16 = u16::MAX;

const FORWARDS: u8 = 1;
const FILTERS: u8 = 2;
const LOCAL: u16 = 1;

/// A station: an address in a VLAN of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StationKey {
    /// Number of the bridge, from 1.
    pub bridge: u16,
    /// The VLAN; 0 in a bridge that does not look at tags.
    pub vlan: u16,
    /// The address.
    pub mac: [u8; 6],
}

impl StationKey {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&self.mac);
        bytes[6..8].copy_from_slice(&self.vlan.to_ne_bytes());
        bytes[8..].copy_from_slice(&u32::from(self.bridge).to_ne_bytes());
        bytes
    }
}

/// Where a station is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StationPlace {
    /// Behind the port of this number.
    Port(u16),
    /// Behind an interface that is no port.
    Elsewhere,
    /// It is this machine.
    Local,
}

impl StationPlace {
    fn bytes(self) -> [u8; 4] {
        let (port, flags) = match self {
            Self::Port(port) => (port, 0),
            Self::Elsewhere => (NO_PORT, 0),
            Self::Local => (NO_PORT, LOCAL),
        };
        let mut bytes = [0; 4];
        bytes[..2].copy_from_slice(&port.to_ne_bytes());
        bytes[2..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }
}

/// A port that belongs to a bridge, as the programs of all ports know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgedPort {
    /// Number of the bridge, from 1.
    pub bridge: u16,
    /// The address of the bridge.
    pub mac: [u8; 6],
    /// The spanning tree lets it forward.
    pub forwards: bool,
    /// The bridge looks at tags of this EtherType; `None`: at none.
    pub tag: Option<u16>,
    /// The VLAN of frames without a tag, if they have one.
    pub pvid: Option<u16>,
}

/// The maps.
pub struct BridgeMaps {
    stations: MapHandle,
    ports: MapHandle,
}

impl BridgeMaps {
    /// Maps without ports and stations.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new() -> io::Result<Self> {
        let no_prealloc = libbpf_sys::BPF_F_NO_PREALLOC;
        let stations = (MapType::Hash, 12, 4, STATIONS_MAX, no_prealloc);
        let ports = (MapType::Array, 4, 16, u32::from(BRIDGE_PORTS_MAX), 0);
        Ok(Self {
            stations: create("steer_stations", stations)?,
            ports: create("steer_bridge_ports", ports)?,
        })
    }

    pub(super) fn of_map(&self, name: &str) -> Option<BorrowedFd<'_>> {
        match name {
            "steer_stations" => Some(self.stations.as_fd()),
            "steer_bridge_ports" => Some(self.ports.as_fd()),
            _ => None,
        }
    }

    /// Says where a station is, in place of what was said.
    ///
    /// # Errors
    /// When the map is full, or the kernel has no memory.
    pub fn set_station(&self, key: StationKey, place: StationPlace) -> io::Result<()> {
        self.stations
            .update(&key.bytes(), &place.bytes(), MapFlags::ANY)
            .map_err(io::Error::other)
    }

    /// Forgets a station. One that was never told of is no error.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_station(&self, key: StationKey) -> io::Result<()> {
        match self.stations.delete(&key.bytes()) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(io::Error::other(error))
            }
            _ => Ok(()),
        }
    }

    /// Says what the port of this number is in its bridge; `None`: it belongs to none.
    ///
    /// # Errors
    /// When the kernel refuses, or there can be no such port.
    pub fn set_port(&self, number: u16, port: Option<BridgedPort>) -> io::Result<()> {
        let mut value = [0; 16];
        if let Some(port) = port {
            value[..4].copy_from_slice(&u32::from(port.bridge).to_ne_bytes());
            value[4..6].copy_from_slice(&port.pvid.unwrap_or(0).to_ne_bytes());
            value[6..8].copy_from_slice(&port.tag.unwrap_or(0).to_be_bytes());
            value[8..14].copy_from_slice(&port.mac);
            let flag = |is_set, flag| if is_set { flag } else { 0 };
            value[14] = flag(port.forwards, FORWARDS) | flag(port.tag.is_some(), FILTERS);
        }
        self.ports
            .update(&u32::from(number).to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(io::Error::other)
    }
}

/// Type, bytes of a key, bytes of a value, places, flags.
type MapShape = (MapType, u32, u32, u32, u32);

fn create(name: &str, (kind, key, value, places, flags): MapShape) -> io::Result<MapHandle> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: flags,
        ..Default::default()
    };
    MapHandle::create(kind, Some(name), key, value, places, &options).map_err(io::Error::other)
}

impl fmt::Debug for BridgeMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BridgeMaps").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program reads these numbers and structures.
    #[test]
    fn numbers_are_those_of_the_program() {
        let source = include_str!("steer.bpf.c");
        for (name, number) in [
            ("PORTS_MAX", usize::from(BRIDGE_PORTS_MAX)),
            ("STATIONS_MAX", STATIONS_MAX as usize),
        ] {
            let line = format!("#define {name} {number}\n");
            assert!(source.contains(&line), "{line}");
        }
        for (name, number) in [
            ("BRIDGE_FORWARDS", u16::from(FORWARDS)),
            ("BRIDGE_FILTERS", u16::from(FILTERS)),
            ("STATION_LOCAL", LOCAL),
        ] {
            let line = format!("#define {name} {number} ");
            assert!(source.contains(&line), "{line}");
        }
    }
}
