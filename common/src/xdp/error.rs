//! What can go wrong at the boundary to the kernel, in words for the operator.

use super::limits::{QUEUES_MAX, RING_MAX, RING_MIN};
use super::mode::Mode;
use crate::sys::MemlockError;
use std::io;

/// Why a UMEM or a port was not opened.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// No such device, or not one that carries Ethernet frames.
    #[error("{ifname}: no such Ethernet device: {error}")]
    NoDevice {
        /// Name that was asked for.
        ifname: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// Rings cannot have this size.
    #[error("ring size {0} is not a power of two from {RING_MIN} to {RING_MAX}")]
    Ring(u32),
    /// The memory was refused.
    #[error("cannot register packet memory: {0}")]
    Umem(io::Error),
    /// The first socket of the memory could not be bound.
    #[error("cannot bind the packet memory to a device of its own: {0}")]
    Anchor(io::Error),
    /// Too little memory may be locked.
    #[error(transparent)]
    Memlock(#[from] MemlockError),
    /// Packets would not fit.
    #[error(transparent)]
    Mtu(#[from] MtuError),
    /// More receive than transmit queues: a socket on one of those in excess could not send.
    #[error(
        "{ifname}: {rx_queues} receive queues but {tx_queues} transmit queues; \
         make them equal (ethtool -L {ifname} rx {tx_queues}, or numtxqueues when the device is created)"
    )]
    UnevenQueues {
        /// The device.
        ifname: String,
        /// Its receive queues.
        rx_queues: u32,
        /// Its transmit queues.
        tx_queues: u32,
    },
    /// More queues than the steering program has room for.
    #[error("{ifname}: {rx_queues} receive queues; at most {QUEUES_MAX} are supported")]
    ManyQueues {
        /// The device.
        ifname: String,
        /// Its receive queues.
        rx_queues: u32,
    },
    /// The daemon has too many queues.
    #[error("too many queues are open")]
    TooManyQueues,
    /// Somebody else's XDP program is on the device.
    #[error(
        "{ifname}: XDP program {id} ({name}) is attached already; \
         detach it (ip link set dev {ifname} xdp off) or stop its owner"
    )]
    Occupied {
        /// The device.
        ifname: String,
        /// Number of the program (`bpftool prog show id …`).
        id: u32,
        /// Name of the program.
        name: String,
    },
    /// Our program is on the device and the process that attached it lives.
    #[error("{ifname}: in use by another switchd or hostd (XDP program {id})")]
    InUse {
        /// The device.
        ifname: String,
        /// Number of the program.
        id: u32,
    },
    /// A program is on the device whose name this process may not know.
    #[error(
        "{ifname}: XDP program {id} is attached already, and whose it is cannot be seen without \
         CAP_SYS_ADMIN; if it is no switchd or hostd that still runs, look at it as root \
         (bpftool prog show id {id}) and stop its owner, or detach it (ip link set dev {ifname} xdp off)"
    )]
    Taken {
        /// The device.
        ifname: String,
        /// Number of the program.
        id: u32,
    },
    /// The steering program was not accepted.
    #[error("{ifname}: cannot {action} the steering program: {error}")]
    Steering {
        /// The device.
        ifname: String,
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The other end of a veth pair may send packets that do not fit in a page.
    #[error(
        "{ifname}: the other end of this veth pair has an MTU above {limit}, the most that native mode takes; \
         lower it (ip link set dev … mtu {limit})"
    )]
    PeerMtu {
        /// The device.
        ifname: String,
        /// The highest MTU that works.
        limit: u32,
    },
    /// The socket was not bound.
    #[error("{ifname}: cannot bind queue {queue} in {mode} mode: {error}")]
    Bind {
        /// The device.
        ifname: String,
        /// The queue.
        queue: u32,
        /// How it was to be bound.
        mode: Mode,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The device cannot do what is required.
    #[error("{ifname}: {required} mode is required, but the device offers only {offered}")]
    Mode {
        /// The device.
        ifname: String,
        /// What configuration requires.
        required: Mode,
        /// What the kernel answered with.
        offered: Mode,
    },
}

impl XdpError {
    pub(super) fn no_device(ifname: &str, error: io::Error) -> Self {
        Self::NoDevice {
            ifname: ifname.to_owned(),
            error,
        }
    }

    pub(super) fn steering(ifname: &str, action: &'static str, error: io::Error) -> Self {
        Self::Steering {
            ifname: ifname.to_owned(),
            action,
            error,
        }
    }
}

/// The device may receive packets longer than AF_XDP carries: it would lose them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ifname}: MTU {mtu} is above {limit}, the most that AF_XDP carries{} on this device ({driver}); \
     lower the MTU on both ends of the link (ip link set dev {ifname} mtu {limit}){hint}",
    mode.map_or_else(String::new, |mode| format!(" in {mode} mode"))
)]
pub struct MtuError {
    /// The device.
    pub ifname: String,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The highest MTU that works.
    pub limit: u32,
    /// The mode that sets the limit; `None`: it is that of all modes.
    pub mode: Option<Mode>,
    /// The device's driver.
    pub driver: String,
    /// What else would help, if anything.
    pub hint: &'static str,
}
