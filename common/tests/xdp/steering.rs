//! Which packets are the kernel's, and which the daemon's.

use crate::namespace::Namespace;
use crate::{eventually, open, packet, receive, send, umem};
use common::xdp::frame::FramePool;
use common::xdp::netdev::Device;
use common::xdp::{PortOptions, Role, open_port};
use libbpf_rs::MapCore;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use netns::privileged;
use std::net::IpAddr;
use std::os::fd::AsFd;

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
    if !privileged() {
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
    eventually("both are counted", || {
        let counts = sink.steering.counts().unwrap();
        (counts.redirected, counts.no_socket) == (1, vec![0, 1, 0])
    });
}

pub(crate) const PORT: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// An Ethernet frame: destination, type, and what follows.
pub(crate) fn ethernet(destination: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(kind.to_be_bytes());
    frame.extend(rest);
    frame.resize(frame.len().max(60), 0);
    frame
}

pub(crate) fn udp4(destination: [u8; 4], port: u16, fragment: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 0];
    header.extend(fragment.to_be_bytes());
    header.extend([64, 17, 0, 0, 10, 0, 0, 9]);
    header.extend(destination);
    header.extend([0xc0, 0]);
    header.extend(port.to_be_bytes());
    header
}

pub(crate) fn ipv6(destination: &str, next: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 20, next, 64];
    header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let address: std::net::Ipv6Addr = destination.parse().unwrap();
    header.extend(address.octets());
    header.extend(rest);
    header
}

/// Neighbour discovery: its hop limit is 255 (RFC 4861 §6.1 and 7.1).
pub(crate) fn discovery(destination: &str, kind: u8) -> Vec<u8> {
    let mut packet = ipv6(destination, 58, &[kind, 0]);
    packet[7] = 255;
    packet
}

pub(crate) fn tagged(inner: u16, rest: &[u8]) -> Vec<u8> {
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
    // Its first word of options looks like the ports of RoCEv2.
    let mut with_options = udp4(own, 4791, 0);
    with_options[0] = 0x46;
    with_options.splice(20..20, [0xc0, 0, roce[0], roce[1]]);
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
        ("own RoCE with options", v4(&with_options), false, false),
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
            "link-local of another",
            v4(&udp4([169, 254, 1, 1], 80, 0)),
            true,
            false,
        ),
        ("class E", v4(&udp4([240, 0, 0, 1], 80, 0)), true, false),
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
            "v6 own other UDP",
            v6(&ipv6("2001:db8::1", 17, &[0xc0, 0, 0, 80])),
            false,
            false,
        ),
        (
            "v4 cut",
            ethernet(PORT, 0x0800, &udp4(own, 4791, 0))[..14 + 19].to_vec(),
            true,
            false,
        ),
        (
            "v6 cut",
            ethernet(PORT, 0x86dd, &ipv6("2001:db8::1", 17, &[]))[..14 + 39].to_vec(),
            true,
            false,
        ),
        (
            "v6 own TCP",
            v6(&ipv6("2001:db8::1", 6, &udp6)),
            false,
            false,
        ),
        (
            "v6 neighbour solicitation to a proxy",
            v6(&discovery("2001:db8::2", 135)),
            false,
            false,
        ),
        (
            "v6 redirect to a proxy",
            v6(&discovery("2001:db8::2", 137)),
            false,
            false,
        ),
        (
            "v6 solicitation that was routed",
            v6(&ipv6("2001:db8::2", 58, &[135, 0])),
            true,
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
    if !privileged() {
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
            let mut after = before.clone();
            eventually(name, || {
                after = port.steering.counts().unwrap();
                after != before
            });
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
    eventually("it is the kernel's", || {
        port.steering.counts().unwrap().passed == before + 1
    });
}
