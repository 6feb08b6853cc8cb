//! What the workers know of bridges: the ports that belong to one, with their VLANs, and the
//! stations behind them. The kernel's bridge learns; this is what it knows (SW-1).

use crate::id::PortId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of a bridge, from 1; 0 is none.
pub type BridgeId = u16;

/// Words of a set of VLANs.
const WORDS: usize = 4096 / 64;

/// Slots of a database without stations.
const LEAST_SLOTS: usize = 16;

/// A set of VLAN identifiers, 0 to 4095.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanSet([u64; WORDS]);

impl Default for VlanSet {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl VlanSet {
    /// Adds the VLANs from `first` to `last`; those above 4095 are none.
    pub fn insert(&mut self, first: u16, last: u16) {
        for id in first..=last.min(4095) {
            self.0[usize::from(id) / 64] |= 1 << (id % 64);
        }
    }

    /// Takes a VLAN out.
    pub fn remove(&mut self, id: u16) {
        if let Some(word) = self.0.get_mut(usize::from(id) / 64) {
            *word &= !(1 << (id % 64));
        }
    }

    /// Whether it has this VLAN.
    #[inline]
    pub fn contains(&self, id: u16) -> bool {
        let word = self.0.get(usize::from(id) / 64);
        word.is_some_and(|word| word >> (id % 64) & 1 != 0)
    }

    /// Bit n of word m stands for VLAN 64 × m + n.
    pub fn words(&self) -> &[u64; WORDS] {
        &self.0
    }
}

/// A port that belongs to a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgePort {
    /// Which bridge.
    pub bridge: BridgeId,
    /// The spanning tree lets it forward.
    pub forwards: bool,
    /// Frames may leave by it that arrived at it.
    pub has_hairpin: bool,
    /// Nothing passes between it and other isolated ports.
    pub is_isolated: bool,
    /// The bridge looks at tags of this EtherType; `None`: at none, and has no VLANs.
    pub tag: Option<u16>,
    /// The VLAN of frames without a tag, if they have one.
    pub pvid: Option<u16>,
    /// The VLANs of which it is a member.
    pub members: VlanSet,
    /// Those among them whose frames leave without a tag.
    pub untagged: VlanSet,
}

/// A station behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The port.
    pub port: PortId,
    /// Its place in [`StationUse`].
    pub number: u32,
}

/// A place of the database. Bridge 0: it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// The address in the upper 48 bits, the VLAN in the others.
    key: u64,
    number: u32,
    bridge: BridgeId,
    port: u16,
}

/// The stations behind the ports of the switch, by bridge, VLAN and address: a table with open
/// addressing, at most half full. Whoever sends frames chooses their addresses, so the seed of the
/// hash is the switch's own.
#[derive(Clone, Debug)]
pub struct Fdb {
    slots: Vec<Slot>,
    len: usize,
    seed: u64,
}

#[inline]
fn key_of(vlan: u16, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a, b, c, d, e, f, 0, 0]) | u64::from(vlan)
}

impl Fdb {
    /// A database without stations.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: vec![Slot::default(); LEAST_SLOTS],
            len: 0,
            seed: seed | 1,
        }
    }

    /// Stations in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no stations.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    #[inline]
    fn home(&self, bridge: BridgeId, key: u64) -> usize {
        let product =
            u128::from(key ^ self.seed) * u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ self.seed);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let folded = product as u64 ^ (product >> 64) as u64 ^ u64::from(bridge);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "only the low bits are used"
        )]
        let place = (folded ^ folded >> 32) as usize;
        place & self.mask()
    }

    /// Where the station is, or the empty slot where it would be.
    #[inline]
    fn find(&self, bridge: BridgeId, key: u64) -> usize {
        let mut place = self.home(bridge, key);
        loop {
            let slot = &self.slots[place];
            if slot.bridge == 0 || (slot.key == key && slot.bridge == bridge) {
                return place;
            }
            place = (place + 1) & self.mask();
        }
    }

    /// The station with this address in this VLAN, if it is known.
    #[inline]
    pub fn get(&self, bridge: BridgeId, vlan: u16, mac: [u8; 6]) -> Option<Station> {
        let slot = &self.slots[self.find(bridge, key_of(vlan, mac))];
        (slot.bridge != 0).then_some(Station {
            port: PortId(slot.port),
            number: slot.number,
        })
    }

    /// Says where a station is, in place of what was known.
    ///
    /// # Panics
    /// If the bridge is 0, which is none.
    pub fn insert(&mut self, bridge: BridgeId, vlan: u16, mac: [u8; 6], station: Station) {
        assert!(bridge != 0, "bridges have numbers from 1");
        if 2 * (self.len + 1) > self.slots.len() {
            self.grow();
        }
        let key = key_of(vlan, mac);
        let place = self.find(bridge, key);
        self.len += usize::from(self.slots[place].bridge == 0);
        self.slots[place] = Slot {
            key,
            number: station.number,
            bridge,
            port: station.port.0,
        };
    }

    fn grow(&mut self) {
        let slots = vec![Slot::default(); 2 * self.slots.len()];
        let before = std::mem::replace(&mut self.slots, slots);
        for slot in before.into_iter().filter(|slot| slot.bridge != 0) {
            let place = self.find(slot.bridge, slot.key);
            self.slots[place] = slot;
        }
    }

    /// Forgets a station.
    pub fn remove(&mut self, bridge: BridgeId, vlan: u16, mac: [u8; 6]) {
        let mut hole = self.find(bridge, key_of(vlan, mac));
        if self.slots[hole].bridge == 0 {
            return;
        }
        self.len -= 1;
        // Those behind it whose way led over it move up.
        let mut place = hole;
        loop {
            place = (place + 1) & self.mask();
            let slot = self.slots[place];
            if slot.bridge == 0 {
                break;
            }
            let from_home = place.wrapping_sub(self.home(slot.bridge, slot.key)) & self.mask();
            let from_hole = place.wrapping_sub(hole) & self.mask();
            if from_home >= from_hole {
                self.slots[hole] = slot;
                hole = place;
            }
        }
        self.slots[hole] = Slot::default();
    }
}

/// Which stations sent frames lately. Shared by all snapshots of the tables. Workers set the bits;
/// control takes them and tells the kernel.
#[derive(Debug, Default)]
pub struct StationUse(Box<[AtomicBool]>);

impl StationUse {
    /// For so many stations.
    pub fn new(stations: usize) -> Self {
        Self((0..stations).map(|_| AtomicBool::new(false)).collect())
    }

    /// Notes that a station sent a frame. Writes only if the bit was not set, so that the cache
    /// line stays shared.
    #[inline]
    pub fn mark(&self, number: u32) {
        if let Some(flag) = self.0.get(number as usize)
            && !flag.load(Ordering::Relaxed)
        {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a station sent a frame since this was last asked.
    pub fn take(&self, number: u32) -> bool {
        let flag = self.0.get(number as usize);
        flag.is_some_and(|flag| flag.swap(false, Ordering::Relaxed))
    }
}

/// What the workers know of bridges.
#[derive(Clone, Debug)]
pub struct Bridging {
    /// By [`PortId`]; a port that is not in it, or `None`, belongs to no bridge.
    pub ports: Vec<Option<BridgePort>>,
    /// The stations.
    pub fdb: Fdb,
    /// Which of them sent frames.
    pub used: Arc<StationUse>,
}

impl Default for Bridging {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            fdb: Fdb::new(0),
            used: Arc::default(),
        }
    }
}

impl Bridging {
    /// The port as one of a bridge, if it is.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&BridgePort> {
        self.ports.get(id.index()).and_then(Option::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// SW-1: the database knows the stations that it was told of and no others, in whatever
        /// order they come and go.
        #[test]
        fn stations_are_found_where_they_are(
            steps in proptest::collection::vec((1_u16..3, 0_u16..3, 0_u8..40, any::<Option<u16>>()), 1..300),
            seed in any::<u64>(),
        ) {
            let mut fdb = Fdb::new(seed);
            let mut known = HashMap::new();
            let mac = |last| [2, 0, 0, 0, 0, last];
            for (bridge, vlan, last, port) in steps {
                match port {
                    Some(port) => {
                        let station = Station { port: PortId(port), number: u32::from(last) };
                        fdb.insert(bridge, vlan, mac(last), station);
                        known.insert((bridge, vlan, last), station);
                    }
                    None => {
                        fdb.remove(bridge, vlan, mac(last));
                        known.remove(&(bridge, vlan, last));
                    }
                }
                prop_assert_eq!(fdb.len(), known.len());
            }
            for bridge in 0..4 {
                for vlan in 0..4 {
                    for last in 0..42 {
                        let expected = known.get(&(bridge, vlan, last)).copied();
                        prop_assert_eq!(fdb.get(bridge, vlan, mac(last)), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn sets_of_vlans_have_what_was_added() {
        let mut set = VlanSet::default();
        set.insert(63, 65);
        set.insert(4094, u16::MAX);
        let found: Vec<u16> = (0..5000).filter(|id| set.contains(*id)).collect();
        assert_eq!(found, [63, 64, 65, 4094, 4095]);
        assert_eq!(set.words()[1], 3);
    }
}
