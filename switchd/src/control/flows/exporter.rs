//! Records on their way to a collector, over UDP.
//!
//! What a collector does not get is lost, as UDP is: it sees that by the sequence numbers. Messages
//! that the kernel does not take wait, up to a bound.

use super::ipfix::{Here, Writer};
use super::record::Record;
use crate::config::flows::Flows;
use common::time::{Span, Time};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Messages that wait: a record each of 20,000 flows takes about as many.
const QUEUE: usize = 4096;

/// Messages that are sent at a time, so that the buffer of a collector's socket takes them.
const AT_A_TIME: usize = 32;

/// Between two such times: a record of each direction of 10,000 flows leaves within the second that
/// they may be late.
const PACE: Span = Span::from_millis(8);

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Records that were sent.
    pub records: u64,
    /// Records that found no room in the queue.
    pub dropped: u64,
    /// Messages that were sent, those with templates included.
    pub messages: u64,
    /// Times that sending failed: nobody listens, or there is no way.
    pub failures: u64,
}

/// The way to a collector.
#[derive(Debug)]
pub struct Exporter {
    collector: SocketAddr,
    socket: Option<UdpSocket>,
    writer: Writer,
    templates_every: Span,
    /// When templates are due.
    templates_at: Time,
    queue: VecDeque<(Vec<u8>, u32)>,
    /// When the socket was opened, and why the last one failed, as long as this one may, too.
    opened: Time,
    trouble: Option<String>,
    /// What was counted.
    pub counted: Exported,
}

fn connect(collector: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match collector {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(collector)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Exporter {
    /// A way to `collector`, with the settings of `flows`.
    pub fn new(collector: SocketAddr, flows: &Flows) -> Self {
        Self {
            collector,
            socket: None,
            writer: Writer::new(flows.enterprise, flows.observation_domain),
            templates_every: Span::from_secs(flows.template_seconds),
            templates_at: Time::ZERO,
            queue: VecDeque::new(),
            opened: Time::ZERO,
            trouble: None,
            counted: Exported::default(),
        }
    }

    /// Takes records; if there is no room, the oldest are lost.
    pub(super) fn take(&mut self, records: &[Record], here: Here<'_>) {
        self.queue.extend(self.writer.records(records, here));
        while self.queue.len() > QUEUE {
            if let Some((_, lost)) = self.queue.pop_front() {
                self.counted.dropped += u64::from(lost);
            }
        }
    }

    /// Messages that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// When more of what waits may be sent, after `now`; `None` if nothing waits, or nobody takes
    /// it.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        let goes_on = !self.queue.is_empty() && self.socket.is_some();
        goes_on.then_some(now + PACE)
    }

    /// Sends some of what waits, with templates before if they are due.
    pub(super) fn send(&mut self, now: Time, millis: u64) {
        let before = self.counted.messages;
        if let Err(error) = self.try_send(now, millis) {
            self.counted.failures += 1;
            // A way may be there the next time; and who listens then has seen no templates.
            self.socket = None;
            self.templates_at = now + RETRY;
            let text = format!("collector {} of flows: {error}", self.collector);
            if self.trouble.is_none() {
                tracing::warn!("{text}");
            }
            self.trouble = Some(text);
        } else if self.counted.messages > before && now.since(self.opened) >= RETRY {
            // That nobody has the first message is told with a later one.
            self.trouble = None;
        }
    }

    /// Why the collector gets nothing, if that is so.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Sends all that waits, as far as the kernel takes it. `wait` does so between two sends.
    pub(super) fn flush(&mut self, now: Time, millis: u64, wait: impl Fn(Span)) {
        while !self.queue.is_empty() {
            let before = self.queue.len();
            self.send(now, millis);
            if self.queue.len() == before {
                break;
            }
            wait(PACE);
        }
    }

    fn try_send(&mut self, now: Time, millis: u64) -> io::Result<()> {
        if self.socket.is_none() {
            if now < self.templates_at {
                return Ok(());
            }
            self.socket = Some(connect(self.collector)?);
            self.opened = now;
        }
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        if now >= self.templates_at {
            let waiting = self.queue.iter().map(|(_, records)| records).sum();
            if !sent(socket, &self.writer.templates(millis, waiting))? {
                return Ok(());
            }
            self.counted.messages += 1;
            self.templates_at = now + self.templates_every;
        }
        for _ in 0..AT_A_TIME {
            let Some((message, records)) = self.queue.front() else {
                break;
            };
            if !sent(socket, message)? {
                break;
            }
            self.counted.messages += 1;
            self.counted.records += u64::from(*records);
            self.queue.pop_front();
        }
        Ok(())
    }
}

/// How long a collector that cannot be reached is left alone.
const RETRY: Span = Span::from_secs(1);

/// Whether the kernel has taken a message; `false`: its queue is full.
fn sent(socket: &UdpSocket, message: &[u8]) -> io::Result<bool> {
    match socket.send(message) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
