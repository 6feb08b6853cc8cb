//! The twin against the real thing: the same packets through switchd in namespaces and through its
//! engine in virtual time have to take the same ways, byte for byte; and the same transfer is cut
//! into the same packets and delivered.

use common::netlink::{Settings, Watch};
use common::sys::monotonic;
use common::time::Span;
use common::wire::ethernet::ethertype;
use common::wire::ip::v4;
use common::wire::roce::Opcode;
use common::wire::udp::ROCE_PORT;
use common::xdp::frame::Region;
use hostd::verbs::{EngineConfig, PortId, Route};
use lab::capture::Capture;
use lab::observe::{fabric, switches};
use lab::topology::{NodeRole, Qos};
use lab::traffic::{Receiver, ping};
use lab::{Builder, Lab, exclusive, node_dir, privileged};
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use switchd::config::{Config, ENV_PREFIX, PortSettings};
use switchd::tables::PortEntry;
use switchd::tables::validation::SourceValidation;
use twin::app::Verb;
use twin::fabric::{Fabric, Node};
use twin::host::Host;
use twin::network::{LinkClass, NodeId, Plan};
use twin::scenario::{BEGINNING, Scenario};
use twin::simulation::run_tapped;
use twin::switch::{Switch, SwitchSettings};
use twin::wire::Wire;

/// Datagrams of each version of IP, each with a source port of its own.
const DATAGRAMS: u16 = 150;
const PORT: u16 = 9000;
const SPINES: [&str; 2] = ["spine1", "spine2"];

/// The number that a datagram carries; those of IPv6 follow those of IPv4.
fn number(v6: bool, index: u16) -> u16 {
    index + if v6 { DATAGRAMS } else { 0 }
}

/// Sends numbered datagrams of many lengths and returns the numbers of those that arrived.
fn exchange(lab: &Lab) -> BTreeSet<u16> {
    let mut received = BTreeSet::new();
    for v6 in [false, true] {
        let [from, to] = ["h1", "h4"].map(|host| lab.host(host).address(v6));
        let socket = lab.host("h4").inside(|| UdpSocket::bind((to, PORT)));
        let socket = socket.expect("a namespace").expect("a socket");
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a time-out");
        // What comes while this thread is late waits.
        setsockopt(&socket, sockopt::RcvBufForce, &(4 << 20)).expect("root may");
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| lab.host("h1").inside(|| send(from, to, v6)));
            let mut bytes = [0; 2000];
            for _ in 0..DATAGRAMS {
                let Ok(len) = socket.recv(&mut bytes) else {
                    break;
                };
                assert!(len >= 2, "{len} bytes");
                received.insert(u16::from_be_bytes([bytes[0], bytes[1]]));
            }
            let sent = sender.join().expect("it ends");
            sent.expect("a namespace");
        });
    }
    received
}

fn send(from: IpAddr, to: IpAddr, v6: bool) {
    for index in 0..DATAGRAMS {
        let socket = UdpSocket::bind((from, 20_000 + index)).expect("a free port");
        let mut bytes = vec![0xa5; 2 + usize::from(index) * 7 % 1200];
        bytes[..2].copy_from_slice(&number(v6, index).to_be_bytes());
        let to = SocketAddr::new(to, PORT);
        socket.send_to(&bytes, to).expect("sent");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// The frames of a capture (pcap, microseconds, this machine's byte order).
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).expect("a capture");
    let mut frames = Vec::new();
    let mut at = 24;
    while let Some(len) = bytes.get(at + 8..at + 12) {
        let len = u32::from_ne_bytes(len.try_into().expect("four bytes")) as usize;
        frames.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    frames
}

/// Where the UDP payload of a frame begins.
fn payload(frame: &[u8]) -> usize {
    14 + 8 + if is_v4(frame) { 20 } else { 40 }
}

fn is_v4(frame: &[u8]) -> bool {
    frame[12..14] == ethertype::IPV4.to_be_bytes()
}

/// The number that a frame carries.
fn carried(frame: &[u8]) -> u16 {
    let at = payload(frame);
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// The frame as it was before the leaf routed it.
fn before_routing(frame: &[u8], source: [u8; 6], leaf: [u8; 6]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[..6].copy_from_slice(&leaf);
    frame[6..12].copy_from_slice(&source);
    if is_v4(&frame) {
        frame[14 + v4::field::TTL] += 1;
        let checksum = 14 + v4::field::CHECKSUM;
        frame[checksum..checksum + 2].fill(0);
        let sum = common::wire::checksum::of(&frame[14..34]);
        frame[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
    } else {
        frame[14 + 7] += 1;
    }
    frame
}

/// A switch of the laboratory, read from its configuration and its kernel.
struct Real {
    watch: Watch,
    changes: Vec<common::netlink::Change>,
    config: Config,
    ports: Vec<PortSettings>,
}

impl Real {
    fn read(lab: &Lab, node: &str) -> Self {
        let path = node_dir(lab.name(), node).join("switchd.toml");
        let loaded = common::config::load::<Config>(&path, ENV_PREFIX, &[]);
        let config = loaded.expect("its configuration").settings;
        let (watch, changes) = lab
            .host(node)
            .inside(|| {
                let resync = Span::from_secs(60);
                let mut watch = Watch::open(Settings { resync }, 1 << 20).expect("netlink");
                let mut changes = Vec::new();
                let limit = monotonic() + Span::from_secs(60);
                watch
                    .sync(limit, &mut changes)
                    .expect("the kernel's tables");
                (watch, changes)
            })
            .expect("a namespace");
        let names: Vec<String> = watch
            .mirror()
            .links()
            .map(|link| link.name.clone())
            .collect();
        let ports = config.resolve_ports(&names).expect("its ports");
        Self {
            watch,
            changes,
            config,
            ports,
        }
    }

    fn mac(&self, port: &str) -> [u8; 6] {
        let link = self.watch.mirror().link_named(port).expect("an interface");
        link.mac.expect("Ethernet")
    }

    fn twin(self, region: Arc<Region>) -> Switch {
        let hashing = self
            .config
            .hashing(self.ports.iter().map(|port| self.mac(&port.name)));
        let entry = |port: &PortSettings| PortEntry {
            name: port.name.clone(),
            ifindex: self
                .watch
                .mirror()
                .link_named(&port.name)
                .expect("read")
                .index,
            mac: self.mac(&port.name),
            up: false,
            mtu: 3000,
            speed: None,
            link: None,
            icmp_v4: None,
            icmp_v6: None,
            mtu_v6: u16::MAX,
            burst: 0,
            validation: SourceValidation::Off,
            csig: None,
            int: None,
        };
        let settings = SwitchSettings {
            queue: 1 << 20,
            packets: 1024,
            mtu: 3000,
            poll: Span::ZERO,
            qos: None,
            dlb: None,
            csig: None,
            int: None,
            iqcn: None,
            compute: None,
            secret: None,
            model: None,
        };
        let entries = self.ports.iter().map(entry).collect();
        let facts = |port: &PortSettings| {
            self.config
                .facts(port, Some(common::units::Rate::from_gbps(1)), 3000)
        };
        let facts: Vec<_> = self.ports.iter().map(facts).collect();
        let policy = self.config.qos.compile(&facts).expect("its policy").policy;
        Switch::in_place_of(
            self.watch.mirror(),
            self.changes,
            (entries, hashing, Arc::new(policy)),
            settings,
            region,
        )
    }
}

/// The laboratory's nodes and links, each switch's ports in the order of its configuration.
fn plan(lab: &Lab, reals: &BTreeMap<String, Real>) -> Plan {
    let topology = lab.plan();
    let hosts = topology.names(NodeRole::Host).count();
    let switches = topology.nodes.iter().filter(|node| node.role.is_switch());
    let mut plan = Plan::new(
        hosts,
        switches.map(|node| node.name.clone()).collect(),
        false,
    );
    let class = LinkClass {
        speed: common::units::Rate::from_gbps(1),
        delay: Span::from_micros(1),
    };
    for link in &topology.links {
        let [lower, upper] = [&link.lower.node, &link.upper.node];
        let find = |name: &str| plan.node_named(name).expect("a node of the laboratory");
        let (lower, upper) = (find(lower), find(upper));
        plan.connect(lower, upper, class);
    }
    for (name, real) in reals {
        let node = plan.node_named(name).expect("a node of the laboratory");
        let across = |link: usize| {
            let other = plan.links[link].across(node).node;
            plan.nodes[other.index()].name.clone()
        };
        let mut ports = plan.nodes[node.index()].ports.clone();
        ports.sort_by_key(|link| {
            let name = across(*link);
            real.ports.iter().position(|port| port.name == name)
        });
        for (place, link) in ports.iter().enumerate() {
            let end = plan.links[*link]
                .ends
                .iter_mut()
                .find(|end| end.node == node);
            end.expect("its link").port = u16::try_from(place).expect("few ports");
        }
        plan.nodes[node.index()].ports = ports;
    }
    plan
}

/// A fabric of the laboratory's switches; nobody runs on its hosts.
fn twin(lab: &Lab, mut reals: BTreeMap<String, Real>) -> Fabric<true> {
    let plan = plan(lab, &reals);
    let region = Region::heap(4096, 4096, 64);
    let nobody = Route {
        source: IpAddr::from([0, 0, 0, 0]),
        source_mac: [0; 6],
        destination_mac: [0; 6],
        mtu: 1500,
        rate: common::units::Rate::default(),
    };
    let nodes = plan
        .nodes
        .iter()
        .map(|node| match reals.remove(&node.name) {
            Some(real) => Node::Switch(Box::new(real.twin(region.clone()))),
            None => Node::Host(Box::new(Host::new(
                vec![(PortId::FIRST, nobody)],
                EngineConfig::default(),
                region.clone(),
            ))),
        });
    let nodes = nodes.collect();
    let wires = plan.links.iter().flat_map(|link| {
        let [a, b] = link.ends;
        [(a, b), (b, a)].map(|ends| Wire::new(ends, (link.speed, link.delay), true, 1))
    });
    let wires = wires.collect();
    let mut fabric = Fabric::new(
        plan,
        nodes,
        wires,
        region,
        (Verb::Write, Span::ZERO),
        BEGINNING,
    );
    fabric.tap = Some(Vec::new());
    fabric
}

/// Lets a frame arrive at the first leaf from h1 and returns what passed each wire because of it,
/// by the names of the wire's ends.
fn pass(fabric: &mut Fabric<true>, frame: &[u8]) -> Vec<((String, String), Vec<u8>)> {
    let node = |name| fabric.plan.node_named(name).expect("a node");
    let [host, leaf] = ["h1", "leaf1"].map(node);
    let link = fabric
        .plan
        .links_between(host, leaf)
        .next()
        .expect("a link");
    let end = fabric.plan.links[link].across(host);
    fabric.offer(end.node, end.port, frame);
    while fabric.step(&mut Vec::new(), &mut Vec::new()) {}
    let name = |node: NodeId| fabric.plan.nodes[node.index()].name.clone();
    let passed = fabric.tap.replace(Vec::new()).expect("it listens");
    let named = passed.into_iter().map(|it| {
        let wire = &fabric.wires[it.wire];
        ((name(wire.from.node), name(wire.to.node)), it.bytes)
    });
    named.collect()
}

/// A laboratory whose switches know their neighbours and remember nothing else, and the captures of
/// what leaves the first leaf for the spines.
fn observed(builder: Builder, filter: &str) -> (Lab, [Capture; 2]) {
    let builder = SPINES
        .iter()
        .fold(builder, |it, spine| it.tap("leaf1", spine));
    let lab = builder.up().expect("a laboratory");
    for v6 in [false, true] {
        let pings = ping(
            lab.host("h1"),
            lab.host("h4"),
            v6,
            5,
            Duration::from_millis(50),
        );
        assert_eq!(
            pings.expect("ping").lost(),
            0,
            "neighbours are known from now on"
        );
    }
    // Who held which bucket while neighbours became known is part of a switch's memory (resilient
    // hashing): daemon and twin both begin with all of them.
    for node in lab.plan().nodes.iter().filter(|node| node.role.is_switch()) {
        lab.restart(&node.name).expect("restarted");
    }
    lab.wait_ready(Duration::from_secs(30)).expect("ready");
    let captures = SPINES.map(|spine| lab.capture("leaf1", spine, filter).expect("tcpdump"));
    (lab, captures)
}

/// Lets the twin forward what was captured on the way to each spine, and compares it with that.
/// Returns what arrives at h4.
fn forwarded_alike(lab: &Lab, captured: &[Vec<Vec<u8>>; 2]) -> Vec<Vec<u8>> {
    let switch_names = lab.plan().nodes.iter().filter(|node| node.role.is_switch());
    let reals: BTreeMap<String, Real> = switch_names
        .map(|node| (node.name.clone(), Real::read(lab, &node.name)))
        .collect();
    let leaf_mac = reals["leaf1"].mac("h1");
    let mut fabric = twin(lab, reals);
    let mut delivered = Vec::new();
    for (spine, frames) in SPINES.iter().zip(captured) {
        for (number, frame) in frames.iter().enumerate() {
            let passed = pass(
                &mut fabric,
                &before_routing(frame, [2, 0, 0, 0, 0, 9], leaf_mac),
            );
            let at = |from: &str, to: &str| {
                let wire = (from.to_owned(), to.to_owned());
                let found = passed.iter().find(|(place, _)| *place == wire);
                found.map(|(_, bytes)| bytes.clone())
            };
            let wires: Vec<_> = passed.iter().map(|(wire, _)| wire).collect();
            assert_eq!(
                at("leaf1", spine).as_ref(),
                Some(frame),
                "packet {number} passed {spine}, in the twin {wires:?}"
            );
            let last = at("leaf2", "h4").expect("it arrives");
            assert_eq!(last[payload(&last)..], frame[payload(frame)..], "unchanged");
            delivered.push(last);
        }
    }
    delivered
}

/// SW-1, SW-2: the same packets take the same spine and leave with the same bytes, in namespaces
/// and in virtual time, and what is delivered there is delivered here.
#[test]
fn the_twin_forwards_as_the_daemon_does() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().expect("alone");
    let (lab, captures) = observed(switches("twin"), &format!("udp dst port {PORT}"));
    let received = exchange(&lab);
    let captured = captures.map(|capture| frames(&capture.stop().expect("complete")));
    let all = usize::from(2 * DATAGRAMS);
    assert_eq!(
        captured.iter().map(Vec::len).sum::<usize>(),
        all,
        "every datagram is seen once"
    );
    assert!(
        captured.iter().all(|frames| frames.len() > all / 5),
        "both spines carry some"
    );
    let delivered = forwarded_alike(&lab, &captured);
    let delivered: BTreeSet<u16> = delivered.iter().map(|frame| carried(frame)).collect();
    assert_eq!(
        delivered, received,
        "what is delivered there is delivered here"
    );
    assert_eq!(delivered.len(), all);
}

/// The packets of RDMA WRITEs among Ethernet frames, in the order of their PSNs, each once: opcode,
/// and bytes from UDP on.
fn writes<'a>(frames: impl Iterator<Item = &'a [u8]>) -> Vec<(u8, usize)> {
    const PSN_MASK: u32 = 0x00ff_ffff;
    let mut first = None;
    let mut found = BTreeMap::new();
    for frame in frames {
        let bth = &frame[payload(frame)..];
        let (Opcode::Rc(operation) | Opcode::Multipath(operation)) =
            Opcode::from_byte(bth[0]).expect("RoCEv2")
        else {
            continue;
        };
        let name = format!("{operation:?}");
        if name.starts_with("Write") {
            let psn = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
            // What came first need not be the first one, but is not far from it.
            let base = *first.get_or_insert_with(|| psn.wrapping_sub(1 << 20));
            let len = frame.len() - payload(frame);
            found.insert(psn.wrapping_sub(base) & PSN_MASK, (bth[0], len));
        }
    }
    found.into_values().collect()
}

/// What arrives at h4 in the twin because of this transfer, over a fabric of the laboratory's
/// shape.
fn transferred(bytes: usize, path_mtu: u32, paths: u32) -> Vec<Vec<u8>> {
    let text = format!(
        "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 2\nhosts_per_leaf = 2\n\
         [host]\nverb = \"write\"\nmessage = \"256KiB\"\npath_mtu = {path_mtu}\npaths = {paths}\n\
         [[workload]]\nkind = \"incast\"\nhosts = [\"h1\", \"h4\"]\ntarget = \"h4\"\nsize = \"{bytes}B\"\n"
    );
    let none = |file: &str| Err(format!("{file}: no files here"));
    let scenario = Scenario::parse(&text, "transfer", &none).expect("a scenario");
    let (outcome, tapped) = run_tapped(&scenario, 1).expect("all checks pass");
    assert_eq!(outcome.flows.len(), 1);
    let plan = scenario.plan();
    let host = plan.node_named("h4").expect("a host");
    let link = plan.nodes[host.index()].ports[0];
    let wire = 2 * link + usize::from(plan.links[link].ends[1].node == host);
    // The other direction of a link is its neighbour in the list.
    let own = tapped.into_iter().filter(|it| it.wire == wire ^ 1);
    own.map(|it| it.bytes).collect()
}

/// HT-10, HT-30: a transfer is delivered in namespaces and in virtual time, and the first leaf
/// sends its packets the same ways, byte for byte; what arrives at the receiver are the same
/// packets, by operation and length, in the order of PSNs.
#[test]
fn the_twin_transfers_as_the_daemons_do() {
    const BYTES: usize = 3 * 256 * 1024 + 777;
    if !privileged() {
        return;
    }
    let _alone = exclusive().expect("alone");
    let filter = format!("udp dst port {ROCE_PORT}");
    let (lab, captures) = observed(fabric("twinhost").qos(Qos::Plain), &filter);
    let receiver = Receiver::start(lab.host("h4"), &node_dir(lab.name(), "h4").join("files"));
    let receiver = receiver.expect("a receiver");
    let source = node_dir(lab.name(), "h1").join("source");
    let bytes: Vec<u8> = (0..=250).cycle().take(BYTES).collect();
    std::fs::write(&source, &bytes).expect("a file");
    let target = format!("{}:copy", lab.host("h4").address(false));
    let copied = lab
        .host("h1")
        .run(["hostcp", &source.display().to_string(), &target]);
    copied.expect("hostcp").expect_ok();
    let copy = std::fs::read(receiver.root().join("copy")).expect("the copy");
    assert!(copy == bytes, "the bytes are the same");
    let captured = captures.map(|capture| frames(&capture.stop().expect("complete")));
    let IpAddr::V4(sender) = lab.host("h1").address(false) else {
        panic!("an address of IPv4");
    };
    let from_sender = |frame: &Vec<u8>| is_v4(frame) && frame[26..30] == sender.octets();
    let captured = captured.map(|frames| frames.into_iter().filter(from_sender).collect());
    let delivered = forwarded_alike(&lab, &captured);
    let real = writes(delivered.iter().map(Vec::as_slice));
    let virtually = transferred(BYTES, 2048, 16);
    let virtually = writes(virtually.iter().map(Vec::as_slice));
    assert_eq!(real.len(), BYTES.div_ceil(2048), "every packet was seen");
    assert_eq!(real, virtually, "opcodes and lengths, packet by packet");
}
