//! A worker's end of flow analysis.

use super::Key;
use super::index::{Index, SLOTS_MAX};
use super::read::{Kind, Read, RocePacket, read};
use super::shares::{Shares, with_reserve};
use super::slot::{Slot, Table, WAITS, is_covered, low};
use crate::id::PortId;
use crate::limits::LANES;
use crate::packet::{Parsed, Version};
use common::sync::spsc::{Consumer, Producer, ring};
use common::sync::words::prefetch;
use common::time::{Span, Time};
use common::wire::cm::MAD_LEN;
use common::wire::ip::{v4, v6};
use common::wire::roce::PSN_MASK;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Messages of connection management of a worker that control has not taken yet: it looks twice a
/// second.
pub const SETUPS: usize = 2048;

/// Slots that control gives back before the worker has looked.
const RELEASES: usize = 4096;

/// Slots that are given back in one turn.
const RELEASES_A_TURN: usize = 32;

/// Between two samples of one direction.
const BETWEEN_SAMPLES: Span = Span::from_millis(1);

/// After this time a sample is given up: its answer was lost, or went another way. What covers it
/// later is the answer to something else.
const GIVE_UP: Span = Span::from_secs(1);

/// A sample is an eighth of the average.
const WEIGHT: u64 = 8;

/// Control has looked in the meantime.
const BETWEEN_LOOKS: Span = Span::from_millis(500);

/// A message of connection management that passed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// When.
    pub at: Time,
    /// The port at which it arrived.
    pub ingress: PortId,
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// The message.
    pub message: [u8; MAD_LEN],
}

/// A slot that control needs no more, if nothing has passed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its place.
    pub slot: usize,
    /// Its user.
    pub generation: u32,
    /// What control knows of.
    pub packets: u64,
}

/// Control's ends of an observer.
#[derive(Debug)]
pub struct Ends {
    /// What it counts.
    pub table: Arc<Table>,
    /// What it saw of connection management.
    pub setups: Consumer<Setup>,
    /// Slots that it is to free.
    pub releases: Producer<Release>,
}

/// Bytes of the fixed header of IPv6, which are not in its payload.
const V6_HEADER: u16 = 40;

/// A packet between two steps.
#[derive(Clone, Copy, Debug)]
struct Noted {
    key: Key,
    hash: u64,
    packet: RocePacket,
    ingress: PortId,
    bytes: u16,
    traffic_class: u8,
    /// The slot that is probably its own, found while it was fetched.
    slot: Option<u32>,
}

/// A worker's end. All of its memory is there from the start.
#[derive(Debug)]
pub struct Observer {
    table: Arc<Table>,
    /// Of all workers, its own included.
    tables: Arc<[Arc<Table>]>,
    index: Index,
    free: Vec<u32>,
    /// By slot, the port of the first packet of its user: whose share it is.
    began: Box<[PortId]>,
    shares: Shares,
    seed: u64,
    /// An average whose last sample is older than this begins anew.
    forget: Span,
    noted: Vec<Noted>,
    setups: Producer<Setup>,
    /// Messages handed over since control looked, by port.
    handed: Shares,
    /// The time from which these are counted.
    handed_since: Time,
    releases: Consumer<Release>,
}

/// Observers for `workers` workers, each with slots for so many `directions`, and control's ends of
/// them. They find room whichever ports they arrive at; when those of one port have taken it all,
/// an eighth of as many are left for others. An average of round trips begins anew after `forget`
/// without one. `seed` is not to be known to those who send packets.
///
/// # Panics
/// If a table would have more slots than can be numbered.
pub fn observers(
    workers: usize,
    directions: usize,
    forget: Span,
    seed: u64,
) -> Vec<(Observer, Ends)> {
    let slots = with_reserve(directions);
    assert!(slots <= SLOTS_MAX, "{slots} slots");
    let tables: Arc<[Arc<Table>]> = (0..workers).map(|_| Table::new(slots)).collect();
    let one = |table: &Arc<Table>| {
        let (setup_sender, setups) = ring(SETUPS);
        let (releases, release_receiver) = ring(RELEASES);
        let observer = Observer {
            table: table.clone(),
            tables: tables.clone(),
            index: Index::new(slots),
            free: (0..u32::try_from(slots).expect("checked")).rev().collect(),
            began: vec![PortId(0); slots].into(),
            shares: Shares::default(),
            seed,
            forget,
            noted: Vec::with_capacity(LANES),
            setups: setup_sender,
            handed: Shares::default(),
            handed_since: Time::ZERO,
            releases: release_receiver,
        };
        let table = table.clone();
        (
            observer,
            Ends {
                table,
                setups,
                releases,
            },
        )
    };
    tables.iter().map(one).collect()
}

impl Observer {
    /// Notes a packet that arrived; it is counted by [`Self::count`], after all of its batch were
    /// noted. The direction that it passes in, if it is a congestion notification.
    #[inline]
    pub fn note(
        &mut self,
        frame: &[u8],
        parsed: &Parsed,
        ingress: PortId,
        now: Time,
    ) -> Option<Key> {
        match read(frame, parsed) {
            Read::Other => {}
            Read::Packet(packet) => {
                let key = Key::of(frame, parsed, packet.qp);
                let notifies = packet.kind == Kind::Cnp;
                let hash = key.hash(self.seed);
                prefetch(self.index.place(hash));
                if self.noted.len() == LANES {
                    self.count(now);
                }
                self.noted.push(Noted {
                    key,
                    hash,
                    packet,
                    ingress,
                    bytes: ip_len(frame, parsed),
                    traffic_class: parsed.dscp << 2 | parsed.ecn,
                    slot: None,
                });
                return notifies.then_some(key);
            }
            Read::Setup(message) => self.hand_over((frame, parsed), message, ingress, now),
            Read::Cut => self.table.counters.cut.add(1),
            Read::Unconnected => self.table.counters.unconnected.add(1),
        }
        None
    }

    /// Counts what was noted.
    #[inline]
    pub fn count(&mut self, now: Time) {
        if self.noted.is_empty() {
            return;
        }
        let mut noted = std::mem::take(&mut self.noted);
        for it in &mut noted {
            it.slot = self.index.first(it.hash);
            if let Some(slot) = it.slot {
                let slot = &self.table.slots[slot as usize];
                prefetch(slot);
                prefetch(&slot.request);
            }
        }
        for it in &noted {
            let slots = &self.table.slots;
            let likely = it.slot.map(|slot| &slots[slot as usize]);
            if let Some(slot) = likely.filter(|slot| slot.is_of(&it.key)) {
                self.note_in(slot, it, now);
            } else {
                self.note_elsewhere(it, now);
            }
        }
        self.table.counters.packets.add(noted.len() as u64);
        noted.clear();
        self.noted = noted;
    }

    /// Counts a packet of a direction that is new, or whose place others have in part of their
    /// hashes, too.
    #[cold]
    #[inline(never)]
    fn note_elsewhere(&mut self, it: &Noted, now: Time) {
        let slots = &self.table.slots;
        let found = self.index.find(it.hash, |slot| slots[slot].is_of(&it.key));
        if let Some(place) = found.or_else(|| self.begin(it, now)) {
            self.note_in(&self.table.slots[place], it, now);
        }
    }

    /// Takes a slot for a direction that has none; `None` if all are in use, or its port has its
    /// share: nobody loses his.
    fn begin(&mut self, it: &Noted, now: Time) -> Option<usize> {
        let may = self.shares.leave_some(it.ingress, self.began.len());
        let Some(place) = may.then(|| self.free.pop()).flatten() else {
            self.table.counters.unfollowed.add(1);
            return None;
        };
        let place = place as usize;
        self.began[place] = it.ingress;
        self.shares.take(it.ingress, 1);
        self.table.slots[place].begin(it.key, now);
        self.index.insert(it.hash, place);
        self.table.counters.used.add(1);
        Some(place)
    }

    #[inline]
    fn note_in(&self, slot: &Slot, it: &Noted, now: Time) {
        slot.packets.add(1);
        slot.bytes.add(u64::from(it.bytes));
        slot.last.set(now.nanos());
        let way = u64::from(it.packet.source_port) << 16 | u64::from(it.ingress.0);
        let way = u64::from(it.traffic_class) << 32 | way;
        if slot.way.get() != way {
            slot.way.set(way);
        }
        let psn = it.packet.psn;
        match it.packet.kind {
            Kind::Request { prompt } => {
                let is_newer = slot.note_request(psn);
                let sample = slot.sample.load(Ordering::Relaxed);
                let waits = sample & WAITS != 0;
                let measured = low(sample) & PSN_MASK;
                let is_again = match it.packet.is_multipath {
                    true => psn == measured,
                    false => !is_newer && is_covered(psn, measured),
                };
                if waits && is_again {
                    // It is sent again, and nobody knows which one will be answered.
                    slot.sample.store(sample & !WAITS, Ordering::Release);
                } else if prompt && is_newer {
                    self.take_sample(slot, psn, now);
                }
            }
            Kind::Acknowledge => {
                slot.note_acknowledged(psn);
                self.measure(slot, psn, now);
            }
            Kind::Answer => {}
            Kind::Nak => {
                slot.naks.add(1);
                slot.nak_at.set(now.nanos());
            }
            Kind::Refusal => slot.refusals.add(1),
            Kind::Cnp => slot.cnps.add(1),
        }
    }

    /// Begins to measure the round trip of a request, if it is time to.
    #[inline]
    fn take_sample(&self, slot: &Slot, psn: u32, now: Time) {
        let sampled = Time::from_nanos(slot.sampled.load(Ordering::Relaxed));
        let age = now.since(sampled);
        if age < BETWEEN_SAMPLES && sampled != Time::ZERO {
            return;
        }
        let Some(peer) = slot.peer(&self.tables) else {
            return;
        };
        let last = slot.sample.load(Ordering::Relaxed);
        let is_open = last & WAITS != 0 && peer.answered.load(Ordering::Relaxed) != last;
        if is_open && slot.asks_peer() && age < GIVE_UP {
            return;
        }
        slot.take_sample(psn, now);
    }

    /// The other direction's requests up to `psn` are acknowledged.
    #[inline]
    fn measure(&self, slot: &Slot, psn: u32, now: Time) {
        let Some(peer) = slot.peer(&self.tables) else {
            return;
        };
        let sample = peer.sample.load(Ordering::Acquire);
        let is_its = sample & WAITS != 0 && is_covered(low(sample), psn);
        if !is_its || slot.answered.load(Ordering::Relaxed) == sample {
            return;
        }
        let sampled = peer.sampled.load(Ordering::Acquire);
        let is_asked = slot.is_asked_by(peer, &self.tables);
        if peer.sample.load(Ordering::Relaxed) != sample || !is_asked {
            return;
        }
        slot.answered.store(sample, Ordering::Relaxed);
        let rtt = now.since(Time::from_nanos(sampled));
        if rtt >= GIVE_UP {
            return;
        }
        let rtt = rtt.nanos();
        let since = now.since(Time::from_nanos(slot.rtt_at.get()));
        let (before, samples) = (slot.rtt.get(), slot.rtt_samples.get());
        let average = if samples == 0 || since > self.forget {
            rtt
        } else {
            (before * (WEIGHT - 1) + rtt) / WEIGHT
        };
        slot.rtt.set(average);
        slot.rtt_at.set(now.nanos());
        slot.rtt_samples.add(1);
    }

    /// Gives a message of connection management to control, unless those of its port have their
    /// share of what control takes at a time.
    #[cold]
    fn hand_over(
        &mut self,
        (frame, parsed): (&[u8], &Parsed),
        message: &[u8],
        ingress: PortId,
        now: Time,
    ) {
        let (Some((source, destination)), Ok(message)) =
            (addresses(frame, parsed), message.try_into())
        else {
            return;
        };
        if now.since(self.handed_since) >= BETWEEN_LOOKS {
            self.handed.clear();
            self.handed_since = now;
        }
        if !self.handed.have_room(ingress, 1, SETUPS) {
            self.table.counters.setups_lost.add(1);
            return;
        }
        self.handed.take(ingress, 1);
        let setup = Setup {
            at: now,
            ingress,
            source,
            destination,
            message,
        };
        if self.setups.push(setup).is_err() {
            self.table.counters.setups_lost.add(1);
        }
    }

    /// Whether there are slots to be freed.
    #[inline]
    pub fn has_releases(&self) -> bool {
        !self.releases.is_empty()
    }

    /// Frees slots that control has given back, if nothing passed since; some in each turn.
    #[inline]
    pub fn free_slots(&mut self) {
        if self.has_releases() {
            self.free_some();
        }
    }

    #[cold]
    fn free_some(&mut self) {
        for _ in 0..RELEASES_A_TURN {
            let Some(release) = self.releases.pop() else {
                return;
            };
            let Some(slot) = self.table.slots.get(release.slot) else {
                continue;
            };
            let is_it = slot.is_used() && slot.generation() == release.generation;
            if !is_it || slot.packets.get() != release.packets {
                continue;
            }
            let (slots, seed) = (&self.table.slots, self.seed);
            let hash = slot.key().hash(seed);
            let hash_of = |place: usize| slots[place].key().hash(seed);
            self.index.remove(hash, release.slot, hash_of);
            slot.end();
            self.free
                .push(u32::try_from(release.slot).expect("it is a place"));
            self.shares.give(self.began[release.slot], 1);
            let used = &self.table.counters.used;
            used.set(used.get().saturating_sub(1));
        }
    }
}

/// Bytes of an IP packet: the parser does not tell them of frames that are bridged.
#[inline]
fn ip_len(frame: &[u8], parsed: &Parsed) -> u16 {
    if parsed.ip_len != 0 {
        return parsed.ip_len;
    }
    let network = usize::from(parsed.network);
    let (at, header) = match parsed.version {
        Version::V4 => (v4::field::TOTAL_LEN, 0),
        Version::V6 => (v6::field::PAYLOAD_LEN, V6_HEADER),
    };
    let len = frame.get(network + at..).and_then(|it| it.first_chunk());
    len.map_or(0, |len| u16::from_be_bytes(*len).saturating_add(header))
}

/// Source and destination of a packet.
fn addresses(frame: &[u8], parsed: &Parsed) -> Option<(IpAddr, IpAddr)> {
    let ip = frame.get(usize::from(parsed.network)..)?;
    Some(match parsed.version {
        Version::V4 => {
            let (source, rest) = ip.get(v4::field::SRC..)?.split_first_chunk::<4>()?;
            let destination = rest.first_chunk::<4>()?;
            let [source, destination] = [source, destination].map(|it| Ipv4Addr::from(*it));
            (source.into(), destination.into())
        }
        Version::V6 => {
            let (source, rest) = ip.get(v6::field::SRC..)?.split_first_chunk::<16>()?;
            let destination = rest.first_chunk::<16>()?;
            let [source, destination] = [source, destination].map(|it| Ipv6Addr::from(*it));
            (source.into(), destination.into())
        }
    })
}
