//! Trimmed packets: each one is sent or lost, and counted as such.

use super::*;
use crate::egress::remark::set_dscp;
use crate::tables::policy::{FlowControl, TrimAt};
use crate::tables::watchdog;
use common::wire::pause::Control;

/// Data is in queue 1, and becomes what is in queue 2.
const DATA: u8 = 8;
const TRIMMED: u8 = 16;

/// Bytes of a frame of data; two of them fit in the queue.
const LEN: u32 = 14 + 20 + 8 + 900;

impl Switch {
    /// A switch whose port 1 holds back queues 1 and 2; three of five packets that came for it are
    /// trimmed, and at most `room` cells of them find room.
    fn trimming(room: u32) -> Self {
        let mut switch = Self::new(2, 1);
        let mut policy = Policy::plain(2, 4096);
        policy.trim.trimmable = 1 << DATA;
        policy.trim.trimmed_of[usize::from(DATA)] = TRIMMED;
        policy.watchdog = Some(watchdog::Settings {
            detection_time: Span::from_millis(1),
            restoration_time: Span::from_millis(1),
            poll_interval: Span::from_millis(1),
            ..watchdog::Settings::default()
        });
        for port in &mut policy.ports {
            port.flow_control = FlowControl::Pfc {
                send: 0,
                obey: 1 << 2,
                quanta: 100,
            };
            port.queues[1].trim = Some(TrimAt {
                bytes: 2 * LEN,
                rtx_bytes: 2 * LEN,
            });
            port.queues[2].limit = Some(crate::tables::policy::Limit::Static(room));
        }
        policy.divide(4096, None).expect("room");
        switch.tables(|tables| {
            tables.traffic = Arc::new(policy);
            for port in &mut tables.ports {
                port.speed = Some(Rate::from_gbps(1));
                port.link = port.speed;
            }
        });
        let held = WorkerCommand::Hold {
            port: PortId(1),
            classes: 0b110,
        };
        switch.commands[0].send(held).expect("a worker");
        (0..5).for_each(|_| switch.data());
        assert_eq!(switch.run()[1].len(), 0);
        let queue = &switch.stats[0].ports[1].queues[1];
        assert_eq!(
            (queue.trimmed_packets.get(), queue.depth_packets.get()),
            (3, 2)
        );
        switch
    }

    /// Offers a packet that may be trimmed.
    fn data(&mut self) {
        let packet = Udp {
            payload: 900,
            ..Udp::to("10.1.0.9")
        };
        let mut frame = packet.frame();
        assert!(set_dscp(&mut frame, 14, DATA));
        self.offer(0, &frame);
    }

    /// Trimmed packets, those of them that were sent, and those that were lost.
    fn trims(&self) -> (u64, u64, u64) {
        let trimmed = self.sum(|port| port.queues.iter().map(|it| it.trimmed_packets.get()).sum());
        let sent = self.sum(|port| port.trimmed_sent.get());
        (trimmed, sent, self.sum(|port| port.trimmed_dropped.get()))
    }

    fn assert_nothing_is_charged(&self) {
        let ledger = &self.workers[0].ledger;
        assert_eq!(ledger.in_use(), 0);
        assert_eq!(ledger.regions().map(|region| region.now), [0; 3]);
    }
}

/// SW-23: trimmed packets are sent, or find no room; what found none is lost for that reason.
#[test]
fn what_is_trimmed_is_sent_or_finds_no_room() {
    let mut switch = Switch::trimming(2);
    assert_eq!(switch.trims(), (3, 0, 1));
    assert_eq!(switch.dropped(DropReason::TrimFull), 1);
    let released = WorkerCommand::Hold {
        port: PortId(1),
        classes: 0,
    };
    switch.commands[0].send(released).expect("a worker");
    assert_eq!(switch.run()[1].len(), 4);
    assert_eq!(switch.trims(), (3, 2, 1));
    switch.assert_nothing_is_charged();
}

/// SW-23: trimmed packets that wait when the link goes down are lost for that reason, and counted
/// among the trimmed.
#[test]
fn what_is_trimmed_is_lost_with_the_link() {
    let mut switch = Switch::trimming(2);
    switch.tables(|tables| tables.ports[1].up = false);
    assert_eq!(switch.run()[1].len(), 0);
    assert_eq!(switch.dropped(DropReason::EgressDown), 4);
    assert_eq!(
        switch.sum(|port| port
            .queues
            .iter()
            .map(|it| it.discarded_packets.get())
            .sum()),
        4
    );
    assert_eq!(switch.trims(), (3, 0, 3));
    switch.assert_nothing_is_charged();
}

/// SW-23, SW-32: a storm discards the trimmed packets that wait, and those that come for the same
/// queue: they are lost for that reason, and counted among the trimmed.
#[test]
fn what_is_trimmed_is_lost_in_a_storm() {
    let mut switch = Switch::trimming(100);
    assert_eq!(switch.trims(), (3, 0, 0));
    let mut times = [None; 8];
    times[2] = Some(u16::MAX);
    for _ in 0..10 {
        switch.offer(1, &Control::Pfc(times).emit(Mac([2; 6])));
        switch.run();
    }
    assert_eq!(switch.dropped(DropReason::PfcStorm), 3);
    assert_eq!(switch.trims(), (3, 0, 3));
    switch.data();
    switch.run();
    assert_eq!(switch.dropped(DropReason::PfcStorm), 4);
    assert_eq!(switch.dropped(DropReason::TrimFull), 0);
    assert_eq!(switch.trims(), (4, 0, 4));
}
