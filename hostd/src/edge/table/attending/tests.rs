use super::*;
use crate::doorbell::Doorbell;
use crate::engine::Engine;
use crate::memory::HeapMemory;
use crate::net::sleep::Sleeper;
use crate::verbs::EngineConfig;
use common::sys::Waker;
use common::time::Span;
use hostd_client::abi::doorbell::{self, DoorbellPage};
use nix::sys::eventfd::EventFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;

const TURN: Span = Span::from_micros(10);
const HALF: Span = Span::from_millis(5);

/// Sessions as their applications see them, and the worker's table.
struct Rig {
    table: Table<HeapMemory>,
    engine: Engine<HeapMemory>,
    sleeper: Sleeper,
    applications: Vec<(doorbell::Doorbell, OwnedFd)>,
    now: Time,
}

impl Rig {
    fn new(count: u64) -> Self {
        let mut engine = Engine::new(EngineConfig::default());
        let sleeper = Sleeper::new(Waker::new().expect("a waker")).expect("a sleeper");
        let doorbells = sleeper.doorbells().expect("doorbells");
        let mut table = Table::new(crossbeam_channel::bounded(1).0);
        let mut applications = Vec::new();
        for number in 0..count {
            let (own, page) = DoorbellPage::private().expect("memory");
            let fd = OwnedFd::from(EventFd::new().expect("an eventfd"));
            let theirs = fd.try_clone().expect("a descriptor");
            let session = u32::try_from(number).expect("few");
            let bell = Doorbell::register(&doorbells, theirs, session);
            let bell = Some(Arc::new(bell.expect("registered")));
            let session = SessionId(session);
            table.open(session, page, bell, &mut engine).expect("room");
            // As if it had a queue.
            let application = table.applications.get_mut(&session);
            application.expect("opened above").words = 1;
            applications.push((own, fd));
        }
        Self {
            table,
            engine,
            sleeper,
            applications,
            now: Time::from_nanos(1_000_000_000),
        }
    }

    /// Turns of a worker that does not sleep.
    fn turns(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now += TURN;
            self.table.serve(&mut self.engine, self.now);
        }
    }

    /// Rings as an application does; whether it had to wake the worker.
    fn ring(&self, number: usize) -> bool {
        let (page, fd) = &self.applications[number];
        let wakes = page.ring(0);
        if wakes {
            nix::unistd::write(fd, &1_u64.to_ne_bytes()).expect("woken");
        }
        wakes
    }

    /// The worker looks for bells.
    fn look(&mut self) {
        self.sleeper.look().expect("looked");
        let rang: Vec<u32> = self.sleeper.rang().collect();
        rang.into_iter()
            .for_each(|it| self.table.rang(SessionId(it)));
    }

    fn awake(&self) -> usize {
        self.table.attention.awake()
    }
}

/// HT-3: sessions that do not ring are not looked at after a while, whatever others do. Their
/// next bell wakes the worker, and they are looked at as before.
#[test]
fn quiet_sessions_cost_nothing_until_they_ring() {
    let mut rig = Rig::new(8);
    rig.turns(HALF);
    assert!(!rig.ring(3), "the worker is awake");
    rig.turns(HALF + TURN);
    assert_eq!(rig.awake(), 1, "all but the one that rang");
    rig.turns(QUIET + TURN);
    assert_eq!((rig.awake(), rig.table.has_dormant()), (0, true));
    // Sleep and its end are nothing to them.
    assert!(!rig.table.arm());
    rig.table.disarm();
    assert!(rig.ring(5) && rig.ring(2), "both have to wake the worker");
    assert!(!rig.ring(5), "once");
    rig.turns(TURN);
    assert_eq!(rig.awake(), 0, "nobody has looked");
    rig.look();
    assert_eq!(rig.awake(), 2);
    // The next turn takes their bits, which keeps them awake.
    rig.turns(TURN);
    assert_eq!(rig.awake(), 2);
    assert!(!rig.table.arm(), "they were heard");
}

/// HT-3: a session that rings for nothing is deaf for a while, costs nothing meanwhile, and is
/// awake when the time is over.
#[test]
fn deaf_sessions_cost_nothing_until_they_are_heard_again() {
    let mut rig = Rig::new(2);
    while rig.table.next_hearing() == Time::NEVER {
        rig.ring(0);
        rig.turns(TURN);
    }
    assert_eq!(rig.awake(), 1);
    rig.now = rig.table.next_hearing();
    rig.turns(TURN);
    assert_eq!(rig.awake(), 2);
    assert_eq!(rig.table.next_hearing(), Time::NEVER);
    let (done, _) = tokio::sync::oneshot::channel();
    rig.table.close(SessionId(0), done, &mut rig.engine);
    assert_eq!(rig.awake(), 1);
}
