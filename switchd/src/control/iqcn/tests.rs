//! SW-25: which flows get an entry.

use super::*;
use crate::config::flows::Flows;
use crate::config::iqcn::Iqcn;
use crate::control::flows::Book;
use crate::control::flows::tests::set_up;
use crate::flows::tests::{POSITIVE, acknowledge, frame, host, request, show};
use crate::flows::{Ends, Key, Observer, observers};
use crate::iqcn::Compensator;
use common::time::{Span, Time};

/// A worker, its book and its keeper.
struct Rig {
    observer: Observer,
    book: Book,
    keeper: Keeper,
    compensator: Compensator,
    now: Time,
}

impl Rig {
    fn new(max_flows: u32) -> Self {
        let mut all = observers(1, 1024, Span::from_secs(10), 3);
        let (observer, ends): (Observer, Ends) = all.pop().expect("one");
        let settings = Iqcn {
            max_flows,
            ..Iqcn::default()
        };
        let (keeper, mut compensators) = Keeper::new(&settings, 1, 5);
        let flows = Flows {
            inactive_seconds: 4,
            ..Flows::default()
        };
        Self {
            observer,
            book: Book::new(&flows, vec![ends]),
            keeper,
            compensator: compensators.pop().expect("one"),
            now: Time::ZERO + Span::from_secs(100),
        }
    }

    fn look(&mut self) -> Vec<Turning> {
        self.now += Span::from_millis(500);
        self.book.read(self.now);
        self.observer.free_slots();
        self.keeper.look(&self.book)
    }

    /// A request from host 1 to host 2, and its answer.
    fn exchange(&mut self, qps: (u32, u32), psn: u32) {
        let (a, b) = (host(1, false), host(2, false));
        let sent = frame(a, b, &request(qps.1, psn), &[0; 64]);
        show(&mut self.observer, &sent, 1, self.now);
        let answer = frame(b, a, &acknowledge(qps.0, psn, POSITIVE), &[]);
        show(&mut self.observer, &answer, 2, self.now);
    }

    fn notify(&mut self, qp: u32) {
        let direction = Key::new(host(2, false), host(1, false), qp).unwrap();
        self.compensator.passed(&direction, self.now);
    }

    fn used(&self) -> usize {
        self.keeper.used().0
    }
}

/// SW-25: what was learned from set-up is entered at once, what was learned from data at the second
/// look; what is over leaves.
#[test]
fn flows_come_and_go() {
    let mut rig = Rig::new(100);
    let (a, b) = (host(1, false), host(2, false));
    for message in set_up(a, b, (10, 20), 1) {
        show(&mut rig.observer, &message, 1, rig.now);
    }
    rig.exchange((10, 20), 100);
    rig.exchange((30, 40), 7_000_000);
    assert!(rig.look().is_empty());
    assert_eq!(rig.used(), 2, "that of the set-up");
    rig.exchange((30, 40), 7_000_001);
    rig.look();
    assert_eq!(rig.used(), 4, "and that of data");
    assert!(rig.keeper.rows().is_empty(), "no notification has passed");
    rig.notify(10);
    rig.notify(30);
    rig.notify(99);
    let rows = rig.keeper.rows();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (row.key.source(), row.sender, row.key.qp(), row.times.passed))
        .collect();
    assert_eq!(shown, [(a, 10, 20, 1), (a, 30, 40, 1)]);
    let counted = |of: fn(&crate::iqcn::Counters) -> u64| rig.keeper.counted(of);
    assert_eq!(counted(|it| it.passed.get()), 2);
    assert_eq!(counted(|it| it.passed_unknown.get()), 1);
    (0..10).for_each(|_| drop(rig.look()));
    assert_eq!(rig.used(), 0, "nothing passed for four seconds");
    assert!(rig.keeper.rows().is_empty());
    rig.notify(10);
    assert_eq!(rig.keeper.counted(|it| it.passed.get()), 2);
}

/// SW-25: flows that find no room are counted once each, and get room when others are over.
#[test]
fn a_full_table_is_counted() {
    let mut rig = Rig::new(16);
    let exchange = |rig: &mut Rig, numbers: std::ops::Range<u32>, psn| {
        for n in numbers {
            rig.exchange((1_000 + n, 2_000 + n), 100_000 * n + psn);
        }
    };
    exchange(&mut rig, 0..20, 0);
    rig.look();
    exchange(&mut rig, 0..20, 1);
    rig.look();
    assert_eq!((rig.keeper.used(), rig.keeper.full()), ((32, 32), 4));
    for psn in 2..12 {
        exchange(&mut rig, 16..20, psn);
        rig.look();
    }
    assert_eq!(rig.keeper.full(), 4);
    assert_eq!(rig.used(), 8, "those that go on");
}

/// SW-25: it is told when notifications begin to be made for a flow, and when no more are.
#[test]
fn what_begins_and_ends_is_told() {
    let mut rig = Rig::new(100);
    rig.exchange((10, 20), 100);
    rig.look();
    rig.exchange((10, 20), 101);
    rig.look();
    rig.notify(10);
    let key = Key::new(host(1, false), host(2, false), 20).unwrap();
    let table = rig.keeper.table();
    let entry = table.find(&key).expect("entered");
    assert!(entry.claim(rig.compensator.rules(), rig.now));
    rig.exchange((10, 20), 102);
    assert_eq!(rig.look(), [Turning { key, begins: true }]);
    rig.exchange((10, 20), 103);
    assert_eq!(rig.look(), [Turning { key, begins: false }]);
    assert_eq!(rig.look(), []);
}
