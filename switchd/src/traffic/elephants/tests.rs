use super::*;
use crate::tables::elephants::MIN_BYTES;
use common::units::Rate;
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

const PORTS: usize = 2;
/// Packets that a queue of the model takes.
const DEPTH: usize = 24;

const FROM: u8 = 3;
const TO: u8 = 1;

fn settings(moves: Moves) -> Settings {
    Settings {
        from: FROM,
        to: TO,
        bytes: 20_000,
        rate: Rate::from_mbps(100),
        ageing: Span::from_millis(10),
        moves,
    }
}

fn table(entries: usize, moves: Moves) -> Elephants {
    let mut table = Elephants::new(entries);
    table.configure(&[settings(moves)]).expect("valid");
    table
}

fn flow(hash: u32) -> FlowKey {
    FlowKey {
        port: PortId(0),
        class: FROM,
        hash,
    }
}

#[derive(Default)]
struct Port {
    queues: [VecDeque<(FlowKey, u64)>; CLASSES],
    progress: [Progress; CLASSES],
    gate: Gate,
}

/// Ports with queues, a table, and a witness of what left in which order.
struct Switch {
    table: Elephants,
    ports: [Port; PORTS],
    now: Time,
    numbers: u64,
    sent: HashMap<FlowKey, u64>,
}

impl Switch {
    fn new(entries: usize, moves: Moves) -> Self {
        Self {
            table: table(entries, moves),
            ports: std::array::from_fn(|_| Port::default()),
            now: Time::ZERO,
            numbers: 0,
            sent: HashMap::new(),
        }
    }

    /// A packet arrives; the queue that it is to go to, whether or not that takes it.
    fn arrive(&mut self, flow: FlowKey, bytes: u32) -> u8 {
        let ports = &self.ports;
        let queues = |port: PortId, class: u8| ports[port.index()].progress[usize::from(class)];
        let place = self.table.classify(flow, bytes, self.now, &queues);
        self.numbers += 1;
        let port = &mut self.ports[flow.port.index()];
        let queue = &mut port.queues[usize::from(place.class)];
        if queue.len() < DEPTH {
            queue.push_back((flow, self.numbers));
            let progress = &mut port.progress[usize::from(place.class)];
            progress.enqueued += 1;
            if let Some(until) = place.after {
                port.gate.add(progress.enqueued, until);
            }
        }
        place.class
    }

    /// Sends a packet of a queue, if one may leave, and notices it when it was overtaken by a later
    /// one.
    fn serve(&mut self, port: usize, class: u8) -> bool {
        let port = &mut self.ports[port];
        let [own, upper] = [class, FROM].map(|class| port.progress[usize::from(class)]);
        if class == TO && !port.gate.is_open(own, upper) {
            return false;
        }
        let Some((flow, number)) = port.queues[usize::from(class)].pop_front() else {
            return false;
        };
        port.progress[usize::from(class)].dequeued += 1;
        let before = self.sent.insert(flow, number).unwrap_or(0);
        assert!(before < number, "{flow:?}: {number} after {before}");
        true
    }

    fn serve_strictly(&mut self, port: usize) -> bool {
        (0..8).rev().any(|class| self.serve(port, class))
    }

    fn age(&mut self) {
        let ports = &self.ports;
        let queues = |port: PortId, class: u8| ports[port.index()].progress[usize::from(class)];
        self.table.age(self.now, &queues);
    }

    /// What the table counts is what is in it.
    fn verify(&self) {
        let entries = || self.table.sets.iter().flat_map(|set| &set.0);
        let count = |is: fn(&&Entry) -> bool| entries().filter(is).count() as u64;
        let counters = self.table.counters();
        assert_eq!(counters.flows, count(|entry| entry.state != State::Free));
        assert_eq!(
            counters.elephants,
            count(|entry| entry.state == State::Elephant)
        );
        assert_eq!(self.table.away, count(|entry| entry.is_away()));
    }
}

#[derive(Clone, Debug)]
enum Event {
    Arrive { flow: u32, bytes: u32 },
    Train { flow: u32, packets: usize },
    Serve { port: usize, class: u8 },
    ServeStrictly { port: usize, packets: usize },
    Wait { micros: u64 },
    Age,
    Configure { to: Option<u8> },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..12_u32, 64..30_000_u32).prop_map(|(flow, bytes)| Event::Arrive { flow, bytes }),
        3 => (0..12_u32, 1..12_usize).prop_map(|(flow, packets)| Event::Train { flow, packets }),
        8 => (0..PORTS, prop_oneof![Just(FROM), Just(TO), Just(2)])
            .prop_map(|(port, class)| Event::Serve { port, class }),
        2 => (0..PORTS, 1..30_usize)
            .prop_map(|(port, packets)| Event::ServeStrictly { port, packets }),
        2 => (1..4_000_u64).prop_map(|micros| Event::Wait { micros }),
        2 => Just(Event::Age),
        1 => prop_oneof![Just(None), Just(Some(TO)), Just(Some(2))]
            .prop_map(|to| Event::Configure { to }),
    ]
}

/// Plays events; flows of both ports, one in four of them in the lower class from the start.
fn play(switch: &mut Switch, moves: Moves, events: &[Event]) {
    let flow = |number: u32| FlowKey {
        port: PortId(u16::try_from(number % 2).expect("small")),
        class: if number % 4 == 3 { TO } else { FROM },
        hash: number / 2,
    };
    for event in events {
        match *event {
            Event::Arrive { flow: n, bytes } => {
                switch.arrive(flow(n), bytes);
            }
            Event::Train { flow: n, packets } => {
                for _ in 0..packets {
                    switch.arrive(flow(n), 9_000);
                }
            }
            Event::Serve { port, class } => {
                switch.serve(port, class);
            }
            Event::ServeStrictly { port, packets } => {
                (0..packets).all(|_| switch.serve_strictly(port));
            }
            Event::Wait { micros } => switch.now += Span::from_micros(micros),
            Event::Age => switch.age(),
            Event::Configure { to } => {
                // A gate guards one queue.
                let to = to.map(|to| if moves == Moves::Gated { TO } else { to });
                let settings = to.map(|to| Settings {
                    to,
                    ..settings(moves)
                });
                switch.table.configure(settings.as_slice()).expect("valid");
            }
        }
        switch.verify();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// SW-17: the order inside a flow is kept, for any arrivals, refusals, service and settings, in
    /// a table where all flows find a place and in one where few do.
    #[test]
    fn no_packet_overtakes_one_of_its_flow(
        gated: bool,
        entries in prop_oneof![Just(WAYS), Just(64)],
        events in prop::collection::vec(event(), 1..300),
    ) {
        let moves = if gated { Moves::Gated } else { Moves::Drained };
        let mut switch = Switch::new(entries, moves);
        play(&mut switch, moves, &events);
        // No gate stays closed when the queues are served.
        for port in 0..PORTS {
            while switch.serve_strictly(port) {}
            prop_assert!(switch.ports[port].queues.iter().all(VecDeque::is_empty));
        }
        // Everything comes to rest.
        switch.now += Span::from_secs(1);
        switch.age();
        (0..entries / WAYS / AGE_SETS).for_each(|_| switch.age());
        switch.verify();
        prop_assert_eq!(switch.table.counters().flows, 0);
        let counters = switch.table.counters();
        prop_assert!(counters.restored <= counters.demoted);
    }
}

/// What the random events do is not always the same; this much of everything is among them.
#[test]
fn random_events_move_flows_to_and_fro() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    for moves in [Moves::Drained, Moves::Gated] {
        let mut runner = TestRunner::deterministic();
        let mut sum = Counters::default();
        for _ in 0..50 {
            let events = prop::collection::vec(event(), 300)
                .new_tree(&mut runner)
                .expect("no filter")
                .current();
            let mut switch = Switch::new(WAYS, moves);
            play(&mut switch, moves, &events);
            let counters = switch.table.counters();
            sum.demoted += counters.demoted;
            sum.restored += counters.restored;
            sum.waiting += counters.waiting;
            sum.evicted += counters.evicted;
            sum.unfollowed += counters.unfollowed;
        }
        let least = [
            sum.demoted,
            sum.restored,
            sum.waiting,
            sum.evicted,
            sum.unfollowed,
        ];
        assert!(least.iter().all(|&count| count >= 20), "{sum:?}");
    }
}

/// SW-17: a flow is an elephant from the byte on that exceeds bytes + rate × time.
#[test]
fn thresholds_are_exact() {
    // 100 Mbit/s are 12 500 bytes in a millisecond.
    let mut switch = Switch::new(64, Moves::Drained);
    assert_eq!(switch.arrive(flow(1), 20_000), FROM);
    switch.now += Span::from_millis(1);
    assert_eq!(switch.arrive(flow(1), 12_500), FROM);
    assert_eq!(switch.table.counters().elephants, 0);
    assert_eq!(
        switch.arrive(flow(1), 1),
        FROM,
        "its packets are in the queue"
    );
    let counters = switch.table.counters();
    assert_eq!((counters.elephants, counters.waiting), (1, 1));
    (0..3).for_each(|_| assert!(switch.serve(0, FROM)));
    assert_eq!(switch.arrive(flow(1), 60), TO);
    // A mouse at the threshold's rate stays one for ever.
    for _ in 0..1_000 {
        switch.now += Span::from_millis(1);
        assert_eq!(switch.arrive(flow(2), 12_500), FROM);
        switch.serve(0, FROM);
    }
}

/// SW-17: back to the mice when the rate falls below the threshold, not as soon as it does, and
/// when nothing was sent for the ageing time.
#[test]
fn elephants_become_mice_again() {
    let mut switch = Switch::new(64, Moves::Gated);
    let elephant = |switch: &mut Switch, hash| {
        switch.arrive(flow(hash), 20_000);
        assert_eq!(switch.arrive(flow(hash), 1_000), TO);
    };
    elephant(&mut switch, 1);
    // Half of the rate: the 20 000 bytes of the level last 3.2 ms.
    let mut steps = 0;
    while switch.arrive(flow(1), 625) == TO {
        while switch.serve_strictly(0) {}
        switch.now += Span::from_micros(100);
        steps += 1;
    }
    assert!((31..=33).contains(&steps), "{steps}");
    let counters = switch.table.counters();
    assert_eq!((counters.elephants, counters.restored), (0, 1));

    // Idle: with rate zero only ageing helps, and a flow whose packets wait does not go back.
    let ageing = Settings {
        rate: Rate::from_bps(0),
        ..settings(Moves::Gated)
    };
    switch.table.configure(&[ageing]).expect("valid");
    elephant(&mut switch, 2);
    switch.now += Span::from_nanos(9_999_999);
    assert_eq!(switch.arrive(flow(2), 60), TO);
    switch.now += Span::from_millis(10);
    assert_eq!(
        switch.arrive(flow(2), 60),
        TO,
        "its packets are in the queue"
    );
    assert_eq!(switch.table.counters().elephants, 0);
    while switch.serve_strictly(0) {}
    assert_eq!(switch.arrive(flow(2), 60), FROM);
}

/// SW-17: in a queue that is never empty a steady elephant moves only with a gate, and in order.
#[test]
fn a_gate_moves_flows_out_of_a_standing_queue() {
    for (moves, class) in [(Moves::Drained, FROM), (Moves::Gated, TO)] {
        let mut switch = Switch::new(64, moves);
        for mouse in 0..10 {
            switch.arrive(flow(100 + mouse), 60);
        }
        let mut last = FROM;
        for round in 0..40 {
            last = switch.arrive(flow(1), 9_000);
            switch.arrive(flow(200 + round), 60);
            // As many leave as come, and the lower queue is asked first: it is the gate that holds
            // it.
            let moved = usize::from(switch.serve(0, TO));
            (moved..2).for_each(|_| assert!(switch.serve(0, FROM)));
        }
        assert_eq!(last, class, "{moves:?}");
    }
}

/// SW-17: a class that is not watched for a while: what was known of its flows is not used
/// afterwards.
#[test]
fn settings_may_come_and_go() {
    let mut switch = Switch::new(64, Moves::Drained);
    let watch = [settings(Moves::Drained)];
    switch.arrive(flow(1), 20_000);
    switch.serve(0, FROM);
    switch.table.configure(&[]).expect("valid");
    assert_eq!(switch.arrive(flow(1), 60), FROM, "not counted");
    switch.table.configure(&watch).expect("valid");
    assert_eq!(switch.arrive(flow(1), 1_000), FROM);

    // The same for one that was away. A packet beyond the threshold makes an elephant at once.
    switch.arrive(flow(2), 20_000);
    while switch.serve_strictly(0) {}
    assert_eq!(switch.arrive(flow(2), 1_000), TO);
    while switch.serve_strictly(0) {}
    switch.table.configure(&[]).expect("valid");
    assert_eq!(switch.arrive(flow(2), 60), FROM, "back");
    assert_eq!(switch.arrive(flow(2), 60), FROM, "not counted");
    switch.serve(0, FROM);
    switch.table.configure(&watch).expect("valid");
    assert_eq!(switch.arrive(flow(2), 30_000), FROM);
    switch.verify();
}

/// SW-17: a flow stays behind what it left in the upper queue even if the lower one took none of
/// its packets, the flow was a mouse meanwhile, and has gone back or not.
#[test]
fn refused_packets_do_not_open_the_gate() {
    for goes_back in [false, true] {
        let mut switch = Switch::new(64, Moves::Gated);
        let native = FlowKey {
            class: TO,
            ..flow(9)
        };
        assert_eq!(switch.arrive(flow(1), 20_000), FROM);
        (0..DEPTH).for_each(|_| assert_eq!(switch.arrive(native, 60), TO));
        assert_eq!(switch.arrive(flow(1), 1_000), TO, "and refused");
        switch.now += Span::from_millis(2);
        if !goes_back {
            assert_eq!(switch.arrive(flow(1), 60), TO, "and refused");
        }
        while switch.serve(0, TO) {}
        if goes_back {
            (0..16).for_each(|_| switch.age());
        }
        let counters = switch.table.counters();
        let expected = (0, u64::from(goes_back));
        assert_eq!((counters.elephants, counters.restored), expected);
        assert_eq!(switch.arrive(flow(1), 30_000), TO);
        assert!(
            !switch.serve(0, TO),
            "the first is still in the upper queue"
        );
        assert!(switch.serve(0, FROM));
        assert!(switch.serve(0, TO));
    }
}

/// SW-17: elephants are found and mice are never demoted under a flood of mice, in bounded memory.
#[test]
fn a_flood_of_mice_hides_no_elephant() {
    const MICE: u32 = 100_000;
    const ELEPHANTS: u32 = 16;
    let mut switch = Switch::new(1024, Moves::Gated);
    let scatter = |number: u32| number.wrapping_mul(0x9e37_79b1).rotate_left(7);
    let mut demoted = Vec::new();
    // Ten packets of each mouse, a thousand mice at a time; the elephants send a packet for each
    // three.
    for packet in 0..10 * MICE {
        let mouse = packet / 10_000 * 1_000 + packet % 1_000;
        let class = switch.arrive(flow(scatter(ELEPHANTS + mouse)), 1_500);
        assert_eq!(class, FROM, "mouse {mouse}");
        if packet % 3 == 0 {
            let elephant = packet / 3 % ELEPHANTS;
            if switch.arrive(flow(scatter(elephant)), 1_500) == TO && !demoted.contains(&elephant) {
                demoted.push(elephant);
            }
        }
        (0..2).for_each(|_| {
            switch.serve_strictly(0);
        });
        switch.now += Span::from_nanos(1_200);
        switch.age();
    }
    assert_eq!(demoted.len(), ELEPHANTS as usize);
    let counters = switch.table.counters();
    assert_eq!((counters.elephants, counters.demoted), (16, 16));
    assert!(
        counters.evicted > 0 && counters.flows <= 1024,
        "{counters:?}"
    );
    switch.verify();
}

/// SW-17: a table full of elephants leaves other flows where they are.
#[test]
fn elephants_are_not_evicted() {
    let mut switch = Switch::new(WAYS, Moves::Gated);
    for hash in 0..4 {
        (0..3).for_each(|_| {
            switch.arrive(flow(hash), 9_000);
        });
    }
    assert_eq!(switch.table.counters().elephants, 4);
    for hash in 10..1_000 {
        assert_eq!(switch.arrive(flow(hash), 9_000), FROM);
    }
    let counters = switch.table.counters();
    assert_eq!(
        (counters.elephants, counters.unfollowed, counters.evicted),
        (4, 990, 0)
    );
    // An idle one gives way, but not while its packets wait.
    switch.now += Span::from_millis(10);
    switch.arrive(flow(10), 60);
    assert_eq!(switch.table.counters().evicted, 0);
    while switch.serve_strictly(0) {}
    switch.arrive(flow(10), 60);
    assert_eq!(switch.table.counters().evicted, 1);
    switch.verify();
}

/// SW-17: what `show elephants` shows.
#[test]
fn rows_show_the_heaviest_first() {
    let mut switch = Switch::new(64, Moves::Gated);
    for _ in 0..250 {
        switch.now += Span::from_millis(1);
        switch.arrive(flow(1), 25_000);
        switch.arrive(flow(2), 50_000);
        switch.arrive(flow(3), 1_500);
        while switch.serve_strictly(0) {}
    }
    let rows = switch.table.rows(8, switch.now);
    let expected = [(2, 400, 249), (1, 200, 248)];
    assert_eq!(rows.len(), 2);
    for (row, (hash, mbps, millis)) in rows.iter().zip(expected) {
        assert_eq!((row.flow, row.class, row.waiting), (flow(hash), TO, false));
        assert!(
            row.rate.bps().abs_diff(mbps * 1_000_000) <= mbps * 20_000,
            "{row:?}"
        );
        assert!(
            row.age.nanos().abs_diff(millis * 1_000_000) <= 2_000_000,
            "{row:?}"
        );
        assert!(row.bytes.abs_diff(mbps * millis * 125) <= 60_000, "{row:?}");
    }
    assert_eq!(switch.table.rows(1, switch.now), rows[..1]);

    switch.table.forget(PortId(1));
    assert_eq!(switch.table.counters().elephants, 2);
    switch.table.forget(PortId(0));
    assert!(switch.table.rows(8, switch.now).is_empty());
    assert_eq!(switch.table.counters().flows, 0);
    switch.verify();
}

/// SW-17: a class that is not watched costs nothing and is left alone.
#[test]
fn other_classes_stay() {
    let mut switch = Switch::new(64, Moves::Gated);
    let other = FlowKey {
        class: 5,
        ..flow(1)
    };
    (0..DEPTH).for_each(|_| assert_eq!(switch.arrive(other, 9_000), 5));
    assert_eq!(switch.table.counters(), Counters::default());
}

/// SW-17: flows of a port that are alike in the low bits, as those of one bucket are, find places
/// all over the table.
#[test]
fn alike_hashes_spread() {
    let mut switch = Switch::new(1024, Moves::Drained);
    for number in 0..512_u32 {
        switch.arrive(flow(number << 10 | 77), 60);
    }
    assert!(
        switch.table.counters().flows > 480,
        "{:?}",
        switch.table.counters()
    );
}

/// SW-17: a gate that cannot remember more lets packets wait longer, and none overtake.
#[test]
fn a_gate_that_is_full_waits_longer() {
    let mut gate = Gate::default();
    let upper = |dequeued| Progress {
        enqueued: 1_000,
        dequeued,
    };
    let lower = |dequeued| Progress {
        enqueued: 100,
        dequeued,
    };
    assert!(gate.is_open(lower(0), upper(0)));
    for wait in 1..=20 {
        gate.add(2 * wait, 10 * wait);
        // What is behind a longer wait needs none of its own.
        gate.add(2 * wait + 1, 10 * wait - 1);
    }
    assert!(
        gate.is_open(lower(0), upper(0)),
        "packet 1 was there before"
    );
    assert!(!gate.is_open(lower(1), upper(9)));
    assert!(gate.is_open(lower(1), upper(10)));
    assert!(gate.is_open(lower(14), upper(70)), "packet 15 waits for 70");
    assert!(
        !gate.is_open(lower(15), upper(199)),
        "the last wait serves all"
    );
    assert!(gate.is_open(lower(15), upper(200)));
    // A packet that never came cannot be waited for.
    gate.add(30, 1_001);
    assert!(!gate.is_open(lower(29), upper(999)));
    assert!(gate.is_open(lower(29), upper(1_000)));
}

/// SW-17: contradictions are refused.
#[test]
fn settings_that_cannot_work_are_refused() {
    let good = settings(Moves::Drained);
    let refusal = |settings: &[Settings]| {
        let mut table = Elephants::new(WAYS);
        table.configure(settings).expect_err("refused").to_string()
    };
    assert!(refusal(&[Settings { from: 8, ..good }]).contains("class 8 does not exist"));
    assert!(refusal(&[Settings { to: 3, ..good }]).contains("class 3 cannot go to class 3"));
    assert!(refusal(&[Settings { to: 4, ..good }]).contains("not lower"));
    for bytes in [MIN_BYTES - 1, MAX_BYTES + 1] {
        assert!(refusal(&[Settings { bytes, ..good }]).contains(&format!("is {bytes} bytes")));
    }
    let ageing = Span::ZERO;
    assert!(refusal(&[Settings { ageing, ..good }]).contains("ageing is 0"));
    assert!(refusal(&[good, Settings { to: 2, ..good }]).contains("class 3 is named twice"));
    assert!(
        refusal(&[good, Settings { from: 4, ..good }]).contains("classes 3 and 4 go to class 1")
    );
    for bytes in [MIN_BYTES, MAX_BYTES] {
        assert_eq!(Settings { bytes, ..good }.check(), Ok(()));
    }
    assert_eq!(
        check(&[
            good,
            Settings {
                from: 4,
                to: 2,
                ..good
            }
        ]),
        Ok(())
    );
}
