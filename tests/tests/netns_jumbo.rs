//! Links with an MTU of 9000: the kernel's traffic through two tiers of switches, and that of hostd
//! with packets of 4,096 bytes of payload.

use std::fs;
use std::time::Duration;

use lab::observe::{assert_healthy, eventually, fabric, gain, received, rows, switches};
use lab::topology::Qos;
use lab::traffic::{Receiver, iperf};
use lab::{Lab, exclusive, node_dir, privileged};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Pings of h4 with `size` bytes of payload; what ping says.
fn ping(lab: &Lab, v6: bool, size: usize, fragments: bool) -> String {
    ping_to(
        lab,
        &lab.host("h4").address(v6).to_string(),
        size,
        fragments,
    )
}

/// The same of an address.
fn ping_to(lab: &Lab, to: &str, size: usize, fragments: bool) -> String {
    let family = if to.contains(':') { "-6" } else { "-4" };
    let rule = if fragments { "dont" } else { "do" };
    let size = size.to_string();
    // All at once, and each has two seconds: the last one has as much time as the others.
    let words = [
        "ping", family, "-n", "-c", "5", "-l", "5", "-i", "2", "-W", "2", "-M", rule, "-s", &size,
        to,
    ];
    let output = lab.host("h1").run(words).unwrap();
    format!("{}{}", output.stdout, output.stderr)
}

/// Sends datagrams of every kind of length, by the generator that the receiver has too.
const DATAGRAMS: &str = "
import random, socket, sys, time
role, address, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ':' in address else socket.AF_INET
most = 8952 if ':' in address else 8972
generator = random.Random(seed)
expected = [generator.randbytes(n) for n in [18, 3797, 3798, 3799, 7637, 7638, 7639, most]
            + [generator.randint(18, most) for _ in range(300)]]
s = socket.socket(family, socket.SOCK_DGRAM)
if role == 'receive':
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20) # SO_RCVBUFFORCE
    s.settimeout(20)
    s.bind((address, 7777))
    print('bound', flush=True)
    for number, bytes in enumerate(expected):
        got = s.recv(65536)
        assert got == bytes, f'datagram {number}: {len(got)} bytes for {len(bytes)}'
    print('all')
else:
    for bytes in expected:
        s.sendto(bytes, (address, 7777))
        time.sleep(0.001)
";

/// Whatever their length, datagrams from h1 to h4 arrive as they were.
fn datagrams_arrive(lab: &Lab, v6: bool) {
    use std::io::{BufRead, BufReader};
    let seed = std::process::id().to_string();
    println!("seed {seed}");
    let to = lab.host("h4").address(v6).to_string();
    let words = |role| ["python3", "-c", DATAGRAMS, role, &to, &seed].map(str::to_owned);
    let receiver = words("receive");
    let mut receiver = lab
        .host("h4")
        .spawn(receiver.each_ref().map(String::as_str))
        .unwrap();
    let mut said = BufReader::new(receiver.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "bound");
    let sender = words("send");
    let sender = sender.each_ref().map(String::as_str);
    lab.host("h1").run(sender).unwrap().expect_ok();
    let last = said.next();
    let output = receiver.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(last.map(Result::unwrap).as_deref(), Some("all"), "{error}");
}

/// SW-1: what the kernels of hosts send over links with an MTU of 9000 arrives, to the last byte,
/// by two tiers of switches; what is too long for a link on its way is answered with its MTU, or
/// fragmented.
#[test]
fn jumbo_frames_cross_the_fabric() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("jumbo").mtu(9000).up().unwrap();
    for (v6, most) in [(false, 9000 - 28), (true, 9000 - 48)] {
        for size in [8900, most] {
            let text = ping(&lab, v6, size, false);
            assert!(text.contains(" 0% packet loss"), "{text}");
        }
        datagrams_arrive(&lab, v6);
        // What is for the switch itself, its kernel answers.
        let own = if v6 { "fd00:1:1::1" } else { "10.1.1.1" };
        let text = ping_to(&lab, own, most, false);
        assert!(text.contains(" 0% packet loss"), "{text}");
    }
    assert_healthy(&lab, &[]);
    let through = iperf(lab.host("h1"), lab.host("h4"), &["-t", "2"]).unwrap();
    println!("iperf3 at an MTU of 9000: {through:?}");
    assert!(through.bits_per_second > 10e6, "{through:?}");
    // TCP sends faster until a queue is full.
    assert_healthy(&lab, &["queue_full"]);

    for (node, interface) in [("leaf2", "h4"), ("h4", "leaf2")] {
        let link = ["ip", "link", "set", interface, "mtu", "4000"];
        lab.host(node).run(link).unwrap().expect_ok();
    }
    for (v6, answer) in [(false, "mtu = 4000"), (true, "mtu=4000")] {
        eventually("an answer with the MTU", Duration::from_secs(20), || {
            let text = ping(&lab, v6, 8000, false);
            let learnt = text.contains(answer) || text.contains("mtu: 4000");
            if learnt { Ok(()) } else { Err(text) }
        });
    }
    // Linux lets senders fragment by what they have learnt unless it is forgotten.
    let forget = ["ip", "route", "flush", "cache"];
    lab.host("h1").run(forget).unwrap().expect_ok();
    let text = ping(&lab, false, 8900, true);
    assert!(text.contains(" 0% packet loss"), "{text}");
    let ports = rows(lab.switchctl("leaf2", &["show", "ports"]).unwrap());
    let sum = |key: &str| {
        ports
            .iter()
            .filter_map(|row| row[key].as_u64())
            .sum::<u64>()
    };
    assert_eq!((sum("fragmented"), sum("fragments")), (5, 15));
}

/// SW-1: between hosts of one network, flooded by the kernel's bridges until stations are known,
/// and then by switchd.
#[test]
fn jumbo_frames_are_bridged() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("jubr").mtu(9000).l2().up().unwrap();
    for v6 in [false, true] {
        let most = if v6 { 9000 - 48 } else { 9000 - 28 };
        // The bridges have just come up.
        eventually("a way", Duration::from_secs(30), || {
            let text = ping(&lab, v6, most, false);
            let all = text.contains(" 0% packet loss");
            if all { Ok(()) } else { Err(text) }
        });
        datagrams_arrive(&lab, v6);
    }
    let ports = rows(lab.switchctl("leaf2", &["show", "ports"]).unwrap());
    let bytes: u64 = ports
        .iter()
        .filter_map(|row| row["rx_bytes"].as_u64())
        .sum();
    assert!(bytes > 1_000_000, "by switchd: {ports:?}");
}

/// Sends, or receives and compares, a frame of every length from 60 to 9014 bytes: IPv4, IPv6, or
/// of a type that nobody understands. A router changes addresses, TTL and checksum, and a bridge
/// nothing.
const EVERY_LENGTH: &str = "
import random, socket, struct, sys, time
role, kind, seed, interface = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
sent_to, sent_from, left_to, left_from = (bytes.fromhex(it.replace(':', '')) for it in sys.argv[5:9])
source, destination = sys.argv[9:]

def ipv4(ttl, payload):
    def header(checksum):
        return struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(payload), 7, 0x4000, ttl, 253, checksum,
                           *(socket.inet_aton(it) for it in (source, destination)))
    sum16 = sum(struct.unpack('!10H', header(0)))
    while sum16 >> 16:
        sum16 = (sum16 & 0xffff) + (sum16 >> 16)
    return b'\\x08\\x00' + header(0xffff ^ sum16) + payload

def ipv6(ttl, payload):
    addresses = (socket.inet_pton(socket.AF_INET6, it) for it in (source, destination))
    return b'\\x86\\xdd' + struct.pack('!IHBB16s16s', 6 << 28, len(payload), 253, ttl, *addresses) + payload

def other(ttl, payload):
    return b'\\x88\\xb5' + payload

make, headers = {'ipv4': (ipv4, 34), 'ipv6': (ipv6, 54), 'other': (other, 14)}[kind]
generator = random.Random(seed)
frames = ((length, generator.randbytes(length - headers)) for length in range(60, 9015))
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
if role == 'receive':
    s.setsockopt(socket.SOL_SOCKET, 33, 1 << 27) # SO_RCVBUFFORCE
    s.settimeout(20)
    s.bind((interface, 0))
    print('bound', flush=True)
    for length, payload in frames:
        expected = left_to + left_from + make(63, payload)
        while True:
            got, address = s.recvfrom(65535)
            if address[2] != socket.PACKET_OUTGOING and got[:14] == expected[:14]:
                # Neither is what the kernels say to each other, of other protocols.
                if kind == 'other' or got[23 if kind == 'ipv4' else 20] == 253:
                    break
        assert got == expected, f'{length} bytes: {len(got)}: {got[:80].hex()} for {expected[:80].hex()}'
    print('all')
else:
    s.bind((interface, 0))
    for length, payload in frames:
        s.send(sent_to + sent_from + make(64, payload))
        time.sleep(0.0003)
";

/// How frames from h1 reach h2, and what they become on the way.
struct Direction<'a> {
    lab: &'a Lab,
    /// What h1 sends to, and what they leave leaf1 from.
    stations: [String; 2],
}

impl Direction<'_> {
    /// The MAC address of an interface.
    fn mac(lab: &Lab, node: &str, interface: &str) -> String {
        let path = format!("/sys/class/net/{interface}/address");
        let text = lab.host(node).run(["cat", &path]).unwrap().expect_ok();
        text.trim().to_owned()
    }

    /// Sends frames of every length of this kind; they arrive as they should.
    fn every_length(&self, kind: &str) {
        use std::io::{BufRead, BufReader};
        let seed = std::process::id().to_string();
        println!("{kind}: seed {seed}");
        let [host, other] = ["h1", "h2"].map(|host| Self::mac(self.lab, host, "leaf1"));
        let [to, from] = &self.stations;
        let [source, destination] =
            ["h1", "h2"].map(|host| self.lab.host(host).address(kind == "ipv6").to_string());
        let words = |role| {
            [
                "python3",
                "-c",
                EVERY_LENGTH,
                role,
                kind,
                &seed,
                "leaf1",
                to,
                &host,
                &other,
                from,
                &source,
                &destination,
            ]
            .map(str::to_owned)
        };
        let receiver = words("receive");
        let receiver = receiver.each_ref().map(String::as_str);
        let mut receiver = self.lab.host("h2").spawn(receiver).unwrap();
        let mut said = BufReader::new(receiver.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "bound");
        let sender = words("send");
        let sender = sender.each_ref().map(String::as_str);
        self.lab.host("h1").run(sender).unwrap().expect_ok();
        let last = said.next();
        let output = receiver.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(last.map(Result::unwrap).as_deref(), Some("all"), "{error}");
    }
}

/// What leaf1 has counted at a port.
fn counted(lab: &Lab, view: &[&str], port: &str, what: &str) -> u64 {
    let rows = rows(lab.switchctl("leaf1", view).unwrap());
    let found = |row: &&serde_json::Value| row["name"] == port || row["port"] == port;
    rows.iter().find(found).unwrap()[what].as_u64().unwrap()
}

/// SW-1: a frame of every length that a link with an MTU of 9000 carries is routed byte for byte.
#[test]
fn frames_of_every_length_are_routed() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("julen").size(1, 1, 2).mtu(9000).up().unwrap();
    assert!(ping_to(&lab, &lab.host("h2").address(false).to_string(), 100, true).contains(" 0% p"));
    assert!(ping_to(&lab, &lab.host("h2").address(true).to_string(), 100, true).contains(" 0% p"));
    let stations = ["h1", "h2"].map(|port| Direction::mac(&lab, "leaf1", port));
    let way = Direction {
        lab: &lab,
        stations,
    };
    for kind in ["ipv4", "ipv6"] {
        let sent = || counted(&lab, &["show", "ports"], "h2", "tx_packets");
        let before = sent();
        way.every_length(kind);
        assert!(sent() - before >= 9014 - 59, "switchd has routed them");
    }
    assert_healthy(&lab, &[]);
}

/// SW-1: a frame of every length is bridged as it is, whether it is IP or not.
#[test]
fn frames_of_every_length_are_bridged() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("julenb")
        .size(1, 1, 2)
        .mtu(9000)
        .l2()
        .up()
        .unwrap();
    let to = lab.host("h2").address(false).to_string();
    eventually("a way", Duration::from_secs(30), || {
        let text = ping_to(&lab, &to, 100, true);
        let all = text.contains(" 0% packet loss");
        if all { Ok(()) } else { Err(text) }
    });
    let stations = [("h2", "leaf1"), ("h1", "leaf1")];
    let stations = stations.map(|(node, interface)| Direction::mac(&lab, node, interface));
    let way = Direction {
        lab: &lab,
        stations,
    };
    let bridged = || counted(&lab, &["bridge"], "h1", "bridged_packets");
    let before = bridged();
    way.every_length("other");
    assert!(bridged() - before >= 9014 - 59, "switchd has bridged them");
}

/// HT-1, HT-10: with such links hostd sends packets of 4,096 bytes of payload, and what is copied
/// by them is the same, in IPv4 and IPv6.
#[test]
fn hostd_sends_4096_bytes_in_a_packet() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("juhost")
        .mtu(9000)
        .speed(200_000_000)
        .qos(Qos::Plain)
        .up()
        .unwrap();
    let root = node_dir(lab.name(), "h4").join("files");
    let receiver = Receiver::start(lab.host("h4"), &root).unwrap();
    let source = node_dir(lab.name(), "h1").join("source");
    let mut bytes = vec![0; (16 << 20) + 3];
    Pcg64::seed_from_u64(9).fill_bytes(&mut bytes);
    fs::write(&source, &bytes).unwrap();
    for v6 in [false, true] {
        let before = received(&lab).unwrap();
        let address = lab.host("h4").address(v6).to_string();
        let address = if v6 { format!("[{address}]") } else { address };
        let target = format!("{address}:copy");
        let words = ["hostcp", &source.display().to_string(), &target].map(str::to_owned);
        let copy = lab
            .host("h1")
            .spawn(words.each_ref().map(String::as_str))
            .unwrap();
        eventually("its queue pair", Duration::from_secs(20), || {
            let pairs = rows(lab.hostctl("h1", &["show", "qps"]).unwrap());
            let mtus: Vec<_> = pairs.iter().map(|row| row["mtu"].as_u64()).collect();
            if mtus.contains(&Some(4096)) {
                Ok(())
            } else {
                Err(format!("{mtus:?}"))
            }
        });
        let output = copy.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let copied = fs::read(receiver.root().join("copy")).unwrap();
        assert!(copied == bytes, "the same bytes");
        fs::remove_file(receiver.root().join("copy")).unwrap();
        let carried = gain(&before, &received(&lab).unwrap());
        let on = |spine: &str| carried[&(spine.to_owned(), "leaf1".to_owned())];
        let packets = on("spine1") + on("spine2");
        // 4,097 packets of data, and few besides: half as long, they would be twice as many.
        assert!((4097..8194).contains(&packets), "{packets} packets");
    }
    drop(receiver);
    // Where a machine is late a burst may exceed a queue, or a packet come twice.
    let late = ["queue_full", "queue_pair_state", "queue_pair_ended"];
    assert_healthy(&lab, &late);
}
