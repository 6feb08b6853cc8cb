//! Soft-RoCE as a peer: the RDMA of a Linux kernel that nobody here wrote, in a guest behind a
//! switch.
//!
//! The guest takes the place of a host: its interface `eth0` is a tap in the namespace of h2, in a
//! bridge with the link to the leaf, and has the address that h2 had.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::time::Duration;

use guest::{Guest, Nic, Options, Script};
use hostd_client::{
    Access, AtomicOperation, ByHand, Completion, CompletionQueue, CompletionStatus, Context,
    Private, QueuePair, QueuePairOptions, ReceiveRequest, Region, RemoteSlice, SendRequest,
};
use lab::capture::dissect;
use lab::observe::{assert_healthy, fabric, rows, switches};
use lab::{Lab, exclusive, namespace, node_dir};

/// Longest time for anything in the guest.
const LIMIT: Duration = Duration::from_secs(120);

/// Address of the guest's interface.
const MAC: &str = "02:00:00:00:00:02";

/// Where `rping` listens.
const PORT: u16 = 7174;

/// A leaf with h1, on which hostd runs, and the guest in the place of h2.
struct Rig {
    guest: Guest,
    lab: Lab,
}

impl Rig {
    fn new(lab: Lab) -> Self {
        let [address, v6] = [false, true].map(|v6| lab.host("h2").address(v6));
        for line in [
            "ip tuntap add dev guest mode tap",
            "ip link set guest mtu 3000 up",
            "ip link add bridge type bridge forward_delay 0 mcast_snooping 0",
            "ip address flush dev leaf1",
            "ip link set leaf1 master bridge",
            "ip link set guest master bridge",
            "ip link set bridge up",
        ] {
            let output = lab.host("h2").run(line.split(' ')).unwrap();
            output.expect_ok();
        }
        let nic = Nic {
            namespace: namespace(lab.name(), "h2"),
            tap: "guest".to_owned(),
            mac: MAC.to_owned(),
        };
        let options = Options {
            nic: Some(nic),
            ..Options::default()
        };
        let guest = Guest::boot(&options).unwrap_or_else(|error| panic!("{error}"));
        let mut rig = Self { guest, lab };
        rig.inside(&format!(
            "set -e
            modprobe virtio_net
            ip link set eth0 mtu 3000 up
            ip address add {address}/24 dev eth0
            ip route add default via {}
            ip address add {v6}/64 dev eth0 nodad
            ip -6 route add default via {}
            # No dependency leads from rdma_rxe to it, and without it there is no device.
            modprobe crc32_generic
            modprobe rdma_ucm
            rdma link add rxe0 type rxe netdev eth0
            rdma link show rxe0/1 | grep -q 'state ACTIVE'
            ulimit -l unlimited",
            gateway(address),
            gateway(v6)
        ));
        rig
    }

    /// Runs a script in the guest, which must succeed.
    fn inside(&mut self, script: &str) -> String {
        let output = self.guest.run(script, LIMIT);
        output.unwrap_or_else(|error| panic!("{error}")).expect_ok()
    }

    fn address(&self) -> IpAddr {
        self.lab.host("h2").address(false)
    }
}

/// The leaf's address on the link of a host.
fn gateway(host: IpAddr) -> String {
    let text = host.to_string();
    let mark = if host.is_ipv6() { ':' } else { '.' };
    let (network, _) = text.rsplit_once(mark).expect("an address");
    format!("{network}{mark}1")
}

/// SW-1: a Soft-RoCE device behind a switch is up, and answers through it.
#[test]
fn a_soft_roce_device_is_behind_the_switch() {
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::new(switches("roceup").size(1, 1, 2).up().unwrap());
    let devices = rig.inside("ibv_devinfo -d rxe0");
    assert!(devices.contains("PORT_ACTIVE"), "{devices}");
    let guest = rig.address().to_string();
    let words = ["ping", "-n", "-c", "5", "-i", "0.2", "-W", "5", &guest];
    let answers = rig.lab.host("h1").run(words).unwrap().expect_ok();
    assert!(answers.contains("5 received"), "{answers}");
    let ports = rows(rig.lab.switchctl("leaf1", &["show", "ports"]).unwrap());
    for port in ports.iter().filter(|port| port["name"] != "spine1") {
        assert_eq!(port["punted"], 0, "switchd has forwarded: {port}");
        assert!(port["tx_packets"].as_u64() >= Some(5), "{port}");
    }
    assert_healthy(&rig.lab, &[]);
}

/// Values of a field in the frames that a filter selects, as numbers.
fn numbers(file: &Path, filter: &str, field: &str) -> BTreeSet<u32> {
    let number = |text: &String| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let lines = dissect(file, filter, &[field]).unwrap();
    lines.iter().map(number).collect()
}

/// What h1 sees of the fabric while its hostd connects to the guest and sends 16 bytes, and how
/// that ends.
fn send_one(rig: &Rig) -> (PathBuf, CompletionStatus) {
    let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
    let socket = node_dir(rig.lab.name(), "h1").join("hostd.sock");
    let context = Context::connect(&socket).unwrap();
    let mut completions = context.create_completion_queue(8).unwrap();
    let options = QueuePairOptions::default();
    let pair = context.create_queue_pair(&completions, &completions, options);
    let mut pair = pair.unwrap();
    let peer = SocketAddr::new(rig.address(), PORT);
    let connected = pair.connect(peer, Private::EMPTY, LIMIT).unwrap();
    // A standard peer negotiates nothing.
    assert_eq!((connected.paths, connected.mtu), (1, 2048));
    let region = context.allocate(16, Access::LOCAL_WRITE).unwrap();
    // What rping tells of a buffer: address, key and length.
    let advertised = [
        &0x5678_abcd_u64.to_be_bytes()[..],
        &0x1234_u32.to_be_bytes(),
        &48_u32.to_be_bytes(),
    ];
    region.write(0, &advertised.concat()).unwrap();
    let request = SendRequest::send(7, region.slice(0, 16).unwrap());
    pair.post_send(&request).unwrap();
    let completion = completions.next(LIMIT).unwrap();
    (capture.stop().unwrap(), completion.status)
}

/// HT-10: hostd and a Soft-RoCE device connect, and it takes the first SEND, with the bytes that
/// were sent. No frame between them is malformed.
///
/// Each side begins at the PSN that the other has announced (IBTA 12.6.5, Starting PSN: at which
/// the *remote* node begins to transmit). `rping` then reads from the buffer that the SEND told it
/// of, which hostd does not serve, and ends.
#[test]
fn a_soft_roce_device_takes_the_first_send() {
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("roceone").size(1, 1, 2).tap("leaf1", "h1").up();
    let lab = lab.unwrap();
    lab.stop("h2").unwrap();
    let mut rig = Rig::new(lab);
    let server = format!("ulimit -l unlimited; exec rping -s -d -v -C 1 -p {PORT}");
    let server = rig.guest.start(&server).unwrap();
    rig.inside("until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done");
    let (file, status) = send_one(&rig);
    assert_eq!(status, CompletionStatus::Success);
    let output = rig.guest.wait(server, LIMIT).unwrap();
    let said = format!("{}{}", output.stdout, output.stderr);
    assert!(
        said.contains("Received rkey 1234 addr 5678abcd len 48 from peer"),
        "{said}"
    );
    assert!(
        dissect(&file, "_ws.malformed", &["frame.number"])
            .unwrap()
            .is_empty()
    );
    let ours = numbers(&file, "infiniband.cm.req", "infiniband.cm.req.startpsn");
    let theirs = numbers(&file, "infiniband.cm.rep", "infiniband.cm.rep.startpsn");
    assert_ne!(ours, theirs);
    let sent = numbers(&file, "infiniband.bth.opcode == 4", "infiniband.bth.psn");
    assert_eq!(sent, theirs, "hostd begins with the PSN of its peer's REP");
    let read = numbers(&file, "infiniband.bth.opcode == 12", "infiniband.bth.psn");
    assert!(
        read.is_subset(&ours),
        "the guest with that of hostd's REQ: {read:?}"
    );
}

/// Where an example of the client library lies; builds all of them first.
fn example(name: &str) -> String {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--package",
                "hostd-client",
                "--examples",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.expect("cargo").success());
    });
    // This program is in the folder `deps` beside that of the examples.
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().and_then(Path::parent).unwrap();
    folder.join("examples").join(name).display().to_string()
}

impl Rig {
    /// A rig whose h1 has a hostd, and what passes between leaf1 and h1 is on a tap.
    fn with_hostd(name: &str) -> Self {
        let lab = fabric(name).size(1, 1, 2).tap("leaf1", "h1").up();
        let lab = lab.unwrap();
        lab.stop("h2").unwrap();
        Self::new(lab)
    }

    /// The index of the GID that an address of the guest has.
    fn gid(&mut self, address: IpAddr) -> String {
        let bits = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let words: Vec<_> = bits
            .segments()
            .iter()
            .map(|it| format!("{it:04x}"))
            .collect();
        let folder = "/sys/class/infiniband/rxe0/ports/1/gids";
        let script = format!(
            "grep -l {} {folder}/* 2>/dev/null | head -1",
            words.join(":")
        );
        let found = self.inside(&script);
        let (_, index) = found
            .trim()
            .rsplit_once('/')
            .expect("the address has a GID");
        index.to_owned()
    }

    /// Fails unless the guest's device has counted no error of its peer's protocol, and a capture
    /// of what passed has no malformed frame.
    fn assert_understood(&mut self, file: &Path) {
        let counters = self.inside("rdma -j statistic show link rxe0/1");
        let counters: serde_json::Value = serde_json::from_str(&counters).unwrap();
        for name in ["rcvd_seq_err", "rx_icrc_encapsulated"] {
            // Not all kernels have all of them.
            let value = &counters[0][name];
            assert!(value.is_null() || *value == 0, "{name}: {counters}");
        }
        assert_well_formed(file);
    }
}

/// Fails when a capture has a frame of RoCEv2 that is malformed. tshark takes random payload for
/// that of many protocols; what it finds wrong there does not count.
fn assert_well_formed(file: &Path) {
    let malformed = dissect(file, "_ws.malformed", &["frame.protocols"]).unwrap();
    let ends_here = |protocols: &&String| {
        let below = protocols.split_once(":infiniband").map_or("", |it| it.1);
        below.replace(":_ws.malformed", "").is_empty()
    };
    let malformed: Vec<_> = malformed.iter().filter(ends_here).collect();
    assert!(malformed.is_empty(), "{malformed:?}");
}

/// Fails unless scapy computes the same ICRC for packets of the guest and of hostd. It has none for
/// IPv6.
fn assert_checksums(file: &Path) {
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(
        bytes[..4],
        0xa1b2_c3d4_u32.to_le_bytes(),
        "a capture of tcpdump"
    );
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while let Some(header) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        let Some(frame) = rest.get(16..16 + len) else {
            break;
        };
        rest = &rest[16 + len..];
        if frame[12..14] == [8, 0] && frames.len() < 400 {
            frames.push(frame);
        }
    }
    let sources: BTreeSet<_> = frames.iter().map(|frame| &frame[26..30]).collect();
    assert_eq!(sources.len(), 2, "both sides");
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let input: String = frames.iter().map(|frame| hex(frame) + "\n").collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scapy/oracle.py");
    let mut child = Command::new("/usr/bin/python3")
        .args(["-B", script, "icrc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    let found = frames.iter().map(|frame| hex(&frame[frame.len() - 4..]));
    assert!(theirs.lines().eq(found), "ICRCs");
}

/// One game of ping-pong: the GID's version, where the server is, the message, the MTU, how often.
type Game = (bool, Side, u32, u16, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Guest,
    Hostd,
}

fn play(rig: &mut Rig, game: Game, port: usize) {
    let (v6, server, size, mtu, iters) = game;
    // The original's exchange is over IPv4, whatever the GIDs are.
    let [h1, h2] = ["h1", "h2"].map(|name| rig.lab.host(name).address(false));
    let options = format!("-c -s {size} -m {mtu} -n {iters} -r 64 -p {port}");
    let gid = rig.lab.host("h2").address(v6);
    let gid = rig.gid(gid);
    let inside = format!("ulimit -l unlimited; exec ibv_rc_pingpong -d rxe0 -g {gid} {options}");
    let outside = format!("{} -g {} {options}", example("rc_pingpong"), u8::from(v6));
    let said = if server == Side::Guest {
        let script = rig.guest.start(&inside).unwrap();
        rig.inside(&format!(
            "until ss -ltn | grep -q :{port}; do sleep 0.1; done"
        ));
        let words = format!("{outside} {h2}");
        let output = rig.lab.host("h1").run(words.split(' ')).unwrap();
        let ours = output.expect_ok();
        ours + &rig.guest.wait(script, LIMIT).unwrap().expect_ok()
    } else {
        let mut process = rig.lab.host("h1").spawn(outside.split(' ')).unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert!(first.starts_with("listening on port"), "{first}");
        let theirs = rig.guest.run(&format!("{inside} {h1}"), LIMIT).unwrap();
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{game:?}: {output:?} {theirs:?}");
        theirs.expect_ok()
    };
    assert!(
        said.contains(&format!("{iters} iters in")),
        "{game:?}: {said}"
    );
    assert!(!said.contains("invalid data"), "{game:?}: {said}");
}

/// HT-10: the guest's `ibv_rc_pingpong` and that of hostd play with each other, each as server and
/// as client, over IPv4 and IPv6 GIDs, with messages of one packet and of many. What comes is what
/// was sent.
#[test]
fn ibv_rc_pingpong_plays_with_hostd() {
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::with_hostd("rocepp");
    let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
    let games = [
        (false, Side::Guest, 4096, 1024, 50),
        (false, Side::Hostd, 1, 256, 50),
        (true, Side::Guest, 100_000, 2048, 6),
        (true, Side::Hostd, 20_000, 512, 10),
        (false, Side::Hostd, 1_000_000, 2048, 2),
        (true, Side::Guest, 65_536, 256, 3),
    ];
    for (game, port) in games.into_iter().zip(18_515..) {
        play(&mut rig, game, port);
    }
    let file = capture.stop().unwrap();
    rig.assert_understood(&file);
}

/// HT-10: the guest's `rping` and that of hostd ping each other, each as server and as client, with
/// connections that librdmacm sets up. Each text comes back as it was.
#[test]
fn rping_plays_with_hostd() {
    const COUNT: usize = 5;
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::with_hostd("roceping");
    let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
    let [h1, h2] = ["h1", "h2"].map(|name| rig.lab.host(name).address(false));
    // All lines together fit into a pipe, of whose 16 pages each takes two.
    let options = format!("-v -V -S 5000 -p {PORT}");
    let inside = format!("ulimit -l unlimited; exec rping {options}");
    let outside = format!("{} {options}", example("rping"));

    let server = rig.guest.start(&format!("{inside} -s")).unwrap();
    rig.inside("until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done");
    let words = format!("{outside} -c -C {COUNT} -a {h2}");
    let output = rig.lab.host("h1").run(words.split(' ')).unwrap();
    let ours = output.expect_ok();
    assert_eq!(ours.matches("ping data: rdma-ping-").count(), COUNT);
    let output = rig.guest.wait(server, LIMIT).unwrap();
    let theirs = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(
        theirs.matches("server ping data: rdma-ping-").count(),
        COUNT
    );

    let words = format!("{outside} -s");
    let mut process = rig.lab.host("h1").spawn(words.split(' ')).unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert!(first.starts_with("listening on port"), "{first}");
    let client = format!("{inside} -c -C {COUNT} -a {h1}");
    let client = rig.guest.run(&client, LIMIT).unwrap();
    let theirs = client.expect_ok();
    assert_eq!(theirs.matches("ping data: rdma-ping-").count(), COUNT);
    let mut ours = String::new();
    std::io::Read::read_to_string(&mut output, &mut ours).unwrap();
    assert!(process.wait().unwrap().success(), "{ours}");
    assert_eq!(ours.matches("server ping data: rdma-ping-").count(), COUNT);
    rig.assert_understood(&capture.stop().unwrap());
}

/// Losses of one in a hundred UDP packets, in both directions of the guest's interface.
const LOSSES: &str = "
    ip link add ifb0 mtu 3000 type ifb
    ip link set ifb0 up
    tc qdisc add dev ifb0 root netem loss 1% limit 10000
    tc qdisc add dev eth0 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
    tc qdisc add dev eth0 parent 1:3 netem loss 1% limit 10000
    tc qdisc add dev eth0 handle ffff: ingress
    number=1
    for version in 'ip ip' 'ipv6 ip6'; do
        set -- $version
        udp=\"protocol $1 prio $number u32 match $2 protocol 17 0xff\"
        tc filter add dev eth0 parent 1: $udp flowid 1:3
        tc filter add dev eth0 parent ffff: $udp action mirred egress redirect dev ifb0
        number=$((number + 1))
    done";

/// What the verbs program of the guest has at an offset of a message with this seed.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let byte = |n: usize| (n * 7 + (n >> 8) * 13 + seed as usize * 131) % 256;
    (0..len).map(|n| u8::try_from(byte(n)).unwrap()).collect()
}

/// A queue pair of hostd, and the verbs program of the guest at its other end.
struct Talk {
    told: BufReader<TcpStream>,
    remote: RemoteSlice,
    pair: QueuePair,
    completions: CompletionQueue,
    region: Region,
    seed: u32,
    process: Option<Script>,
}

/// Bytes of the buffers at both ends.
const BUFFER: usize = 20 << 20;

impl Talk {
    fn begin(rig: &mut Rig, v6: bool, mtu: u16, port: u16) -> Self {
        let [h1, h2] = ["h1", "h2"].map(|name| rig.lab.host(name).address(v6));
        let gid = rig.gid(h2);
        let program = verbs_peer();
        let script = format!("ulimit -l unlimited; exec {program} {port} {gid} {mtu}");
        let process = Some(rig.guest.start(&script).unwrap());
        rig.inside(&format!(
            "until ss -ltn | grep -q :{port}; do sleep 0.1; done"
        ));
        let server = SocketAddr::new(rig.address(), port);
        let host = rig.lab.host("h1");
        let mut stream = host.inside(|| TcpStream::connect(server)).unwrap().unwrap();
        let socket = node_dir(rig.lab.name(), "h1").join("hostd.sock");
        let context = Context::connect(&socket).unwrap();
        let completions = context.create_completion_queue(64).unwrap();
        let options = QueuePairOptions::default();
        let pair = context.create_queue_pair(&completions, &completions, options);
        let mut pair = pair.unwrap();
        let rights = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
        let rights = rights.with(Access::REMOTE_READ).with(Access::REMOTE_ATOMIC);
        let region = context.allocate(BUFFER, rights).unwrap();
        let own = match h1 {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        // Near the end, so that the numbers wrap.
        let psn = 0xff_ffc0;
        let line = format!("{:032x} {} {psn}\n", u128::from(own), pair.number());
        stream.write_all(line.as_bytes()).unwrap();
        let mut told = BufReader::new(stream);
        let mut answer = String::new();
        told.read_line(&mut answer).unwrap();
        let words = answer.split_whitespace().map(|word| word.parse().unwrap());
        let words: Vec<u64> = words.collect();
        let [qpn, peer_psn, address, rkey] = words[..] else {
            panic!("the guest tells {answer:?}");
        };
        let [peer_number, peer_psn, rkey] = [qpn, peer_psn, rkey].map(|it| it.try_into().unwrap());
        pair.connect_by_hand(&ByHand {
            peer_number,
            psn,
            peer_psn,
            mtu,
            ..ByHand::new(h1, h2)
        })
        .unwrap();
        Self {
            told,
            remote: RemoteSlice { address, rkey },
            pair,
            completions,
            region,
            seed: 0,
            process,
        }
    }

    /// What the guest answers.
    fn ask(&mut self, line: &str) -> String {
        let mut answer = String::new();
        self.told
            .get_mut()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        self.told.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    fn next(&mut self) -> Completion {
        let completion = self.completions.next(LIMIT).unwrap();
        assert_eq!(completion.status, CompletionStatus::Success);
        completion
    }

    /// One message from hostd, by a SEND or an RDMA WRITE, with immediate data or without.
    fn hostd_sends(&mut self, write: bool, immediate: Option<u32>, len: usize) {
        let what = format!("write {write} {immediate:?} {len} bytes to the guest");
        self.seed += 1;
        self.region.write(0, &pattern(len, self.seed)).unwrap();
        let local = self.region.slice(0, len).unwrap();
        let mut request = match write {
            true => SendRequest::write(7, local, self.remote),
            false => SendRequest::send(7, local),
        };
        request.immediate = immediate;
        let receives = !write || immediate.is_some();
        if receives {
            let room = if write { 0 } else { len };
            assert_eq!(self.ask(&format!("post {room}")), "ok", "{what}");
        }
        self.pair.post_send(&request).unwrap();
        self.next();
        if receives {
            let opcode = if write { 129 } else { 128 };
            let expected = format!("{opcode} {len} {}", immediate.unwrap_or(0));
            assert_eq!(self.ask("wait"), expected, "{what}");
        }
        let check = format!("check 0 {len} {}", self.seed);
        assert_eq!(self.ask(&check), "ok", "{what}");
    }

    /// One message from the guest; `operation` is the guest's word for it.
    fn guest_sends(&mut self, operation: &str, len: usize) {
        let what = format!("{operation} {len} bytes from the guest");
        self.seed += 1;
        let (seed, rkey) = (self.seed, self.region.rkey());
        assert_eq!(self.ask(&format!("fill 0 {len} {seed}")), "ok", "{what}");
        let receives = operation != "write";
        if receives {
            let room = if operation == "write_imm" { 0 } else { len };
            let local = self.region.slice(0, room).unwrap();
            let request = ReceiveRequest { wr_id: 8, local };
            self.pair.post_receive(&request).unwrap();
        }
        let request = format!("do {operation} {len} 77 0 {rkey} 0 0");
        assert_eq!(self.ask(&request), "success", "{what}");
        if receives {
            let Completion {
                byte_len,
                immediate,
                ..
            } = self.next();
            let expected = operation.ends_with("imm").then_some(77);
            let len = u32::try_from(len).unwrap();
            assert_eq!((byte_len, immediate), (len, expected), "{what}");
        }
        let mut found = vec![0; len];
        self.region.read(0, &mut found).unwrap();
        assert!(found == pattern(len, seed), "{what}");
    }

    /// An RDMA READ of `len` bytes each way.
    fn reads(&mut self, len: usize) {
        self.seed += 2;
        let (ours, theirs, rkey) = (self.seed, self.seed - 1, self.region.rkey());
        assert_eq!(self.ask(&format!("fill 0 {len} {theirs}")), "ok");
        let local = self.region.slice(0, len).unwrap();
        let request = SendRequest::read(7, local, self.remote);
        self.pair.post_send(&request).unwrap();
        self.next();
        let mut found = vec![0; len];
        self.region.read(0, &mut found).unwrap();
        assert!(found == pattern(len, theirs), "{len} bytes are read");
        self.region.write(0, &pattern(len, ours)).unwrap();
        let request = format!("do read {len} 0 0 {rkey} 0 0");
        assert_eq!(self.ask(&request), "success", "{len} bytes");
        assert_eq!(self.ask(&format!("check 0 {len} {ours}")), "ok");
    }

    /// Atomic operations each way: what was there comes back, and what becomes of it stays.
    fn atomics(&mut self) {
        let word = |talk: &Self| {
            let mut bytes = [0; 8];
            talk.region.read(0, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        let rkey = self.region.rkey();
        self.region.write(0, &1000_u64.to_le_bytes()).unwrap();
        for (request, before, after) in [
            ("do faa 8 0 0 KEY 5 0", 1000, 1005),
            ("do cas 8 0 0 KEY 1005 9", 1005, 9),
            ("do cas 8 0 0 KEY 1005 7", 9, 9),
        ] {
            let request = request.replace("KEY", &rkey.to_string());
            assert_eq!(self.ask(&request), "success");
            assert_eq!(self.ask("word 0"), before.to_string(), "{request}");
            assert_eq!(word(self), after, "{request}");
        }
        // The guest's word is 9 now, which the last one brought.
        let (compare, swap) = (9, 70);
        let swapped = AtomicOperation::CompareSwap { compare, swap };
        for (operation, before, after) in [
            (swapped, 9, 70),
            (swapped, 70, 70),
            (AtomicOperation::FetchAdd(30), 70, 100),
        ] {
            let local = self.region.slice(0, 8).unwrap();
            let request = SendRequest::atomic(7, local, self.remote, operation);
            self.pair.post_send(&request).unwrap();
            self.next();
            assert_eq!(word(self), before, "{operation:?}");
            assert_eq!(self.ask("word 0"), after.to_string(), "{operation:?}");
        }
    }

    /// Every operation in both directions with a message of `len` bytes.
    fn all(&mut self, len: usize) {
        for write in [false, true] {
            for immediate in [None, Some(0x1234_5678)] {
                self.hostd_sends(write, immediate, len);
            }
        }
        for operation in ["send", "send_imm", "write", "write_imm"] {
            self.guest_sends(operation, len);
        }
        self.reads(len);
        self.atomics();
    }

    /// The program ends, and has not complained.
    fn end(mut self, rig: &mut Rig) {
        let process = self.process.take().unwrap();
        drop(self);
        let output = rig.guest.wait(process, LIMIT).unwrap();
        assert!(output.ok() && output.stderr.is_empty(), "{output:?}");
    }
}

/// The verbs program of the guest, built.
fn verbs_peer() -> String {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/interop/verbs_peer.c");
    let own = std::env::current_exe().unwrap();
    let program = own.with_file_name("verbs_peer").display().to_string();
    let words = [
        "-O2",
        "-Wall",
        "-Werror",
        "-o",
        &program,
        source,
        "-libverbs",
    ];
    let output = Command::new("cc").args(words).output().unwrap();
    assert!(output.status.success(), "make setup? {output:?}");
    program
}

/// HT-1, HT-10, HT-43: SEND and RDMA WRITE, with immediate data and without, and RDMA READ, of 0
/// bytes to 1 MB, and atomic operations, in both directions between hostd and a verbs program over
/// Soft-RoCE, by IPv4 and IPv6; also when one in a hundred packets is lost either way, and then one
/// of 16 MB. Every byte is right.
#[test]
fn every_operation_between_hostd_and_soft_roce() {
    if !guest::available() {
        return;
    }
    let _alone = exclusive().unwrap();
    let mut rig = Rig::with_hostd("roceops");
    let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
    for (port, v6, mtu) in [(7001, false, 2048), (7002, true, 256)] {
        let mut talk = Talk::begin(&mut rig, v6, mtu, port);
        for len in [0, 1, 3, 255, 256, 257, 2049, 65_537] {
            talk.all(len);
        }
        talk.end(&mut rig);
    }
    let file = capture.stop().unwrap();
    rig.assert_understood(&file);
    assert_checksums(&file);

    rig.inside(LOSSES);
    let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
    for (port, v6, mtu) in [(7003, false, 1024), (7004, true, 2048)] {
        let mut talk = Talk::begin(&mut rig, v6, mtu, port);
        for len in [0, 1, 4097, 1 << 20] {
            talk.all(len);
        }
        if v6 {
            talk.hostd_sends(false, None, 16 << 20);
            talk.guest_sends("send", 16 << 20);
        }
        talk.end(&mut rig);
    }
    let file = capture.stop().unwrap();
    assert_well_formed(&file);
    // Something was lost: the guest has asked for it, by NAKs of PSN sequence error.
    let naks = dissect(&file, "infiniband.aeth.syndrome == 0x60", &["frame.number"]);
    assert!(!naks.unwrap().is_empty());
}
