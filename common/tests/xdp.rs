//! The AF_XDP boundary against the real kernel, on veth pairs in network namespaces.

mod support;

use common::sys::{PollSet, monotonic};
use common::time::Span;
use common::xdp::frame::{Frame, FramePool, leaked};
use common::xdp::netdev::Device;
use common::xdp::queue::QueueIo;
use common::xdp::{
    AfXdpQueue, Mode, ModeChoice, Port, PortOptions, Role, Umem, XdpError, frames_needed, open_port,
};
use libbpf_rs::MapCore;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Namespace, enter, privileged};

const RING: u32 = 128;

fn umem(queues: u32) -> Umem {
    Umem::new(frames_needed(queues, RING, 1, 256), RING).expect("a UMEM")
}

fn open(umem: &Umem, ifname: &str) -> Port {
    open_port(umem, ifname, &PortOptions::new(Role::Switch)).expect("the port opens")
}

/// An Ethernet frame for `destination` with IPv4/UDP inside, padded to `len` bytes.
fn packet(destination: [u8; 6], len: usize) -> Vec<u8> {
    let mut packet = destination.to_vec();
    packet.extend([2, 0, 0, 0, 0, 9, 8, 0]);
    packet.extend([
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    packet.extend([0xc0, 0, 0x12, 0xb7, 0, 26, 0, 0]);
    packet.resize(len, 0);
    packet
}

/// Sends `packets` on `queue` and waits until all have left.
fn send(queue: &mut AfXdpQueue, pool: &mut FramePool, packets: &[Vec<u8>]) {
    let mut batch: Vec<Frame> = packets
        .iter()
        .map(|packet| pool.take_filled(packet).expect("a free frame"))
        .collect();
    let end = Instant::now() + Duration::from_secs(5);
    while !batch.is_empty() || queue.in_flight() > 0 {
        queue.transmit(&mut batch);
        queue.flush(pool, monotonic());
        assert!(Instant::now() < end, "packets did not leave");
    }
}

/// Receives `count` packets; fails when they do not come within two seconds.
fn receive(queue: &mut AfXdpQueue, pool: &mut FramePool, count: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut batch = Vec::new();
    let mut sleep = PollSet::new();
    let end = Instant::now() + Duration::from_secs(2);
    while packets.len() < count {
        assert!(Instant::now() < end, "{} of {count} arrived", packets.len());
        if queue.receive(pool, &mut batch, 64) == 0 {
            sleep.wait([queue.as_fd()], Span::from_millis(100)).unwrap();
        }
        for frame in batch.drain(..) {
            packets.push(frame.bytes().to_vec());
            pool.give(frame);
        }
    }
    packets
}

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
    if !privileged("a_two_port_reflector_carries_ping_and_datagrams") {
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
        let pings = left.run("ping -i 0.01 -c 50 -q 10.7.0.2");
        assert!(pings.contains(" 0% packet loss"), "{pings}");
        let name = right.name().to_owned();
        let receiver = scope.spawn(move || {
            enter(&name);
            let socket = UdpSocket::bind("10.7.0.2:4791").unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(2)))
                .unwrap();
            let mut buffer = [0; 2000];
            for number in 0..200_u16 {
                let len = socket.recv(&mut buffer).unwrap();
                assert_eq!((len, &buffer[..2]), (1400, &number.to_be_bytes()[..]));
            }
        });
        let name = left.name().to_owned();
        let sender = scope.spawn(move || {
            enter(&name);
            std::thread::sleep(Duration::from_millis(100));
            let socket = UdpSocket::bind("10.7.0.1:4791").unwrap();
            for number in 0..200_u16 {
                let mut datagram = [0; 1400];
                datagram[..2].copy_from_slice(&number.to_be_bytes());
                socket.send_to(&datagram, "10.7.0.2:4791").unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let results = [sender.join(), receiver.join()];
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        for result in results {
            result.unwrap();
        }
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
    if !privileged("every_queue_of_a_device_has_a_socket") {
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

/// A burst longer than the socket's receive ring, while nobody reads: what does not fit is counted by the kernel, and
/// afterwards reception goes on.
#[test]
fn a_full_receive_ring_loses_counts_and_recovers() {
    if !privileged("a_full_receive_ring_loses_counts_and_recovers") {
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
    std::thread::sleep(Duration::from_millis(50));
    let queue = &mut sink.queues[0];
    assert_eq!(receive(queue, &mut pool, 128).len(), 128);
    queue.read_statistics();
    let counters = queue.counters().clone();
    assert_eq!(counters.kernel_rx_ring_full.get(), 6 * 64 - 128);
    for _ in 0..10 {
        send(&mut source.queues[0], &mut pool, &packets);
        assert_eq!(receive(&mut sink.queues[0], &mut pool, 64), packets);
    }
    assert_eq!(counters.kernel_rx_fill_empty.get(), 0);
}

/// The map of a device's program that holds its sockets.
fn sockets_of(device: &Device) -> libbpf_rs::MapHandle {
    // Any descriptor does: the query is about the device.
    let id = libbpf_rs::Xdp::new(std::io::stdin().as_fd())
        .query_id(device.ifindex.cast_signed(), libbpf_rs::XdpFlags::DRV_MODE)
        .unwrap();
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let program = ProgInfoIter::with_query_opts(options)
        .find(|program| program.id == id)
        .expect("the program is loaded");
    program
        .map_ids
        .into_iter()
        .map(|id| libbpf_rs::MapHandle::from_map_id(id).unwrap())
        .find(|map| map.name() == "steer_sockets")
        .expect("it has such a map")
}

/// What is for a socket that is not there goes to the kernel, and is counted.
#[test]
fn packets_of_a_queue_without_socket_go_to_the_kernel() {
    if !privileged("packets_of_a_queue_without_socket_go_to_the_kernel") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "numrxqueues 2 numtxqueues 2");
    namespace.enter();
    let umem = umem(4);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let sockets = sockets_of(&sink.device);
    sockets.delete(&1_u32.to_ne_bytes()).unwrap();
    let packet = packet(sink.device.mac, 64);
    for queue in &mut source.queues {
        send(queue, &mut pool, std::slice::from_ref(&packet));
    }
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [packet]);
    std::thread::sleep(Duration::from_millis(20));
    let counts = sink.steering.counts().unwrap();
    assert_eq!((counts.redirected, counts.no_socket), (1, vec![0, 1, 0]));
}

/// Kicks are triggered by level: nothing is sent twice, nothing is forgotten.
#[test]
fn packets_wait_while_a_device_is_down() {
    if !privileged("packets_wait_while_a_device_is_down") {
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
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        queue.flush(&mut pool, monotonic());
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
    if !privileged("one_call_sends_a_whole_batch") {
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
    if !privileged("packets_that_no_device_can_send_are_refused_and_counted") {
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

/// Header space in front of a packet can be taken and given, and is sent.
#[test]
fn a_tag_can_be_put_in_front_without_a_copy() {
    if !privileged("a_tag_can_be_put_in_front_without_a_copy") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let plain = packet(sink.device.mac, 64);
    let mut frame = pool.take_filled(&plain).unwrap();
    assert!(frame.grow_front(4));
    frame.bytes_mut().copy_within(4..16, 0);
    frame.bytes_mut()[12..16].copy_from_slice(&[0x81, 0, 0x60, 7]);
    let tagged = frame.bytes().to_vec();
    let mut batch = vec![frame];
    assert_eq!(source.queues[0].transmit(&mut batch), 1);
    source.queues[0].flush(&mut pool, monotonic());
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [tagged]);
}

#[test]
fn an_mtu_that_does_not_fit_is_refused() {
    if !privileged("an_mtu_that_does_not_fit_is_refused") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    namespace.run("ip link set va mtu 3507");
    let error = open_port(&umem, "va", &PortOptions::new(Role::Switch)).unwrap_err();
    assert!(matches!(error, XdpError::Mtu(_)), "{error}");
    assert!(
        error.to_string().contains("MTU 3507 is above 3506"),
        "{error}"
    );
    namespace.run("ip link set va mtu 3506");
    namespace.run("ip link set vb mtu 3507");
    let error = open_port(&umem, "va", &PortOptions::new(Role::Switch)).unwrap_err();
    assert!(
        matches!(error, XdpError::PeerMtu { limit: 3506, .. }),
        "{error}"
    );
    namespace.run("ip link set vb mtu 3506");
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let longest = packet(sink.device.mac, 3506 + 14);
    send(
        &mut source.queues[0],
        &mut pool,
        std::slice::from_ref(&longest),
    );
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [longest]);
}

#[test]
fn modes_are_chosen_shown_and_required() {
    if !privileged("modes_are_chosen_shown_and_required") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(4);
    let mut pool = FramePool::new(umem.region().clone());
    let with = |mode| PortOptions {
        mode: ModeChoice::Exactly(mode),
        ..PortOptions::new(Role::Switch)
    };
    let error = open_port(&umem, "va", &with(Mode::NativeZeroCopy)).unwrap_err();
    assert!(error.to_string().contains("native zero-copy"), "{error}");
    let source = open_port(&umem, "va", &with(Mode::GenericCopy)).unwrap();
    assert_eq!(source.mode.to_string(), "generic copy");
    drop(source);

    // A device without native XDP.
    namespace.run("ip link add link vb name vm type macvlan mode private");
    namespace.run("ip link set vm up");
    let error = open_port(&umem, "vm", &with(Mode::NativeCopy)).unwrap_err();
    assert!(matches!(error, XdpError::Steering { .. }), "{error}");
    let mut sink = open(&umem, "vm");
    assert_eq!(sink.mode, Mode::GenericCopy);
    let mut source = open_port(&umem, "va", &with(Mode::GenericCopy)).unwrap();
    let packet = packet(sink.device.mac, 90);
    send(
        &mut source.queues[0],
        &mut pool,
        std::slice::from_ref(&packet),
    );
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [packet]);
}

fn load(object: &std::path::Path) -> libbpf_rs::Object {
    let open = libbpf_rs::ObjectBuilder::default().open_file(object);
    open.unwrap().load().unwrap()
}

fn attach_without_link(object: &libbpf_rs::Object, ifindex: u32) {
    let program = object.progs().next().unwrap();
    libbpf_rs::Xdp::new(program.as_fd())
        .attach(ifindex.cast_signed(), libbpf_rs::XdpFlags::DRV_MODE)
        .unwrap();
}

#[test]
fn a_foreign_program_is_named_and_our_own_leftover_is_replaced() {
    if !privileged("a_foreign_program_is_named_and_our_own_leftover_is_replaced") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    let ifindex = Device::lookup("va").unwrap().ifindex;

    let folder = tempfile::tempdir().unwrap();
    let (source, foreign) = (folder.path().join("f.c"), folder.path().join("f.o"));
    std::fs::write(
        &source,
        "__attribute__((section(\"xdp\"))) int foreign(void *c) { return 2; }\n\
         char l[] __attribute__((section(\"license\"))) = \"GPL\";\n",
    )
    .unwrap();
    support::run(&format!(
        "clang -O2 -g -target bpf -c {} -o {}",
        source.display(),
        foreign.display()
    ));
    let foreign = load(&foreign);
    attach_without_link(&foreign, ifindex);
    let error = open_port(&umem, "va", &PortOptions::new(Role::Switch)).unwrap_err();
    let XdpError::Occupied { id, name, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(name, "foreign");
    assert!(error.to_string().contains(&format!("XDP program {id}")));
    namespace.run("ip link set va xdp off");

    let ours = load(&std::path::Path::new(env!("OUT_DIR")).join("steer.bpf.o"));
    attach_without_link(&ours, ifindex);
    drop(open(&umem, "va"));

    let held = open(&umem, "va");
    let error = open_port(&umem, "va", &PortOptions::new(Role::Host)).unwrap_err();
    assert!(matches!(error, XdpError::InUse { .. }), "{error}");
    drop(held);
}

#[test]
fn a_port_can_be_opened_again_at_once() {
    if !privileged("a_port_can_be_opened_again_at_once") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "numrxqueues 2 numtxqueues 2");
    namespace.enter();
    let umem = umem(4);
    assert!(umem.is_anchored());
    let mut pool = FramePool::new(umem.region().clone());
    let mut sink = open(&umem, "vb");
    for _ in 0..10 {
        let mut source = open(&umem, "va");
        let packets = vec![packet(sink.device.mac, 80); 40];
        send(&mut source.queues[1], &mut pool, &packets);
        // Half of them are still in its rings when the other end is closed and opened.
        receive(&mut sink.queues[1], &mut pool, 20);
        drop(sink);
        sink = open(&umem, "vb");
        send(&mut source.queues[1], &mut pool, &packets);
        receive(&mut sink.queues[1], &mut pool, 40);
    }
    drop(sink);
    assert_eq!(pool.free_frames(), umem.region().frames() as usize);
    assert_eq!(leaked(), 0);
}

const CHILD_NAMESPACE: &str = "XDP_TEST_CHILD_NAMESPACE";

/// Not a test: what the process runs that the next test kills.
#[test]
#[ignore = "run by a_killed_process_leaves_nothing_behind"]
fn child_that_holds_a_port() {
    let Ok(name) = std::env::var(CHILD_NAMESPACE) else {
        return;
    };
    enter(&name);
    let umem = umem(1);
    let _port = open(&umem, "va");
    println!("\nholding");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    if !privileged("a_killed_process_leaves_nothing_behind") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child_that_holds_a_port",
                "--ignored",
                "--nocapture",
            ])
            .env(CHILD_NAMESPACE, namespace.name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap() == "holding"));
        assert!(namespace.run("ip link show va").contains("xdp"));
        child.kill().unwrap();
        child.wait().unwrap();
        let name = namespace.name().to_owned();
        let opened = std::thread::spawn(move || {
            enter(&name);
            drop(open(&umem(1), "va"));
        });
        opened.join().unwrap();
        assert!(!namespace.run("ip link show va").contains("xdp"));
    }
}

/// Not a test: what the next test runs with little memory to lock.
#[test]
#[ignore = "run by too_little_locked_memory_is_said_in_numbers"]
fn child_with_little_memory() {
    match Umem::new(1024, RING) {
        Ok(_) => println!("\nopened"),
        Err(error) => println!("\n{error}"),
    }
}

#[test]
fn too_little_locked_memory_is_said_in_numbers() {
    if !privileged("too_little_locked_memory_is_said_in_numbers") {
        return;
    }
    let output = support::run(&format!(
        "setpriv --bounding-set -ipc_lock,-sys_resource -- prlimit --memlock=1048576 {} \
         --exact child_with_little_memory --ignored --nocapture",
        std::env::current_exe().unwrap().display()
    ));
    assert!(
        output.contains("4194304 bytes are needed, the limit is 1048576"),
        "{output}"
    );
}

const PORT: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// An Ethernet frame: destination, type, and what follows.
fn ethernet(destination: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(kind.to_be_bytes());
    frame.extend(rest);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn udp4(destination: [u8; 4], port: u16, fragment: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 0];
    header.extend(fragment.to_be_bytes());
    header.extend([64, 17, 0, 0, 10, 0, 0, 9]);
    header.extend(destination);
    header.extend([0xc0, 0]);
    header.extend(port.to_be_bytes());
    header
}

fn ipv6(destination: &str, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 20, next, 64];
    header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let address: std::net::Ipv6Addr = destination.parse().unwrap();
    header.extend(address.octets());
    header.extend(rest);
    header
}

fn tagged(inner: u16, rest: &[u8]) -> Vec<u8> {
    let mut tag = vec![0x60, 5];
    tag.extend(inner.to_be_bytes());
    tag.extend(rest);
    tag
}

/// Every kind of packet, and whether it is the daemon's on a switch port and on a host port.
/// 10.0.0.1 and 2001:db8::1 are local.
fn steering_table() -> Vec<(&'static str, Vec<u8>, bool, bool)> {
    let roce = 4791_u16.to_be_bytes();
    let udp6 = [0xc0, 0, roce[0], roce[1]];
    let [own, transit] = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let group = [1, 0, 0x5e, 0, 0, 5];
    let v4 = |rest: &[u8]| ethernet(PORT, 0x0800, rest);
    let v6 = |rest: &[u8]| ethernet(PORT, 0x86dd, rest);
    vec![
        (
            "ARP broadcast",
            ethernet([255; 6], 0x0806, &[]),
            false,
            false,
        ),
        ("ARP reply", ethernet(PORT, 0x0806, &[]), false, false),
        (
            "LLDP",
            ethernet([1, 0x80, 0xc2, 0, 0, 0xe], 0x88cc, &[]),
            false,
            false,
        ),
        (
            "PFC",
            ethernet([1, 0x80, 0xc2, 0, 0, 1], 0x8808, &[1, 1]),
            true,
            true,
        ),
        ("transit", v4(&udp4(transit, 80, 0)), true, false),
        ("transit RoCE", v4(&udp4(transit, 4791, 0)), true, false),
        ("own RoCE", v4(&udp4(own, 4791, 0)), false, true),
        ("own other UDP", v4(&udp4(own, 4790, 0)), false, false),
        ("own fragment", v4(&udp4(own, 4791, 1)), false, false),
        (
            "own first fragment",
            v4(&udp4(own, 4791, 0x2000)),
            false,
            false,
        ),
        (
            "own, do not fragment",
            v4(&udp4(own, 4791, 0x4000)),
            false,
            true,
        ),
        ("transit fragment", v4(&udp4(transit, 80, 1)), true, false),
        (
            "other station",
            ethernet([2, 0, 0, 0, 0, 7], 0x0800, &udp4(transit, 80, 0)),
            false,
            false,
        ),
        (
            "group station",
            ethernet(group, 0x0800, &udp4(transit, 80, 0)),
            false,
            false,
        ),
        ("multicast", v4(&udp4([224, 0, 0, 5], 80, 0)), false, false),
        ("broadcast", v4(&udp4([255; 4], 80, 0)), false, false),
        (
            "link-local",
            v4(&udp4([169, 254, 1, 1], 80, 0)),
            false,
            false,
        ),
        (
            "tagged transit",
            ethernet(PORT, 0x8100, &tagged(0x0800, &udp4(transit, 80, 0))),
            true,
            false,
        ),
        (
            "tagged own RoCE",
            ethernet(PORT, 0x8100, &tagged(0x0800, &udp4(own, 4791, 0))),
            false,
            true,
        ),
        (
            "twice tagged transit",
            ethernet(
                PORT,
                0x88a8,
                &tagged(0x8100, &tagged(0x0800, &udp4(transit, 80, 0))),
            ),
            true,
            false,
        ),
        (
            "tagged ARP",
            ethernet(PORT, 0x8100, &tagged(0x0806, &[])),
            false,
            false,
        ),
        (
            "v6 transit",
            v6(&ipv6("2001:db8::2", 17, &udp6)),
            true,
            false,
        ),
        (
            "v6 own RoCE",
            v6(&ipv6("2001:db8::1", 17, &udp6)),
            false,
            true,
        ),
        (
            "v6 own TCP",
            v6(&ipv6("2001:db8::1", 6, &udp6)),
            false,
            false,
        ),
        (
            "v6 neighbour solicitation",
            v6(&ipv6("2001:db8::2", 58, &[135, 0])),
            false,
            false,
        ),
        (
            "v6 redirect",
            v6(&ipv6("2001:db8::2", 58, &[137, 0])),
            false,
            false,
        ),
        (
            "v6 echo",
            v6(&ipv6("2001:db8::2", 58, &[128, 0])),
            true,
            false,
        ),
        (
            "v6 link-local",
            v6(&ipv6("fe80::1", 17, &udp6)),
            false,
            false,
        ),
        ("v6 multicast", v6(&ipv6("ff02::5", 89, &[])), false, false),
        ("unknown type", ethernet(PORT, 0x1234, &[]), false, false),
    ]
}

/// SW-1, HT-1: what is the kernel's goes to the kernel, the rest to the daemon.
#[test]
fn packets_are_steered_by_the_table() {
    if !privileged("packets_are_steered_by_the_table") {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.run("ip link set vb address 02:00:00:00:00:01");
    namespace.enter();
    let umem = umem(2);
    let mut pool = FramePool::new(umem.region().clone());
    let mut source = open(&umem, "va");
    let local: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
    for role in [Role::Switch, Role::Host] {
        let options = PortOptions {
            local: local.to_vec(),
            ..PortOptions::new(role)
        };
        let mut port = open_port(&umem, "vb", &options).unwrap();
        for (name, bytes, on_switch, on_host) in steering_table() {
            let before = port.steering.counts().unwrap();
            send(
                &mut source.queues[0],
                &mut pool,
                std::slice::from_ref(&bytes),
            );
            let end = Instant::now() + Duration::from_secs(2);
            let after = loop {
                let now = port.steering.counts().unwrap();
                if now != before || Instant::now() > end {
                    break now;
                }
                std::thread::yield_now();
            };
            let ours = match role {
                Role::Switch => on_switch,
                Role::Host => on_host,
            };
            let counted = (
                after.passed - before.passed,
                after.redirected - before.redirected,
            );
            assert_eq!(
                counted,
                (u64::from(!ours), u64::from(ours)),
                "{name}, {role:?}"
            );
            if ours {
                let got = receive(&mut port.queues[0], &mut pool, 1);
                assert_eq!(got, [bytes], "{name}");
            }
        }
    }
    // Addresses come and go.
    let mut port = open_port(&umem, "vb", &PortOptions::new(Role::Host)).unwrap();
    let (_, own, ..) = steering_table().swap_remove(6);
    port.steering.add_local(local[0]).unwrap();
    send(&mut source.queues[0], &mut pool, std::slice::from_ref(&own));
    assert_eq!(receive(&mut port.queues[0], &mut pool, 1).len(), 1);
    port.steering.remove_local(local[0]).unwrap();
    port.steering.remove_local(local[0]).unwrap();
    let before = port.steering.counts().unwrap().passed;
    send(&mut source.queues[0], &mut pool, &[own]);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(port.steering.counts().unwrap().passed, before + 1);
}
