//! RoCEv2 flow analysis of the real daemon (SW-50).

mod dissected;

use crate::support::{Rig, eventually, privileged};
use serde_json::Value;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Flows that pass at the same time.
const FLOWS: u64 = 1000;

/// As many as the table has room for, by default.
const MOST_FLOWS: u64 = 10_000;

/// Bytes of the IP packet of each request, and of each acknowledgement: IP, UDP, BTH, and payload
/// with the ICRC, or AETH and ICRC.
const REQUEST: u64 = 20 + 8 + 12 + 68;
const ACKNOWLEDGEMENT: u64 = 20 + 8 + 12 + 8;

/// Requests of flow n: three, and one more of every fifth.
fn requests(flow: u64) -> u64 {
    3 + u64::from(flow.is_multiple_of(5))
}

/// NAKs of flow n: two of every third.
fn naks(flow: u64) -> u64 {
    2 * u64::from(flow.is_multiple_of(3))
}

/// What both sides of the flows send. Flow n is from queue pair 4096 + n of `a` to 65536 + n of
/// `b`, and begins at a PSN of its own.
const SCRIPT: &str = "
import socket, struct, sys, time
side = sys.argv[1]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((dict(a='10.1.0.2', b='10.2.0.2')[side], 50001))
to = (dict(a='10.2.0.2', b='10.1.0.2')[side], 4791)
sent = 0
def send(opcode, qp, psn, rest):
    global sent
    s.sendto(struct.pack('!BBHII', opcode, 0, 0xffff, qp, 1 << 31 | psn & 0xffffff) + rest, to)
    sent += 1
    if sent % 40 == 0:
        time.sleep(0.002)
for n in range(int(sys.argv[2])):
    psn = n * 16001
    if side == 'a':
        for k in range(4 if n % 5 == 0 else 3):
            send(4, 65536 + n, psn + k, bytes(68))
    else:
        send(17, 4096 + n, psn + 2, struct.pack('!II', 0x1f000001, 0))
        for k in range(2 if n % 3 == 0 else 0):
            send(17, 4096 + n, psn + 1, struct.pack('!II', 0x60000001, 0))
";

/// `b` acknowledges what arrives after 20 ms, and says how long it really took: the moving average
/// in nanoseconds. `a` asks every 25 ms.
const ROUND_TRIPS: &str = "
import socket, struct, sys, time
side = sys.argv[1]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((dict(a='10.1.0.2', b='10.2.0.2')[side], 4791))
s.settimeout(10)
average = 20e6
sent = {}
def answers(until):
    global average
    while (left := until - time.monotonic()) > 0:
        s.settimeout(left)
        try:
            answer = s.recvfrom(2048)[0]
        except TimeoutError:
            return
        took = time.monotonic_ns() - sent[struct.unpack_from('!I', answer, 8)[0]]
        average += (took - average) / 8
for n in range(120):
    if side == 'a':
        sent[5000 + n] = time.monotonic_ns()
        s.sendto(struct.pack('!BBHII', 4, 0, 0xffff, 77, 1 << 31 | 5000 + n) + bytes(68), ('10.2.0.2', 4791))
        answers(time.monotonic() + 0.025)
    else:
        s.recvfrom(2048)
        arrived = time.monotonic_ns()
        time.sleep(0.02)
        s.sendto(struct.pack('!BBHII', 17, 0, 0xffff, 99, 5000 + n) + struct.pack('!II', 0x1f000001, 0), ('10.1.0.2', 4791))
        average += (time.monotonic_ns() - arrived - average) / 8
if side == 'a':
    answers(time.monotonic() + 1)
print(int(average))
";

fn flows(rig: &Rig) -> Vec<Value> {
    let rows = rig.ctl(&["flows", "--limit", "2000"]);
    rows.as_array().expect("rows").clone()
}

fn number(row: &Value, path: &str) -> u64 {
    let value = row.pointer(path).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("{path}: {row}"))
}

/// SW-50: packets, bytes and NAKs of a thousand flows are exact, both directions of each are found,
/// and all are over when nothing passes any more.
#[test]
fn a_thousand_flows_are_counted_exactly() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("fl");
    rig.settings("[flows]\nenabled = true\nactive_seconds = 60\ninactive_seconds = 5\n");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 1, 10), 1);
    assert_eq!(flows(&rig), Vec::<Value>::new());
    for side in ["a", "b"] {
        rig.on(side, "python3", &["-c", SCRIPT, side, &FLOWS.to_string()]);
    }
    let paired = |rows: &[Value]| rows.iter().filter(|row| row["learned"] == "data").count();
    eventually("pairs", || paired(&flows(&rig)) as u64 == FLOWS);
    let rows = flows(&rig);
    assert_eq!(rows.len() as u64, FLOWS);
    let mut seen = std::collections::BTreeSet::new();
    for row in &rows {
        let flow = number(row, "/destination_qp") - 65_536;
        assert!(seen.insert(flow), "{row}");
        assert_eq!(number(row, "/source_qp"), 4096 + flow);
        assert_eq!(
            (&row["source"], &row["destination"]),
            (&"10.1.0.2".into(), &"10.2.0.2".into())
        );
        assert_eq!(row["forward"]["port"], "p1");
        assert_eq!(number(row, "/forward/packets"), requests(flow), "{row}");
        assert_eq!(number(row, "/forward/bytes"), requests(flow) * REQUEST);
        assert_eq!(number(row, "/forward/naks"), 0);
        let answers = 1 + naks(flow);
        assert_eq!(row["backward"]["port"], "p2");
        assert_eq!(number(row, "/backward/packets"), answers, "{row}");
        assert_eq!(number(row, "/backward/bytes"), answers * ACKNOWLEDGEMENT);
        assert_eq!(number(row, "/backward/naks"), naks(flow), "{row}");
        assert_eq!(row["backward"]["last_nak"].is_f64(), naks(flow) > 0);
    }
    let shown = rig.ctl_output(&["show", "flow", "--limit", "1"]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        text.contains("10.1.0.2") && text.lines().count() == 3,
        "{text}"
    );
    eventually("end of all flows", || flows(&rig).is_empty());
}

/// What nfdump says of the records in a folder: packets, bytes, destination address of each.
fn collected(rig: &Rig, folder: &str) -> Vec<(u64, u64, String)> {
    let format = "fmt:%pkt %byt %da";
    let text = rig.on("a", "nfdump", &["-R", folder, "-q", "-N", "-o", format]);
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next().and_then(|it| it.parse().ok());
        let (packets, bytes) = (number()?, number()?);
        Some((packets, bytes, words.next()?.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Sums of what a collector has of one direction: records, packets, bytes.
type Sums = (u64, u64, u64);

/// A collector, which is ended when this goes.
struct Collector(Child);

impl Collector {
    /// Asks it to write what it has and to end, and waits until it has: pmacct's takes SIGTERM for
    /// nothing.
    fn end(mut self) {
        let id = i32::try_from(self.0.id()).expect("a process number");
        let id = nix::unistd::Pid::from_raw(id);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).expect("it runs");
        eventually("the collector's end", || {
            self.0.try_wait().expect("our child").is_some()
        });
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // It may have ended, and then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lets so many flows pass a switch that tells the collector, and be over; then ends both.
fn pass_all(rig: &mut Rig, flows_in_all: u64, collector: Child) {
    let collector = Collector(collector);
    rig.settings(
        "[flows]\nenabled = true\ninactive_seconds = 3\ntemplate_seconds = 1\ncollector = \"10.1.0.2:4739\"\n",
    );
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 1, 10), 1);
    for side in ["a", "b"] {
        rig.on(
            side,
            "python3",
            &["-c", SCRIPT, side, &flows_in_all.to_string()],
        );
    }
    eventually("flows", || !flows(rig).is_empty());
    eventually("end of all flows", || flows(rig).is_empty());
    // Records leave at a pace, and the collector writes them at its own.
    std::thread::sleep(Duration::from_secs(3));
    rig.stop();
    collector.end();
}

/// There is a record of each direction of each flow, and all together have every packet and byte.
fn assert_all(flows: u64, to: impl Fn(&str) -> Sums) {
    let asked: u64 = (0..flows).map(requests).sum();
    assert_eq!(to("10.2.0.2"), (flows, asked, asked * REQUEST));
    let answers: u64 = (0..flows).map(|flow| 1 + naks(flow)).sum();
    assert_eq!(to("10.1.0.2"), (flows, answers, answers * ACKNOWLEDGEMENT));
}

/// SW-50: a collector that nobody here wrote, nfdump's, gets a record of each direction of ten
/// thousand flows that pass at once, which is what the table has room for. All of them together
/// have every packet and byte, and it misses none by the sequence numbers.
#[test]
fn a_collector_reads_the_records() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("fx");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().display().to_string();
    // With a buffer for what comes while it has no core.
    let words = [
        "-l", &place, "-p", "4739", "-b", "10.1.0.2", "-t", "3600", "-B", "400000",
    ];
    let log = folder.path().join("said");
    let said = std::fs::File::create(&log).expect("a file");
    let mut collector = rig.command("a", "nfcapd", &words);
    let collector = collector.stderr(said).spawn().expect("nfcapd");
    pass_all(&mut rig, MOST_FLOWS, collector);
    let records = collected(&rig, &place);
    assert_all(MOST_FLOWS, |address| {
        let its = records.iter().filter(|it| it.2 == address);
        its.fold((0, 0, 0), |all, it| (all.0 + 1, all.1 + it.0, all.2 + it.1))
    });
    let said = std::fs::read_to_string(&log).expect("what it said");
    assert!(said.contains("Sequence Errors: 0,"), "{said}");
}

/// SW-50: so does pmacct's.
#[test]
fn another_collector_reads_the_records() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("fp");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [settings, records] = ["nfacctd.conf", "records"].map(|file| folder.path().join(file));
    let text = format!(
        "nfacctd_ip: 10.1.0.2\nnfacctd_port: 4739\nplugins: print\naggregate: dst_host, flows\n\
         print_refresh_time: 1\nprint_output: json\nprint_output_file_append: true\n\
         print_output_file: {}\n",
        records.display()
    );
    std::fs::write(&settings, text).expect("a file");
    let words = ["-f", &settings.display().to_string()];
    let collector = rig.command("a", "nfacctd", &words).spawn();
    pass_all(&mut rig, FLOWS, collector.expect("nfacctd"));
    let text = std::fs::read_to_string(&records).expect("records");
    let parts: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_all(FLOWS, |address| {
        let its = parts.iter().filter(|it| it["ip_dst"] == address);
        its.fold((0, 0, 0), |all, it| {
            let of = |key| number(it, key);
            (
                all.0 + of("/flows"),
                all.1 + of("/packets"),
                all.2 + of("/bytes"),
            )
        })
    });
}

/// SW-50: the round trip is no shorter than what the other side takes to answer, and no longer than
/// what the one waits for answers, both within 10 %. The two are the same but on a busy machine.
#[test]
fn round_trips_are_as_long_as_they_are() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("rt");
    rig.settings("[flows]\nenabled = true\n");
    rig.start(&[]);
    assert_eq!(rig.ping("10.2.0.2", 1, 10), 1);
    let mut answering = rig.command("b", "python3", &["-c", ROUND_TRIPS, "b"]);
    let answering = answering.stdout(Stdio::piped()).spawn().expect("python3");
    // Requests that come too early are answered by nobody.
    std::thread::sleep(Duration::from_secs(1));
    let waited = rig.on("a", "python3", &["-c", ROUND_TRIPS, "a"]);
    let said = answering.wait_with_output().expect("our child").stdout;
    let nanos = |said: &str| said.trim().parse::<u64>().expect("a time");
    let (took, waited) = (nanos(&String::from_utf8_lossy(&said)), nanos(&waited));
    let rows = flows(&rig);
    assert_eq!(rows.len(), 1, "{rows:?}");
    let rtt = number(&rows[0], "/forward/rtt_nanoseconds");
    println!("{took} to answer, {rtt} at the switch, {waited} for the answer");
    assert!(
        (took * 90 / 100..waited * 110 / 100).contains(&rtt),
        "{took}, {rtt}, {waited}"
    );
    assert!(rows[0]["backward"]["rtt_nanoseconds"].is_null());
}

/// SW-50: what is off is said to be off.
#[test]
fn flows_that_are_not_followed_are_not_shown() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("fo");
    rig.start(&[]);
    let output = rig.ctl_output(&["flows"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("[flows]"),
        "{said}"
    );
}
