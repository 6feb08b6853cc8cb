//! Network devices: what AF_XDP needs to know of them.
//!
//! Asked by ioctl and not read from sysfs, because sysfs shows the network namespace that it was
//! mounted in and not the one of the thread that asks.

#![allow(unsafe_code, reason = "ioctl; see each SAFETY")]

use super::error::XdpError;
use crate::units::Rate;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const ETHTOOL_GET_SETTINGS: u32 = 0x1;
const ETHTOOL_GET_DRIVER: u32 = 0x3;
const ETHTOOL_GET_PAUSE: u32 = 0x12;
const ETHTOOL_GET_FLAGS: u32 = 0x25;
const ETHTOOL_GET_CHANNELS: u32 = 0x3c;

/// ETH_FLAG_RXVLAN.
const FLAG_RX_VLAN: u32 = 1 << 8;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name, unique in its network namespace.
    pub name: String,
    /// Number by which the kernel knows it.
    pub ifindex: u32,
    /// Its station address.
    pub mac: [u8; 6],
    /// Longest payload of a frame, in bytes.
    pub mtu: u32,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Line rate, if the device has one and knows it.
    pub speed: Option<Rate>,
    /// Name of its driver; empty if it does not say.
    pub driver: String,
    /// It takes VLAN tags off received frames and notes them elsewhere (`ethtool -K … rxvlan`): XDP
    /// programs see such frames without a tag.
    pub strips_vlan_tags: bool,
    /// Set up by the administrator (`ip link set up`).
    pub up: bool,
    /// Up, with a carrier.
    pub running: bool,
}

impl Device {
    /// Looks the device called `name` up in the network namespace of this thread.
    ///
    /// # Errors
    /// When there is none of that name, or it is no Ethernet device.
    pub fn lookup(name: &str) -> Result<Self, XdpError> {
        let query = Query::new(name).map_err(|error| XdpError::no_device(name, error))?;
        query
            .device()
            .map_err(|error| XdpError::no_device(name, error))
    }

    /// All Ethernet devices of this network namespace, loopback excepted.
    ///
    /// # Errors
    /// When the kernel does not list them.
    pub fn list() -> io::Result<Vec<Self>> {
        let names = nix::net::if_::if_nameindex()?;
        Ok(names
            .iter()
            .filter_map(|interface| interface.name().to_str().ok())
            .filter(|name| *name != "lo")
            // One that has just gone is not on the list.
            .filter_map(|name| Self::lookup(name).ok())
            .collect())
    }
}

/// Which pauses the MAC of a device takes care of by itself (`ethtool -a`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacPauses {
    /// It obeys pauses, and may keep the frames for itself.
    pub receive: bool,
    /// It sends them when its own buffer fills.
    pub transmit: bool,
}

impl MacPauses {
    /// Asks the device called `name` in the network namespace of this thread. `None`: it has no MAC
    /// that pauses, as virtual devices have none, or does not say.
    pub fn of(name: &str) -> Option<Self> {
        let answer = Query::new(name).ok()?.ethtool(Pauses {
            command: ETHTOOL_GET_PAUSE,
            ..Pauses::default()
        })?;
        Some(Self {
            receive: answer.receive != 0,
            transmit: answer.transmit != 0,
        })
    }
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Pauses {
    command: u32,
    negotiate: u32,
    receive: u32,
    transmit: u32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Flags {
    command: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Settings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex_port: [u8; 2],
    others: [u8; 4],
    maxima: [u32; 2],
    speed_high: u16,
    mdix: [u8; 2],
    partner: u32,
    reserved: [u32; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Driver {
    command: u32,
    name: [u8; 32],
    others: [u8; 32 * 4 + 12],
    counts: [u32; 5],
}

const _: () = assert!(size_of::<Channels>() == 36);
const _: () = assert!(size_of::<Pauses>() == 16);
const _: () = assert!(size_of::<Settings>() == 44);
const _: () = assert!(size_of::<Driver>() == 196);

struct Query {
    socket: OwnedFd,
    name: String,
    request: libc::ifreq,
}

impl Query {
    fn new(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        let socket = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // SAFETY: an ifreq of zeros is valid: a name of no characters and integers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        Ok(Self {
            socket,
            name: name.to_owned(),
            request,
        })
    }

    fn device(&self) -> io::Result<Device> {
        let index = self.ask(libc::SIOCGIFINDEX)?;
        // SAFETY: the field that SIOCGIFINDEX writes; any integer is a value.
        let index = unsafe { index.ifr_ifru.ifru_ifindex };
        let mtu = self.ask(libc::SIOCGIFMTU)?;
        // SAFETY: as above, for SIOCGIFMTU.
        let mtu = unsafe { mtu.ifr_ifru.ifru_mtu };
        let flags = self.ask(libc::SIOCGIFFLAGS)?;
        // SAFETY: as above, for SIOCGIFFLAGS.
        let flags = i32::from(unsafe { flags.ifr_ifru.ifru_flags });
        let address = self.ask(libc::SIOCGIFHWADDR)?;
        // SAFETY: as above, for SIOCGIFHWADDR.
        let address = unsafe { address.ifr_ifru.ifru_hwaddr };
        let ethernet = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];
        if !ethernet.contains(&address.sa_family) {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from.cast_unsigned();
        }
        let (rx_queues, tx_queues) = self.queues();
        Ok(Device {
            name: self.name.clone(),
            ifindex: index.cast_unsigned(),
            mac,
            mtu: mtu.cast_unsigned(),
            rx_queues,
            tx_queues,
            speed: self.speed(),
            driver: self.driver(),
            strips_vlan_tags: self.strips_vlan_tags(),
            up: flags & libc::IFF_UP != 0,
            running: flags & libc::IFF_RUNNING != 0,
        })
    }

    fn ask(&self, what: libc::Ioctl) -> io::Result<libc::ifreq> {
        let mut request = self.request;
        // SAFETY: these requests read the name and write one field of the ifreq.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), what, &raw mut request) } {
            0 => Ok(request),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Asks the driver through the ethtool interface. `answer` begins with the command and has the
    /// size that the kernel writes for it.
    fn ethtool<T: Copy>(&self, mut answer: T) -> Option<T> {
        let mut request = self.request;
        request.ifr_ifru.ifru_data = (&raw mut answer).cast();
        // SAFETY: `ifru_data` points at the structure of that command, which outlives the call and
        // consists of integers.
        let result = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                libc::SIOCETHTOOL as libc::Ioctl,
                &raw mut request,
            )
        };
        (result == 0).then_some(answer)
    }

    /// Receive and transmit queues; drivers that do not tell have one of each.
    fn queues(&self) -> (u32, u32) {
        let channels = self.ethtool(Channels {
            command: ETHTOOL_GET_CHANNELS,
            ..Channels::default()
        });
        let (rx, tx) = channels.map_or((1, 1), |channels| {
            (
                channels.rx + channels.combined,
                channels.tx + channels.combined,
            )
        });
        (rx.max(1), tx.max(1))
    }

    fn strips_vlan_tags(&self) -> bool {
        let flags = self.ethtool(Flags {
            command: ETHTOOL_GET_FLAGS,
            flags: 0,
        });
        flags.is_some_and(|answer| answer.flags & FLAG_RX_VLAN != 0)
    }

    fn speed(&self) -> Option<Rate> {
        let settings = self.ethtool(Settings {
            command: ETHTOOL_GET_SETTINGS,
            ..Settings::default()
        })?;
        let mbps = u64::from(settings.speed_high) << 16 | u64::from(settings.speed);
        // 0xffff and 0xffffffff say "unknown".
        (mbps != 0 && mbps != 0xffff && mbps != 0xffff_ffff).then(|| Rate::from_mbps(mbps))
    }

    fn driver(&self) -> String {
        let driver = self.ethtool(Driver {
            command: ETHTOOL_GET_DRIVER,
            name: [0; 32],
            others: [0; 32 * 4 + 12],
            counts: [0; 5],
        });
        let name = driver.map_or([0; 32], |driver| driver.name);
        let len = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        String::from_utf8_lossy(&name[..len]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_and_nonsense_is_not() {
        let lo = Device::lookup("lo").unwrap();
        assert_eq!((lo.rx_queues, lo.mac), (1, [0; 6]));
        assert!(lo.mtu >= 1500);
        assert_eq!(MacPauses::of("lo"), None, "nothing to pause");
        assert_eq!(MacPauses::of("no-such-dev"), None);
        for wrong in ["", "no-such-dev", "a-name-that-is-too-long", "l\0"] {
            let error = Device::lookup(wrong).unwrap_err();
            assert!(matches!(error, XdpError::NoDevice { .. }), "{error}");
        }
        assert!(
            Device::list()
                .unwrap()
                .iter()
                .all(|device| device.name != "lo")
        );
    }
}
