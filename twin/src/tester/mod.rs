//! A tester: one port of a traffic generator, which sends raw frames of any size at the exact rate
//! of its link, obeys or sends PAUSE and PFC, and counts what arrives.
//!
//! ```text
//!   stream ─┐
//!   stream ─┼─▶ whose turn ─▶ not paused ─▶ line is free ─▶ wire
//!   storm  ─┘                     ▲
//!   received, by stream ◀─────────┴──── control frames ◀── wire
//! ```
//!
//! It takes the place of a host in a plan. It passes a frame to the wire when the frame before has
//! left (less than a nanosecond early, the resolution of time), so nothing queues behind it and a
//! pause takes effect after the frame that is being sent. It acts at once, whatever `poll` is for
//! daemons, and its clock is exact. It holds no frames.

mod packet;
mod pause;
mod received;
mod stream;

use super::wire::Wire;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::ethernet::Mac;
use common::wire::pause::{Control, FRAME_LEN, PRIORITIES};
use common::wire::roce::frame::Addresses;
use common::xdp::frame::{Frame, FramePool};
use packet::{Arrival, Route};
use pause::{Obedience, Storming};
pub use pause::{Storm, pfc};
pub use received::{Latency, MARKS, Received};
use std::collections::BTreeMap;
use std::net::IpAddr;
pub use stream::{Bursts, FCS, Roce, Sent, Sizes, Stream};
use stream::{Outgoing, PICO};

/// Control frames that a tester remembers: more than a storm of one each microsecond for 50 ms.
pub const CONTROLS: usize = 65_536;

/// What testers have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TesterSettings {
    /// Time from the arrival of a control frame until it takes effect.
    pub response: Span,
    /// Priority of each DSCP, by which PFC pauses it.
    pub priority_of_dscp: [u8; 64],
    /// It obeys PAUSE and PFC; otherwise it only records them.
    pub obeys: bool,
}

impl Default for TesterSettings {
    /// At once, and by the upper three bits of the DSCP.
    fn default() -> Self {
        let priorities = PRIORITIES.to_le_bytes()[0];
        Self {
            response: Span::ZERO,
            priority_of_dscp: std::array::from_fn(|dscp| dscp.to_le_bytes()[0] / priorities),
            obeys: true,
        }
    }
}

/// Where a tester is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its Ethernet address.
    pub mac: Mac,
    /// That of the other end of its link.
    pub neighbour: Mac,
    /// Its IP address.
    pub address: IpAddr,
    /// Speed of its link.
    pub speed: Rate,
}

/// What a tester has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TesterCount {
    /// Frames handed to the wire.
    pub sent: u64,
    /// PAUSE and PFC frames among them.
    pub controls_sent: u64,
    /// Frames that arrived.
    pub received: u64,
    /// PAUSE and PFC frames among them.
    pub controls: u64,
    /// Frames that are neither those nor packets of streams to this tester, such as ICMP messages.
    pub others: u64,
    /// Times that no frame was free.
    pub starved: u64,
}

/// What a tester does next.
#[derive(Debug)]
pub enum Act {
    /// Sends this frame; then it has to be asked again.
    Send(Frame),
    /// Nothing until then, unless something arrives.
    Wait(Time),
}

/// A tester.
#[derive(Debug)]
pub struct Tester {
    place: Place,
    settings: TesterSettings,
    seed: u64,
    /// When what it has sent has left, in picoseconds.
    free_at: u64,
    outgoing: Vec<(Outgoing, Route)>,
    storms: Vec<Storming>,
    obedience: Obedience,
    received: BTreeMap<u16, Received>,
    /// Control frames that arrived and when, the first [`CONTROLS`].
    pub controls: Vec<(Time, Control)>,
    /// What it has counted.
    pub count: TesterCount,
}

impl Tester {
    /// A tester with nothing to do. `seed` is what sizes are drawn from: all testers of a fabric
    /// have the same.
    pub fn new(place: Place, settings: TesterSettings, seed: u64) -> Self {
        Self {
            place,
            settings,
            seed,
            free_at: 0,
            outgoing: Vec::new(),
            storms: Vec::new(),
            obedience: Obedience::new(place.speed, settings.response),
            received: BTreeMap::new(),
            controls: Vec::new(),
            count: TesterCount::default(),
        }
    }

    /// Sends a stream to the tester at `to`, in frames of memory for `capacity` bytes. `number` is
    /// unique in the fabric.
    ///
    /// # Errors
    /// What is wrong with the stream.
    pub fn send(
        &mut self,
        number: u16,
        stream: Stream,
        (to, capacity): (IpAddr, usize),
    ) -> Result<(), String> {
        let addresses = Addresses::new(self.place.address, to)
            .ok_or_else(|| format!("{to} is of another version"))?;
        if let Some(mistake) = stream.mistake(self.is_v6(), capacity) {
            return Err(mistake);
        }
        let route = Route {
            src_mac: self.place.mac,
            dst_mac: self.place.neighbour,
            addresses,
        };
        self.outgoing.push((Outgoing::new(number, stream), route));
        Ok(())
    }

    /// Counts what arrives of a stream.
    pub fn expect(&mut self, number: u16, stream: Stream) {
        let received = Received::new(stream, self.seed, self.is_v6());
        self.received.insert(number, received);
    }

    /// Sends control frames.
    pub fn storm(&mut self, storm: Storm) {
        self.storms.push(Storming::new(storm));
    }

    /// Ends streams and storms at `now`.
    pub fn stop(&mut self, now: Time) {
        for (out, _) in &mut self.outgoing {
            out.stream.stop = out.stream.stop.min(now);
        }
        self.storms.iter_mut().for_each(|storm| storm.stop(now));
    }

    /// Ends a stream at `now`.
    pub fn stop_stream(&mut self, number: u16, now: Time) {
        let mut own = self.outgoing.iter_mut();
        if let Some((out, _)) = own.find(|(out, _)| out.number == number) {
            out.stream.stop = out.stream.stop.min(now);
        }
    }

    /// Whether there is nothing that it will still send.
    pub fn is_done(&self, now: Time) -> bool {
        let at = now.nanos().saturating_mul(PICO);
        self.outgoing.iter().all(|(out, _)| out.is_over(at))
            && self.storms.iter().all(|storm| storm.due() == Time::NEVER)
    }

    /// What arrived of a stream.
    pub fn received(&self, number: u16) -> Option<&Received> {
        self.received.get(&number)
    }

    /// What was sent of a stream.
    pub fn sent(&self, number: u16) -> Option<Sent> {
        let mut own = self.outgoing.iter();
        own.find(|(out, _)| out.number == number)
            .map(|(out, _)| out.sent)
    }

    /// Until when a priority is paused.
    pub fn paused_until(&self, priority: u8) -> Time {
        Time::from_nanos(self.obedience.until(priority).div_ceil(PICO))
    }

    fn is_v6(&self) -> bool {
        self.place.address.is_ipv6()
    }

    /// A frame has arrived.
    pub(super) fn receive(&mut self, frame: &[u8], now: Time) {
        self.count.received += 1;
        match packet::read(frame) {
            Arrival::Control(control) => {
                self.count.controls += 1;
                if self.controls.len() < CONTROLS {
                    self.controls.push((now, control));
                }
                if self.settings.obeys {
                    self.obedience.on_control_frame(control, now);
                }
            }
            Arrival::Packet(label) => {
                let stream = self.received.get_mut(&label.number);
                let known = stream.is_some_and(|stream| stream.note(&label, now));
                self.count.others += u64::from(!known);
            }
            Arrival::Other => self.count.others += 1,
        }
    }

    /// What it does at `now` on the wire of its port, with a frame of `pool`.
    pub(super) fn act(&mut self, now: Time, wire: &Wire, pool: &mut FramePool) -> Act {
        self.obedience.act(now);
        // Others may have put frames on the wire; one that is down takes no time.
        let line = self.free_at.max(wire.free_at());
        let free = Time::from_nanos(line / PICO);
        if free > now {
            return Act::Wait(free.min(self.obedience.next()));
        }
        let begin = line.max(now.nanos().saturating_mul(PICO));
        if let Some(control) = self.storms.iter_mut().find_map(|storm| storm.take(now)) {
            return self.send_control(control, (begin, now), wire, pool);
        }
        let (wait, next) = self.choose(begin);
        match next {
            Some(next) => self.send_packet(next, (begin, now), wire, pool),
            None => {
                let storms = self.storms.iter().map(Storming::due);
                let storm = storms.min().unwrap_or(Time::NEVER);
                Act::Wait(wait.min(storm).min(self.obedience.next()))
            }
        }
    }

    /// The stream whose turn it is at `begin`; and when one can be due that is not.
    fn choose(&self, begin: u64) -> (Time, Option<usize>) {
        let now = begin / PICO;
        let mut wait = u64::MAX;
        let mut best = None;
        for (place, (out, _)) in self.outgoing.iter().enumerate() {
            if out.is_over(begin) {
                continue;
            }
            let due = out.due() / PICO;
            let priority = self.settings.priority_of_dscp[usize::from(out.stream.dscp)];
            let paused = self.obedience.until(priority);
            if due <= now && paused <= begin {
                let turn = (out.turn(), place);
                best = Some(best.map_or(turn, |best| turn.min(best)));
            } else {
                wait = wait.min(due.max(paused.div_ceil(PICO)).max(now + 1));
            }
        }
        (Time::from_nanos(wait), best.map(|(_, place)| place))
    }

    fn send_control(
        &mut self,
        control: Control,
        (begin, now): (u64, Time),
        wire: &Wire,
        pool: &mut FramePool,
    ) -> Act {
        let Some(frame) = pool.take_filled(&control.emit(self.place.mac)) else {
            return self.starve(now);
        };
        self.free_at = begin + wire.time_of(FRAME_LEN as u64);
        self.count.sent += 1;
        self.count.controls_sent += 1;
        Act::Send(frame)
    }

    fn send_packet(
        &mut self,
        place: usize,
        (begin, now): (u64, Time),
        wire: &Wire,
        pool: &mut FramePool,
    ) -> Act {
        let v6 = self.is_v6();
        let longest = |(out, _): &(Outgoing, Route)| out.stream.longest();
        let longest = self.outgoing.iter().map(longest).max().unwrap_or(0);
        let slack = self.outgoing.len() as u64 * wire.time_of(longest as u64);
        let (out, route) = &mut self.outgoing[place];
        let len = out.stream.frame_len(out.sent.packets, self.seed, v6);
        let Some(mut frame) = pool.take_sized(len) else {
            return self.starve(now);
        };
        packet::write(frame.bytes_mut(), route, out, now);
        let taken = wire.time_of(len as u64);
        out.served(len, (begin, taken), slack);
        self.free_at = begin + taken;
        self.count.sent += 1;
        Act::Send(frame)
    }

    /// No frame is free: looks again soon.
    fn starve(&mut self, now: Time) -> Act {
        self.count.starved += 1;
        Act::Wait(now + Span::from_micros(1))
    }
}
