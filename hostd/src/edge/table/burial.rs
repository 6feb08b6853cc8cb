//! What sessions leave behind, released bit by bit, so that the death of one that held much delays
//! nobody's packets.

use super::Table;
use super::grave::{BURIALS, Burial, Done};
use crate::edge::region::Released;
use crate::engine::Engine;
use crate::memory::RegionMemory;

impl<M: RegionMemory> Table<M> {
    /// Releases some of what ended sessions held. Everybody's graves have their turn.
    pub fn bury(&mut self, engine: &mut Engine<M>) -> Burial {
        let mut steps = BURIALS;
        while let Some(mut grave) = self.graves.pop_front() {
            let before = steps;
            loop {
                if steps == 0 {
                    // One that had no step yet keeps its turn: what holds it up may be in a grave
                    // that came later, as that of its session.
                    match before {
                        0 => self.graves.push_front(grave),
                        _ => self.graves.push_back(grave),
                    }
                    return Burial::More;
                }
                steps -= 1;
                if self.released_memory.is_full() && grave.has_memory() {
                    self.graves.push_front(grave);
                    return Burial::Waits;
                }
                if let Some(ring) = grave.rings.pop() {
                    // There is room, and no other sender. Without a receiver it is dropped.
                    let _ = self.released_memory.try_send(Released::Ring(ring));
                } else if let Some(number) = grave.queue_pairs.pop() {
                    let rings = self.queue_pairs.remove(&number);
                    grave
                        .rings
                        .extend(rings.into_iter().flat_map(|(_, it)| it.into_memory()));
                    // The engine tells the peer.
                    let _ = engine.destroy_queue_pair(number);
                } else if let Some(id) = grave.members.pop() {
                    let ring = self.members.remove(&id.number());
                    grave.rings.extend(ring.map(|(_, it)| it.into_memory()));
                    // The engine tells the switch.
                    let _ = engine.destroy_member(id);
                } else if let Some(id) = grave.shared.pop() {
                    let ring = self.shared.remove(&id.number());
                    grave.rings.extend(ring.map(|(_, _, it)| it.into_memory()));
                    let gone = engine.destroy_shared_queue(id);
                    debug_assert!(gone.is_ok(), "its queue pairs are gone");
                } else if let Some(id) = grave.completion_queues.pop() {
                    let ring = self.completions.remove(&id);
                    grave.rings.extend(ring.map(|(_, it)| it.into_memory()));
                    let gone = engine.destroy_completion_queue(id);
                    debug_assert!(gone.is_ok(), "its queue pairs are gone");
                } else if let Some(number) = grave.windows.pop() {
                    let gone = engine.destroy_window(number);
                    debug_assert!(gone.is_ok(), "it was there");
                } else if let Some((&lkey, _)) = grave.regions.first_key_value() {
                    grave.regions.remove(&lkey);
                    if let Ok(memory) = engine.deregister(lkey) {
                        // As above.
                        let _ = self.released_memory.try_send(Released::Region(memory));
                    }
                } else {
                    break;
                }
            }
            if let Some(domain) = grave.domain {
                let gone = engine.destroy_domain(domain);
                debug_assert!(gone.is_ok(), "everything in it is gone");
            }
            // Whoever waited may be gone.
            match grave.done {
                Done::Session(buried) => drop(buried.send(())),
                Done::Object(answer) => drop(answer.send(Ok(()))),
            }
        }
        Burial::Over
    }
}
