//! How long a hostd takes to stop after a PFC frame: what a switch plans headroom for.

use super::*;
use hostd::verbs::EngineConfig;

/// Sends PFC frames to a hostd in the middle of its data, by the port of a bridge, and says for
/// each how long its data still came, in microseconds, and how many bytes of it.
///
/// Times are those of the kernel: when it was handed the pause, and when it took each packet from
/// the link.
const PAUSER: &str = "
import json, socket, struct, sys, time
interface, rounds = sys.argv[1], int(sys.argv[2])
ALL, ETH_P_ALL, TIMESTAMPNS = 1 << 30, 3, 35
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 26) # SO_RCVBUFFORCE
s.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
s.bind((interface, 0))
s.settimeout(0.2)
def pfc(time):
    times = [0, 0, 0, time, 0, 0, 0, 0]
    return (bytes.fromhex('0180c2000001') + bytes.fromhex('020000000001') + bytes.fromhex('8808')
            + struct.pack('!HH8H', 0x0101, 1 << 3, *times)).ljust(60, b'\\0')
def stamp(ancillary):
    value, = (value for _, kind, value in ancillary if kind == TIMESTAMPNS)
    seconds, nanos = struct.unpack('qq', value)
    return seconds * 10**9 + nanos
def data():
    # The next data packet from hostd: its time and its length.
    while True:
        frame, ancillary, _, address = s.recvmsg(256, 256)
        if address[2] == socket.PACKET_OUTGOING or frame[12:14] != b'\\x08\\x00' or frame[15] >> 2 != 26:
            continue
        length = struct.unpack('!H', frame[16:18])[0] + 14
        return stamp(ancillary), length
outgoing = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
outgoing.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
outgoing.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
outgoing.bind((interface, 0))
def drain(s):
    s.setblocking(False)
    try:
        while True:
            s.recv(64)
    except BlockingIOError:
        pass
def handed_over():
    # When the kernel took the pause.
    while True:
        frame, ancillary, _, address = outgoing.recvmsg(64, 256)
        if address[2] == socket.PACKET_OUTGOING and frame[12:14] == b'\\x88\\x08':
            return stamp(ancillary)
for round in range(rounds):
    # In the middle of data, of which nothing waits here.
    drain(s)
    s.settimeout(2)
    for _ in range(1 + round % 20):
        data()
    drain(outgoing)
    outgoing.settimeout(2)
    s.send(pfc(65535))
    began = handed_over()
    last, octets, until = began, 0, began + 3_000_000
    s.settimeout(0.001)
    while time.clock_gettime_ns(time.CLOCK_REALTIME) < until + 1_000_000:
        try:
            at, length = data()
        except (socket.timeout, BlockingIOError):
            continue
        # The pause lasts 3.3 ms on a link of 10 Gb/s.
        if began < at < until:
            last, octets = at, octets + length
    print(json.dumps({'us': (last - began) / 1000, 'bytes': octets}), flush=True)
    time.sleep(0.0003 * (round % 7))
";

/// Two hosts with a bridge between them, in which pauses can be made and data be seen.
pub(super) struct Middle {
    pub(super) link: Link,
    pub(super) bridge: Namespace,
}

impl Middle {
    pub(super) fn new() -> Self {
        let bridge = Namespace::new("hostd-test", "middle").expect("root may make it");
        bridge
            .run("ip link add br0 type bridge mcast_snooping 0 forward_delay 0")
            .expect("it succeeds");
        bridge.run("ip link set br0 up").expect("it succeeds");
        let link = Link::between(&bridge);
        Self { link, bridge }
    }
}

/// Sends sixty pauses from the middle; what came of each.
fn pauses(bridge: &Namespace) -> Vec<Value> {
    let mut pauser = Command::new("ip");
    pauser.args(["netns", "exec", bridge.name(), "python3", "-c", PAUSER]);
    let output = run(pauser.args(["m1", "60"]));
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().map(serde_json::from_str);
    rows.map(|row| row.expect("JSON")).collect()
}

/// HT-45, SW-12: what a hostd with its shipped settings still sends after a PFC frame is what one
/// turn hands to its device, however late that turn is: no more than it announces to its switch
/// (`peer_backlog_bytes`), and a packet.
#[test]
fn what_follows_a_pause_is_what_was_announced() {
    if !possible() {
        return;
    }
    const MIDDLE: usize = 20;
    const MOST: usize = 600;
    let middle = Middle::new();
    let [a, b] = &middle.link.hosts;
    let _server = serve(b, "hostperf", &["serve"]);
    let mut command = a.command("hostperf");
    command
        .args(["write", "10.9.0.2", "-s", "1048576", "-D", "300"])
        .stdout(Stdio::null());
    let _writer = Process(command.spawn().expect("starts"));
    a.wait_for("data", || !a.show("qps").is_empty());
    // Most pauses come while hostd waits for acknowledgements: they say nothing.
    let (mut sent, mut rounds) = (0, Vec::new());
    while rounds.len() < MIDDLE && sent < MOST {
        let of_batch = pauses(&middle.bridge);
        sent += of_batch.len();
        let in_data = |row: &Value| row["bytes"] != 0;
        rounds.extend(of_batch.into_iter().filter(in_data));
    }
    assert!(rounds.len() >= MIDDLE / 4, "{} of {sent}", rounds.len());
    let sorted = |key: &str| {
        let mut values: Vec<f64> = rounds.iter().filter_map(|row| row[key].as_f64()).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (times, bytes) = (sorted("us"), sorted("bytes"));
    let (half, last) = (rounds.len() / 2, rounds.len() - 1);
    println!(
        "response, {} of {sent} pauses in the middle of data: median {} µs, most {} µs; bytes: \
         median {}, most {}",
        rounds.len(),
        times[half],
        times[last],
        bytes[half],
        bytes[last]
    );
    let counted = a.show("pauses");
    let row = counted.iter().find(|row| row["priority"] == 3);
    let row = row.expect("a row");
    assert!(row["pfc_pausing"].as_u64() >= Some(sent as u64), "{row}");
    // What a turn may hand to the device: the pacer's burst and the packet that exceeds it.
    let turn = f64::from(EngineConfig::default().pacer_burst + 2048 + 100);
    let over = bytes.iter().filter(|bytes| **bytes > turn).count();
    // A pause may stand behind so many acknowledgements that a turn does not read it yet.
    assert!(over <= rounds.len() / 5, "{over} rounds: {rounds:?}");
    assert!(bytes[last] <= 2.0 * turn, "{rounds:?}");
}
