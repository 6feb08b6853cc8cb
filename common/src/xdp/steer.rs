//! The XDP program that decides which packets belong to the kernel.
//!
//! The program (`steer.bpf.c`) is compiled by the build and carried in the binary. It is attached
//! by a link that belongs to the process: when the process ends, however it ends, the device is as
//! it was before. One copy is loaded for each port, with maps of its own.
//!
//! ```text
//!                 role Switch                                      role Host
//!   to kernel     group addresses, other stations, not IP,         everything but
//!                 link-local, multicast, the kernel's own
//!                 addresses and prefixes
//!   punted        what only the kernel can forward:
//!                 see [`super::PuntReason`]
//!   to socket     MAC control, the rest                            MAC control, UDP 4791 to a
//!                                                                  local address
//! ```
//!
//! At a port of a bridge (role Switch) the socket gets the frames between stations that the bridge
//! knows, see [`super::BridgeMaps`]; those to the bridge are treated as above, and the kernel gets
//! the rest.
//!
//! Tags of CSIG and INT are looked through, and what goes to the kernel loses them.
//!
//! Punted packets go to the kernel as well, counted by reason, and up to a limit.
//!
//! A queue without a socket passes its packets to the kernel and counts them, as does one whose
//! worker is absent: [`PuntReason::Absent`].

#![allow(unsafe_code, reason = "system calls of libbpf; see each SAFETY")]

use super::attach::Attachment;
use super::bridge::BridgeMaps;
use super::error::XdpError;
use super::heartbeat::Heartbeats;
use super::limits::multi_buffer;
use super::mode::Hook;
use super::netdev::Device;
use super::punt::{Prefixes, PuntLimit, PuntReason, STORM_DROPS, StormLimits};
use crate::time::Span;
use crate::wire::csig::Tpids;
use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, PrintLevel};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, Once, PoisonError};

const COUNT_PASSED: u32 = 0;
const COUNT_REDIRECTED: u32 = 1;
/// One for each limit: of punted packets, then those of [`StormLimits`].
const COUNT_LIMITED: u32 = 2;
const BUCKETS: usize = 1 + STORM_DROPS.len();
const COUNT_PUNTED: u32 = 7;
const _: () = assert!(COUNT_PUNTED as usize == COUNT_LIMITED as usize + BUCKETS);
/// The number of the last reason is how many there are.
const COUNT_NO_SOCKET: u32 = COUNT_PUNTED + PuntReason::Station as u32;

/// What marks in `struct port` of steer.bpf.c that a map is not empty.
const FLAG_PREFIXES4: u8 = 1;
const FLAG_PREFIXES6: u8 = 2;
const FLAG_VLANS: u8 = 4;
/// That the kernel forwards what it is handed.
const FLAG_FORWARDS4: u8 = 8;
const FLAG_FORWARDS6: u8 = 16;
const FLAG_FORWARDS_BRIDGED: u8 = 32;
/// That the port belongs to a bridge.
const FLAG_BRIDGED: u8 = 64;
/// That sources are looked at by the daemon.
const FLAG_VALIDATES: u8 = 128;

/// What `struct port` says of stations on a port beside its own.
const UPPER_LISTED: u8 = 1;
const UPPER_ALL: u8 = 2;

#[repr(align(8))]
struct Aligned<T: ?Sized>(T);

/// The program as an ELF object, aligned as libelf wants it.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o")));

/// What the port is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A port of a switch: everything is forwarded by the daemon but what is addressed to the
    /// kernel.
    Switch,
    /// A port of a host: everything is the kernel's but RoCEv2 and MAC control.
    Host,
}

/// Counts of a port's program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteerCounts {
    /// Packets left to the kernel, punted ones among them.
    pub passed: u64,
    /// Packets punted, by reason in the order of [`PuntReason::ALL`].
    pub punted: [u64; PuntReason::ALL.len()],
    /// Packets dropped that were to be punted, above the limit.
    pub punt_limited: u64,
    /// Frames dropped that a bridge was to flood or to learn from, above the limits, in the order
    /// of [`StormLimits`].
    pub storm_limited: [u64; STORM_DROPS.len()],
    /// Packets given to a socket.
    pub redirected: u64,
    /// Packets that were for a socket and went to the kernel because their queue has none: by
    /// queue, and last those of queues that the device got after it was opened.
    pub no_socket: Vec<u64>,
}

/// A tag that the kernel has an interface for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanTag {
    /// Of 802.1ad (0x88a8) and not of 802.1Q (0x8100).
    pub is_service: bool,
    /// The VLAN identifier, 0 to 4095.
    pub id: u16,
}

/// What a port's program decides by, beside its maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteerSettings {
    /// The station address: packets to others are the kernel's.
    pub mac: [u8; 6],
    /// Why every IPv4 packet is punted, if it is.
    pub punt_v4: Option<PuntReason>,
    /// Why every IPv6 packet is punted, if it is.
    pub punt_v6: Option<PuntReason>,
    /// There are prefixes of IPv4 to look at.
    pub prefixes_v4: bool,
    /// There are prefixes of IPv6 to look at.
    pub prefixes_v6: bool,
    /// The kernel forwards IPv4: it gets packets with options, and all while a worker is absent.
    pub forwards_v4: bool,
    /// The same of IPv6.
    pub forwards_v6: bool,
    /// The daemon looks at the sources of packets: it gets those with options, too, to drop them.
    pub validates: bool,
    /// The number of the port if it belongs to a bridge.
    pub bridged: Option<u16>,
    /// The UDP port of in-network compute: what is sent to it at an address of the switch is the
    /// daemon's.
    pub compute: Option<u16>,
    /// By what tags of CSIG and INT are known, if they are.
    pub signals: Option<Tpids>,
}

/// What a port's program is to do from the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orders<'a> {
    pub(super) role: Role,
    pub(super) local: &'a [IpAddr],
    pub(super) prefixes: Option<&'a Prefixes>,
    pub(super) bridges: Option<&'a BridgeMaps>,
    pub(super) punt_limit: Option<PuntLimit>,
    pub(super) storm_limits: Option<StormLimits>,
    pub(super) patience: Span,
}

/// What `struct port` of steer.bpf.c says.
#[derive(Clone, Copy, Default)]
struct Known {
    settings: SteerSettings,
    /// There are VLANs.
    vlans: bool,
    /// `UPPER_LISTED`, `UPPER_ALL` or 0.
    upper: u8,
}

/// A port's steering program. The program is detached when this or one of the port's queues is
/// dropped.
pub struct Steering {
    attachment: Arc<Attachment>,
    role: Role,
    hook: Hook,
    queues: u32,
    /// How long the worker of a queue may take no packets; zero: for ever.
    patience: Span,
    heartbeats: Heartbeats,
    known: Mutex<Known>,
    port: MapHandle,
    vlans: MapHandle,
    members: MapHandle,
    upper: MapHandle,
    local4: MapHandle,
    local6: MapHandle,
    sockets: Door,
    counts: MapHandle,
}

/// Where the sockets of a port are entered, from which on the program gives them packets.
#[derive(Clone)]
pub(super) struct Door(Arc<MapHandle>);

impl Door {
    /// Enters the socket of a queue.
    pub(super) fn enter(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd().to_ne_bytes();
        update(&self.0, &queue.to_ne_bytes(), &value)
    }
}

impl Steering {
    /// Loads the program and attaches it to `device`. Sockets are added by [`Self::door`].
    pub(super) fn attach(
        device: &Device,
        hook: Hook,
        orders: Orders<'_>,
    ) -> Result<Self, XdpError> {
        quiet_libbpf();
        let fail = |action, error: libbpf_rs::Error| {
            XdpError::steering(&device.name, action, io::Error::other(format!("{error:#}")))
        };
        let object = load(orders).map_err(|error| fail("load", error))?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&map.expect("the object was built with this map"))
                .map_err(|error| fail("open a map of", error))
        };
        let steering = Self {
            attachment: Arc::default(),
            role: orders.role,
            hook,
            queues: device.rx_queues,
            patience: orders.patience,
            heartbeats: Heartbeats::map(&map("steer_heartbeats")?)
                .map_err(|error| XdpError::steering(&device.name, "map words of", error))?,
            known: Mutex::default(),
            port: map("steer_port")?,
            vlans: map("steer_vlans")?,
            members: map("steer_members")?,
            upper: map("steer_upper")?,
            local4: map("steer_local4")?,
            local6: map("steer_local6")?,
            sockets: Door(Arc::new(map("steer_sockets")?)),
            counts: map("steer_counts")?,
        };
        let limits = set_limits(&map("steer_buckets")?, &orders);
        let configured = limits.and_then(|()| steering.set_mac(device.mac));
        let configured = configured.and_then(|()| {
            let mut local = orders.local.iter();
            local.try_for_each(|address| steering.add_local(*address))
        });
        configured.map_err(|error| XdpError::steering(&device.name, "configure", error))?;
        let program = object.progs().next().expect("the object has one program");
        steering.attachment.attach(device, program.as_fd(), hook)?;
        Ok(steering)
    }

    pub(super) fn attachment(&self) -> &Arc<Attachment> {
        &self.attachment
    }

    pub(super) fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    pub(super) fn hook(&self) -> Hook {
        self.hook
    }

    pub(super) fn door(&self) -> Door {
        self.sockets.clone()
    }

    /// Declares `address` one of the kernel's: packets to it are the kernel's on a switch port, and
    /// RoCEv2 packets to it are the daemon's on a host port.
    ///
    /// # Errors
    /// When as many addresses of its family are declared as the map holds (`LOCAL_MAX` in
    /// steer.bpf.c).
    pub fn add_local(&self, address: IpAddr) -> io::Result<()> {
        match address {
            IpAddr::V4(address) => update(&self.local4, &address.octets(), &[1]),
            IpAddr::V6(address) => update(&self.local6, &address.octets(), &[1]),
        }
    }

    /// Takes `address` back. One that was never declared is no error.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove_local(&self, address: IpAddr) -> io::Result<()> {
        let removed = match address {
            IpAddr::V4(address) => self.local4.delete(&address.octets()),
            IpAddr::V6(address) => self.local6.delete(&address.octets()),
        };
        match removed {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                Err(io::Error::other(error))
            }
            _ => Ok(()),
        }
    }

    /// Tells the program the port's station address, when it changes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        self.change(|known| known.settings.mac = mac)
    }

    /// Tells the program of a host port by what tags of CSIG and INT are known, if they are, and
    /// the UDP port of in-network compute, if the daemon takes part in it: that is its own, too.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_taken(&self, tpids: Option<Tpids>, compute: Option<u16>) -> io::Result<()> {
        self.change(|known| {
            (known.settings.signals, known.settings.compute) = (tpids, compute);
        })
    }

    /// Tells the program its settings.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn configure(&self, settings: SteerSettings) -> io::Result<()> {
        self.change(|known| known.settings = settings)
    }

    /// Says for which tags the kernel has interfaces on the port: their frames are punted, but for
    /// those whose interfaces the daemon serves.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_vlans(&self, tags: &[VlanTag], served: &[VlanTag]) -> io::Result<()> {
        let mut words = [0_u64; 4 * 64];
        for (first, tags) in [(0, tags), (128, served)] {
            for tag in tags {
                let word = usize::from(tag.id & 0xfff) / 64 + 64 * usize::from(tag.is_service);
                words[first + word] |= 1 << (tag.id % 64);
            }
        }
        for (number, word) in (0_u32..).zip(words) {
            update(&self.vlans, &number.to_ne_bytes(), &word.to_ne_bytes())?;
        }
        self.change(|known| known.vlans = !tags.is_empty())
    }

    /// Says which stations there are on the port beside its own, frames to which are punted, in
    /// place of what was said; `all`: an interface takes the frames to every station.
    ///
    /// # Errors
    /// When there are more than [`super::UPPER_MAX`], or the kernel has no memory. Those that the
    /// program knows then are punted.
    pub fn set_upper(&self, stations: &BTreeSet<[u8; 6]>, all: bool) -> io::Result<()> {
        let known: Vec<Vec<u8>> = self.upper.keys().collect();
        let is_old = |key: &&Vec<u8>| !key.first_chunk().is_some_and(|mac| stations.contains(mac));
        for key in known.iter().filter(is_old) {
            self.upper.delete(key).map_err(io::Error::other)?;
        }
        let mut stations = stations.iter();
        let told = stations.try_for_each(|mac| update(&self.upper, mac, &[1]));
        let is_empty = self.upper.keys().next().is_none();
        self.change(|known| {
            known.upper = match (all, is_empty) {
                (true, _) => UPPER_ALL,
                (false, false) => UPPER_LISTED,
                (false, true) => 0,
            };
        })?;
        told
    }

    /// Says of which VLANs of its bridge the port is a member, and in which of them the daemon
    /// routes what is for the bridge, in this form: bit n of word m for VLAN 64 × m + n. A bridge
    /// that looks at no tags has VLAN 0.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_members(&self, vlans: &[u64; 64], routed: &[u64; 64]) -> io::Result<()> {
        for (number, word) in (0_u32..).zip(vlans.iter().chain(routed)) {
            update(&self.members, &number.to_ne_bytes(), &word.to_ne_bytes())?;
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Known)) -> io::Result<()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = *known;
        change(&mut next);
        update(&self.port, &0_u32.to_ne_bytes(), &self.value(next))?;
        *known = next;
        Ok(())
    }

    /// `struct port` of steer.bpf.c.
    fn value(&self, known: Known) -> [u8; 40] {
        let settings = known.settings;
        let role: u32 = match self.role {
            Role::Switch => 0,
            Role::Host => 1,
        };
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let reason = |reason: Option<PuntReason>| reason.map_or(0, |reason| reason as u8);
        let mut value = [0; 40];
        value[..4].copy_from_slice(&role.to_ne_bytes());
        value[4..10].copy_from_slice(&settings.mac);
        let queues = u16::try_from(self.queues).expect("at most QUEUES_MAX");
        value[10..12].copy_from_slice(&queues.to_ne_bytes());
        value[12] = flag(settings.prefixes_v4, FLAG_PREFIXES4)
            | flag(settings.prefixes_v6, FLAG_PREFIXES6)
            | flag(known.vlans, FLAG_VLANS)
            | flag(settings.forwards_v4, FLAG_FORWARDS4)
            | flag(settings.forwards_v6, FLAG_FORWARDS6)
            | flag(settings.validates, FLAG_VALIDATES)
            | FLAG_FORWARDS_BRIDGED
            | flag(settings.bridged.is_some(), FLAG_BRIDGED);
        value[13] = reason(settings.punt_v4);
        value[14] = reason(settings.punt_v6);
        value[15] = known.upper;
        value[16..24].copy_from_slice(&self.patience.nanos().to_ne_bytes());
        let number = u32::from(settings.bridged.unwrap_or(0));
        value[24..28].copy_from_slice(&number.to_ne_bytes());
        let tpids = settings.signals.unwrap_or(Tpids::NONE);
        for (place, tpid) in [(28, tpids.compact), (30, tpids.expanded), (32, tpids.int)] {
            value[place..place + 2].copy_from_slice(&tpid.to_be_bytes());
        }
        value[34..36].copy_from_slice(&settings.compute.unwrap_or(0).to_be_bytes());
        value
    }

    fn read(&self, key: u32) -> io::Result<u64> {
        let values = self
            .counts
            .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
            .map_err(io::Error::other)?;
        let values = values.unwrap_or_default();
        let numbers = values.iter().filter_map(|value| value.first_chunk::<8>());
        Ok(numbers.map(|bytes| u64::from_ne_bytes(*bytes)).sum())
    }

    /// Packets punted for this reason so far, on all processors.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn punted(&self, reason: PuntReason) -> io::Result<u64> {
        self.read(COUNT_PUNTED + reason as u32 - 1)
    }

    /// What the program counted so far, on all processors.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counts(&self) -> io::Result<SteerCounts> {
        let read = |key| self.read(key);
        let mut punted = [0; PuntReason::ALL.len()];
        for (count, number) in punted.iter_mut().zip(COUNT_PUNTED..) {
            *count = read(number)?;
        }
        let mut storm_limited = [0; STORM_DROPS.len()];
        for (count, number) in storm_limited.iter_mut().zip(COUNT_LIMITED + 1..) {
            *count = read(number)?;
        }
        Ok(SteerCounts {
            passed: read(COUNT_PASSED)?,
            punted,
            punt_limited: read(COUNT_LIMITED)?,
            storm_limited,
            redirected: read(COUNT_REDIRECTED)?,
            no_socket: (0..=self.queues)
                .map(|queue| read(COUNT_NO_SOCKET + queue))
                .collect::<io::Result<_>>()?,
        })
    }

    /// Takes the program off the device. From then on the kernel gets every packet.
    pub fn detach(&self) {
        self.attachment.detach();
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.detach();
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering")
            .field("role", &self.role)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

/// Loads the program with maps of its own, but for those that the ports share.
fn load(orders: Orders<'_>) -> Result<libbpf_rs::Object, libbpf_rs::Error> {
    let mut object = ObjectBuilder::default()
        .name("steer")?
        .open_memory(&OBJECT.0)?;
    if multi_buffer() {
        for mut program in object.progs_mut() {
            program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
        }
    }
    for mut map in object.maps_mut() {
        let shared = map.name().to_str().and_then(|name| {
            let prefixes = orders.prefixes.and_then(|prefixes| prefixes.of_map(name));
            prefixes.or_else(|| orders.bridges.and_then(|bridges| bridges.of_map(name)))
        });
        if let Some(shared) = shared {
            map.reuse_fd(shared)?;
        }
    }
    object.load()
}

/// Fills `struct bucket` of steer.bpf.c, which begins full.
fn set_limits(buckets: &MapHandle, orders: &Orders<'_>) -> io::Result<()> {
    let storms = orders.storm_limits;
    let limits: [Option<PuntLimit>; BUCKETS] = [
        orders.punt_limit,
        storms.map(|it| it.broadcast),
        storms.map(|it| it.multicast),
        storms.map(|it| it.unknown),
        storms.map(|it| it.control),
    ];
    for (number, limit) in (0_u32..).zip(limits) {
        let (interval, burst) = limit.map_or((0, 0), PuntLimit::nanoseconds);
        let mut value = [0; 32];
        value[16..24].copy_from_slice(&interval.to_ne_bytes());
        value[24..].copy_from_slice(&burst.to_ne_bytes());
        update(buckets, &number.to_ne_bytes(), &value)?;
    }
    Ok(())
}

fn update(map: &MapHandle, key: &[u8], value: &[u8]) -> io::Result<()> {
    map.update(key, value, MapFlags::ANY)
        .map_err(io::Error::other)
}

/// libbpf prints to standard error by default; its words belong in the log.
fn quiet_libbpf() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
            tracing::debug!("libbpf: {}", text.trim_end());
        })));
    });
}
