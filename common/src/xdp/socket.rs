//! One queue of a port: an AF_XDP socket and its rings, as an engine sees them.
//!
//! Descriptors become [`Frame`] tokens here and nowhere else, and what the kernel says about them
//! is checked once, here: that the frame was lent to this very queue, and that the packet lies
//! inside it. A packet that is longer than a chunk has a descriptor for each part of it, all but
//! the last marked as continued.
//!
//! In copy mode the kernel sends only when it is asked, by a system call, and stops at the first
//! packet that the device does not take. So kicks are triggered by level: as long as the transmit
//! ring holds descriptors that the kernel has not taken, every [`flush`](QueueIo::flush) asks
//! again.

#![allow(
    unsafe_code,
    reason = "frames are made of what the kernel hands back; see each SAFETY"
)]

use super::attach::Attachment;
use super::error::XdpError;
use super::frame::{Frame, FramePool, Region};
use super::heartbeat::Heartbeat;
use super::in_flight::InFlight;
use super::limits::{CHUNK, FILL_FACTOR, JUMBO_MAX};
use super::mode::Mode;
use super::pieces::{Assembly, fitting, has_gap, join};
use super::queue::QueueIo;
use super::ring::{Rings, get_option, set_option};
use super::steer::Door;
use super::umem::{Ended, Holders, Umem, frames_per_queue};
use crate::sync::counter::Counter;
use crate::time::{Span, Time};
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// XDP_MAX_TX_SKB_BUDGET (Linux 6.18): descriptors that one system call sends in copy mode.
const MAX_TX_SKB_BUDGET: i32 = 9;

/// System calls that one flush makes at most. The device refuses a packet (which is then lost, and
/// counted by it) or has no room; either ends a call early, and what is left waits for the next
/// flush.
const KICKS_PER_FLUSH: u32 = 16;

/// In zero-copy mode a driver that sleeps says so; one that said nothing and completed nothing for
/// this long is kicked all the same.
const KICK_INTERVAL: Span = Span::from_micros(100);

/// Packets without completion for this long are a stall.
const STALL: Span = Span::from_millis(10);

/// How often the kernel is asked for its own counters.
const STATISTICS_INTERVAL: Span = Span::from_millis(500);

/// Shortest packet that is sent: an Ethernet header. The kernel would hold on to a shorter one for
/// ever.
const PACKET_MIN: usize = 14;

/// What one queue counted. Written by its worker, read by anyone.
#[derive(Debug, Default)]
pub struct QueueCounters {
    /// Packets received.
    pub rx_packets: Counter,
    /// Bytes received, without frame check sequence.
    pub rx_bytes: Counter,
    /// Packets that were lost because a descriptor from the kernel made no sense, or because they
    /// were longer than any that may come.
    pub rx_invalid: Counter,
    /// Times that the fill ring could not be restocked fully because no frame was free.
    pub rx_fill_short: Counter,
    /// Packets handed to the kernel.
    pub tx_packets: Counter,
    /// Bytes handed to the kernel, without frame check sequence.
    pub tx_bytes: Counter,
    /// Packets that were not handed over because no device could send them: shorter than a header,
    /// or longer than any packet may be.
    pub tx_refused: Counter,
    /// System calls made to have packets sent.
    pub tx_kicks: Counter,
    /// Of these, how many the kernel broke off because the device was busy or full (EAGAIN, EBUSY,
    /// ENOBUFS).
    pub tx_kick_again: Counter,
    /// Of these, how many failed otherwise (the device is down or gone).
    pub tx_kick_failed: Counter,
    /// Times that nothing was completed for 10 ms although packets were under way.
    pub tx_stalls: Counter,
    /// Kernel: packets dropped on reception, no valid buffer (XDP_STATISTICS rx_dropped).
    pub kernel_rx_dropped: Counter,
    /// Kernel: descriptors of ours on the fill ring that it found invalid.
    pub kernel_rx_invalid: Counter,
    /// Kernel: packets dropped because the receive ring was full, the worker being too slow.
    pub kernel_rx_ring_full: Counter,
    /// Kernel: packets dropped because the fill ring was empty.
    pub kernel_rx_fill_empty: Counter,
    /// Kernel: descriptors of ours on the transmit ring that it found invalid.
    pub kernel_tx_invalid: Counter,
}

/// One receive and one transmit queue of a port. Dropping it detaches the port's program, closes
/// the socket and puts the frames that the kernel held back into the depot.
pub struct AfXdpQueue {
    kernel: ManuallyDrop<Kernel>,
    umem: Umem,
    region: Arc<Region>,
    holders: Arc<Holders>,
    /// Identifies this queue in the table of holders.
    number: u16,
    queue: u32,
    /// Descriptors on the transmit ring, and on the receive ring.
    ring: u32,
    receive_ring: u32,
    /// Binary logarithm of the bytes between one frame and the next: shifts are cheaper.
    frame_shift: u32,
    mode: Mode,
    in_flight: InFlight,
    /// Whether frames came back since the last flush.
    collected: bool,
    /// When packets last went out or came back.
    progress: Time,
    stalled: bool,
    statistics_due: Time,
    /// The pool had no frame for the fill ring the last time.
    starved: bool,
    refused: Vec<Frame>,
    assembly: Assembly,
    counters: Arc<QueueCounters>,
    attachment: Arc<Attachment>,
    heartbeat: Heartbeat,
    door: Door,
    /// The program gives it packets.
    begun: bool,
}

/// The rings and their socket, which is closed after they are unmapped.
struct Kernel {
    rings: Rings,
    socket: OwnedFd,
}

/// A socket that is bound and not yet in use, and whether zero-copy.
pub(super) struct Bound {
    kernel: Kernel,
    /// Descriptors on its receive ring.
    receive: u32,
    pub(super) zero_copy: bool,
}

impl Bound {
    /// Reads back how the kernel bound `socket`, whose receive ring has so many descriptors.
    pub(super) fn new((socket, rings): (OwnedFd, Rings), receive: u32) -> io::Result<Self> {
        let options = libc::xdp_options { flags: 0 };
        let options = get_option(socket.as_fd(), libc::XDP_OPTIONS, options)?;
        let zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        let kernel = Kernel { rings, socket };
        Ok(Self {
            kernel,
            receive,
            zero_copy,
        })
    }
}

impl AfXdpQueue {
    pub(super) fn new(
        umem: &Umem,
        bound: Bound,
        (queue, mode): (u32, Mode),
        (attachment, heartbeat): (Arc<Attachment>, Heartbeat),
        door: Door,
    ) -> Result<Self, XdpError> {
        let (ring, receive_ring) = (umem.ring(), bound.receive);
        let fd = bound.kernel.socket.as_fd();
        // One call is to send a whole ring, where the kernel knows how to (else it sends 32). A
        // socket's memory counts for packets that the device still holds: a full ring must fit.
        let _ = set_option(fd, libc::SOL_XDP, MAX_TX_SKB_BUDGET, ring);
        let _ = set_option(
            fd,
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            ring * u32::from(CHUNK),
        );
        let mut queue = Self {
            kernel: ManuallyDrop::new(bound.kernel),
            umem: umem.clone(),
            region: umem.region().clone(),
            holders: umem.holders().clone(),
            number: umem.take_number().ok_or(XdpError::TooManyQueues)?,
            queue,
            ring,
            receive_ring,
            frame_shift: umem.region().chunk_len().ilog2(),
            mode,
            in_flight: InFlight::default(),
            collected: false,
            progress: Time::ZERO,
            stalled: false,
            statistics_due: Time::ZERO,
            starved: false,
            refused: Vec::new(),
            assembly: Assembly::Idle,
            counters: Arc::default(),
            attachment,
            heartbeat,
            door,
            begun: false,
        };
        // Before the first packet: the kernel drops what it has no buffer for.
        let mut pool = FramePool::new(umem.region().clone());
        queue.restock(&mut pool, FILL_FACTOR * receive_ring);
        Ok(queue)
    }

    /// From now on the program gives the socket packets.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.begun = true;
        self.door.enter(self.queue, self.fd())
    }

    /// Number of the queue on its device.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Frames that its rings may hold.
    pub fn frames(&self) -> u32 {
        frames_per_queue(self.receive_ring, self.ring)
    }

    /// How packets get in and out, as the kernel says.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What this queue counts.
    pub fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }

    /// Bytes between one frame and the next.
    #[inline]
    fn frame_len(&self) -> u64 {
        1 << self.frame_shift
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.kernel.socket.as_fd()
    }

    /// Gives the kernel buffers to receive into, at most `max`.
    fn restock(&mut self, pool: &mut FramePool, max: u32) {
        let room = self.kernel.rings.fill.room(max).min(max);
        let mut put = 0;
        self.starved = false;
        while put < room {
            let Some(frame) = pool.take() else {
                self.counters.rx_fill_short.add(1);
                self.starved = true;
                break;
            };
            assert!(self.region.owns(&frame), "a frame of another region");
            self.holders.lend(&frame, self.number);
            let address = u64::from(frame.into_index()) << self.frame_shift;
            self.kernel.rings.fill.put(address);
            put += 1;
        }
        if put > 0 {
            self.kernel.rings.fill.publish();
        }
        // Zero-copy drivers stop receiving when they run out of buffers and wait to be told.
        if self.kernel.rings.fill.needs_wakeup() && self.mode.is_zero_copy() {
            self.wake_receiver();
        }
    }

    fn wake_receiver(&self) {
        // SAFETY: no buffer is given, so nothing is written.
        unsafe {
            libc::recvfrom(
                self.fd().as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            );
        }
    }

    /// The frame that `descriptor` speaks of, or `None` if that cannot be.
    #[inline]
    fn accept(&self, descriptor: libc::xdp_desc, pool: &mut FramePool) -> Option<Frame> {
        let index = descriptor.addr >> self.frame_shift;
        if self.holders.end(index, self.number) != Ended::Home {
            return None;
        }
        let index = u32::try_from(index).expect("the table of holders is not longer");
        // SAFETY: the loan that has just ended was the only holder of this frame.
        let mut frame = unsafe { self.region.frame(index) };
        let start = descriptor.addr & (self.frame_len() - 1);
        match (u16::try_from(start), u16::try_from(descriptor.len)) {
            (Ok(start), Ok(len)) if start.saturating_add(len) <= CHUNK => {
                frame.set_span(start, len, CHUNK);
                Some(frame)
            }
            _ => {
                pool.give(frame);
                None
            }
        }
    }

    /// Adds what came in a chunk, `None` if that made no sense, to the packet that it is of, which
    /// goes on if there is `more`. Returns the packet when it is whole.
    #[cold]
    fn assemble(
        &mut self,
        piece: Option<Frame>,
        more: bool,
        pool: &mut FramePool,
    ) -> Option<Frame> {
        let begun = match std::mem::replace(&mut self.assembly, Assembly::Idle) {
            Assembly::Idle => piece,
            Assembly::Begun(first) => join(first, piece, pool),
            Assembly::Skipped => {
                piece.into_iter().for_each(|piece| pool.give(piece));
                None
            }
        };
        match begun {
            Some(frame) if !more => return Some(frame),
            Some(frame) => self.assembly = Assembly::Begun(frame),
            None if more => self.assembly = Assembly::Skipped,
            None => self.counters.rx_invalid.add(1),
        }
        None
    }

    /// Hands over a packet that takes more than one descriptor. Returns how many it took.
    #[cold]
    fn put_long(&mut self, frame: Frame) -> u32 {
        let (mut put, mut next) = (0, Some(frame));
        while let Some(mut frame) = next {
            next = frame.detach();
            let (start, len) = (frame.start(), frame.bytes().len());
            let room = usize::from(CHUNK.saturating_sub(start));
            let address = u64::from(frame.index()) * self.frame_len();
            // Its parts, by where they begin in the frame.
            let (first, second) = ((start, len.min(room)), (CHUNK, len.saturating_sub(room)));
            let parts = if second.1 > 0 {
                self.holders.lend_twice(&frame, self.number);
                &[first, second][..]
            } else {
                self.holders.lend(&frame, self.number);
                &[first][..]
            };
            for (place, (start, len)) in parts.iter().enumerate() {
                let more = place + 1 < parts.len() || next.is_some();
                self.kernel.rings.transmit.put(libc::xdp_desc {
                    addr: address + u64::from(*start),
                    len: u32::try_from(*len).expect("no longer than a chunk"),
                    options: if more { libc::XDP_PKT_CONTD } else { 0 },
                });
                put += 1;
            }
            frame.into_index();
        }
        put
    }

    /// Takes sent frames back.
    fn collect(&mut self, pool: &mut FramePool) {
        let count = self.kernel.rings.complete.available(1);
        if count == 0 {
            return;
        }
        let mut home = 0;
        for _ in 0..count {
            let index = self.kernel.rings.complete.take() >> self.frame_shift;
            match self.holders.end(index, self.number) {
                Ended::Home => {
                    let index = u32::try_from(index).expect("the table of holders is not longer");
                    // SAFETY: as in `accept`.
                    pool.give(unsafe { self.region.frame(index) });
                    home += 1;
                }
                Ended::Half => home += 1,
                Ended::Unknown => {}
            }
        }
        self.kernel.rings.complete.release();
        self.in_flight.completed(home);
        self.collected |= home > 0;
    }

    /// Makes the system call that sends. Returns whether another one may help at once.
    fn kick(&mut self) -> bool {
        // SAFETY: no buffer is given, so nothing is read.
        let result = unsafe {
            libc::sendto(
                self.fd().as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        self.counters.tx_kicks.add(1);
        if result >= 0 {
            return true;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => {
                self.counters.tx_kick_again.add(1);
                true
            }
            _ => {
                self.counters.tx_kick_failed.add(1);
                false
            }
        }
    }

    /// Kicks until the kernel has taken everything, makes no more progress, or has been asked often
    /// enough.
    fn send(&mut self, now: Time) {
        let must_ask = !self.mode.is_zero_copy()
            || self.kernel.rings.transmit.needs_wakeup()
            || now.since(self.progress) >= KICK_INTERVAL;
        if !must_ask {
            return;
        }
        // A packet that the device threw away shows in the completion ring only.
        let mut state = (
            self.kernel.rings.transmit.pending(),
            self.kernel.rings.complete.produced(),
        );
        for _ in 0..KICKS_PER_FLUSH {
            let again = self.kick();
            let reached = (
                self.kernel.rings.transmit.pending(),
                self.kernel.rings.complete.produced(),
            );
            if !again || reached.0 == 0 || reached == state {
                return;
            }
            state = reached;
        }
    }

    fn watch_progress(&mut self, progressed: bool, now: Time) {
        if progressed || self.in_flight.packets() == 0 {
            self.progress = now;
            self.stalled = false;
        } else if !self.stalled && now.since(self.progress) >= STALL {
            self.stalled = true;
            self.counters.tx_stalls.add(1);
        }
    }

    /// Reads the kernel's counters (XDP_STATISTICS) into [`Self::counters`]. `flush` does it twice
    /// a second.
    pub fn read_statistics(&self) {
        let zero = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        if let Ok(kernel) = get_option(self.fd(), libc::XDP_STATISTICS, zero) {
            let counters = &self.counters;
            counters.kernel_rx_dropped.set(kernel.rx_dropped);
            counters.kernel_rx_invalid.set(kernel.rx_invalid_descs);
            counters.kernel_tx_invalid.set(kernel.tx_invalid_descs);
            counters.kernel_rx_ring_full.set(kernel.rx_ring_full);
            counters
                .kernel_rx_fill_empty
                .set(kernel.rx_fill_ring_empty_descs);
        }
    }
}

impl QueueIo for AfXdpQueue {
    fn receive(&mut self, pool: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        let max = u32::try_from(max)
            .unwrap_or(u32::MAX)
            .min(self.receive_ring);
        // First, and more than are taken below, so that the ring fills up again after a burst.
        self.restock(pool, FILL_FACTOR * max);
        let available = self.kernel.rings.receive.available(1).min(max);
        if available == 0 {
            return 0;
        }
        let before = batch.len();
        let mut bytes = 0;
        for _ in 0..available {
            let descriptor = self.kernel.rings.receive.take();
            let more = descriptor.options & libc::XDP_PKT_CONTD != 0;
            let mut frame = self.accept(descriptor, pool);
            if more || frame.is_none() || !matches!(self.assembly, Assembly::Idle) {
                frame = self.assemble(frame, more, pool);
            }
            if let Some(frame) = frame {
                frame.prefetch();
                bytes += frame.len();
                batch.push(frame);
            }
        }
        self.kernel.rings.receive.release();
        let received = batch.len() - before;
        self.counters.rx_packets.add(received as u64);
        self.counters.rx_bytes.add(bytes as u64);
        received
    }

    fn filled(&mut self) -> (usize, usize) {
        let places = self.receive_ring;
        let rings = &mut self.kernel.rings;
        let waiting = rings.receive.available(places).min(places);
        // With fewer buffers than places the buffers are what is short.
        let buffers = rings.fill.pending().min(places);
        let filled = if self.starved { places - buffers } else { 0 };
        (waiting.max(filled) as usize, places as usize)
    }

    fn transmit_room(&mut self, pool: &mut FramePool) -> usize {
        if self.in_flight.packets() > 0 {
            self.collect(pool);
        }
        (self.ring - self.in_flight.packets()) as usize
    }

    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
        let room = self.ring - self.in_flight.packets();
        let room = self.kernel.rings.transmit.room(room).min(room);
        let count = fitting(batch, room);
        let (mut sent, mut pieces, mut bytes) = (0, 0, 0);
        let frame_len = self.frame_len();
        for frame in batch.drain(..count) {
            let len = frame.len();
            if !(PACKET_MIN..=usize::from(JUMBO_MAX)).contains(&len) || has_gap(&frame) {
                self.refused.push(frame);
                continue;
            }
            sent += 1;
            bytes += len as u64;
            assert!(self.region.owns(&frame), "a frame of another region");
            if frame.is_chained() || usize::from(frame.start()) + len > usize::from(CHUNK) {
                pieces += self.put_long(frame);
                continue;
            }
            self.holders.lend(&frame, self.number);
            let start = u64::from(frame.start());
            self.kernel.rings.transmit.put(libc::xdp_desc {
                addr: u64::from(frame.into_index()) * frame_len + start,
                len: u32::try_from(len).expect("checked against JUMBO_MAX"),
                options: 0,
            });
            pieces += 1;
        }
        if sent > 0 {
            self.kernel.rings.transmit.publish();
            self.in_flight.handed_in_pieces(pieces, sent, bytes);
            self.counters.tx_packets.add(u64::from(sent));
            self.counters.tx_bytes.add(bytes);
        }
        count
    }

    fn doze(&mut self) {
        self.heartbeat.doze();
    }

    fn flush(&mut self, pool: &mut FramePool, now: Time) {
        self.heartbeat.beat(now);
        if !self.begun
            && let Err(error) = self.begin()
        {
            let queue = self.queue;
            tracing::error!("queue {queue}: its packets stay the kernel's: {error}");
        }
        if self.kernel.rings.transmit.pending() > 0 {
            self.send(now);
        }
        // After the call, which in copy mode completes what it sends to most devices.
        self.collect(pool);
        let progressed = std::mem::take(&mut self.collected);
        self.watch_progress(progressed, now);
        for frame in self.refused.drain(..) {
            self.counters.tx_refused.add(1);
            pool.give(frame);
        }
        if now >= self.statistics_due {
            self.read_statistics();
            self.statistics_due = now + STATISTICS_INTERVAL;
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight.packets() as usize
    }

    fn backlog(&self) -> u64 {
        self.in_flight.bytes()
    }
}

impl Drop for AfXdpQueue {
    fn drop(&mut self) {
        // In this order: kernels have crashed on programs that redirect to a socket being closed.
        self.attachment.detach();
        // SAFETY: dropped once, here; nothing below uses it.
        unsafe { ManuallyDrop::drop(&mut self.kernel) };
        let mut pool = FramePool::new(self.region.clone());
        for frame in self.refused.drain(..) {
            pool.give(frame);
        }
        if let Assembly::Begun(frame) = std::mem::replace(&mut self.assembly, Assembly::Idle) {
            pool.give(frame);
        }
        if self.mode.is_zero_copy() {
            // The driver lets go of its buffers some time after the socket is closed, and does not
            // say when. They stay out of use as long as the UMEM lives.
            return;
        }
        // SAFETY: closing a socket in copy mode ends after the last access to its buffers.
        unsafe { self.umem.reclaim(self.number) };
    }
}

impl AsFd for AfXdpQueue {
    /// To sleep on: readable when packets have arrived. A duplicate must not outlive the queue: it
    /// would keep the socket open, whose buffers are in other hands by then.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl fmt::Debug for AfXdpQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfXdpQueue")
            .field("queue", &self.queue)
            .field("mode", &self.mode)
            .field("in_flight", &self.in_flight.packets())
            .finish_non_exhaustive()
    }
}
