//! HT-45: a hostd whose receive ring fills asks its switch to wait.

use super::response::Middle;
use super::*;

/// Sends RoCEv2 frames that no queue pair knows to hostd, by the port of a bridge, when a line
/// comes, and writes the MAC control frames that come from there to a file, until the input ends.
const FLOOD: &str = "
import socket, struct, sys, threading, time
interface, mac, file, count = sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3], int(sys.argv[4])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((interface, 0))
s.settimeout(0.1)
udp = struct.pack('!HHHH', 0xc000, 4791, 8 + 12 + 4, 0) + bytes([4] + 11 * [0]) + bytes(4)
ip = struct.pack('!BBHHHBBH4s4s', 0x45, 26 << 2, 20 + len(udp), 0, 0x4000, 64, 17, 0,
                 bytes([10, 9, 0, 2]), bytes([10, 9, 0, 1]))
total = sum(struct.unpack('!10H', ip))
total = (total & 0xffff) + (total >> 16)
ip = ip[:10] + struct.pack('!H', ~((total & 0xffff) + (total >> 16)) & 0xffff) + ip[12:]
frame = mac + bytes([2, 0, 0, 0, 0, 1, 8, 0]) + ip + udp
over = threading.Event()
def flood():
    for line in sys.stdin:
        for _ in range(count):
            s.send(frame)
        print('sent', flush=True)
    over.set()
threading.Thread(target=flood).start()
with open(file, 'wb') as pcap:
    pcap.write(struct.pack('<IHHiIII', 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
    print('ready', flush=True)
    while not over.is_set():
        try:
            got, address = s.recvfrom(256)
        except (socket.timeout, BlockingIOError):
            continue
        if address[2] == socket.PACKET_OUTGOING or got[12:14] != b'\\x88\\x08':
            continue
        now = time.time()
        pcap.write(struct.pack('<IIII', int(now), int(now % 1 * 1e6), len(got), len(got)) + got)
";

/// What tshark says of each frame in a file: opcode, enable vector, pause times of priorities 3, 4
/// and 5.
fn read(file: &Path) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=,", "-r"]);
    tshark.arg(file);
    for field in [
        "eth.dst",
        "macc.opcode",
        "macc.cbfc.enbv",
        "macc.cbfc.pause_time.c3",
        "macc.cbfc.pause_time.c5",
        "_ws.malformed",
    ] {
        tshark.args(["-e", field]);
    }
    let output = run(&mut tshark);
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

/// HT-45: a hostd that was away finds its ring full: it asks for a pause of the priorities that it
/// is to ask for, and ends it when the ring is empty; tshark reads both. Nothing is asked for by
/// default.
#[test]
fn a_full_ring_is_told_to_the_switch() {
    use std::io::{BufRead, BufReader, Write};
    if !possible() {
        return;
    }
    let mut middle = Middle::new();
    let file = middle.link.hosts[0].folder.path().join("pauses.pcap");
    for asks in [false, true] {
        let host = &mut middle.link.hosts[0];
        if asks {
            let keys = "[flow_control]\nsend_pfc = [3, 5]\nsend_xoff_percent = 20\n\
                        send_xon_percent = 10\n";
            configure(host, keys);
        }
        let address = host.namespace.run("cat /sys/class/net/eth0/address");
        let mac = address.expect("eth0").trim().replace(':', "");
        let mut flood = Command::new("ip");
        flood.args([
            "netns",
            "exec",
            middle.bridge.name(),
            "python3",
            "-c",
            FLOOD,
        ]);
        flood.args(["m1", &mac]).arg(&file).arg("1500");
        let piped = flood.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut flood = piped.spawn().expect("starts");
        let mut lines = BufReader::new(flood.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        assert_eq!(line(), "ready");
        let daemon = host.daemon.as_ref().expect("it runs").id().to_string();
        let signal = |name: &str| drop(run(Command::new("kill").args([name, &daemon])));
        signal("-STOP");
        let mut input = flood.stdin.take().expect("piped");
        input.write_all(b"go\n").expect("it reads");
        assert_eq!(line(), "sent");
        signal("-CONT");
        let sent = |host: &Host, key: &str| {
            let rows = host.show("pauses");
            let row = rows.iter().find(|row| row["priority"] == 3);
            row.and_then(|row| row[key].as_u64()).expect("a counter")
        };
        let taken = |host: &Host| {
            let rows = host.show("drops");
            let of = |row: &Value| row["packets"].as_u64();
            rows.iter().filter_map(of).sum::<u64>() >= 1500
        };
        host.wait_for("the flood", || taken(host));
        if asks {
            host.wait_for("the end", || sent(host, "pfc_sent_resuming") > 0);
        }
        drop(input);
        flood.wait().expect("it ends");
        let frames = read(&file);
        println!("{frames:#?}");
        assert_eq!(frames.is_empty(), !asks);
        assert_eq!(sent(host, "pfc_sent_pausing") > 0, asks);
        if !asks {
            continue;
        }
        let frame = |quanta: u16| format!("01:80:c2:00:00:01,0x0101,0x0028,{quanta},{quanta},");
        assert_eq!(frames.first(), Some(&frame(u16::MAX)));
        assert_eq!(frames.last(), Some(&frame(0)));
        assert_eq!(frames.len() as u64, {
            sent(host, "pfc_sent_pausing") + sent(host, "pfc_sent_resuming")
        });
    }
}
