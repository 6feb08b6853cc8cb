use super::*;
use ipnet::{Ipv4Net, Ipv6Net};
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Words of a small arena.
const SMALL: usize = NODES + (1 << 20);

/// The obvious way: the longest of all prefixes that contain the address.
#[derive(Default)]
struct Model(BTreeMap<IpNet, GroupId>);

impl Model {
    fn lookup(&self, address: IpAddr) -> Option<GroupId> {
        let covering = self
            .0
            .iter()
            .filter(|(prefix, _)| prefix.contains(&address));
        covering
            .max_by_key(|(prefix, _)| prefix.prefix_len())
            .map(|(_, group)| *group)
    }
}

fn lookup(fib: &Fib, address: IpAddr) -> Option<GroupId> {
    match address {
        IpAddr::V4(address) => fib.lookup_v4(address.octets()),
        IpAddr::V6(address) => fib.lookup_v6(address.octets()),
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(IpNet, u32),
    Remove(IpNet),
    RemoveAny(usize),
}

/// Prefixes that meet each other often: few values for each byte, all lengths.
fn prefix() -> impl Strategy<Value = IpNet> {
    let byte = || prop::sample::select(vec![0_u8, 1, 2, 3, 0x7f, 0x80, 0xff]);
    let v4 = (prop::array::uniform4(byte()), 0_u8..=32)
        .prop_map(|(bytes, len)| Ipv4Net::new_assert(bytes.into(), len).trunc().into());
    let v6 = (prop::array::uniform16(byte()), 0_u8..=128)
        .prop_map(|(bytes, len)| Ipv6Net::new_assert(bytes.into(), len).trunc().into());
    prop_oneof![3 => v4, 1 => v6]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (prefix(), 0_u32..=MAX_GROUP).prop_map(|(prefix, group)| Op::Insert(prefix, group)),
        1 => prefix().prop_map(Op::Remove),
        2 => any::<usize>().prop_map(Op::RemoveAny),
    ]
}

/// Addresses around the ends of a prefix.
fn probes(prefix: IpNet) -> Vec<IpAddr> {
    let ends = [prefix.network(), prefix.broadcast()];
    let near = |address: IpAddr| match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            let near = [
                bits,
                bits.wrapping_add(1),
                bits.wrapping_sub(1),
                bits ^ 0x100,
            ];
            near.map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let near = [
                bits,
                bits.wrapping_add(1),
                bits.wrapping_sub(1),
                bits ^ 1 << 80,
            ];
            near.map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)))
        }
    };
    ends.into_iter().flat_map(near).collect()
}

fn batch_agrees(fib: &Fib, addresses: &[IpAddr]) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in addresses {
        match address {
            IpAddr::V4(address) => v4.push(address.octets()),
            IpAddr::V6(address) => v6.push(address.octets()),
        }
    }
    let mut found = vec![None; addresses.len()];
    fib.lookup_v4_batch(&v4, &mut found);
    assert!(
        v4.iter()
            .zip(&found)
            .all(|(address, group)| fib.lookup_v4(*address) == *group)
    );
    fib.lookup_v6_batch(&v6, &mut found);
    assert!(
        v6.iter()
            .zip(&found)
            .all(|(address, group)| fib.lookup_v6(*address) == *group)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// SW-1: the longest prefix wins, whatever was entered, replaced and removed before.
    #[test]
    fn agrees_with_the_model(ops in prop::collection::vec(op(), 1..120)) {
        let mut writer = FibWriter::with_words(SMALL);
        let fib = writer.fib();
        let mut model = Model::default();
        let mut asked = Vec::new();
        for op in ops {
            let prefix = match op {
                Op::Insert(prefix, group) => {
                    let group = GroupId(group);
                    prop_assert_eq!(writer.insert(prefix, group), Ok(model.0.insert(prefix, group)));
                    prefix
                }
                Op::RemoveAny(which) if !model.0.is_empty() => {
                    let prefix = *model.0.keys().nth(which % model.0.len()).expect("in range");
                    prop_assert_eq!(writer.remove(prefix), Ok(model.0.remove(&prefix)));
                    prefix
                }
                Op::Remove(prefix) => {
                    prop_assert_eq!(writer.remove(prefix), Ok(model.0.remove(&prefix)));
                    prefix
                }
                Op::RemoveAny(_) => continue,
            };
            asked.extend(probes(prefix));
            for address in &asked {
                prop_assert_eq!(lookup(&fib, *address), model.lookup(*address), "{}", address);
            }
            batch_agrees(&fib, &asked);
        }
        // Nothing is left of an emptied table but its roots.
        for prefix in model.0.into_keys() {
            writer.remove(prefix).expect("room");
        }
        prop_assert!(asked.iter().all(|address| lookup(&fib, *address).is_none()));
        prop_assert_eq!(writer.bytes(), NODES * 4);
        writer.seal(1);
        prop_assert!(writer.reclaim(|_| true));
    }
}

fn v4(bits: u32, len: u8) -> IpNet {
    Ipv4Net::new_assert(Ipv4Addr::from_bits(bits), len)
        .trunc()
        .into()
}

#[test]
fn a_full_arena_is_an_error_and_changes_nothing() {
    let mut writer = FibWriter::with_words(NODES + 4096);
    let mut entered = Vec::new();
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let error = loop {
        let prefix = v4(random.next_u32(), 32);
        match writer.insert(prefix, GroupId(7)) {
            Ok(_) => entered.push(prefix),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, FibError::Full { .. }), "{error}");
    let fib = writer.fib();
    let used = writer.bytes();
    assert!(
        entered
            .iter()
            .all(|prefix| lookup(&fib, prefix.addr()) == Some(GroupId(7)))
    );
    assert!(
        writer
            .insert(v4(random.next_u32(), 32), GroupId(7))
            .is_err()
    );
    assert_eq!(writer.bytes(), used);
    // Lines that readers have left make room again.
    for prefix in &entered {
        writer.remove(*prefix).expect("a smaller table");
    }
    writer.seal(1);
    assert!(!writer.reclaim(|_| false));
    assert!(writer.reclaim(|epoch| epoch == 1));
    for prefix in &entered {
        writer
            .insert(*prefix, GroupId(8))
            .expect("as much room as before");
    }
    assert_eq!(
        writer.insert(entered[0], GroupId(MAX_GROUP + 1)),
        Err(FibError::Group(MAX_GROUP + 1))
    );
}

/// SW-2: while routes come, change and go, a reader always finds one that was right at some moment
/// of its lookup, and never none.
#[test]
fn readers_see_the_old_route_or_the_new_one() {
    let mut writer = FibWriter::with_words(SMALL);
    let fib = writer.fib();
    writer.insert(v4(0, 0), GroupId(0)).expect("room");
    writer.insert(v4(0x0a00_0000, 8), GroupId(8)).expect("room");
    let stop = AtomicBool::new(false);
    let (asked, turn) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Pcg64Mcg::seed_from_u64(1);
            while !stop.load(Ordering::Relaxed) {
                // Of the groups, each is the length of its prefixes: what is found must cover, and
                // 10/8 stands throughout.
                let address = 0x0a00_0000 | random.next_u32() & 0x0003_0303;
                let group = fib
                    .lookup_v4(address.to_be_bytes())
                    .expect("the default route stands");
                assert!((8..=32).contains(&group.0), "{group:?}");
                asked.fetch_add(1, Ordering::Relaxed);
                turn.fetch_add(1, Ordering::SeqCst);
            }
        });
        let seed = 9;
        println!("seed {seed}");
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut rounds = 0;
        while rounds < 20_000 || asked.load(Ordering::Relaxed) < 20_000 {
            let len = 9 + u8::try_from(random.next_u32() % 24).expect("small");
            let prefix = v4(0x0a00_0000 | random.next_u32() & 0x0003_0303, len);
            if random.next_u32().is_multiple_of(2) {
                writer
                    .insert(prefix, GroupId(u32::from(len)))
                    .expect("room");
            } else {
                writer.remove(prefix).expect("room");
            }
            if writer.retired() > 100 {
                // The reader's count of turns is its epoch: the one after next began after this.
                writer.seal(turn.load(Ordering::SeqCst) + 2);
            }
            let passed = |epoch| turn.load(Ordering::SeqCst) >= epoch;
            while !writer.reclaim(passed) && writer.retired() == 0 {
                std::thread::yield_now();
            }
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
    });
}
