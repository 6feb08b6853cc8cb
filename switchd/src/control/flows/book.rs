//! The flows: what the workers' slots say, put together.
//!
//! ```text
//!            first packet        active time is over: NAKs are counted from zero
//!   nothing ─────────────▶ flow ─────┐
//!      ▲                    │ ▲──────┘
//!      └────────────────────┘ nothing passed for the inactive time: its slots are given back
//! ```
//!
//! A worker frees a slot only if nothing has passed since control read it. Otherwise the flow goes
//! on, and what had been counted before is not counted again.

use super::pairing::{Single, is_possible, pairs};
use super::record::{EndReason, Learned, Record, mean_rate};
use super::setup::Setups;
use crate::config::flows::Flows;
use crate::flows::{Counts, Ends, Key, Release, SETUPS, Seen, TableCounters, is_covered};
use crate::id::PortId;
use common::time::{Span, Time};
use common::units::Rate;
use std::collections::HashMap;

/// Least time over which the rate of a direction is measured.
const RATE_INTERVAL: Span = Span::from_secs(1);

/// A slot of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    worker: usize,
    slot: usize,
    generation: u32,
    counts: Counts,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Which.
    pub key: Key,
    /// What was counted since it is known.
    pub counts: Counts,
    /// When its first packet passed,
    pub first: Time,
    /// its last,
    pub last: Time,
    /// and its last NAK; zero without one.
    pub nak_at: Time,
    /// The port that its last packets arrived at.
    pub ingress: PortId,
    /// Their UDP source port.
    pub source_port: u16,
    /// Their traffic class (TOS of IPv4): DSCP and ECN.
    pub traffic_class: u8,
    /// Its rate, if it is an elephant.
    pub rate: Option<Rate>,
    /// What had been counted when the active time began,
    before: Counts,
    /// and when that was.
    pub begun: Time,
    parts: Vec<Part>,
    other: Option<(Key, Learned)>,
    is_client: bool,
    /// Until when nothing had passed in the active time, as far as was seen.
    quiet: Time,
    /// There were requests in it.
    asks: bool,
    acknowledged: Option<u32>,
    /// Round trips of the other direction's requests,
    rtt: (Span, u64),
    /// how many there were when the active time began,
    rtt_before: u64,
    /// and when they were found not to change any more.
    rtt_settled: u64,
    /// Bytes and time from which the rate is measured.
    measured: (u64, Time),
}

impl Direction {
    fn new(key: Key, now: Time) -> Self {
        Self {
            key,
            counts: Counts::default(),
            first: now,
            last: Time::ZERO,
            nak_at: Time::ZERO,
            ingress: PortId(0),
            source_port: 0,
            traffic_class: 0,
            rate: None,
            before: Counts::default(),
            begun: now,
            parts: Vec::new(),
            other: None,
            is_client: false,
            quiet: now,
            asks: false,
            acknowledged: None,
            rtt: (Span::ZERO, 0),
            rtt_before: 0,
            rtt_settled: 0,
            measured: (0, now),
        }
    }

    /// What was counted in this active time.
    pub fn in_active_time(&self) -> Counts {
        self.counts.since(&self.before)
    }

    fn add(&mut self, worker: usize, slot: usize, seen: &Seen) {
        if self.parts.is_empty() {
            self.counts = Counts::default();
            self.rtt = (Span::ZERO, 0);
        }
        self.counts = self.counts.plus(&seen.counts);
        self.first = self.first.min(seen.first);
        if seen.last >= self.last {
            self.last = seen.last;
            (self.ingress, self.source_port) = (seen.ingress, seen.source_port);
            self.traffic_class = seen.traffic_class;
            self.acknowledged = seen.acknowledged.or(self.acknowledged);
        }
        self.nak_at = self.nak_at.max(seen.nak_at);
        self.asks |= seen.requests.is_some();
        if seen.rtt.1 > self.rtt.1 {
            self.rtt = seen.rtt;
        }
        self.parts.push(Part {
            worker,
            slot,
            generation: seen.generation,
            counts: seen.counts,
        });
    }

    /// The slot that has most of its packets.
    fn main_part(&self) -> Option<&Part> {
        self.parts.iter().max_by_key(|part| part.counts.packets)
    }

    /// Notes whether something has passed in the active time by now.
    fn look(&mut self, now: Time) {
        if self.in_active_time() == Counts::default() {
            self.quiet = now;
        }
    }

    fn measure(&mut self, elephant: Rate, now: Time) {
        let (bytes, since) = self.measured;
        let passed = now.since(since);
        if passed < RATE_INTERVAL {
            return;
        }
        let bits = self.counts.bytes.wrapping_sub(bytes).saturating_mul(8);
        let rate = u128::from(bits) * 1_000_000_000 / u128::from(passed.nanos());
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.rate = (rate >= elephant.bps()).then(|| Rate::from_bps(rate));
        self.measured = (self.counts.bytes, now);
    }

    /// What is told of its active time; `None`: nothing passed.
    fn record(&self, rtt: Option<Span>, reason: EndReason, settings: &Flows) -> Option<Record> {
        let counts = self.in_active_time();
        if counts == Counts::default() {
            return None;
        }
        // Slots know the first packet of all. Of a later active time it passed after the last look
        // that saw none.
        let first = self.quiet.min(self.last);
        let rate = mean_rate(counts.bytes, first, self.last);
        Some(Record {
            key: self.key,
            other: self.other.map(|(key, learned)| (key.qp(), learned)),
            counts,
            first,
            last: self.last,
            nak_at: (counts.naks > 0).then_some(self.nak_at),
            ingress: self.ingress,
            source_port: self.source_port,
            traffic_class: self.traffic_class,
            rtt,
            rate: rate.filter(|rate| *rate >= settings.elephant_rate),
            reason,
        })
    }

    /// The active time begins anew, and with it what is counted in it.
    fn begin_anew(&mut self, now: Time) {
        self.before = self.counts;
        (self.begun, self.quiet) = (now, now);
        if self.rtt.1 == self.rtt_before {
            self.rtt_settled = self.rtt.1;
        }
        self.rtt_before = self.rtt.1;
    }
}

/// A flow: a direction, and the other one if it is known.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// That of the client; if nobody knows who that is, of who asks; if both do, the one that was
    /// seen first.
    pub forward: &'a Direction,
    /// Which is the other one, and how that is known.
    pub other: Option<(Key, Learned)>,
    /// The other one, if something passed in it.
    pub backward: Option<&'a Direction>,
}

impl Flow<'_> {
    /// Round trips between the switch and where a direction goes, of one of its directions: moving
    /// average, if there were any lately.
    pub fn rtt(&self, is_forward: bool) -> Option<Span> {
        let backward = self.backward?;
        // Who acknowledges has measured.
        let of = if is_forward { backward } else { self.forward };
        let (average, samples) = of.rtt;
        (samples != of.rtt_settled).then_some(average)
    }

    /// Its directions, with their round trips.
    fn directions(&self) -> impl Iterator<Item = (Key, Option<Span>)> + use<> {
        let forward = (self.forward.key, self.rtt(true));
        let backward = self.backward.map(|it| (it.key, self.rtt(false)));
        std::iter::once(forward).chain(backward)
    }

    /// When its last packet passed.
    pub fn last(&self) -> Time {
        let other = self.backward.map_or(Time::ZERO, |it| it.last);
        self.forward.last.max(other)
    }

    /// When its active time began.
    pub fn begun(&self) -> Time {
        let other = self.backward.map_or(Time::NEVER, |it| it.begun);
        self.forward.begun.min(other)
    }
}

/// The flows of a switch.
#[derive(Debug)]
pub struct Book {
    settings: Flows,
    ends: Vec<Ends>,
    directions: HashMap<Key, Direction>,
    setups: Setups,
    /// Slots that were given back, by worker and place, and have not been freed yet.
    /// `true`: the worker has been told.
    released: HashMap<(usize, usize), (Part, bool)>,
    /// Flows that ended, and active times that were over.
    aged: [u64; 2],
    /// What is to be told of flows, if anybody wants to know.
    records: Option<Vec<Record>>,
}

impl Book {
    /// A book of what these observers will see.
    /// Records are kept for [`Self::take_records`] if a collector is configured.
    pub fn new(settings: &Flows, ends: Vec<Ends>) -> Self {
        let exports = !settings.collector.is_empty();
        Self {
            records: exports.then(Vec::new),
            settings: settings.clone(),
            ends,
            directions: HashMap::new(),
            setups: Setups::default(),
            released: HashMap::new(),
            aged: [0; 2],
        }
    }

    /// Reads what the workers saw. Whether they have something to do: slots are given back.
    pub fn read(&mut self, now: Time) -> bool {
        self.read_slots(now);
        self.read_setups();
        self.pair_by_data();
        self.tell_peers();
        for direction in self.directions.values_mut() {
            direction.look(now);
            direction.measure(self.settings.elephant_rate, now);
        }
        let released = self.age(now);
        let directions = &self.directions;
        self.setups.forget(now, |key| directions.contains_key(key));
        released
    }

    /// The switch stops: all flows are over.
    pub fn end(&mut self, now: Time) {
        self.read(now);
        let directions: Vec<_> = self.flows().flat_map(|it| it.directions()).collect();
        self.note(&directions, EndReason::Forced);
    }

    /// What is to be told of flows since the last time.
    pub fn take_records(&mut self) -> Vec<Record> {
        self.records
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Makes records of directions in which something passed.
    fn note(&mut self, directions: &[(Key, Option<Span>)], reason: EndReason) {
        let Some(mut records) = self.records.take() else {
            return;
        };
        for (key, rtt) in directions {
            let direction = self.directions.get(key);
            let record = direction.and_then(|it| it.record(*rtt, reason, &self.settings));
            records.extend(record);
        }
        self.records = Some(records);
    }

    /// The flows, in no order.
    pub fn flows(&self) -> impl Iterator<Item = Flow<'_>> {
        self.directions.values().filter_map(|it| self.flow_of(it))
    }

    /// What the workers count, added up.
    pub fn counted(&self, of: impl Fn(&TableCounters) -> u64) -> u64 {
        self.ends.iter().map(|ends| of(&ends.table.counters)).sum()
    }

    /// Flows that ended, and active times that were over.
    pub fn aged(&self) -> (u64, u64) {
        (self.aged[0], self.aged[1])
    }

    /// Directions that the workers have room for.
    pub fn room(&self) -> usize {
        self.most_directions()
    }

    /// Messages of connection management that made no sense or found no room.
    pub fn setups_refused(&self) -> u64 {
        self.setups.refused
    }

    /// Connections that were asked for and found no room, by the port that asked.
    pub fn setups_without_room(&self) -> impl Iterator<Item = (PortId, u64)> {
        self.setups.without_room()
    }

    /// The flow whose forward direction this is.
    fn flow_of<'a>(&'a self, forward: &'a Direction) -> Option<Flow<'a>> {
        let other = forward.other;
        let backward = other.and_then(|(key, _)| self.directions.get(&key));
        if let Some(other) = backward {
            let rank = |it: &Direction| (!it.is_client, !it.asks, it.first, it.key);
            if rank(other) < rank(forward) {
                return None;
            }
        }
        Some(Flow {
            forward,
            other,
            backward,
        })
    }

    fn read_slots(&mut self, now: Time) {
        let all = self.directions.values_mut();
        all.for_each(|direction| direction.parts.clear());
        for (worker, ends) in self.ends.iter().enumerate() {
            for (slot, it) in ends.table.slots.iter().enumerate() {
                let seen = it.read();
                let place = (worker, slot);
                let given_back = self.released.get(&place).map(|(part, _)| *part);
                let Some(seen) = seen else {
                    self.released.remove(&place);
                    continue;
                };
                let its = given_back.filter(|part| part.generation == seen.generation);
                if its.is_some_and(|part| part.counts.packets == seen.counts.packets) {
                    // The worker has not looked yet.
                    continue;
                }
                self.released.remove(&place);
                let new = || Direction::new(seen.key, if its.is_some() { now } else { seen.first });
                let direction = self.directions.entry(seen.key).or_insert_with(new);
                if let Some(part) = its {
                    // It goes on after all.
                    direction.before = direction.before.plus(&part.counts);
                    direction.measured.0 += part.counts.bytes;
                    direction.rtt_before = seen.rtt.1;
                }
                direction.add(worker, slot, &seen);
            }
        }
        self.directions.retain(|_, it| !it.parts.is_empty());
    }

    /// Slots of both directions of all workers.
    fn most_directions(&self) -> usize {
        let slots = self.ends.iter().map(|ends| ends.table.slots.len());
        slots.sum()
    }

    fn read_setups(&mut self) {
        let most = 2 * self.most_directions();
        let mut pairs = self.setups.retry(most);
        for ends in &mut self.ends {
            for _ in 0..SETUPS {
                let Some(setup) = ends.setups.pop() else {
                    break;
                };
                pairs.extend(self.setups.take(&setup, most));
            }
        }
        for (client, server) in pairs {
            self.unpair(&client);
            self.unpair(&server);
        }
        let single = |it: &&Direction| it.other.is_none_or(|(_, how)| how == Learned::Data);
        let keys = self.directions.values().filter(single).map(|it| it.key);
        for key in keys.collect::<Vec<_>>() {
            if let Some(other) = self.setups.other(&key) {
                let (client, server) = if other.is_client {
                    (key, other.key)
                } else {
                    (other.key, key)
                };
                self.pair(client, server, Learned::Setup);
            }
        }
    }

    fn pair(&mut self, forward: Key, backward: Key, learned: Learned) {
        self.unpair(&forward);
        self.unpair(&backward);
        for (key, other) in [(forward, backward), (backward, forward)] {
            if let Some(direction) = self.directions.get_mut(&key) {
                direction.other = Some((other, learned));
                direction.is_client = learned == Learned::Setup && key == forward;
            }
        }
    }

    fn unpair(&mut self, key: &Key) {
        let direction = self.directions.get_mut(key);
        let Some((other, _)) = direction.and_then(|it| it.other.take()) else {
            return;
        };
        if let Some(direction) = self.directions.get_mut(&other) {
            direction.other = None;
        }
    }

    /// The last request of a direction, as it is now: later than all that was read of others.
    fn last_request(&self, direction: &Direction) -> Option<u32> {
        let of_part = |part: &Part| {
            let slot = &self.ends[part.worker].table.slots[part.slot];
            slot.requests().map(|(_, last)| last)
        };
        let all = direction.parts.iter().filter_map(of_part);
        all.reduce(|one, other| if is_covered(one, other) { other } else { one })
    }

    fn pair_by_data(&mut self) {
        let contradicted = |it: &&Direction| {
            let Some((key, Learned::Data)) = it.other else {
                return false;
            };
            let request = self.directions.get(&key);
            let request = request.and_then(|other| self.last_request(other));
            match (request, it.acknowledged) {
                (Some(request), Some(psn)) => !is_possible(request, psn),
                _ => false,
            }
        };
        let wrong = self.directions.values().filter(contradicted);
        let wrong: Vec<Key> = wrong.map(|it| it.key).collect();
        wrong.iter().for_each(|key| self.unpair(key));
        let single = |it: &Direction| {
            it.other.is_none().then(|| Single {
                key: it.key,
                request: self.last_request(it),
                acknowledged: it.acknowledged,
            })
        };
        let singles: Vec<_> = self.directions.values().filter_map(single).collect();
        for (one, other) in pairs(&singles) {
            self.pair(one, other, Learned::Data);
        }
    }

    /// Tells the workers which slots belong together, so that they can measure round trips.
    fn tell_peers(&self) {
        for direction in self.directions.values() {
            let other = direction.other.and_then(|(key, _)| {
                let part = self.directions.get(&key)?.main_part()?;
                Some((part.worker, part.slot, part.generation))
            });
            for part in &direction.parts {
                self.ends[part.worker].table.slots[part.slot].set_peer(other);
            }
        }
    }

    /// Ends flows that are over, and active times. Whether slots were given back.
    fn age(&mut self, now: Time) -> bool {
        let (active, inactive) = (self.settings.active(), self.settings.inactive());
        let (mut over, mut anew) = (Vec::new(), Vec::new());
        let mut aged = [0; 2];
        for flow in self.flows() {
            if now.since(flow.last()) >= inactive {
                over.extend(flow.directions());
                aged[0] += 1;
            } else if now.since(flow.begun()) >= active {
                anew.extend(flow.directions());
                aged[1] += 1;
            }
        }
        for (all, some) in self.aged.iter_mut().zip(aged) {
            *all += some;
        }
        self.note(&anew, EndReason::Active);
        self.note(&over, EndReason::Idle);
        for (key, _) in &anew {
            if let Some(direction) = self.directions.get_mut(key) {
                direction.begin_anew(now);
            }
        }
        for (key, _) in &over {
            if let Some(direction) = self.directions.remove(key) {
                self.setups.end(key);
                let its = direction.parts.iter();
                let places = its.map(|part| ((part.worker, part.slot), (*part, false)));
                self.released.extend(places);
            }
        }
        self.give_back()
    }

    /// Tells the workers which slots are theirs again, as many as they take. Whether there are
    /// any.
    fn give_back(&mut self) -> bool {
        let mut some = false;
        for ((worker, slot), (part, told)) in &mut self.released {
            if !*told {
                let release = Release {
                    slot: *slot,
                    generation: part.generation,
                    packets: part.counts.packets,
                };
                *told = self.ends[*worker].releases.push(release).is_ok();
                some = true;
            }
        }
        some
    }
}
