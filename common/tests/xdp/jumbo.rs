//! Packets that are longer than a chunk.

use crate::namespace::Namespace;
use crate::{RING, eventually, open, packet, receive, send, umem};
use common::xdp::frame::{FramePool, leaked};
use common::xdp::limits::{JUMBO_MAX, linear_mtu_limit};
use common::xdp::queue::QueueIo;
use common::xdp::{
    Mode, ModeChoice, PortOptions, Role, Umem, XdpError, frames_needed, multi_buffer, open_port,
};
use netns::privileged;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Lengths where something changes, and random ones.
fn lengths(random: &mut Pcg64Mcg) -> Vec<usize> {
    let mut lengths = vec![
        60, 3839, 3840, 3841, 4096, 4218, 7679, 7680, 7681, 9014, 9230,
    ];
    lengths.extend((0..120).map(|_| 60 + random.next_u32() as usize % (9230 - 60)));
    lengths
}

/// A packet with random content behind its headers.
fn noise(destination: [u8; 6], len: usize, random: &mut Pcg64Mcg) -> Vec<u8> {
    let mut packet = packet(destination, len);
    random.fill_bytes(&mut packet[42..]);
    packet
}

fn pair(mtu: u32) -> Namespace {
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    for end in ["va", "vb"] {
        namespace.run(&format!("ip link set {end} mtu {mtu}"));
    }
    namespace.enter();
    namespace
}

fn random() -> Pcg64Mcg {
    let seed = std::process::id().into();
    println!("seed {seed}");
    Pcg64Mcg::seed_from_u64(seed)
}

/// SW-1: packets of every length arrive byte for byte, in native and in generic mode, and every
/// chunk of theirs comes home.
#[test]
fn packets_of_several_chunks_arrive_whole() {
    if !privileged() {
        return;
    }
    let _namespace = pair(9216);
    let mut random = random();
    for mode in [Mode::NativeCopy, Mode::GenericCopy] {
        let umem = umem(2);
        let mut pool = FramePool::new(umem.region().clone());
        let options = PortOptions {
            mode: ModeChoice::Exactly(mode),
            ..PortOptions::new(Role::Switch)
        };
        let [mut source, mut sink] =
            ["va", "vb"].map(|name| open_port(&umem, name, &options).expect("it opens"));
        let packets: Vec<_> = lengths(&mut random)
            .into_iter()
            .map(|len| noise(sink.device.mac, len, &mut random))
            .collect();
        // As many descriptors as the ring has and more: some wait for the next turn.
        for part in packets.chunks(40) {
            send(&mut source.queues[0], &mut pool, part);
            let got = receive(&mut sink.queues[0], &mut pool, part.len());
            assert!(got == part, "{mode}: another content");
        }
        let (sent, came) = (source.queues[0].counters(), sink.queues[0].counters());
        let bytes: usize = packets.iter().map(Vec::len).sum();
        for (counted, expected) in [
            (sent.tx_packets.get(), packets.len()),
            (sent.tx_bytes.get(), bytes),
            (came.rx_packets.get(), packets.len()),
            (came.rx_bytes.get(), bytes),
            (came.rx_invalid.get(), 0),
            (sent.tx_refused.get(), 0),
        ] {
            assert_eq!(counted, expected as u64);
        }
        drop((source, sink));
        assert_eq!(pool.free_frames(), umem.region().frames() as usize);
    }
    assert_eq!(leaked(), 0);
}

/// SW-1: the receive ring overflows in the middle of packets, and the port is closed while packets
/// are in its rings: what arrives is whole, and no chunk is lost.
#[test]
fn no_chunk_is_lost_when_rings_overflow() {
    if !privileged() {
        return;
    }
    let _namespace = pair(9000);
    let mut random = random();
    let umem = umem(2);
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let packets: Vec<_> = (0..40)
        .map(|_| noise(sink.device.mac, 9014, &mut random))
        .collect();
    for _ in 0..4 {
        send(&mut source.queues[0], &mut pool, &packets);
    }
    eventually("a full ring", || {
        sink.queues[0].read_statistics();
        sink.queues[0].counters().kernel_rx_ring_full.get() > 0
    });
    let fit = RING as usize / 3;
    let got = receive(&mut sink.queues[0], &mut pool, fit);
    let sent = packets.iter().cycle();
    assert!(got.iter().zip(sent).all(|(got, sent)| got == sent));
    for _ in 0..3 {
        send(&mut source.queues[0], &mut pool, &packets);
        // What is left in the ring comes first.
        assert!(receive(&mut sink.queues[0], &mut pool, 40).len() >= 40);
    }
    send(&mut source.queues[0], &mut pool, &packets);
    // Two of the three descriptors of a packet.
    let mut batch = Vec::new();
    assert_eq!(sink.queues[0].receive(&mut pool, &mut batch, 2), 0);
    drop((source, sink));
    assert_eq!(pool.free_frames(), umem.region().frames() as usize);
    assert_eq!(leaked(), 0);
}

/// SW-1: a packet that is longer than any may be is lost and counted, all of it, and the next one
/// comes.
#[test]
fn what_is_too_long_is_lost_as_a_whole() {
    if !privileged() {
        return;
    }
    let namespace = pair(9000);
    let umem = umem(1);
    let mut pool = FramePool::new(umem.region().clone());
    let mut sink = open(&umem, "vb");
    for end in ["va", "vb"] {
        namespace.run(&format!("ip link set {end} mtu 20000"));
    }
    let longest = usize::from(JUMBO_MAX);
    let hex: String = packet(sink.device.mac, 42)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let script = format!(
        "import socket\n\
         s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind(('va', 0))\n\
         for n in range(6):\n\
         \x20 for l in [{longest} + 1, 3 * 3840 + 1, 19999, {longest}]:\n\
         \x20   s.send(bytes.fromhex('{hex}') + bytes([n]) * (l - 42))\n"
    );
    let sent = std::process::Command::new("python3")
        .args(["-c", &script])
        .status();
    assert!(sent.expect("python3 runs").success());
    let packets: Vec<_> = (0..6)
        .map(|number| {
            let mut packet = packet(sink.device.mac, 42);
            packet.resize(longest, number);
            packet
        })
        .collect();
    assert!(receive(&mut sink.queues[0], &mut pool, 6) == packets);
    assert_eq!(sink.queues[0].counters().rx_invalid.get(), 3 * 6);
    drop(sink);
    assert_eq!(pool.free_frames(), umem.region().frames() as usize);
}

/// SW-1: what is sent from a frame of two chunks is one packet, and what came in two is gathered in
/// one.
#[test]
fn long_frames_hold_packets_in_one_piece() {
    if !privileged() {
        return;
    }
    let _namespace = pair(9000);
    let mut random = random();
    let umem = Umem::with_long_frames(frames_needed(2, RING, 1, 256), RING).expect("a UMEM");
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    assert_eq!(pool.capacity(), 8192 - 256);
    for len in [60, 3839, 3840, 3841, 4218, 7679, 7680, 7681, 7936] {
        let packet = noise(sink.device.mac, len, &mut random);
        let mut batch = vec![pool.take_filled(&packet).expect("a frame")];
        source.queues[0].transmit(&mut batch);
        source.queues[0].flush(&mut pool, common::sys::monotonic());
        assert_eq!(source.queues[0].in_flight(), 0);
        let mut got = Vec::new();
        while sink.queues[0].receive(&mut pool, &mut got, 8) == 0 {}
        for mut frame in got {
            assert!(pool.gather(&mut frame), "{len}");
            assert!(frame.bytes() == packet, "{len}: another content");
            pool.give(frame);
        }
    }
    drop((source, sink));
    assert_eq!(pool.free_frames(), umem.region().frames() as usize);
}

/// SW-1: Debian's kernel: ports open as ever, and an MTU that is too high is refused with the one
/// that is not. Where the kernel carries jumbo frames, those of the other tests do.
#[test]
fn without_several_chunks_the_mtu_is_limited() {
    if !privileged() || multi_buffer() {
        return;
    }
    let namespace = pair(3506);
    let umem = Umem::with_long_frames(1024, RING).expect("a UMEM");
    let mut pool = FramePool::new(umem.region().clone());
    assert_eq!(pool.capacity(), 3840, "no longer than packets may be");
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let longest = packet(sink.device.mac, 3506 + 14);
    send(
        &mut source.queues[0],
        &mut pool,
        std::slice::from_ref(&longest),
    );
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [longest]);
    drop((source, sink));
    namespace.run("ip link set va mtu 9000");
    let error = open_port(&umem, "va", &PortOptions::new(Role::Switch)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("MTU 9000 is above 3506"), "{text}");
    assert!(text.contains("Linux 6.6"), "{text}");
    let limit = linear_mtu_limit(Mode::NativeCopy, "veth");
    namespace.run(&format!("ip link set va mtu {limit}"));
    namespace.run("ip link set vb mtu 9000");
    let error = open_port(&umem, "va", &PortOptions::new(Role::Switch)).unwrap_err();
    assert!(
        matches!(error, XdpError::PeerMtu { limit: 3506, .. }),
        "{error}"
    );
}
