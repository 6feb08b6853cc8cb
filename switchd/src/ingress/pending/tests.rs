//! Packets that wait, and what they cost.

use super::*;
use crate::packet::NO_PCP;
use common::xdp::frame::{FramePool, Region};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

const PORTS: usize = 4;

thread_local! {
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// An entry of the table was looked at.
pub(super) fn looked() {
    LOOKS.set(LOOKS.get() + 1);
}

struct Rig {
    pending: Pending,
    pool: FramePool,
    now: Time,
}

impl Rig {
    fn new() -> Self {
        Self {
            pending: Pending::new(PORTS, 1),
            pool: FramePool::new(Region::heap(8 * 1024, 2048, 64)),
            now: Time::ZERO,
        }
    }

    /// A packet from `port` to neighbour `address`; whether the kernel is asked, whether it
    /// waits.
    fn offer(&mut self, port: u16, address: u32) -> (bool, bool) {
        let waiting = Waiting {
            neighbour: (1, IpAddr::V4(Ipv4Addr::from_bits(address))),
            frame: self.pool.take_sized(64).expect("a free frame"),
            ingress: PortId(port),
            interface: 0,
            pcp: NO_PCP,
            since: self.now,
            trace: TraceId::NONE,
        };
        let Wait { ask, refused } = self.pending.wait(waiting, self.now);
        let waits = refused.is_none();
        if let Some((frame, _)) = refused {
            self.pool.give(frame);
        }
        (ask, waits)
    }
}

/// SW-1: a port at which a scan of unused addresses arrives uses up its own share: packets from
/// other ports wait, and the kernel is asked for their neighbours.
#[test]
fn a_scan_costs_its_own_port_only() {
    let mut rig = Rig::new();
    let mut asked = 0;
    for address in 0..100_000 {
        asked += u64::from(rig.offer(0, address).0);
    }
    assert_eq!(rig.pending.len(), PENDING_PER_PORT);
    assert_eq!(asked, RESOLVE_BURST);
    for address in 200_000..200_032 {
        assert_eq!(rig.offer(1, address), (true, true), "{address}");
    }
    // A second later it may ask again, at the rate of its bucket.
    rig.now += Span::from_secs(1);
    let again = (300_000..400_000).filter(|address| rig.offer(0, *address).0);
    assert_eq!(again.count() as u64, RESOLVE_BURST);
}

/// SW-1: one neighbour is asked for once a second, however many packets wait for it, and they
/// are looked up again less and less often until tables change.
#[test]
fn a_neighbour_is_asked_for_once_a_second() {
    let mut rig = Rig::new();
    let mut asked = 0;
    for _ in 0..2500 {
        asked += u64::from(rig.offer(0, 7).0);
        rig.now += Span::from_millis(1);
    }
    assert_eq!(asked, 3);
    assert_eq!(rig.pending.len(), PENDING_PER_NEIGHBOUR);
    let mut out = Vec::new();
    let mut waits = |rig: &mut Rig, new_tables| {
        rig.pending.take(&mut out, new_tables);
        out.drain(..).for_each(|waiting| {
            let refused = rig.pending.wait(waiting, rig.now).refused;
            refused
                .into_iter()
                .for_each(|(frame, _)| rig.pool.give(frame));
        });
        rig.pending.deadline().since(rig.now)
    };
    assert_eq!(waits(&mut rig, true), PENDING_RETRY);
    for times in [2, 4, 8, 16, 32, 64, 128, 128] {
        assert_eq!(waits(&mut rig, false), PENDING_RETRY.times(times));
    }
    assert_eq!(waits(&mut rig, true), PENDING_RETRY);
}
/// SW-1: what a packet to an unresolved neighbour costs does not depend on how many wait, nor on
/// how many neighbours are asked for: one set of the table is looked at, twice at most, when it
/// comes and each time that it is looked up again, which is at most once for each doubling of
/// the retry time until it has waited for too long.
#[test]
fn a_packet_costs_the_same_however_many_wait() {
    let mut rig = Rig::new();
    let costs = |rig: &mut Rig, port: u16, address: u32| {
        LOOKS.set(0);
        rig.offer(port, address);
        LOOKS.get()
    };
    let mut most = [0; 2];
    // The first wait for themselves, the last find as many waiting as may.
    for address in 0..200_000_u32 {
        let port = u16::try_from(address % 4).expect("small");
        let is_full = rig.pending.len() >= PENDING_TOTAL.min(PORTS * PENDING_PER_PORT);
        let cost = costs(&mut rig, port, address);
        most[usize::from(is_full)] = most[usize::from(is_full)].max(cost);
    }
    assert!(
        most.iter().all(|looks| (1..=2 * WAYS).contains(looks)),
        "{most:?}"
    );

    let (mut out, mut again, mut rounds) = (Vec::new(), 0, 0);
    let waited = rig.pending.len();
    LOOKS.set(0);
    while !rig.pending.is_empty() {
        rig.now = rig.now.max(rig.pending.deadline());
        rig.pending.take(&mut out, false);
        again += out.len();
        rounds += 1;
        out.drain(..).for_each(|waiting| {
            let refused = rig.pending.wait(waiting, rig.now).refused;
            refused
                .into_iter()
                .for_each(|(frame, _)| rig.pool.give(frame));
        });
    }
    // Once to take it out, and once to let it wait again.
    assert!(
        LOOKS.get() <= again * 4 * WAYS,
        "{} for {again}",
        LOOKS.get()
    );
    assert_eq!(again, waited * rounds);
    let spans = PENDING_TIMEOUT.nanos() / PENDING_RETRY_MAX.nanos();
    let doublings = (PENDING_RETRY_MAX.nanos() / PENDING_RETRY.nanos()).ilog2();
    assert!(
        rounds as u64 <= spans + u64::from(doublings) + 2,
        "{rounds}"
    );
}
