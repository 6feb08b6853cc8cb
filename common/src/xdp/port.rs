//! Opening a device: which mode, which limits, the program, a socket for each queue.

use super::attach::{RETRIES, RETRY_WAIT};
use super::bridge::BridgeMaps;
use super::error::{MtuError, XdpError};
use super::limits::{QUEUES_MAX, RING_MAX, RING_MIN, mtu_limit, multi_buffer};
use super::mode::{Hook, Mode, ModeChoice};
use super::netdev::Device;
use super::punt::{Prefixes, PuntLimit, StormLimits};
use super::socket::{AfXdpQueue, Bound};
use super::steer::{Orders, Role, Steering};
use super::umem::Umem;
use crate::time::Span;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// How a port is to be opened.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// What the port is for.
    pub role: Role,
    /// Which modes are acceptable.
    pub mode: ModeChoice,
    /// Addresses that are the kernel's from the start; more can be added later.
    pub local: Vec<IpAddr>,
    /// What is punted, shared by the ports of a switch; `None`: nothing.
    pub prefixes: Option<Arc<Prefixes>>,
    /// What bridges know, shared by the ports of a switch; `None`: no port belongs to one.
    pub bridges: Option<Arc<BridgeMaps>>,
    /// How much is punted; `None`: without limit.
    pub punt_limit: Option<PuntLimit>,
    /// How much of what bridges flood and learn from is punted; `None`: without limit.
    pub storm_limits: Option<StormLimits>,
    /// How long the worker of a queue may take no packets before the kernel gets them; zero: for
    /// ever.
    pub patience: Span,
    /// Descriptors on the receive ring of each queue, a power of two from
    /// [`RING_MIN`] to [`RING_MAX`]; `None`: as
    /// many as the [`Umem`] says.
    pub receive_ring: Option<u32>,
    /// The kernel gets the packets of a queue until its worker has begun: else they wait for it
    /// from the moment when the port is open.
    pub begin_with_worker: bool,
}

impl PortOptions {
    /// Options for `role`, in the best mode, without local addresses.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            mode: ModeChoice::Best,
            local: Vec::new(),
            prefixes: None,
            bridges: None,
            punt_limit: None,
            storm_limits: None,
            patience: Span::from_nanos(0),
            receive_ring: None,
            begin_with_worker: false,
        }
    }

    fn orders(&self) -> Orders<'_> {
        Orders {
            role: self.role,
            local: &self.local,
            prefixes: self.prefixes.as_deref(),
            bridges: self.bridges.as_deref(),
            punt_limit: self.punt_limit,
            storm_limits: self.storm_limits,
            patience: self.patience,
        }
    }
}

/// An open port.
#[derive(Debug)]
pub struct Port {
    /// The program on it; for the control thread. Dropped first: it goes before the sockets.
    pub steering: Steering,
    /// What the kernel said about it.
    pub device: Device,
    /// How packets get in and out.
    pub mode: Mode,
    /// Descriptors on the receive ring of each queue.
    pub receive_ring: u32,
    /// Its queues, by number; for the workers. Their receive rings are armed already.
    pub queues: Vec<AfXdpQueue>,
}

/// Opens the device `ifname` of this thread's network namespace: attaches the steering program and
/// binds a socket to each of its queues.
///
/// # Errors
/// [`XdpError`] says what stands in the way, and what to do about it.
pub fn open_port(umem: &Umem, ifname: &str, options: &PortOptions) -> Result<Port, XdpError> {
    let device = Device::lookup(ifname)?;
    check_queues(&device)?;
    let receive = options.receive_ring.unwrap_or_else(|| umem.ring());
    if !receive.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&receive) {
        return Err(XdpError::Ring(receive));
    }
    let mut refusal = None;
    let mut steering: Option<(Hook, Steering)> = None;
    for &mode in options.mode.attempts() {
        check_mtu(&device, mode)?;
        let hook = mode.hook();
        if steering
            .as_ref()
            .is_none_or(|(attached, _)| *attached != hook)
        {
            // The one that did not work out goes first: native and generic exclude each other.
            drop(steering.take());
            match Steering::attach(&device, hook, options.orders()) {
                Ok(attached) => steering = Some((hook, attached)),
                Err(error) if may_fall_back(&error) => {
                    refusal = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        match bind_all(umem, &device, mode, receive) {
            Ok(sockets) => {
                // That a device has no zero-copy is common; everything else is worth a word.
                if let Some(why) = refusal.filter(|_| mode == Mode::GenericCopy) {
                    tracing::warn!("{ifname}: {mode} mode only: {why}");
                }
                let (_, steering) = steering.expect("attached above");
                return finish(umem, device, (options, receive), steering, sockets);
            }
            Err(error) if may_fall_back(&error) => refusal = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(refusal.expect("at least one mode was tried"))
}

/// Whether `error` may mean that the device cannot do this mode, and another may work.
fn may_fall_back(error: &XdpError) -> bool {
    match error {
        XdpError::Steering { action, error, .. } => {
            *action == "attach"
                && !matches!(
                    error.raw_os_error(),
                    Some(libc::EPERM | libc::EACCES | libc::ENODEV | libc::ERANGE)
                )
        }
        XdpError::Bind { error, .. } => !matches!(
            error.raw_os_error(),
            Some(libc::EBUSY | libc::EPERM | libc::ENODEV | libc::ENOBUFS | libc::ENOMEM)
        ),
        _ => false,
    }
}

fn check_queues(device: &Device) -> Result<(), XdpError> {
    let ifname = device.name.clone();
    let (rx_queues, tx_queues) = (device.rx_queues, device.tx_queues);
    if rx_queues > QUEUES_MAX {
        return Err(XdpError::ManyQueues { ifname, rx_queues });
    }
    if rx_queues > tx_queues {
        return Err(XdpError::UnevenQueues {
            ifname,
            rx_queues,
            tx_queues,
        });
    }
    Ok(())
}

fn check_mtu(device: &Device, mode: Mode) -> Result<(), MtuError> {
    let limit = mtu_limit(mode, &device.driver);
    if device.mtu <= limit {
        return Ok(());
    }
    Err(MtuError {
        ifname: device.name.clone(),
        mtu: device.mtu,
        limit,
        // Packets in several pieces have the same limit in all modes.
        mode: (!multi_buffer()).then_some(mode),
        driver: device.driver.clone(),
        hint: if multi_buffer() {
            ""
        } else {
            ", or use Linux 6.6 or later, which carries jumbo frames"
        },
    })
}

fn bind_all(
    umem: &Umem,
    device: &Device,
    mode: Mode,
    receive: u32,
) -> Result<Vec<Bound>, XdpError> {
    (0..device.rx_queues)
        .map(|queue| {
            bind_one(umem, device, queue, receive).map_err(|error| XdpError::Bind {
                ifname: device.name.clone(),
                queue,
                mode,
                error,
            })
        })
        .collect()
}

/// The kernel gives a queue up some time after its socket is closed: waits for that, but not for
/// ever.
fn bind_one(umem: &Umem, device: &Device, queue: u32, receive: u32) -> io::Result<Bound> {
    let mut retries = 0;
    loop {
        match umem.bind(device.ifindex, queue, receive) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && retries < RETRIES => {
                retries += 1;
                std::thread::sleep(RETRY_WAIT);
            }
            bound => return bound.and_then(|bound| Bound::new(bound, receive)),
        }
    }
}

fn finish(
    umem: &Umem,
    device: Device,
    (options, receive_ring): (&PortOptions, u32),
    steering: Steering,
    sockets: Vec<Bound>,
) -> Result<Port, XdpError> {
    let hook = steering.hook();
    let mode_of = |zero_copy| match (hook, zero_copy) {
        (Hook::Native, true) => Mode::NativeZeroCopy,
        (Hook::Native, false) => Mode::NativeCopy,
        (Hook::Generic, _) => Mode::GenericCopy,
    };
    // The weakest queue: that is what can be promised.
    let mode = mode_of(sockets.iter().all(|bound| bound.zero_copy));
    if let ModeChoice::Exactly(required) = options.mode
        && mode != required
    {
        return Err(XdpError::Mode {
            ifname: device.name,
            required,
            offered: mode,
        });
    }
    let queues = (0..)
        .zip(sockets)
        .map(|(queue, bound)| {
            let mode = mode_of(bound.zero_copy);
            let attachment = steering.attachment().clone();
            let heartbeat = steering.heartbeats().of_queue(queue);
            let heartbeat = heartbeat.expect("one for each of QUEUES_MAX queues");
            let signs = (attachment, heartbeat);
            let mut queue = AfXdpQueue::new(umem, bound, (queue, mode), signs, steering.door())?;
            if !options.begin_with_worker {
                let opened = queue.begin();
                opened
                    .map_err(|error| XdpError::steering(&device.name, "add a socket to", error))?;
            }
            Ok(queue)
        })
        .collect::<Result<Vec<_>, XdpError>>()?;
    tracing::info!(
        "{}: {} mode, {} queue(s), MTU {} of at most {}",
        device.name,
        mode,
        queues.len(),
        device.mtu,
        mtu_limit(mode, &device.driver)
    );
    Ok(Port {
        steering,
        device,
        mode,
        receive_ring,
        queues,
    })
}
