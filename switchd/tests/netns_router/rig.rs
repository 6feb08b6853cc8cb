//! A router between two ends, which is Linux, or Linux with switchd.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use netns::{Namespace, privileged};

use crate::Case;

/// What left by `e1` and by `e2` because of one frame.
pub(crate) type Seen = [Vec<String>; 2];

/// Sends each line of its input by the first interface, and prints what it then receives by each.
///
/// A packet that the router is sure to forward goes after it, and one the other way when that has
/// come: what the router does with the line it has done by then, however late it is. Some settings
/// stop packets of one family, so there are two.
const SCRIPT: &str = "
import json, select, socket, struct, sys, time
ends = []
for name in sys.argv[1:]:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    end.bind((name, 0))
    ends.append(end)
def last(way, number):
    mine, other = way + 1, 2 - way
    ethernet = bytes([2, 0, 0, 0, mine, 1, 2, 0, 0, 0, mine, 2])
    said = b'last%016d%d' % (number, way)
    udp = struct.pack('>HHHH', 9, 9, 8 + len(said), 0) + said
    v4 = struct.pack('>BBHHHBBH', 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0)
    v4 += bytes([10, mine, 0, 2, 10, other, 0, 2])
    total = sum(struct.unpack('>10H', v4))
    total = (total & 0xffff) + (total >> 16)
    v4 = v4[:10] + struct.pack('>H', ~(total + (total >> 16)) & 0xffff) + v4[12:]
    v6 = struct.pack('>IHBB', 6 << 28, len(udp), 17, 64)
    for host in [mine, other]:
        v6 += socket.inet_pton(socket.AF_INET6, f'2001:db8:{host}::2')
    ends[way].send(ethernet + b'\\x08\\x00' + v4 + udp)
    ends[way].send(ethernet + b'\\x86\\xdd' + v6 + udp)
    return said
def receive(seen, limit, awaited=None):
    until = time.time() + limit
    while (left := until - time.time()) > 0:
        for end in select.select(ends, [], [], left)[0]:
            frame, address = end.recvfrom(65535)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            if awaited and frame.endswith(awaited):
                return
            if b'last0000' not in frame:
                seen[ends.index(end)].append(frame.hex())
for number, line in enumerate(sys.stdin):
    seen = [[] for _ in ends]
    ends[0].send(bytes.fromhex(line.strip()))
    for way in [0, 1]:
        receive(seen, 5, last(way, number))
    receive(seen, 0.06)
    print(json.dumps(seen), flush=True)
";

/// The MAC addresses of the ends begin so: other frames are not for them.
const END: &str = "020000000";

/// The program behind the ends.
struct Ends {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Ends {
    fn open(namespace: &str) -> Self {
        let mut command = Command::new("ip");
        command.args([
            "netns", "exec", namespace, "python3", "-c", SCRIPT, "e1", "e2",
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn send(&mut self, frame: &[u8]) -> Seen {
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.input, "{hex}").unwrap();
        self.input.flush().unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut seen: Seen = serde_json::from_str(&line).unwrap();
        for frames in &mut seen {
            frames.retain(|frame| frame.starts_with(END) && !is_redirect(frame));
            frames.iter_mut().for_each(|frame| *frame = normal(frame));
        }
        seen
    }

    fn send_all(&mut self, cases: &[Case]) -> Vec<Seen> {
        cases.iter().map(|(_, frame)| self.send(frame)).collect()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Linux sends an ICMPv6 redirect (RFC 4861 §4.5) once a second and sender, which cannot be turned
/// off.
fn is_redirect(frame: &str) -> bool {
    frame.get(24..28) == Some("86dd")
        && frame.get(40..42) == Some("3a")
        && frame.get(108..110) == Some("89")
}

/// A frame without what each router chooses as it likes: the identification of its own packets, and
/// the flow label of its own ICMPv6.
fn normal(frame: &str) -> String {
    let byte = |at: usize| u8::from_str_radix(&frame[2 * at..2 * at + 2], 16).unwrap_or_default();
    let mut frame = frame.to_owned();
    let icmp = 14 + 4 * usize::from(byte(14) & 0xf);
    let is_v4_error = byte(12) == 8 && byte(23) == 1 && matches!(byte(icmp), 3 | 11 | 12);
    let is_v6_error = byte(12) == 0x86 && byte(20) == 58 && byte(54) < 128;
    if is_v4_error {
        frame.replace_range(36..40, "----");
        frame.replace_range(48..52, "----");
    }
    if is_v6_error {
        frame.replace_range(31..36, "-----");
        // By routes with an MTU that is not locked Linux finds out late that a packet is too big:
        // the quoted hop limit has been decremented then, and otherwise not.
        if byte(54) == 2 {
            frame.replace_range(112..116, "----");
            frame.replace_range(138..140, "--");
        }
    }
    frame
}

/// Linux and switchd have done the same.
pub(crate) fn assert_same(cases: &[Case], linux: &[Seen], ours: &[Seen]) {
    let mut wrong = Vec::new();
    for ((name, _), (linux, ours)) in cases.iter().zip(linux.iter().zip(ours)) {
        if linux != ours {
            let [linux, ours] = [linux, ours].map(|seen| {
                let short = seen
                    .each_ref()
                    .map(|frames| frames.iter().map(|it| &it[..it.len().min(180)]));
                format!("{:?}", short.map(Iterator::collect::<Vec<_>>))
            });
            wrong.push(format!("{name}:\n  Linux {linux}\n  ours  {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The router and its ends.
pub(crate) struct Rig {
    /// `None`: namespaces cannot be had.
    parts: Option<Parts>,
}

struct Parts {
    router: Namespace,
    ends: Namespace,
    folder: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(name: &str, sysctls: &[&str]) -> Self {
        if !privileged() {
            return Self { parts: None };
        }
        let parts = Parts {
            router: Namespace::new("router", &format!("{name}-rt")).unwrap(),
            ends: Namespace::new("router", &format!("{name}-en")).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        };
        let rig = Self { parts: Some(parts) };
        for line in [
            "net.ipv4.ip_forward=1",
            "net.ipv6.conf.all.forwarding=1",
            // A limit of zero uses up what is kept for other errors.
            "net.ipv4.icmp_ratemask=0",
            "net.ipv6.icmp.ratelimit=0",
            "net.ipv6.conf.default.accept_dad=0",
            // Redirects are another matter.
            "net.ipv4.conf.all.send_redirects=0",
            "net.ipv4.conf.default.send_redirects=0",
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
        ] {
            rig.sysctl(line);
        }
        rig.wire();
        for line in sysctls {
            rig.sysctl(line);
        }
        rig
    }

    fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    pub(crate) fn sysctl(&self, line: &str) {
        if let Some(parts) = self.parts() {
            parts.router.run(&format!("sysctl -qw {line}")).unwrap();
        }
    }

    /// Runs `ip` in the router.
    pub(crate) fn route(&self, words: &str) {
        if let Some(parts) = self.parts() {
            parts.router.run(&format!("ip {words}")).unwrap();
        }
    }

    fn wire(&self) {
        let Some(Parts { router, ends, .. }) = self.parts() else {
            return;
        };
        self.route("link set lo up");
        for number in [1, 2] {
            let other = ends.name();
            self.route(&format!(
                "link add p{number} type veth peer name e{number} netns {other}"
            ));
            for (namespace, device, last) in [(router, "p", 1), (ends, "e", 2)] {
                let device = format!("{device}{number}");
                let mac = format!("02:00:00:00:0{number}:0{last}");
                namespace
                    .run(&format!("ip link set {device} address {mac}"))
                    .unwrap();
                namespace
                    .run(&format!(
                        "ethtool -K {device} tx off tso off gso off gro off"
                    ))
                    .unwrap();
                namespace.run(&format!("ip link set {device} up")).unwrap();
            }
            ends.run(&format!("ip -6 address flush dev e{number}"))
                .unwrap();
            self.route(&format!("address add 10.{number}.0.1/24 dev p{number}"));
            self.route(&format!(
                "address add 2001:db8:{number}::1/64 dev p{number} nodad"
            ));
        }
        self.route("address add 10.11.0.1/24 dev p1");
        self.route("address add 10.99.0.1/32 dev lo");
        for (address, port, state) in [
            ("10.1.0.2", 1, "permanent"),
            ("10.11.0.2", 1, "permanent"),
            ("2001:db8:1::2", 1, "permanent"),
            ("fe80::ff:fe00:102", 1, "permanent"),
            ("10.2.0.2", 2, "permanent"),
            ("10.2.0.77", 2, "permanent"),
            ("10.2.0.9", 2, "noarp"),
            ("2001:db8:2::2", 2, "permanent"),
        ] {
            self.route(&format!(
                "neighbour add {address} lladdr 02:00:00:00:0{port}:02 dev p{port} nud {state}"
            ));
        }
        for words in [
            "route add 10.3.0.0/16 via 10.2.0.2 mtu 1200",
            "route add 10.4.0.0/16 via 10.2.0.2 mtu lock 600",
            "route add 10.8.0.0/16 via 10.2.0.2 mtu 333",
            "route add 10.9.0.0/16 nexthop via 10.1.0.2 nexthop via 10.2.0.2",
            "route add 240.0.0.0/4 via 10.2.0.2",
            "route add blackhole 10.5.0.0/16",
            "route add unreachable 10.6.0.0/16",
            "route add prohibit 10.7.0.0/16",
            "route add 10.13.0.0/16 via 10.2.0.2",
            "route add throw 10.13.1.0/24",
            "route add 2001:db8:13::/48 via 2001:db8:2::2",
            "route add throw 2001:db8:13:1::/64",
            "route add 2001:db8:3::/48 via 2001:db8:2::2 mtu 1300",
            "route add 2001:db8:4::/48 via 2001:db8:2::2 mtu lock 1300",
            "route add 2001:db8:8::/48 via 2001:db8:2::2 mtu lock 1200",
            "route add blackhole 2001:db8:5::/48",
            "route add unreachable 2001:db8:6::/48",
            "route add prohibit 2001:db8:7::/48",
        ] {
            self.route(words);
        }
    }

    /// What becomes of the frames with Linux alone, and with switchd.
    pub(crate) fn run(&self, cases: &[Case]) -> Option<(Vec<Seen>, Vec<Seen>)> {
        let parts = self.parts()?;
        // The kernel finishes with duplicate addresses and the like first.
        std::thread::sleep(Duration::from_millis(300));
        let linux = Ends::open(parts.ends.name()).send_all(cases);
        let mut running = self.start()?;
        let ours = running.send(cases);
        running.has_forwarded(cases.len());
        Some((linux, ours))
    }

    /// Both have to do the same.
    pub(crate) fn compare(&self, cases: &[Case]) {
        let Some((linux, ours)) = self.run(cases) else {
            return;
        };
        assert_same(cases, &linux, &ours);
    }

    /// Starts switchd on the router.
    pub(crate) fn start(&self) -> Option<Running> {
        let Parts {
            router,
            ends,
            folder,
        } = self.parts()?;
        let socket = folder.path().join("admin.sock");
        let config = folder.path().join("switchd.toml");
        let text = format!(
            "ports = [\"p*\"]\n[admin]\nsocket = \"{}\"\n[workers]\ncount = 1\ntakeover_milliseconds = 0\n",
            socket.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", router.name()]);
        command.arg(env!("CARGO_BIN_EXE_switchd"));
        command.args(["run", "-c"]).arg(&config);
        let daemon = command.spawn().unwrap();
        let running = Running {
            daemon,
            socket,
            ends: Ends::open(ends.name()),
        };
        running.wait();
        Some(running)
    }
}

/// switchd, with somebody at both ends.
pub(crate) struct Running {
    daemon: Child,
    socket: PathBuf,
    ends: Ends,
}

impl Running {
    fn wait(&self) {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let output = Command::new(env!("CARGO_BIN_EXE_switchctl"))
                .arg("--socket")
                .arg(&self.socket)
                .arg("ports")
                .output()
                .unwrap();
            if output.status.success() {
                return;
            }
            assert!(Instant::now() < limit, "switchd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The sum of a column, or of the rows of a reason, in what `switchctl` shows.
    pub(crate) fn count(&self, topic: &str, name: &str) -> u64 {
        let output = Command::new(env!("CARGO_BIN_EXE_switchctl"))
            .arg("--socket")
            .arg(&self.socket)
            .args(["--json", topic])
            .output()
            .unwrap();
        let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = |row: &serde_json::Value| match row["reason"].as_str() {
            Some(reason) if reason != name => 0,
            Some(_) => row["packets"].as_u64().unwrap(),
            None => row[name].as_u64().unwrap(),
        };
        rows.as_array().unwrap().iter().map(row).sum()
    }

    pub(crate) fn send(&mut self, cases: &[Case]) -> Vec<Seen> {
        self.ends.send_all(cases)
    }

    /// It was switchd that forwarded what was sent after each of so many cases, and not the kernel:
    /// one packet each way at least, for some settings stop those of one family.
    fn has_forwarded(&self, cases: usize) {
        let limit = Instant::now() + Duration::from_secs(10);
        while self.count("ports", "tx_packets") < 2 * cases as u64 {
            assert!(Instant::now() < limit, "the kernel has forwarded it");
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("{cases} cases, {} passed up", self.count("ports", "punted"));
    }

    /// Waits until the frames have the fate that they have in Linux.
    pub(crate) fn eventually_does(&mut self, cases: &[Case], linux: &[Seen], why: &str) {
        let limit = Instant::now() + Duration::from_secs(60);
        while self.send(cases) != linux {
            if Instant::now() > limit {
                println!("{why}: Linux does something else");
                assert_same(cases, linux, &self.send(cases));
            }
        }
    }

    /// Waits until the frames have another fate than `before`.
    pub(crate) fn eventually_changes(&mut self, cases: &[Case], before: &[Seen], why: &str) {
        let limit = Instant::now() + Duration::from_secs(60);
        while self.send(cases) == before {
            assert!(Instant::now() < limit, "{why} makes no difference");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
