//! Opens and closes ports while the switch runs, in a thread of its own: the kernel takes its time
//! for both, above all to close a socket.

use super::port_handle::PortHandle;
use crate::config::{Config, PortSettings, RingSize};
use common::sys::Waker;
use common::xdp::netdev::Device;
use common::xdp::{AfXdpQueue, Port, PortOptions, Umem, XdpError, frames_per_queue, open_port};
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
        /// What its rings follow from, and their longest.
        config: Box<Config>,
        longest_ring: u32,
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
    /// Starts the thread. Ports share `umem`, in which so many `frames` are for the rings of
    /// further ports; `control` is woken when something was done.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(umem: Umem, frames: u32, control: Waker) -> io::Result<Self> {
        let (jobs, jobs_from) = unbounded();
        let (done_to, done) = unbounded();
        let mut work = Work { umem, frames };
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
    /// Frames for the rings of further ports.
    frames: u32,
}

impl Work {
    fn run(&mut self, job: Job) -> Done {
        match job {
            Job::Open {
                slot,
                settings,
                mut options,
                config,
                longest_ring,
            } => Done::Opened {
                slot,
                result: self.open(&settings, &mut options, (&config, longest_ring)),
                local: options.local,
            },
            Job::Close {
                slot,
                handle,
                queues,
            } => {
                for queue in queues {
                    // In zero-copy mode the device may keep the frames: see `AfXdpQueue`.
                    if !queue.mode().is_zero_copy() {
                        self.frames += queue.frames();
                    }
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
        options: &mut PortOptions,
        (config, longest_ring): (&Config, u32),
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
        let facts = config.facts_of(settings, &device);
        let wanted = match config.memory.ring {
            RingSize::Auto => facts.ring.min(longest_ring),
            RingSize::Descriptors(ring) => ring,
        };
        let least = config.memory.ring.transmit();
        let frames = |ring| frames_per_queue(ring, facts.transmit_ring);
        let fits = |ring: u32| {
            let needed = u64::from(frames(ring)) * u64::from(device.rx_queues);
            needed <= u64::from(self.frames)
        };
        let Some(ring) = halves(wanted, least).find(|ring| fits(*ring)) else {
            return Err(Unopened {
                why: format!(
                    "{name}: {} receive queues, and packet memory for {} is left: raise \
                     memory.spare_queues and restart, or ethtool -L {name}",
                    device.rx_queues,
                    self.frames / frames(least)
                ),
                is_unfit: false,
                mtu: device.mtu,
            });
        };
        options.receive_ring = Some(ring);
        let port = open_port(&self.umem, name, options);
        let port = port.map_err(|error| refuse(error, device.mtu))?;
        let taken: u32 = port.queues.iter().map(AfXdpQueue::frames).sum();
        self.frames = self.frames.saturating_sub(taken);
        Ok(Box::new(port))
    }
}

/// The lengths of a ring that may be tried, from the wanted one down to the least.
fn halves(wanted: u32, least: u32) -> impl Iterator<Item = u32> {
    let next = move |ring: &u32| (*ring > least).then_some((ring / 2).max(least));
    std::iter::successors(Some(wanted), next)
}

/// Says that a port that came got receive rings of `got` frames instead of the `wanted` ones that
/// follow from its lossless groups, and what helps; no port gets more than `longest`.
pub(super) fn short_ring(wanted: u32, got: u32, longest: u32) -> Option<String> {
    let remedy = if got < wanted.min(longest) {
        "packet memory for ports that come has no room for more: raise memory.spare_queues and restart"
    } else {
        "when switchd started, the machine's memory or qos.buffer.size_bytes had no room for more"
    };
    (got < wanted).then(|| {
        format!(
            "its receive rings hold {got} frames, not the {wanted} that its lossless groups need, \
             and what does not fit is lost; {remedy}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-12: a port that comes while memory is short gets the longest ring that there is room for.
    #[test]
    fn rings_are_halved_down_to_the_least() {
        let all = |wanted, least| halves(wanted, least).collect::<Vec<_>>();
        assert_eq!(all(8192, 1024), [8192, 4096, 2048, 1024]);
        assert_eq!(all(1024, 1024), [1024]);
        assert_eq!(all(256, 256), [256], "set by hand");
    }

    /// SW-12, MG-1: whoever gets shorter rings is told what was short.
    #[test]
    fn short_rings_are_told_with_what_was_short() {
        assert_eq!(short_ring(2048, 2048, 32_768), None);
        assert_eq!(short_ring(1024, 1024, 1024), None);
        for (got, longest, why) in [
            (1024, 32_768, "raise memory.spare_queues"),
            (1024, 2048, "raise memory.spare_queues"),
            (2048, 2048, "when switchd started"),
        ] {
            let text = short_ring(4096, got, longest).expect("a sentence");
            let numbers = format!("hold {got} frames, not the 4096 that");
            assert!(text.contains(&numbers) && text.contains(why), "{text}");
        }
    }
}
