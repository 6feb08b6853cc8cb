//! Opens and closes ports while the switch runs, in a thread of its own: the kernel takes its time
//! for both, above all to close a socket.

use super::port_handle::PortHandle;
use crate::config::PortSettings;
use common::sys::Waker;
use common::xdp::netdev::Device;
use common::xdp::{AfXdpQueue, Port, PortOptions, Umem, XdpError, open_port};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::io;
use std::net::IpAddr;

/// What is to be done.
#[derive(Debug)]
pub(super) enum Job {
    /// Open this port.
    Open {
        slot: usize,
        settings: PortSettings,
        options: PortOptions,
    },
    /// Close a port: its queues, then its program.
    Close {
        slot: usize,
        handle: Option<Box<PortHandle>>,
        queues: Vec<AfXdpQueue>,
    },
}

/// What was done.
#[derive(Debug)]
pub(super) enum Done {
    Opened {
        slot: usize,
        /// The addresses that its program was told.
        local: Vec<IpAddr>,
        result: Result<Box<Port>, Unopened>,
    },
    Closed {
        slot: usize,
    },
}

/// Why a port was not opened.
#[derive(Debug)]
pub(super) struct Unopened {
    /// In words.
    pub(super) why: String,
    /// There is no interface that could be a port.
    pub(super) is_unfit: bool,
    /// The MTU of the interface; zero: unknown.
    pub(super) mtu: u32,
}

/// The thread, as control sees it. It ends when this is dropped.
#[derive(Debug)]
pub struct Opener {
    jobs: Sender<Job>,
    done: Receiver<Done>,
}

impl Opener {
    /// Starts the thread. Ports share `umem`, in which so many `queues` find frames beside those
    /// that are open; `control` is woken when something was done.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(umem: Umem, queues: u32, control: Waker) -> io::Result<Self> {
        let (jobs, jobs_from) = unbounded();
        let (done_to, done) = unbounded();
        let mut work = Work { umem, queues };
        std::thread::Builder::new()
            .name("ports".to_owned())
            .spawn(move || {
                for job in jobs_from {
                    if done_to.send(work.run(job)).is_err() {
                        return;
                    }
                    control.wake();
                }
            })?;
        Ok(Self { jobs, done })
    }

    /// Has a job done, after those before it.
    pub(super) fn order(&self, job: Job) {
        // The thread lives as long as this does.
        let _ = self.jobs.send(job);
    }

    /// What was done since the last call.
    pub(super) fn take_done(&self) -> Vec<Done> {
        self.done.try_iter().collect()
    }
}

struct Work {
    umem: Umem,
    /// Queues that there are frames for.
    queues: u32,
}

impl Work {
    fn run(&mut self, job: Job) -> Done {
        match job {
            Job::Open {
                slot,
                settings,
                options,
            } => Done::Opened {
                slot,
                result: self.open(&settings, &options),
                local: options.local,
            },
            Job::Close {
                slot,
                handle,
                queues,
            } => {
                for queue in queues {
                    // In zero-copy mode the device may keep the frames: see `AfXdpQueue`.
                    self.queues += u32::from(!queue.mode().is_zero_copy());
                    drop(queue);
                }
                drop(handle);
                Done::Closed { slot }
            }
        }
    }

    fn open(
        &mut self,
        settings: &PortSettings,
        options: &PortOptions,
    ) -> Result<Box<Port>, Unopened> {
        let name = &settings.name;
        // No Ethernet device: it never will be. Whatever else is wrong may pass.
        let no_ethernet = |error: &XdpError| {
            matches!(error, XdpError::NoDevice { error, .. }
                if error.raw_os_error() == Some(libc::EAFNOSUPPORT))
        };
        let refuse = |error: XdpError, mtu| Unopened {
            why: error.to_string(),
            is_unfit: no_ethernet(&error),
            mtu,
        };
        let device = Device::lookup(name).map_err(|error| refuse(error, 0))?;
        if device.rx_queues > self.queues {
            return Err(Unopened {
                why: format!(
                    "{name}: {} receive queues, and packet memory for {} is left: raise \
                     memory.spare_queues and restart, or ethtool -L {name}",
                    device.rx_queues, self.queues
                ),
                is_unfit: false,
                mtu: device.mtu,
            });
        }
        let port = open_port(&self.umem, name, options);
        let port = port.map_err(|error| refuse(error, device.mtu))?;
        self.queues = self
            .queues
            .saturating_sub(u32::try_from(port.queues.len()).unwrap_or(u32::MAX));
        Ok(Box::new(port))
    }
}
