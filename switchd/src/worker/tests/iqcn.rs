//! Congestion notifications that senders miss, made by whole workers.

use super::bridge::station;
use super::bypass::DEMOTED;
use super::*;
use crate::egress::remark::set_dscp;
use crate::flows::{Key, observers};
use crate::iqcn::{Compensator, Rules, Table};
use crate::tables::elephants;
use crate::tables::policy::Wred;
use crate::tables::wred::{Curve, Profile};
use common::wire::roce::frame::{Addresses, Flow, emit, layout, seal};
use common::wire::roce::{Bth, Headers, Opcode, Operation, icrc};

/// Queue pairs of the sender, behind port 0, and of the receiver, behind port 1.
const SENDER: u32 = 0x1001;
const RECEIVER: u32 = 0x2002;

/// Depth at which the queues mark everything.
const MARKS: u32 = 10_000;

fn hosts(v6: bool) -> [IpAddr; 2] {
    let all = if v6 {
        ["fd00:0::7", "fd00:1::8"]
    } else {
        ["10.0.0.7", "10.1.0.8"]
    };
    all.map(|address| address.parse().expect("an address"))
}

/// A RoCEv2 packet that arrives at port `from` for the host behind the other one.
fn packet(from: usize, v6: bool, headers: &Headers, payload: usize) -> Vec<u8> {
    let hosts = hosts(v6);
    let flow = Flow {
        src_mac: Mac(mac(from, true)),
        dst_mac: Mac(mac(from, false)),
        addresses: Addresses::new(hosts[from], hosts[1 - from]).expect("one version"),
        src_port: 0xc123,
        flow_label: 0,
        traffic_class: 2,
        ttl: 64,
    };
    let mut bytes = vec![0; layout(flow.addresses, headers, payload).len];
    emit(&mut bytes, &flow, headers, payload);
    seal(&mut bytes).expect("whole");
    bytes
}

fn data(v6: bool) -> Vec<u8> {
    let opcode = Opcode::Rc(Operation::WriteMiddle);
    packet(0, v6, &Headers::new(Bth::new(opcode, RECEIVER, 5)), 1_000)
}

/// A switch of two ports, the second one slow, which makes notifications for the flows of both
/// versions if these are `known`.
fn switch(workers: usize, known: bool) -> Switch {
    let switch = Switch::new(2, workers);
    switch.tables(|tables| {
        tables.ports[1].speed = Some(Rate::from_mbps(200));
        tables.ports[1].burst = 2_000;
        let mut policy = Policy::plain(2, 4096);
        for queue in &mut policy.ports[1].queues {
            queue.wred = Some(Wred {
                profile: Profile {
                    curve: Curve::Deterministic { threshold: MARKS },
                    ecn: true,
                    drop: false,
                    average: None,
                },
                at_dequeue: false,
            });
        }
        tables.traffic = Arc::new(policy);
    });
    let table = Arc::new(Table::new(64, 1));
    for v6 in [false, true] {
        let [a, b] = hosts(v6);
        let there = Key::new(a, b, RECEIVER).expect("one version");
        if known {
            table.enter(&there, SENDER).expect("room");
            table.enter(&there.back_to(SENDER), RECEIVER).expect("room");
        }
    }
    let rules = Rules {
        increase: Span::from_micros(50),
        least: Span::from_micros(50),
        forget: Span::from_millis(10),
        congested_percent: 100,
        dscp: 48,
    };
    let all = observers(workers, 64, Span::from_secs(1), 1);
    for ((observer, _), commands) in all.into_iter().zip(&switch.commands) {
        let compensator = Compensator::new(table.clone(), rules);
        let observe = WorkerCommand::Observe(Some(Box::new(observer)));
        commands.send(observe).expect("room");
        let compensate = WorkerCommand::Compensate(Some(Box::new(compensator)));
        commands.send(compensate).expect("room");
    }
    switch
}

impl Switch {
    /// One turn in which `frames` arrive at port 0, and what leaves by it.
    fn turn_with(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        frames.iter().for_each(|frame| self.offer(0, frame));
        self.turn();
        let mut left = Vec::new();
        while let Some(frame) = self.wires[0].pick_up() {
            left.push(frame.bytes().to_vec());
            self.outside.give(frame);
        }
        while let Some(frame) = self.wires[1].pick_up() {
            self.outside.give(frame);
        }
        left
    }

    fn made(&self) -> u64 {
        self.sum(|port| port.cnps_made.get())
    }
}

/// SW-25: while its packets find the port congested, the sender is sent a valid notification each
/// interval, by the way that one of the receiver would take; none before, and none after.
#[test]
fn a_congested_port_notifies_senders() {
    for (v6, workers) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let mut switch = switch(workers, true);
        let one = packet(1, v6, &Headers::cnp(SENDER), 0);
        switch.offer(1, &one);
        assert_eq!(switch.run()[0].len(), 1, "that of the receiver passes");
        // Some packets, which leave at once, for far more than an interval.
        for _ in 0..20 {
            assert!(switch.turn_with(&[]).is_empty());
            assert!(switch.turn_with(&[data(v6)]).is_empty());
            (0..10).for_each(|_| assert!(switch.turn_with(&[]).is_empty()));
        }
        assert_eq!(switch.made(), 0);
        switch.offer(1, &one);
        switch.run();
        let burst = vec![data(v6); 8];
        let mut times = Vec::new();
        for turn in 0..30 {
            for notice in switch.turn_with(&burst) {
                times.push(turn);
                assert_eq!(notice[..6], mac(0, true), "the next hop");
                assert_eq!(notice[6..12], mac(0, false));
                let ip = &notice[14..];
                let (dscp, header) = if v6 {
                    let packet = v6::Packet::new_checked(ip).expect("valid");
                    assert_eq!(IpAddr::from(packet.dst()), hosts(true)[0]);
                    (packet.traffic_class() >> 2, 40)
                } else {
                    let packet = v4::Packet::new_checked(ip).expect("valid");
                    assert!(packet.verify_checksum());
                    assert_eq!(IpAddr::from(packet.dst()), hosts(false)[0]);
                    (packet.traffic_class() >> 2, 20)
                };
                assert_eq!(dscp, 48);
                let (headers, _) = Headers::parse(&ip[header + 8..]).expect("valid");
                assert_eq!(headers, Headers::cnp(SENDER));
                icrc::verify_sparse(ip, 0..0).expect("valid");
            }
        }
        // 300 µs with at least 60 between two: a turn takes 10.
        assert!((3..=5).contains(&times.len()), "{times:?}");
        assert!(
            times.windows(2).all(|two| two[1] - two[0] >= 6),
            "{times:?}"
        );
        assert_eq!(switch.made(), times.len() as u64);
        let rest = switch.run();
        assert!(
            rest[0].is_empty(),
            "nothing finds the port congested any more"
        );
        // What the switch made is no packet of the flow.
        assert_eq!(switch.sum(|port| port.rx_packets.get()), switch.offered);
    }
}

/// SW-25, SW-17: the queue of an elephant is that of elephants: while that is short its sender is
/// not notified, however long the queue of its class is; and the other way round it is.
#[test]
fn elephants_are_judged_by_their_own_queue() {
    let of_class = |class: u8, mut bytes: Vec<u8>| {
        set_dscp(&mut bytes, 14, 8 * class);
        bytes
    };
    let data = of_class(3, data(false));
    let mice = vec![of_class(3, Udp::to("10.1.0.9").frame()); 8];
    for crowded in [false, true] {
        let mut switch = switch(1, true);
        let mut policy = (*switch.publisher.current().traffic).clone();
        policy.elephants = vec![DEMOTED];
        switch.tables(|tables| tables.traffic = Arc::new(policy));
        switch.offer(1, &packet(1, false, &Headers::cnp(SENDER), 0));
        switch.run();
        for _ in 0..elephants::MIN_BYTES / 1_000 + 2 {
            switch.turn_with(std::slice::from_ref(&data));
            (0..6).for_each(|_| drop(switch.turn_with(&[])));
        }
        assert_eq!(switch.stats[0].elephants.demoted.get(), 1);
        assert_eq!(switch.made(), 0);
        for turn in 0..30 {
            let mut burst = if crowded {
                vec![data.clone(); 7]
            } else {
                mice.clone()
            };
            if turn % 5 == 0 {
                burst.push(data.clone());
            }
            switch.turn_with(&burst);
        }
        assert_eq!(switch.made() > 0, crowded);
        switch.run();
    }
}

/// SW-25: none for a flow whose queue pairs are not known, and none without congestion.
#[test]
fn nobody_is_notified_without_need() {
    let mut unknown = switch(1, false);
    unknown.offer(1, &packet(1, false, &Headers::cnp(SENDER), 0));
    unknown.run();
    for _ in 0..30 {
        assert!(unknown.turn_with(&vec![data(false); 8]).is_empty());
    }
    assert_eq!(unknown.made(), 0);
    unknown.run();
    let mut plain = switch(1, true);
    plain.offer(1, &packet(1, false, &Headers::cnp(SENDER), 0));
    plain.run();
    // As much as the port sends: a packet in 40 µs. The queue stays short.
    for _ in 0..500 {
        assert!(plain.turn_with(&[data(false)]).is_empty());
        (0..4).for_each(|_| assert!(plain.turn_with(&[]).is_empty()));
    }
    assert_eq!(plain.made(), 0);
    plain.run();
}

/// SW-25: between stations of a bridge, notifications go to the station, as the bridge knows it.
#[test]
fn stations_of_a_bridge_are_notified() {
    let between =
        |from: u16, bytes: &[u8]| [&station(1 - from)[..], &station(from), &bytes[12..]].concat();
    let mut switch = switch(1, true);
    switch.bridge(&[0], |_, _| {});
    let one = between(1, &packet(1, false, &Headers::cnp(SENDER), 0));
    switch.offer(1, &one);
    assert_eq!(switch.run()[0].len(), 1);
    let burst = vec![between(0, &data(false)); 8];
    let mut count = 0;
    for _ in 0..30 {
        for notice in switch.turn_with(&burst) {
            assert_eq!(notice[..12], [station(0), station(1)].concat());
            let (headers, _) = Headers::parse(&notice[14 + 28..]).expect("valid");
            assert_eq!(headers, Headers::cnp(SENDER));
            icrc::verify_sparse(&notice[14..], 0..0).expect("valid");
            count += 1;
        }
    }
    assert!((3..=5).contains(&count), "{count}");
    assert_eq!(switch.made(), count);
    assert_eq!(switch.sum(|port| port.bridged_packets.get()), 1 + 30 * 8);
    switch.run();
}
