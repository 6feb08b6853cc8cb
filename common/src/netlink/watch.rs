//! The socket under the [`Follower`].

use super::follow::{Follower, Settings};
use super::mirror::{Change, Mirror};
use crate::sys::monotonic;
use crate::time::{Span, Time};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Groups of rtnetlink that tell of what is mirrored (RTNLGRP_* of linux/rtnetlink.h).
const GROUPS: [u32; 11] = [
    1,  // LINK
    3,  // NEIGH
    5,  // IPV4_IFADDR
    7,  // IPV4_ROUTE
    8,  // IPV4_RULE
    9,  // IPV6_IFADDR
    11, // IPV6_ROUTE
    19, // IPV6_RULE
    24, // IPV4_NETCONF
    32, // NEXTHOP
    33, // BRVLAN
];

/// Receive buffer in bytes: about a million routes, a full table, that arrive while the reader does
/// something else (the kernel takes twice the bytes, and about 1 KiB for each). It takes memory
/// only while messages wait.
pub const RECEIVE_BUFFER: usize = 512 << 20;

/// The kernel builds parts of a dump as large as the reader's buffer, at most 32 KiB.
const DATAGRAM: usize = 64 << 10;

/// How long one [`Watch::pump`] reads: bounds the time until the caller acts on the changes, also
/// while a full table is being dumped (SW-2 allows 10 ms).
const READ_TIME: Span = Span::from_millis(2);

/// A socket that follows the kernel of the network namespace in which it was made.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    follower: Follower,
    buffer: Vec<u8>,
}

impl Watch {
    /// Opens and subscribes; nothing is dumped yet. `receive_buffer` is in bytes,
    /// [`RECEIVE_BUFFER`] if in doubt.
    ///
    /// # Errors
    /// The kernel refused the socket or a subscription.
    pub fn open(settings: Settings, receive_buffer: usize) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        let port = socket.bind_auto()?.port_number();
        let borrowed = as_fd(&socket);
        // Above net.core.rmem_max only with CAP_NET_ADMIN.
        if setsockopt(&borrowed, sockopt::RcvBufForce, &receive_buffer).is_err() {
            setsockopt(&borrowed, sockopt::RcvBuf, &receive_buffer)?;
        }
        for group in GROUPS {
            // Kernels before 5.3 lack next hop objects, and so their group, and those before 5.6
            // the group of VLANs.
            match socket.add_membership(group) {
                Err(error) if group < 32 => return Err(error),
                _ => {}
            }
        }
        Ok(Self {
            socket,
            follower: Follower::new(settings, port),
            buffer: vec![0; DATAGRAM],
        })
    }

    /// What is known.
    pub fn mirror(&self) -> &Mirror {
        self.follower.mirror()
    }

    /// The state of the following.
    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Changes the settings.
    pub fn set_settings(&mut self, settings: Settings) {
        self.follower.set_settings(settings);
    }

    /// When [`Self::pump`] wants to be called at the latest, readable or not.
    pub fn deadline(&self) -> Time {
        self.follower.deadline()
    }

    /// Reads what is there (for 2 ms at most), asks what is due, and appends what changed. Returns
    /// whether there may be more to read.
    ///
    /// # Errors
    /// The socket failed; lost messages are not a failure.
    pub fn pump(&mut self, now: Time, changes: &mut Vec<Change>) -> io::Result<bool> {
        let end = now + READ_TIME;
        let mut now = now;
        let mut more = true;
        while more && now < end {
            self.send_due(now)?;
            more = self.receive_one(now)?;
            now = monotonic();
        }
        self.follower.take_changes(changes);
        Ok(more)
    }

    fn receive_one(&mut self, now: Time) -> io::Result<bool> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
        match recv(self.socket.as_raw_fd(), &mut self.buffer, flags) {
            Ok(0) | Err(Errno::EAGAIN) => Ok(false),
            Ok(len) if len > self.buffer.len() => {
                // What was cut off is lost like in an overrun.
                self.follower.handle_overrun(now);
                Ok(true)
            }
            Ok(len) => {
                self.follower.handle(&self.buffer[..len], now);
                Ok(true)
            }
            Err(Errno::ENOBUFS) => {
                self.follower.handle_overrun(now);
                Ok(true)
            }
            Err(Errno::EINTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn send_due(&mut self, now: Time) -> io::Result<()> {
        let Some(request) = self.follower.poll_request(now) else {
            return Ok(());
        };
        match self.socket.send_to(&request, &SocketAddr::new(0, 0), 0) {
            // The follower repeats a request that is not answered in time.
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Blocks until everything was dumped once: for the start of a daemon and for tools.
    ///
    /// # Errors
    /// The socket failed, or `limit` passed.
    pub fn sync(&mut self, limit: Time, changes: &mut Vec<Change>) -> io::Result<()> {
        let mut poll = crate::sys::PollSet::new();
        while !self.follower.is_synced() {
            let now = monotonic();
            if now >= limit {
                let text = "the kernel did not answer netlink dumps in time";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            if !self.pump(now, changes)? && !self.follower.is_synced() {
                let until = self.deadline().min(limit);
                poll.wait([as_fd(&self.socket)], until.since(now))?;
            }
        }
        Ok(())
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        as_fd(&self.socket)
    }
}

fn as_fd(socket: &Socket) -> BorrowedFd<'_> {
    socket.as_fd()
}
