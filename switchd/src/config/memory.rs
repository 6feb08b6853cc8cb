//! Packet memory: what the rings of ports may take of it, and whether the machine has it.

use super::facts::PortFacts;
use super::policy::Compiled;
use super::rings::RING_DEFAULT;
use super::schema::Config;
use common::config::{Refusal, Refusals};
use common::xdp::frames_per_queue;
use common::xdp::limits::{CHUNK, RING_MAX};

/// The part of the machine's memory that receive rings of lossless ports may grow to, all together:
/// one of so many. Its memory is locked, and the switch is not alone there.
const SHARE: u64 = 8;

/// What the ports of the start are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// `[qos]` for them.
    pub compiled: Compiled,
    /// The ports, with the receive rings that they get.
    pub facts: Vec<PortFacts>,
    /// The longest receive ring that any port may get, also one that comes later, if nobody set it
    /// by hand.
    pub longest_ring: u32,
}

/// What is known of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Bytes of its memory, if it tells.
    pub memory: Option<u64>,
    /// Receive queues of each port.
    pub queues: &'a [u32],
}

impl Config {
    /// Compiles `[qos]` for the ports of the start. Their receive rings are as long as they need,
    /// unless memory has no room for that, or the buffer has none for the headroom that goes with
    /// it: then none is longer than what there is room for. They also leave room for what peers
    /// may announce, if the shortest do.
    ///
    /// # Errors
    /// As [`Qos::compile`](super::Qos::compile), with the shortest rings.
    pub fn fit(
        &self,
        wanted: Vec<PortFacts>,
        machine: Option<Machine<'_>>,
    ) -> Result<Fitted, Refusals> {
        let mut best: Option<Fitted> = None;
        let mut lengths = self.shortened(wanted).peekable();
        while let Some((longest_ring, facts)) = lengths.next() {
            let is_last = lengths.peek().is_none();
            if !is_last && !self.has_room(&facts, machine) {
                continue;
            }
            let fitted = match self.qos.compile(&facts) {
                Err(refusals) if is_last && best.is_none() => return Err(refusals),
                Err(_) => continue,
                Ok(compiled) => Fitted {
                    compiled,
                    facts,
                    longest_ring,
                },
            };
            if !self.scheduling.announce || self.qos.has_room_for_peers(&fitted.facts) {
                return Ok(fitted);
            }
            // Where none leaves that room, the longest is best.
            best.get_or_insert(fitted);
        }
        Ok(best.expect("the shortest are refused or fit"))
    }

    /// These ports with shorter and shorter receive rings, each time with the longest that any of
    /// them may have; nothing but themselves, if rings were set by hand.
    fn shortened(&self, ports: Vec<PortFacts>) -> impl Iterator<Item = (u32, Vec<PortFacts>)> {
        let is_auto = self.memory.ring.is_auto();
        std::iter::successors(Some((RING_MAX, ports)), move |(_, ports)| {
            let longest = ports.iter().map(|port| port.ring).max()? / 2;
            let shorter = |port: &PortFacts| PortFacts {
                ring: port.ring.min(longest),
                ..port.clone()
            };
            let is_enough = is_auto && longest >= RING_DEFAULT;
            is_enough.then(|| (longest, ports.iter().map(shorter).collect()))
        })
    }

    /// Whether rings take no more than their share of the machine's memory.
    fn has_room(&self, ports: &[PortFacts], machine: Option<Machine<'_>>) -> bool {
        let Some(Machine { memory, queues }) = machine else {
            return true;
        };
        let frames = self.frames_of_rings(ports, queues);
        memory.is_none_or(|memory| u64::from(frames) * u64::from(CHUNK) <= memory / SHARE)
    }

    /// Frames that the rings of these ports may hold, which have so many receive queues, and those
    /// of ports that may come.
    pub fn frames_of_rings(&self, ports: &[PortFacts], queues: &[u32]) -> u32 {
        let of_queue =
            |port: &PortFacts| u64::from(frames_per_queue(port.ring, port.transmit_ring));
        let ports_and_queues = ports.iter().zip(queues);
        let rings = ports_and_queues.map(|(port, queues)| u64::from(*queues) * of_queue(port));
        let frames = rings.sum::<u64>() + u64::from(self.spare_frames(ports));
        u32::try_from(frames).unwrap_or(u32::MAX)
    }

    /// Frames for the rings of ports that may come while the switch runs: each may be as long as
    /// the longest of these ports of the start.
    pub fn spare_frames(&self, ports: &[PortFacts]) -> u32 {
        let transmit = self.memory.ring.transmit();
        let longest = ports.iter().map(|port| port.ring).max();
        let receive = longest.unwrap_or(transmit);
        self.spare_queues() * frames_per_queue(receive, transmit)
    }

    /// Refuses packet memory that does not fit in a machine with so many bytes, as far as that is
    /// known before the devices are: each port has a queue at least.
    pub(super) fn fits_memory(&self, machine: Option<u64>) -> Result<(), Refusal> {
        const MIB: u64 = 1 << 20;
        let Some(machine) = machine else {
            return Ok(());
        };
        let packets = u64::from(self.buffer_packets());
        let queues = self.named_ports().count() as u64 + u64::from(self.spare_queues());
        let ring = self.memory.ring.transmit();
        let rings = queues * u64::from(frames_per_queue(ring, ring));
        let needed = (packets + rings) * u64::from(CHUNK);
        let key = match packets >= rings {
            true => "qos.buffer.size_bytes",
            false => "memory.ring",
        };
        let reason = format!(
            "packet memory would take {} MiB or more ({} MiB for packets in the buffer, {} MiB for the rings of {queues} \
             queues), and the machine has {} MiB",
            needed / MIB,
            packets * u64::from(CHUNK) / MIB,
            rings * u64::from(CHUNK) / MIB,
            machine / MIB
        );
        (needed <= machine)
            .then_some(())
            .ok_or_else(|| Refusal::new(key, reason))
    }
}
