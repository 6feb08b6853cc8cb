//! Congestion signals through two tiers of switches: tags that hosts send by raw sockets, and what
//! is in them when they arrive.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use lab::observe::{assert_healthy, eventually, rows, switches};
use lab::{Lab, exclusive, node_dir, privileged};

/// Sends frames with tags, or receives them. A tag is given as the hexadecimal digits of what
/// stands between the addresses and the EtherType. Each frame arrives within 10 s; its tag and the
/// time that it took, in microseconds, are printed.
const FRAMES: &str = "
import socket, struct, sys, time
role, interface, host, gateway, source, destination = sys.argv[1:7]

def mac(text):
    return bytes.fromhex(text.replace(':', ''))

def packet(number):
    payload = struct.pack('!HHHHI', 7776, 4791, 8 + 40, 0, number) + struct.pack('!d', time.time()) + bytes(28)
    def header(checksum):
        return struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(payload), 7, 0x4000, 64, 17, checksum,
                           *(socket.inet_aton(it) for it in (source, destination)))
    total = sum(struct.unpack('!10H', header(0)))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return b'\\x08\\x00' + header(0xffff ^ total) + payload

s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((interface, 0))
tags = sys.argv[7:]
if role == 'send':
    for number, tag in enumerate(tags):
        s.send(mac(gateway) + mac(host) + bytes.fromhex(tag) + packet(number))
        time.sleep(0.02)
else:
    s.settimeout(10)
    print('bound', flush=True)
    expected = 0
    while expected < len(tags):
        frame, address = s.recvfrom(2048)
        at = frame.find(b'\\x08\\x00\\x45')
        if address[2] == socket.PACKET_OUTGOING or at < 12 or frame[at + 11] != 17:
            continue
        at += 22
        if struct.unpack('!H', frame[at + 2:at + 4])[0] != 4791:
            continue
        number, sent = struct.unpack('!Id', frame[at + 8:at + 20])
        if number != expected:
            print('out of order', number)
            break
        expected += 1
        print(frame[12:at - 22].hex() or '-', int((time.time() - sent) * 1e6), flush=True)
";

/// A fabric of two tiers whose switches know tags; each has a locator of its own.
fn fabric(name: &str) -> Lab {
    let lab = switches(name).size(2, 1, 2).up().unwrap();
    for (node, locator) in [("leaf1", 1), ("spine1", 2), ("leaf2", 3)] {
        let text = format!(
            "\n[csig]\nenabled = true\n[[csig.port]]\nlocator = {locator}\nexpanded_locator = {}\n",
            locator * 256
        );
        add(&lab, node, &text);
    }
    settle(&lab);
    lab
}

/// Adds lines to the configuration of a switch, and starts it again.
fn add(lab: &Lab, node: &str, lines: &str) {
    let path = node_dir(lab.name(), node).join("switchd.toml");
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    lab.restart(node).unwrap();
}

/// Waits until hosts reach each other.
fn settle(lab: &Lab) {
    lab.wait_ready(Duration::from_secs(60)).unwrap();
    lab.converge().unwrap();
    let to = lab.host("h2").address(false).to_string();
    eventually("a way", Duration::from_secs(60), || {
        let words = ["ping", "-n", "-c", "1", "-W", "1", &to];
        let output = lab.host("h1").run(words).unwrap();
        let arrived = output.stdout.contains(" 0% packet loss");
        if arrived { Ok(()) } else { Err(output.stdout) }
    });
}

fn mac(lab: &Lab, node: &str, interface: &str) -> String {
    let path = format!("/sys/class/net/{interface}/address");
    let text = lab.host(node).run(["cat", &path]).unwrap().expect_ok();
    text.trim().to_owned()
}

/// Sends frames with these tags from h1 to h2; with what tag each arrives, and after how many
/// microseconds.
fn send(lab: &Lab, tags: &[&str]) -> Vec<(String, u64)> {
    let (host, gateway) = (mac(lab, "h1", "leaf1"), mac(lab, "leaf1", "h1"));
    let [source, destination] = ["h1", "h2"].map(|it| lab.host(it).address(false).to_string());
    let words = |role: &str, interface: &str| {
        let all = ["python3", "-c", FRAMES, role, interface, &host, &gateway];
        let all = all
            .into_iter()
            .chain([source.as_str(), destination.as_str()]);
        let all = all.chain(tags.iter().copied());
        all.map(str::to_owned).collect::<Vec<_>>()
    };
    let receiver = words("receive", "leaf2");
    let receiver = receiver.iter().map(String::as_str);
    let mut receiver = lab.host("h2").spawn(receiver).unwrap();
    let mut said = BufReader::new(receiver.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "bound");
    let sender = words("send", "leaf1");
    let sender = sender.iter().map(String::as_str);
    lab.host("h1").run(sender).unwrap().expect_ok();
    let found = said
        .map(|line| {
            let line = line.unwrap();
            let (tag, micros) = line.split_once(' ').expect("a tag and a time");
            let tag = if tag == "-" { "" } else { tag };
            (tag.to_owned(), micros.parse().unwrap())
        })
        .collect();
    receiver.wait().unwrap();
    found
}

/// What a switch has counted of tags, over all ports.
fn counted(lab: &Lab, node: &str, outcome: &str) -> u64 {
    let rows = rows(lab.switchctl(node, &["show", "csig"]).unwrap());
    let each = rows
        .iter()
        .map(|row| row["tags"][outcome].as_u64().unwrap());
    each.sum()
}

/// CS-2, CS-5, CS-7: each switch of the path updates both forms; the delays are no longer than the
/// packets took; a switch that strips ends it, and the packets arrive whatever their tags.
#[test]
fn tags_cross_two_tiers_of_switches() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = fabric("csig");
    // Neutral ones of the bandwidth, the share and the delay; and one that nobody replaces.
    let (compact, expanded) = ("99000f80", "990100001fffff00");
    let delay = "9901000020000000";
    let full = "99002000";
    let tags: Vec<&str> = [compact, expanded, delay, full].repeat(8);
    let found = send(&lab, &tags);
    assert_eq!(found.len(), tags.len(), "{found:?}");
    for (tag, (left, micros)) in tags.iter().zip(&found) {
        let number = |from: usize, to: usize| u64::from_str_radix(&left[from..to], 16).unwrap();
        assert_eq!(left[..4], tag[..4], "the form stays");
        if *tag == delay {
            let (value, locator) = (number(9, 14), number(4, 8));
            assert!(value * 128 <= micros * 1000, "{left}: {micros} us in all");
            assert!(
                value == 0 || [0x100, 0x200, 0x300].contains(&locator),
                "{left}"
            );
        } else if *tag == full {
            assert_eq!(left, full, "nobody has less than nothing");
        } else if *tag == compact {
            let word = number(4, 8);
            assert!(
                (3..=13).contains(&(word >> 7)) && (1..=3).contains(&(word & 0x7f)),
                "{left}"
            );
        } else {
            let (value, locator) = (number(9, 14), number(4, 8));
            assert!((900_000..=1_000_000).contains(&value), "{left}");
            assert!([0x100, 0x200, 0x300].contains(&locator), "{left}");
        }
    }
    for node in ["leaf1", "spine1", "leaf2"] {
        let all: u64 = ["updated", "kept"]
            .map(|it| counted(&lab, node, it))
            .iter()
            .sum();
        assert_eq!(all, tags.len() as u64, "{node}");
    }
    assert!(counted(&lab, "leaf1", "updated") >= 8);
    // What is for the switch itself, its kernel answers, though it came with a tag.
    assert_healthy(&lab, &[]);

    add(&lab, "spine1", "[[csig.port]]\nmode = \"strip\"\n");
    settle(&lab);
    let found = send(&lab, &tags);
    assert_eq!(found.len(), tags.len());
    assert!(found.iter().all(|(tag, _)| tag.is_empty()), "{found:?}");
    assert_eq!(counted(&lab, "spine1", "stripped"), tags.len() as u64);
}
