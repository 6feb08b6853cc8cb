//! Congestion signals through two tiers of switches: tags that hosts send by raw sockets, and what
//! is in them when they arrive; and those of hostd, which come back to it. And telemetry in the
//! same way.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use lab::capture;
use lab::observe::{assert_healthy, eventually, fabric as hosts_and_switches, rows, switches};
use lab::{Builder, Lab, exclusive, node_dir, privileged};

/// Sends frames with tags, as a burst of long ones or one after another, or receives them. A tag is
/// given as the hexadecimal digits of what stands between the addresses and the EtherType. Each
/// frame arrives within 10 s; its tag and the time that it took, in microseconds, are printed.
const FRAMES: &str = "
import socket, struct, sys, time
role, interface, host, gateway, source, destination = sys.argv[1:7]

def mac(text):
    return bytes.fromhex(text.replace(':', ''))

def packet(number):
    rest = bytes(1228 if role == 'burst' else 28)
    payload = struct.pack('!HHHHI', 7776, 4791, 8 + 12 + len(rest), 0, number) + struct.pack('!d', time.time()) + rest
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
if role != 'receive':
    def frame(number, tag):
        return mac(gateway) + mac(host) + bytes.fromhex(tag) + packet(number)
    # A burst is made before it is sent, or it would be no burst.
    burst = [frame(number, tag) for number, tag in enumerate(tags)] if role == 'burst' else []
    for made in burst:
        s.send(made)
    for number, tag in enumerate(tags if role == 'send' else []):
        s.send(frame(number, tag))
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
fn fabric(builder: Builder) -> Lab {
    let lab = builder.size(2, 1, 2).up().unwrap();
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
    add_to(lab, node, "switchd.toml", lines);
}

/// Adds lines to a configuration of a node, and starts its daemon again.
fn add_to(lab: &Lab, node: &str, file: &str, lines: &str) {
    let path = node_dir(lab.name(), node).join(file);
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

/// The command that sends frames with these tags from h1 to h2, or receives them.
fn command(lab: &Lab, role: &str, interface: &str, tags: &[&str]) -> Vec<String> {
    let (host, gateway) = (mac(lab, "h1", "leaf1"), mac(lab, "leaf1", "h1"));
    let [source, destination] = ["h1", "h2"].map(|it| lab.host(it).address(false).to_string());
    let all = ["python3", "-c", FRAMES, role, interface, &host, &gateway];
    let all = all
        .into_iter()
        .chain([source.as_str(), destination.as_str()]);
    let all = all.chain(tags.iter().copied());
    all.map(str::to_owned).collect()
}

/// Sends frames with these tags from h1 to h2; with what tag each arrives, and after how many
/// microseconds.
fn send(lab: &Lab, tags: &[&str]) -> Vec<(String, u64)> {
    let receiver = command(lab, "receive", "leaf2", tags);
    let receiver = receiver.iter().map(String::as_str);
    let mut receiver = lab.host("h2").spawn(receiver).unwrap();
    let mut said = BufReader::new(receiver.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "bound");
    let sender = command(lab, "send", "leaf1", tags);
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
    let lab = fabric(switches("csig"));
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

/// What a tap has seen of a burst, by the number of the frame: when, in microseconds, and the delay
/// in its tag, in units.
fn seen(file: &Path) -> BTreeMap<u32, (f64, u64)> {
    let fields = ["frame.time_epoch", "data.data"];
    let lines = capture::dissect(file, "eth.type == 0x9901", &fields).unwrap();
    let one = |line: &String| {
        let (at, data) = line.split_once('\t').expect("both fields");
        let data = data.replace(':', "");
        let number = |from: usize, to: usize| u64::from_str_radix(&data[from..to], 16).unwrap();
        // Behind the TPID stand six bytes of tag, the EtherType, and IP and UDP headers.
        let frame = u32::try_from(number(72, 80)).unwrap();
        // Microseconds since the Epoch are known to a quarter of one.
        (frame, (at.parse::<f64>().unwrap() * 1e6, number(5, 10)))
    };
    lines.iter().map(one).collect()
}

/// CS-5: behind a shaper packets wait, and the delay in their tags is the time between a tap before
/// the switch and one behind it. A switch counts from the turn in which it took a packet to that in
/// which it handed it on, and taps when they come to see it: of nine packets in ten both are within
/// 1 ms, of waits up to 6 ms.
#[test]
fn delays_are_the_times_between_taps() {
    const FRAMES: u32 = 20;
    const UNIT: f64 = 0.128;
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let builder = switches("csigpd").tap("spine1", "leaf2");
    let lab = fabric(builder.tap("leaf2", "h2"));
    slow_down(&lab, "leaf2", "h2", "20Mbps");
    add(&lab, "leaf2", "");
    settle(&lab);
    let ends = [("spine1", "leaf2"), ("leaf2", "h2")];
    let captures = ends.map(|(a, b)| lab.capture(a, b, "ether proto 0x9901").unwrap());
    let burst = command(
        &lab,
        "burst",
        "leaf1",
        &["9901000020000000"; FRAMES as usize],
    );
    let burst = burst.iter().map(String::as_str);
    lab.host("h1").run(burst).unwrap().expect_ok();
    std::thread::sleep(Duration::from_millis(500));
    let [before, behind] = captures.map(|it| seen(&it.stop().unwrap()));
    assert_eq!(
        (before.len(), behind.len()),
        (FRAMES as usize, FRAMES as usize)
    );
    let (mut far, mut longest) = (0, 0.0_f64);
    for (frame, (left, units)) in &behind {
        let (came, other) = before[frame];
        let (wait, delay) = (left - came, *units as f64 * UNIT);
        println!("{frame}: {delay:.0} us in the tag, {wait:.0} us between the taps");
        // What leaves the spine is no longer there than it took.
        assert!(other <= *units, "{frame}");
        far += u32::from((wait - delay).abs() > 1000.0);
        longest = longest.max(delay);
    }
    assert!(far <= FRAMES / 10, "{far} of {FRAMES} delays are wrong");
    // The shaper lets eight of the 20 pass at once; each of the others takes 0.5 ms at 20 Mb/s.
    assert!(longest > 4_000.0, "{longest} us");
}

/// CS-8, CS-9, CS-10: data of hostd asks, and hostctl shows how much of the worst port of each path
/// is free, and where that is: at the port to the peer, which alone has this locator, while its
/// shaper is the bottleneck. Through a spine that strips all data goes on, and that is shown, too.
#[test]
fn hosts_learn_where_the_bottleneck_is() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = hosts_and_switches("csighost").size(2, 1, 2).up().unwrap();
    for (node, locator) in [("leaf1", 1), ("spine1", 2), ("leaf2", 3)] {
        let text = format!("\n[csig]\nenabled = true\n[[csig.port]]\nlocator = {locator}\n");
        add(&lab, node, &text);
    }
    slow_down(&lab, "leaf2", "h2", "50Mbps");
    let last = "[[csig.port]]\nports = [\"h2\"]\nlocator = 9\n";
    add(&lab, "leaf2", last);
    for node in ["h1", "h2"] {
        let text = "\n[csig]\nenabled = true\nhost_locators = [9]\n";
        add_to(&lab, node, "hostd.toml", text);
    }
    settle(&lab);
    let found = while_writing(&lab, "csig", |row| {
        let is_short = row["raw"].as_u64() < Some(500_000);
        row["where"] == "last hop" && row["signal"] == "share" && is_short
    });
    assert_eq!(found["locator"], 9, "{found}");
    for node in ["leaf1", "spine1", "leaf2"] {
        assert!(counted(&lab, node, "updated") > 0, "{node}");
    }
    // The writer was killed with packets under way.
    let killed = [
        "queue_pair_ended",
        "queue_pair_state",
        "unknown_queue_pair",
        "cm_wrong_transaction",
        // What a shaper is for.
        "queue_full",
    ];
    assert_healthy(&lab, &killed);

    add(&lab, "spine1", "[[csig.port]]\nmode = \"strip\"\n");
    settle(&lab);
    while_writing(&lab, "csig", |row| row["where"] == "tags are taken off");
}

/// Shapes a port of a switch to 50 Mb/s, from its next start on.
fn slow_down(lab: &Lab, node: &str, port: &str, speed: &str) {
    let path = node_dir(lab.name(), node).join("switchd.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let section = text.find(&format!("name = \"{port}\"")).expect("a section");
    let value = section + text[section..].find("\nspeed = \"").expect("a speed") + 10;
    let end = value + text[value..].find('"').expect("its end");
    let slower = format!("{}{speed}{}", &text[..value], &text[end..]);
    std::fs::write(path, slower).unwrap();
}

/// SW-52, CC-3: data of hostd carries telemetry through two tiers, and hostctl shows how much is in
/// flight on the worst link of each path: at the third hop, while its shaper is the bottleneck.
/// HPCC goes by it. Through a spine that strips all data goes on.
#[test]
fn hosts_learn_how_full_links_are() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = hosts_and_switches("int").size(2, 1, 2).up().unwrap();
    for node in ["leaf1", "spine1", "leaf2"] {
        add(&lab, node, "\n[int]\nenabled = true\n");
    }
    slow_down(&lab, "leaf2", "h2", "50Mbps");
    add(&lab, "leaf2", "");
    for node in ["h1", "h2"] {
        let path = node_dir(lab.name(), node).join("hostd.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let of_host = |line: &str| match line.split(" = ").next() {
            Some("congestion") => "congestion = \"hpcc\"\nbase_rtt_us = 1000\n".to_owned(),
            _ => format!("{line}\n"),
        };
        let text: String = text.lines().map(of_host).collect();
        assert!(text.contains("hpcc"), "{text}");
        std::fs::write(path, text).unwrap();
        add_to(&lab, node, "hostd.toml", "\n[int]\nenabled = true\n");
    }
    settle(&lab);
    let found = while_writing(&lab, "int", |row| {
        row["hop"] == "3" && row["raw_in_flight"].as_f64() > Some(0.3)
    });
    let speed = found["raw_speed"].as_f64().unwrap();
    assert!((speed / 50e6 - 1.0).abs() < 0.01, "{found}");
    for node in ["leaf1", "spine1", "leaf2"] {
        let rows = rows(lab.switchctl(node, &["show", "int"]).unwrap());
        let updated = rows.iter().map(|row| row["tags"]["updated"].as_u64());
        assert!(updated.flatten().sum::<u64>() > 0, "{node}: {rows:#?}");
    }
    add(&lab, "spine1", "[[int.port]]\nmode = \"strip\"\n");
    settle(&lab);
    let guided = |row: &serde_json::Value| row["congestion"] == "hpcc" && row["guided"] == false;
    while_writing(&lab, "qps", guided);
}

/// Writes from h1 to h2 until a row of this subject of hostctl on h1 is as wanted; that row.
fn while_writing(
    lab: &Lab,
    subject: &str,
    wanted: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let mut server = lab.host("h2").spawn(["hostperf", "serve"]).unwrap();
    let mut line = String::new();
    let said = server.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut line).unwrap();
    let to = lab.host("h2").address(false).to_string();
    let words = ["hostperf", "write", "--json", "-D", "60", "-t", "16", &to];
    let mut client = lab.host("h1").spawn(words).unwrap();
    let mut found = None;
    eventually("a signal", Duration::from_secs(40), || {
        let rows = rows(lab.hostctl("h1", &[subject]).unwrap());
        found = rows.iter().find(|row| wanted(row)).cloned();
        found
            .as_ref()
            .map(|_| ())
            .ok_or_else(|| format!("{rows:#?}"))
    });
    for process in [&mut client, &mut server] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    found.expect("it was found")
}
