//! What Wireshark shows of a connection's whole life with `etc/wireshark/mpeh.lua`.

use crate::connection::connect_with;
use crate::network::Network;
use common::time::Span;
use common::wire::cm::{Mad, Message};
use common::wire::csig::Tpids;
use common::wire::roce::{Aeth, Headers, MARK_BITS, SACK_BITS};
use hostd::verbs::{EngineConfig, SendOpcode, SendRequest, Service};
use std::path::Path;
use std::process::Command;

/// Where BTH begins over IPv4, and where a connection message does.
const BTH: usize = 14 + 20 + 8;
const MAD: usize = BTH + 12 + 8;

/// Fields of the script, in the order in which [`expected`] writes them.
const FIELDS: &[&str] = &[
    "mpeh.opcode",
    "mpeh.pad",
    "mpeh.destqp",
    "mpeh.ack_request",
    "mpeh.psn",
    "mpeh.path",
    "mpeh.flags",
    "mpeh.flags.f",
    "mpeh.flags.s",
    "mpeh.flags.p",
    "mpeh.flags.c",
    "mpeh.flags.r",
    "mpeh.flags.l",
    "mpeh.flowlet",
    "mpeh.tag",
    "mpeh.reserved",
    "mpeh.ext.length",
    "mpeh.ext.blocks",
    "mpeh.ext.cookie",
    "mpeh.reth.va",
    "mpeh.reth.rkey",
    "mpeh.reth.length",
    "mpeh.atomic.swap",
    "mpeh.atomic.compare",
    "mpeh.atomic.original",
    "mpeh.aeth.syndrome",
    "mpeh.aeth.msn",
    "mpeh.immediate",
    "mpeh.invalidate",
    "mpeh.sack.arrived",
    "mpeh.sack.trigger",
    "mpeh.sack.marks",
    "mpeh.marks.base",
    "mpeh.marks.crowd",
    "mpeh.marks.crowd.count",
    "mpeh.marks.marked",
    "mpeh.marks.trimmed",
    "mpeh.trimmed",
    "mpeh_offer.version",
    "mpeh_offer.flow",
    "mpeh_offer.flowlet",
    "mpeh_offer.packet",
    "mpeh_offer.marks",
    "mpeh_offer.mtu",
    "mpeh_offer.paths",
    "mpeh_offer.reorder_packets",
    "mpeh_offer.reorder_us",
    "mpeh_offer.reorder_buffer",
    "mpeh_offer.flowlet_us",
    "mpeh_offer.cookie",
    "mpeh_offer.blocks",
    "mpeh_offer.service",
    "mpeh_offer.data_length",
    "mpeh_offer.compact_tpid",
    "mpeh_offer.expanded_tpid",
    "mpeh_offer.int_tpid",
];

/// Hosts that offer tags and know them by other TPIDs, so that they tell these and have no tags.
fn unlike() -> [EngineConfig; 2] {
    let [one, other] = [0x88b5, 0x88b7].map(|compact| {
        let tpids = Tpids {
            compact,
            expanded: compact + 1,
            int: 0,
        };
        crate::csig::knowing(tpids)
    });
    [one, other]
}

/// Frames of a connection that is set up, carries every kind of request over a network that trims,
/// marks, loses and reorders, and ends, as they arrive.
fn recording() -> Vec<Vec<u8>> {
    let mut network = Network::new(51, unlike());
    network.arrivals = Some(Vec::new());
    let (qpns, connections) = connect_with(&mut network, |hosts, qpns| {
        for (host, qpn) in hosts.iter_mut().zip(qpns) {
            let chosen = host.engine.choose_service(qpn, Service::Unordered);
            chosen.expect("in INIT");
        }
    });
    network.impairment.trims = 100;
    network.impairment.marks = 200;
    network.impairment.loss = 20;
    network.impairment.jitter = Span::from_micros(20);
    let opcodes = [
        SendOpcode::Send,
        SendOpcode::SendWithImm,
        SendOpcode::RdmaWrite,
        SendOpcode::RdmaWriteWithImm,
        SendOpcode::RdmaRead,
        SendOpcode::AtomicCmpAndSwp,
        SendOpcode::AtomicFetchAndAdd,
    ];
    let lengths = [8_193, 5, 20_000];
    let mut count = 0;
    for (opcode, len) in opcodes.iter().flat_map(|it| lengths.map(|len| (*it, len))) {
        network.hosts[1].receive_into(qpns[1], count, 1 << 20, 40_000);
        let request = SendRequest {
            opcode,
            rkey: network.hosts[1].keys.rkey,
            remote_addr: 2 << 20,
            imm: 77,
            compare_add: 5,
            swap: if opcode == SendOpcode::AtomicCmpAndSwp {
                6
            } else {
                0
            },
            ..network.hosts[0].send(count, 0, if opcode.is_atomic() { 8 } else { len })
        };
        let engine = &mut network.hosts[0].engine;
        engine.post_send(qpns[0], request).expect("room");
        count += 1;
    }
    let done = network.run(Span::from_secs(2), |network| {
        network.hosts[0].completions.len() as u64 == count
    });
    assert!(done, "{}", network.hosts[0].completions.len());
    let engine = &mut network.hosts[0].engine;
    engine.disconnect(connections[0]).expect("it stands");
    network.pass(Span::from_millis(50));
    network.arrivals.take().expect("was set")
}

/// What a frame says, by the parsers of the engine: an empty text for what is not there.
fn expected(frame: &[u8]) -> Vec<String> {
    let mut all = vec![String::new(); FIELDS.len()];
    let mut say = |name: &str, value: String| {
        let at = FIELDS.iter().position(|it| *it == name).expect("a field");
        all[at] = value;
    };
    let trimmed = frame[15] >> 2 == 42;
    let (headers, _) = Headers::parse(&frame[BTH..]).expect("headers");
    let bth = headers.bth;
    if frame[BTH] == 0x64 {
        offered(frame, &mut say);
        return all;
    }
    let (Some(mpeh), Some(extension)) = (headers.mpeh, headers.extension) else {
        panic!("a packet without MPEH: {bth:?}");
    };
    let bit = |set: bool| u8::from(set).to_string();
    say("mpeh.opcode", (frame[BTH] - 0xc0).to_string());
    say("mpeh.pad", bth.pad.to_string());
    say("mpeh.destqp", bth.dest_qp.to_string());
    say("mpeh.ack_request", bit(bth.ack_request));
    say("mpeh.psn", bth.psn.to_string());
    say("mpeh.path", mpeh.path.to_string());
    say("mpeh.flags", mpeh.flags.to_string());
    let names: &[(&str, u8)] = match headers.sack {
        Some(_) => &[("r", 1), ("l", 2), ("p", 4)],
        None => &[("f", 1), ("s", 2), ("p", 4), ("c", 8)],
    };
    for (name, mask) in names {
        say(&format!("mpeh.flags.{name}"), bit(mpeh.has(*mask)));
    }
    say("mpeh.flowlet", mpeh.flowlet.to_string());
    say("mpeh.tag", mpeh.tag.to_string());
    say("mpeh.reserved", "0".to_owned());
    say("mpeh.ext.length", "2".to_owned());
    say("mpeh.ext.blocks", "0".to_owned());
    say(
        "mpeh.ext.cookie",
        format!("{:012x}", extension.cookie.bits()),
    );
    if let Some(reth) = headers.reth {
        say("mpeh.reth.va", reth.address.to_string());
        say("mpeh.reth.rkey", reth.rkey.to_string());
        say("mpeh.reth.length", reth.len.to_string());
    }
    if let Some(atomic) = headers.atomic {
        say("mpeh.reth.va", atomic.address.to_string());
        say("mpeh.reth.rkey", atomic.rkey.to_string());
        say("mpeh.atomic.swap", atomic.swap_or_add.to_string());
        say("mpeh.atomic.compare", atomic.compare.to_string());
    }
    if let Some(original) = headers.atomic_original {
        say("mpeh.atomic.original", original.to_string());
    }
    if let Some(aeth) = headers.aeth {
        let mut bytes = [0; Aeth::LEN];
        aeth.emit(&mut bytes);
        say("mpeh.aeth.syndrome", bytes[0].to_string());
        say("mpeh.aeth.msn", aeth.msn.to_string());
    }
    if let Some(immediate) = headers.immediate {
        say("mpeh.immediate", immediate.to_string());
    }
    acknowledged(&headers, &mut say);
    say("mpeh.trimmed", bit(trimmed));
    all
}

fn acknowledged(headers: &Headers, say: &mut impl FnMut(&str, String)) {
    let Some(sack) = headers.sack else { return };
    let list = |first: u32, bits: &mut dyn Iterator<Item = u32>| {
        let numbers: Vec<_> = bits
            .map(|n| (first.wrapping_add(n) & 0xff_ffff).to_string())
            .collect();
        numbers.join("|")
    };
    let bits = u32::try_from(SACK_BITS).expect("few");
    let mut arrived = (0..bits).filter(|n| sack.has(*n as usize));
    say("mpeh.sack.arrived", list(headers.bth.psn + 1, &mut arrived));
    say("mpeh.sack.trigger", sack.trigger.to_string());
    say(
        "mpeh.sack.marks",
        u8::from(sack.marks.is_some()).to_string(),
    );
    let Some(marks) = sack.marks else { return };
    say("mpeh.marks.base", marks.base.to_string());
    say("mpeh.marks.crowd", marks.crowd.code().to_string());
    let count = marks.crowd.count().map(|count| count.to_string());
    say("mpeh.marks.crowd.count", count.unwrap_or_default());
    for (name, set) in [("marked", marks.marked), ("trimmed", marks.trimmed)] {
        let mut named = (0..MARK_BITS).filter(|n| set >> n & 1 == 1);
        say(&format!("mpeh.marks.{name}"), list(marks.base, &mut named));
    }
}

/// An offer, by its description in docs/transport.md.
fn offered(frame: &[u8], say: &mut impl FnMut(&str, String)) {
    let mad = Mad::parse(&frame[MAD..]).expect("a message");
    let private = match &mad.message {
        Message::Req(req) => &req.private[..],
        Message::Rep(rep) => &rep.private[..],
        _ => return,
    };
    let offer: &[u8; 24] = private.last_chunk().expect("long enough");
    assert_eq!(&offer[..4], b"MPR1");
    let hex: Vec<_> = offer[16..22].iter().map(|it| format!("{it:02x}")).collect();
    say("mpeh_offer.version", offer[4].to_string());
    for (n, name) in ["flow", "flowlet", "packet", "marks"].iter().enumerate() {
        say(
            &format!("mpeh_offer.{name}"),
            (offer[5] >> n & 1).to_string(),
        );
    }
    say("mpeh_offer.mtu", (offer[5] >> 4).to_string());
    let words = [
        "paths",
        "reorder_packets",
        "reorder_us",
        "reorder_buffer",
        "flowlet_us",
    ];
    for (name, word) in words.iter().zip(offer[6..16].chunks_exact(2)) {
        let value = u16::from_be_bytes([word[0], word[1]]);
        say(&format!("mpeh_offer.{name}"), value.to_string());
    }
    say("mpeh_offer.cookie", hex.concat());
    say("mpeh_offer.blocks", (offer[22] & 0x3f).to_string());
    say("mpeh_offer.service", (offer[22] >> 6).to_string());
    say("mpeh_offer.data_length", offer[23].to_string());
    let between = &private[usize::from(offer[23])..private.len() - 24];
    let told = between.last_chunk::<8>().filter(|it| it[..2] == *b"TP");
    for (n, name) in ["compact", "expanded", "int"].iter().enumerate() {
        let word = told.map(|it| u16::from_be_bytes([it[2 * n + 2], it[2 * n + 3]]));
        let word = word.map(|word| word.to_string());
        say(&format!("mpeh_offer.{name}_tpid"), word.unwrap_or_default());
    }
}

/// A number in either base, or the text.
fn normal(value: &str) -> String {
    let one = |value: &str| {
        let number = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => None,
        };
        match (number, value) {
            (Some(number), _) => number.to_string(),
            (None, "True") => "1".to_owned(),
            (None, "False") => "0".to_owned(),
            (None, text) => text.replace(':', ""),
        }
    };
    value.split('|').map(one).collect::<Vec<_>>().join("|")
}

/// A capture file with one frame a microsecond.
pub(crate) fn capture(path: &Path, frames: &[Vec<u8>]) {
    const HEADER: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, 1];
    let mut file: Vec<u8> = HEADER.iter().flat_map(|it| it.to_le_bytes()).collect();
    for (at, frame) in (0_u32..).zip(frames) {
        let len = u32::try_from(frame.len()).expect("a frame is short");
        let words = [at / 1_000_000, at % 1_000_000, len, len];
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        file.extend_from_slice(frame);
    }
    std::fs::write(path, file).expect("a temporary file");
}

/// What the script shows of frames, a line each: fields whose names begin with `mpeh.`.
pub(crate) fn shown(frames: &[Vec<u8>], fields: &[&str]) -> Vec<Vec<String>> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("answers.pcap");
    capture(&file, frames);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/mpeh.lua");
    let mut tshark = Command::new("tshark");
    tshark
        .args(["-n", "-T", "fields", "-E", "separator=/t", "-r"])
        .arg(&file);
    tshark.args(["-X", &format!("lua_script:{script}")]);
    for name in fields {
        tshark.args(["-e", &format!("mpeh.{name}")]);
    }
    let output = tshark.env("HOME", directory.path()).output();
    let output = output.unwrap_or_else(|error| panic!("tshark: {error}; run `make setup`"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {complaint}");
    let text = String::from_utf8(output.stdout).expect("text");
    let columns = |line: &str| line.split('\t').map(str::to_owned).collect();
    text.lines().map(columns).collect()
}

/// HT-11, HT-20, HT-42: Wireshark with the script that is shipped reads every field of every packet
/// of a connection as the engine does: MPEH, extension, the headers of each operation, bitmaps,
/// marks, trimmed packets, and the offers of both sides. It finds fault with none.
#[test]
fn wireshark_reads_a_whole_connection() {
    let frames = recording();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("connection.pcap");
    capture(&file, &frames);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/mpeh.lua");
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=/t"]);
    tshark.args(["-E", "aggregator=|", "-r"]).arg(&file);
    tshark.args(["-X", &format!("lua_script:{script}")]);
    // It takes the payload of any SEND for NFS.
    tshark.args(["--disable-protocol", "rpcordma"]);
    for name in ["_ws.malformed", "mpeh.wrong", "mpeh_offer.absurd"]
        .iter()
        .chain(FIELDS)
    {
        tshark.args(["-e", name]);
    }
    let output = tshark.env("HOME", directory.path()).output();
    let output = output.unwrap_or_else(|error| panic!("tshark: {error}; run `make setup`"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {complaint}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), frames.len(), "frames that tshark found");
    let mut seen = vec![0; FIELDS.len()];
    let mut wrong = Vec::new();
    for (line, frame) in lines.iter().zip(&frames) {
        let columns: Vec<String> = line.split('\t').map(normal).collect();
        let (faults, values) = columns.split_at(3);
        if faults.iter().any(|it| !it.is_empty()) {
            wrong.push(format!("opcode {:#x}: {faults:?}", frame[BTH]));
        }
        for (n, said) in expected(frame).iter().enumerate() {
            seen[n] += u32::from(!said.is_empty());
            if values[n] != *said {
                let name = FIELDS[n];
                wrong.push(format!("{name} is {:?}, not {said:?}", values[n]));
            }
        }
    }
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // No application sends with invalidate here, and there is no crowd.
    let absent = ["mpeh.invalidate", "mpeh.marks.crowd.count"];
    for (name, count) in FIELDS.iter().zip(seen) {
        assert_eq!(count == 0, absent.contains(name), "{name}: {count} times");
    }
}
