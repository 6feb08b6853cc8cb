//! Echo requests that tell a lost packet from a late one.
//!
//! ping(8) waits for its last reply no longer than twice the longest time that it has seen, or one
//! interval: on a busy machine a reply comes later, and counts as lost. Here the last one has as
//! much time as every other.

#[cfg(test)]
mod tests;

use super::enter;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, bind, recvmsg, sendto, setsockopt, socket, sockopt,
};
use std::collections::BTreeSet;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the last request waits for its reply where others had one.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it waits where no request had a reply.
const SILENCE: Duration = Duration::from_secs(2);

/// Bytes of an echo request: the header and, as ping sends it, 56 bytes.
const LEN: usize = 8 + 56;

/// Echo requests to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Whom to ask.
    pub to: IpAddr,
    /// The address to ask from; `None` leaves it to the kernel.
    pub from: Option<IpAddr>,
    /// How many requests.
    pub count: u16,
    /// The least time between two of them.
    pub interval: Duration,
    /// Their type of service, or traffic class.
    pub tos: u8,
}

/// What came of echo requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Echoes {
    /// Requests that were sent, or that the kernel refused to send.
    pub sent: u16,
    /// Requests with a reply.
    pub received: u16,
    /// Requests that were answered with an error, by a router or by the kernel.
    pub refused: u16,
    /// Replies to requests that had one already.
    pub duplicates: u16,
    /// The sum of the times from request to reply.
    pub time: Duration,
    /// The TTL or hop limit values of replies.
    pub hops: BTreeSet<u8>,
}

impl Echoes {
    /// Requests without a reply.
    #[must_use]
    pub fn lost(&self) -> u16 {
        self.sent - self.received
    }
}

/// Echo requests under way.
#[derive(Debug)]
pub struct Pinging(JoinHandle<io::Result<Echoes>>);

impl Pinging {
    /// Waits until all requests are answered, or have waited long enough.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or has no sockets for it.
    ///
    /// # Panics
    /// When the thread that sends does.
    pub fn finish(self) -> io::Result<Echoes> {
        let ended = self.0.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Whether all requests are answered, or have waited long enough.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl Echo {
    /// `count` requests to `to`, one each `interval`.
    #[must_use]
    pub const fn new(to: IpAddr, count: u16, interval: Duration) -> Self {
        Self {
            to,
            from: None,
            count,
            interval,
            tos: 0,
        }
    }

    /// Begins to send from the namespace called `name`.
    #[must_use]
    pub fn start(self, name: &str) -> Pinging {
        let name = name.to_owned();
        Pinging(std::thread::spawn(move || {
            enter(&name)?;
            self.run()
        }))
    }

    /// Sends from the namespace of this thread and waits for the replies.
    ///
    /// # Errors
    /// When there is no socket for it: it takes CAP_NET_RAW.
    pub fn run(self) -> io::Result<Echoes> {
        let mut run = Run::new(self)?;
        let mut next = Instant::now();
        for number in 0..self.count {
            run.send(number)?;
            next = next.max(Instant::now() - self.interval) + self.interval;
            run.receive_until(next, false)?;
        }
        let last = Instant::now();
        run.receive_until(last + SILENCE, true)?;
        if run.seen.received > 0 {
            run.receive_until(last + PATIENCE, true)?;
        }
        Ok(run.seen)
    }
}

/// Echo requests, their socket, and what has come so far.
struct Run {
    echo: Echo,
    socket: OwnedFd,
    /// What tells these requests from others: identifier and token.
    own: [u8; 6],
    /// When each request was sent, and whether it was answered.
    requests: Vec<(Instant, bool)>,
    seen: Echoes,
}

impl Run {
    fn new(echo: Echo) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let token = std::process::id().rotate_left(16) ^ number;
        let [.., a, b] = token.to_be_bytes();
        let [c, d, e, f] = token.to_be_bytes();
        let (family, protocol) = match echo.to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Raw, flags, protocol)?;
        let tos = i32::from(echo.tos);
        if echo.to.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
            setsockopt(&socket, sockopt::Ipv6TClass, &tos)?;
        } else {
            setsockopt(&socket, sockopt::Ipv4Tos, &tos)?;
        }
        if let Some(from) = echo.from {
            let from = SockaddrStorage::from(SocketAddr::new(from, 0));
            bind(socket.as_raw_fd(), &from)?;
        }
        Ok(Self {
            echo,
            socket,
            own: [a, b, c, d, e, f],
            requests: Vec::with_capacity(echo.count.into()),
            seen: Echoes::default(),
        })
    }

    fn send(&mut self, number: u16) -> io::Result<()> {
        let mut packet = [0; LEN];
        packet[0] = if self.echo.to.is_ipv4() { 8 } else { 128 };
        packet[4..6].copy_from_slice(&self.own[..2]);
        packet[6..8].copy_from_slice(&number.to_be_bytes());
        packet[8..12].copy_from_slice(&self.own[2..]);
        if self.echo.to.is_ipv4() {
            let sum = checksum(&packet);
            packet[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        self.requests.push((Instant::now(), false));
        self.seen.sent += 1;
        let to = SockaddrStorage::from(SocketAddr::new(self.echo.to, 0));
        let (socket, none) = (self.socket.as_raw_fd(), MsgFlags::empty());
        loop {
            match sendto(socket, &packet, &to, none) {
                Ok(_) => return Ok(()),
                // The buffer of the socket is full.
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT, PATIENCE)?,
                Err(Errno::EINTR) => {}
                // There is no way at the time, or no neighbour.
                Err(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN) => {
                    self.answered(number, None);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wait(&self, events: PollFlags, time: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(self.socket.as_fd(), events)];
        match ppoll(&mut fds, Some(time.into()), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what comes until then; or, `if_complete`, until every request is answered.
    fn receive_until(&mut self, end: Instant, if_complete: bool) -> io::Result<()> {
        loop {
            while self.receive()? {}
            if if_complete && self.seen.received + self.seen.refused >= self.echo.count {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.wait(PollFlags::POLLIN, left)?;
        }
    }

    /// Takes a packet, if there is one.
    fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 2048];
        let mut control = nix::cmsg_space!(i32);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let socket = self.socket.as_raw_fd();
        let received =
            recvmsg::<SockaddrStorage>(socket, &mut slices, Some(&mut control), MsgFlags::empty());
        let message = match received {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(false),
            Err(Errno::EINTR | Errno::ENETUNREACH | Errno::EHOSTUNREACH) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let len = message.bytes;
        let limit = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::Ipv6HopLimit(limit) => u8::try_from(limit).ok(),
            _ => None,
        });
        match self.echo.to {
            IpAddr::V4(_) => {
                if let Some(packet) = without_header(&bytes[..len]) {
                    self.take(packet, Some(bytes[8]));
                }
            }
            IpAddr::V6(_) => self.take(&bytes[..len], limit),
        }
        Ok(true)
    }

    /// Looks at an ICMP packet, which may be anything.
    fn take(&mut self, packet: &[u8], hops: Option<u8>) {
        if packet.len() < 8 {
            return;
        }
        let v4 = self.echo.to.is_ipv4();
        match (v4, packet[0]) {
            (true, 0) | (false, 129) => {
                if let Some(number) = self.number(packet) {
                    self.answered(number, hops);
                }
            }
            // Errors, with what they are about.
            (true, 3 | 11 | 12) | (false, 1..=4) => {
                let about = &packet[8..];
                let inner = if v4 {
                    without_header(about)
                } else {
                    about.get(40..)
                };
                let number = inner.and_then(|inner| self.number(inner));
                if let Some(number) = number {
                    self.answered(number, None);
                }
            }
            _ => {}
        }
    }

    /// The number of one of these requests, or of the reply to it. An error may quote no more than
    /// its first eight bytes.
    fn number(&self, packet: &[u8]) -> Option<u16> {
        let quoted = packet.get(8..12);
        let ours = packet.get(4..6)? == &self.own[..2]
            && quoted.is_none_or(|token| token == &self.own[2..]);
        let number = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?);
        (ours && usize::from(number) < self.requests.len()).then_some(number)
    }

    /// A request has a reply with such a TTL, or an error.
    fn answered(&mut self, number: u16, hops: Option<u8>) {
        let (sent, answered) = &mut self.requests[usize::from(number)];
        match (*answered, hops) {
            (true, Some(_)) => self.seen.duplicates += 1,
            (true, None) => {}
            (false, Some(hops)) => {
                self.seen.received += 1;
                self.seen.time += sent.elapsed();
                self.seen.hops.insert(hops);
            }
            (false, None) => self.seen.refused += 1,
        }
        *answered = true;
    }
}

/// What follows the header of an IPv4 packet.
fn without_header(packet: &[u8]) -> Option<&[u8]> {
    let words = usize::from(packet.first()? & 15);
    packet.get(words * 4..)
}

/// The checksum of the internet (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [.., a, b] = (folded + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([a, b])
}
