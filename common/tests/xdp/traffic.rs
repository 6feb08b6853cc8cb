//! Packets in and out, on every queue, under pressure, and every frame home again.

use crate::namespace::{Namespace, enter};
use crate::{PATIENCE, eventually, open, packet, receive, send, umem};
use common::sys::{PollSet, monotonic};
use common::time::Span;
use common::xdp::frame::{FramePool, leaked};
use common::xdp::queue::QueueIo;
use common::xdp::{AfXdpQueue, Mode};
use netns::{Echo, privileged};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Forwards between two ports, both ways, writing new addresses, until `stop`.
fn reflect(
    ports: [(&mut AfXdpQueue, [u8; 6], [u8; 6]); 2],
    pool: &mut FramePool,
    stop: &AtomicBool,
) {
    let [(one, one_mac, one_peer), (other, other_mac, other_peer)] = ports;
    let mut batch = Vec::new();
    let mut sleep = PollSet::new();
    while !stop.load(Ordering::Relaxed) {
        let mut work = 0;
        for forward in [true, false] {
            let (from, to, source, destination) = if forward {
                (&mut *one, &mut *other, other_mac, other_peer)
            } else {
                (&mut *other, &mut *one, one_mac, one_peer)
            };
            work += from.receive(pool, &mut batch, 64);
            for frame in &mut batch {
                frame.bytes_mut()[..6].copy_from_slice(&destination);
                frame.bytes_mut()[6..12].copy_from_slice(&source);
            }
            to.transmit(&mut batch);
            batch.drain(..).for_each(|frame| pool.give(frame));
            to.flush(pool, monotonic());
        }
        if work == 0 {
            let fds = [one.as_fd(), other.as_fd()];
            sleep.wait(fds, Span::from_millis(5)).unwrap();
        }
    }
}

/// Two hosts, a switch namespace between them, and every frame at home when it is over.
#[test]
fn a_two_port_reflector_carries_ping_and_datagrams() {
    if !privileged() {
        return;
    }
    let [left, switch, right] = std::array::from_fn(|_| Namespace::new());
    for (host, port, end, address) in [
        (&left, "p0", "h0", "10.7.0.1"),
        (&right, "p1", "h1", "10.7.0.2"),
    ] {
        switch.veth(port, end, "");
        switch.run(&format!("ip link set {end} netns {}", host.name()));
        host.run(&format!("ip addr add {address}/24 dev {end}"));
        host.run(&format!("ip link set {end} up"));
    }
    let mac = |namespace: &Namespace, end: &str| {
        let text = namespace.run(&format!("cat /sys/class/net/{end}/address"));
        text.trim().to_owned()
    };
    let (p0, p1) = (mac(&switch, "p0"), mac(&switch, "p1"));
    left.run(&format!("ip neigh add 10.7.0.2 lladdr {p0} dev h0"));
    right.run(&format!("ip neigh add 10.7.0.1 lladdr {p1} dev h1"));
    let bytes = |text: &str| {
        let mut mac = [0; 6];
        for (byte, digits) in mac.iter_mut().zip(text.split(':')) {
            *byte = u8::from_str_radix(digits, 16).unwrap();
        }
        mac
    };
    let (h0, h1) = (bytes(&mac(&left, "h0")), bytes(&mac(&right, "h1")));

    switch.enter();
    let umem = umem(2);
    let (mut first, mut second) = (open(&umem, "p0"), open(&umem, "p1"));
    assert_eq!(first.mode, Mode::NativeCopy, "what veth offers");
    let stop = AtomicBool::new(false);
    let mut pool = FramePool::new(umem.region().clone());
    std::thread::scope(|scope| {
        let pool = &mut pool;
        let (one, other) = (&mut first.queues[0], &mut second.queues[0]);
        let ports = [(one, bytes(&p0), h0), (other, bytes(&p1), h1)];
        let stop = &stop;
        let worker = scope.spawn(move || reflect(ports, pool, stop));
        let echo = Echo::new([10, 7, 0, 2].into(), 50, Duration::from_millis(10));
        let pings = echo.start(left.name()).finish().unwrap();
        let name = right.name().to_owned();
        // No more are under way than every ring and buffer takes, however late others are.
        let (room, place) = std::sync::mpsc::sync_channel(0);
        let receiver = scope.spawn(move || {
            enter(&name);
            let socket = UdpSocket::bind("10.7.0.2:4791").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut buffer = [0; 2000];
            for number in 0..200_u16 {
                if number % 20 == 0 {
                    room.send(()).unwrap();
                }
                let len = socket.recv(&mut buffer).unwrap();
                assert_eq!((len, &buffer[..2]), (1400, &number.to_be_bytes()[..]));
            }
        });
        let name = left.name().to_owned();
        let sender = scope.spawn(move || {
            enter(&name);
            let socket = UdpSocket::bind("10.7.0.1:4791").unwrap();
            for number in 0..200_u16 {
                if number % 20 == 0 {
                    place.recv().unwrap();
                }
                let mut datagram = [0; 1400];
                datagram[..2].copy_from_slice(&number.to_be_bytes());
                socket.send_to(&datagram, "10.7.0.2:4791").unwrap();
            }
        });
        let results = [sender.join(), receiver.join()];
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        for result in results {
            result.unwrap();
        }
        // Only now: the scope waits for its threads.
        assert_eq!(pings.lost(), 0, "{pings:?}");
    });
    let counts = first.steering.counts().unwrap();
    assert!(counts.redirected >= 250, "{counts:?}");
    assert_eq!(counts.no_socket, [0, 0]);
    drop((first, second));
    assert_eq!(pool.free_frames(), umem.region().frames() as usize);
    assert_eq!(leaked(), 0);
}

#[test]
fn every_queue_of_a_device_has_a_socket() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "numrxqueues 4 numtxqueues 4");
    namespace.enter();
    let umem = umem(8);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    assert_eq!((source.queues.len(), sink.queues.len()), (4, 4));
    for queue in 0..4_u8 {
        let packets: Vec<_> = (0..100_u8)
            .map(|number| {
                let mut packet = packet(sink.device.mac, 64);
                packet[60] = queue;
                packet[61] = number;
                packet
            })
            .collect();
        // More than a ring, twice.
        for part in packets.chunks(50) {
            send(&mut source.queues[usize::from(queue)], &mut pool, part);
            let got = receive(&mut sink.queues[usize::from(queue)], &mut pool, part.len());
            assert_eq!(got, part, "queue {queue}");
        }
        let counters = sink.queues[usize::from(queue)].counters().clone();
        assert_eq!(counters.rx_packets.get(), 100);
        assert_eq!(counters.rx_bytes.get(), 6400);
        assert_eq!(counters.rx_invalid.get(), 0);
        assert!(source.queues[usize::from(queue)].counters().tx_kicks.get() > 0);
    }
    drop((source, sink));
    assert_eq!(pool.free_frames(), umem.region().frames() as usize);
}

/// A burst longer than the socket's receive ring, while nobody reads: what does not fit is counted
/// by the kernel, and afterwards reception goes on.
#[test]
fn a_full_receive_ring_loses_counts_and_recovers() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let packets: Vec<_> = (0..64).map(|_| packet(sink.device.mac, 100)).collect();
    for _ in 0..6 {
        send(&mut source.queues[0], &mut pool, &packets);
    }
    let queue = &mut sink.queues[0];
    let counters = queue.counters().clone();
    eventually("what does not fit is counted", || {
        queue.read_statistics();
        counters.kernel_rx_ring_full.get() == 6 * 64 - 128
    });
    assert_eq!(receive(queue, &mut pool, 128).len(), 128);
    for _ in 0..10 {
        send(&mut source.queues[0], &mut pool, &packets);
        assert_eq!(receive(&mut sink.queues[0], &mut pool, 64), packets);
    }
    assert_eq!(counters.kernel_rx_fill_empty.get(), 0);
}

/// Kicks are triggered by level: nothing is sent twice, nothing is forgotten.
#[test]
fn packets_wait_while_a_device_is_down() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let packets: Vec<_> = (0..10)
        .map(|number| packet(sink.device.mac, 64 + number))
        .collect();
    namespace.run("ip link set va down");
    let mut batch: Vec<_> = packets
        .iter()
        .map(|packet| pool.take_filled(packet).unwrap())
        .collect();
    let queue = &mut source.queues[0];
    assert_eq!(queue.transmit(&mut batch), 10);
    let began = monotonic();
    for time in 0..50 {
        queue.flush(&mut pool, began + Span::from_millis(time));
    }
    assert_eq!(queue.in_flight(), 10);
    let counters = queue.counters().clone();
    assert!(counters.tx_kick_failed.get() > 1);
    assert_eq!(counters.tx_stalls.get(), 1);
    namespace.run("ip link set va up");
    queue.flush(&mut pool, monotonic());
    assert_eq!(queue.in_flight(), 0);
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 10), packets);
}

/// A burst longer than what one system call sends by default (32) leaves with few of them.
#[test]
fn one_call_sends_a_whole_batch() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, sink) = (open(&umem, "va"), open(&umem, "vb"));
    let packets = vec![packet(sink.device.mac, 64); 128];
    send(&mut source.queues[0], &mut pool, &packets);
    let kicks = source.queues[0].counters().tx_kicks.get();
    assert!(kicks <= 4, "{kicks} kicks for 128 packets");
}

#[test]
fn packets_that_no_device_can_send_are_refused_and_counted() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let good = packet(sink.device.mac, 60);
    send(
        &mut source.queues[0],
        &mut pool,
        &[vec![0; 13], good.clone(), Vec::new()],
    );
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [good]);
    assert_eq!(source.queues[0].counters().tx_refused.get(), 2);
    assert_eq!(source.queues[0].counters().tx_packets.get(), 1);
}
