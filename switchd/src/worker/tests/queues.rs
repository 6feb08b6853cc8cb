//! Queues that come and go while packets pass through others.

use super::*;

impl Switch {
    /// Has all workers let go of a port, and turns until they have. Returns its queues.
    fn detach(&mut self, port: PortId) -> Vec<SimQueue> {
        for commands in &self.queue_commands {
            let command = QueueCommand::Detach { port };
            commands.send(command).expect("the worker lives");
        }
        self.turn();
        let told = self.detached.try_iter().inspect(|it| {
            assert_eq!(it.port, port);
        });
        let told: Vec<_> = told.collect();
        let workers: HashSet<usize> = told.iter().map(|it| it.worker).collect();
        assert_eq!(workers.len(), self.workers.len(), "all workers answer");
        told.into_iter().flat_map(|it| it.queues).collect()
    }

    fn attach(&mut self, port: PortId, worker: usize, queues: Vec<SimQueue>) {
        self.attach_as(false, port, worker, queues);
    }

    /// The same, perhaps as another port.
    fn attach_as(&mut self, is_new: bool, port: PortId, worker: usize, queues: Vec<SimQueue>) {
        let command = QueueCommand::Attach {
            port,
            queues,
            is_new,
        };
        let sent = self.queue_commands[worker].send(command);
        sent.expect("the worker lives");
    }

    fn send(&mut self, from: usize, to: usize) {
        let udp = Udp {
            from,
            ..Udp::to(&format!("10.{to}.0.9"))
        };
        self.offer(from, &udp.frame());
    }

    fn set_up(&self, port: usize, up: bool) {
        self.tables(|tables| tables.ports[port].up = up);
    }

    fn charged(&self) -> u64 {
        self.workers[0].ledger.in_use()
    }
}

/// SW-1: a port goes away while packets wait for it and others pass: what waits for it is lost by
/// name and gives back what it was charged, nothing else is lost, no frame is. Its queues come
/// back, from the worker that does not own it as well.
#[test]
fn a_port_that_goes_away_takes_only_its_own_packets() {
    for workers in [1, 2] {
        let second = Some((PortId(1), 0));
        let mut switch = Switch::with_second_queue(4, workers, second);
        // The device of port 1 takes nothing more: packets wait.
        switch.wires[1].set_room(2);
        for _ in 0..20 {
            switch.send(0, 1);
        }
        let first = switch.run();
        assert_eq!(first[1].len(), 20, "the wire takes two at a time");
        switch.wires[1].set_room(0);
        (0..20).for_each(|_| switch.send(0, 1));
        (0..5).for_each(|_| switch.turn());
        assert!(switch.charged() > 0, "packets wait");
        for (from, to) in [(0, 2), (2, 3), (3, 0)] {
            (0..30).for_each(|_| switch.send(from, to));
        }
        switch.set_up(1, false);
        let queues = switch.detach(PortId(1));
        assert_eq!(queues.len(), 2);
        let left = switch.run();
        assert_eq!(
            [&left[0], &left[2], &left[3]].map(Vec::len),
            [30, 30, 30],
            "{workers} workers"
        );
        assert_eq!(switch.dropped(DropReason::EgressDown), 20);
        assert_eq!(switch.charged(), 0);
        // Nobody reads its queues any more.
        switch.wires[1].deliver(switch.outside.take_filled(&[0; 60]).expect("a frame"));
        switch.turn();
        let wire = &mut switch.wires[1];
        assert_eq!(wire.arrived(), 1);
        let mut frames = Vec::new();
        wire.receive(&mut switch.outside, &mut frames, 1);
        frames
            .into_iter()
            .for_each(|frame| switch.outside.give(frame));
    }
}

/// SW-1: a port comes back to the place that it had, and another one comes to a place that was
/// reserved: both send and receive, and so do those whose queues have moved meanwhile.
#[test]
fn a_port_that_comes_forwards() {
    for workers in [1, 2] {
        let mut switch = Switch::new(4, workers);
        let owner = |port: usize| port % workers;
        let mut absent = Vec::new();
        for port in [0, 3] {
            switch.set_up(port, false);
            let queues = switch.detach(PortId(u16::try_from(port).expect("few")));
            absent.push((port, queues));
        }
        (0..10).for_each(|_| switch.send(1, 2));
        (0..10).for_each(|_| switch.send(2, 3));
        let left = switch.run();
        assert_eq!((left[2].len(), left[3].len()), (10, 0), "{workers} workers");
        assert_eq!(switch.dropped(DropReason::EgressDown), 10);
        // In another order than they went.
        while let Some((port, queues)) = absent.pop() {
            let id = PortId(u16::try_from(port).expect("few"));
            assert_eq!(queues.len(), 1);
            if port == 3 {
                // The link may come up before the queue, or after it.
                switch.set_up(port, true);
                switch.turn();
                switch.send(1, 3);
                assert!(switch.run()[3].is_empty(), "there is no queue to send by");
            }
            switch.attach(id, owner(port), queues);
            switch.turn();
            switch.set_up(port, true);
        }
        for from in 0..4 {
            for to in (0..4).filter(|to| *to != from) {
                switch.send(from, to);
            }
        }
        let left = switch.run();
        assert_eq!(
            left.iter().map(Vec::len).collect::<Vec<_>>(),
            [3; 4],
            "{workers} workers"
        );
        assert_eq!(switch.charged(), 0);
    }
}

/// SW-1, SW-32: a number that another port has now begins with its counters at zero and without the
/// storm of the one before; a port that comes back goes on with both.
#[test]
fn another_port_begins_anew() {
    for is_new in [false, true] {
        let mut switch = Switch::lossless(2, 1, 4096);
        (0..10).for_each(|_| switch.send(0, 1));
        switch.run();
        let packets = |switch: &Switch| {
            let port = &switch.stats[0].ports[1];
            (port.tx_packets.get(), port.queues[0].sent_packets.get())
        };
        let before = packets(&switch);
        assert!(before.0 >= 10 && before.1 >= 10, "{before:?}");
        let port = PortId(1);
        let place = switch.workers[0].ports.place_of(port).expect("its owner");
        switch.workers[0].ports.at_mut(place).pauses.off = 1 << 3;
        switch.set_up(1, false);
        let queues = switch.detach(port);
        switch.attach_as(is_new, port, 0, queues);
        switch.set_up(1, true);
        switch.turn();
        let place = switch.workers[0].ports.place_of(port).expect("its owner");
        let off = switch.workers[0].ports.at(place).pauses.off;
        let expected = if is_new {
            ((0, 0), 0)
        } else {
            (before, 1 << 3)
        };
        assert_eq!((packets(&switch), off), expected, "{is_new}");
        (0..3).for_each(|_| switch.send(0, 1));
        switch.turn();
        let after = packets(&switch);
        assert_eq!(after.0, expected.0.0 + 3);
        for wire in &switch.wires {
            while let Some(frame) = wire.pick_up() {
                switch.outside.give(frame);
            }
        }
    }
}

/// SW-1: ports come and go by chance while packets pass between those that stay: of these none is
/// lost, and every packet is accounted for.
#[test]
fn ports_come_and_go_while_others_forward() {
    let seed = 0x5eed_u64;
    println!("seed {seed:#x}");
    let mut random = seed;
    let mut draw = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let mut switch = Switch::new(6, 2);
    let mut away: Vec<Option<Vec<SimQueue>>> = (0..6).map(|_| None).collect();
    let mut between = 0;
    let mut arrived = 0;
    let stays = |port: usize, bytes: &[u8]| port < 2 && usize::from(bytes[27]) == 1 - port;
    for _ in 0..300 {
        let port = 2 + usize::try_from(draw(4)).expect("small");
        let id = PortId(u16::try_from(port).expect("few"));
        match away[port].take() {
            Some(queues) => {
                switch.attach(id, port % 2, queues);
                switch.set_up(port, true);
            }
            None => {
                switch.set_up(port, false);
                away[port] = Some(switch.detach(id));
            }
        }
        let is_here: Vec<usize> = (0..6).filter(|port| away[*port].is_none()).collect();
        for _ in 0..draw(20) {
            let from = usize::try_from(draw(is_here.len() as u64)).expect("small");
            let to = usize::try_from(draw(6)).expect("small");
            let from = is_here[from];
            if from != to {
                switch.send(from, to);
                between += usize::from(from + to == 1);
            }
        }
        for (from, to) in [(0, 1), (1, 0)] {
            switch.send(from, to);
            between += 1;
        }
        for _ in 0..draw(4) {
            switch.turn();
        }
        for (port, wire) in switch.wires.iter().enumerate() {
            while let Some(frame) = wire.pick_up() {
                arrived += usize::from(stays(port, frame.bytes()));
                switch.outside.give(frame);
            }
        }
    }
    let left = switch.run();
    for (port, packets) in left.iter().enumerate() {
        arrived += packets.iter().filter(|bytes| stays(port, bytes)).count();
    }
    assert_eq!(arrived, between);
    assert!(switch.dropped(DropReason::EgressDown) > 0);
    assert_eq!(switch.charged(), 0);
}
