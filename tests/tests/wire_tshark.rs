//! What the daemons send, as Wireshark reads it: no frame malformed, every field where its
//! dissectors look for it.

use std::collections::BTreeSet;
use std::process::Command;

use common::time::Span;
use common::wire::Mac;
use common::wire::csig::{Form, Tag, Tpids};
use common::wire::int::{self, Hop, Scaled};
use common::wire::schedule::{Announcement, PauseTerms, Role, Spread};
use fabric_tests::wire::{
    ROCE_V4_AT, SAMPLE_COOKIE, Sample, compute_samples, samples, write_cut_pcap,
};

/// Dissection of one frame: what it complains about, and the fields that were asked for.
struct Dissected {
    severities: Vec<u32>,
    messages: String,
    malformed: bool,
    values: Vec<String>,
}

/// Wireshark's severity "warning" (`PI_WARN`); errors are above it, notes below.
const WARNING: u32 = 0x0060_0000;

/// Dissects `samples`, with `names` as the fields to show; with a Lua script besides, if one is
/// given.
fn dissect(samples: &[Sample], names: &[&str], script: Option<&str>) -> Vec<Dissected> {
    dissect_cut(samples, names, script, usize::MAX)
}

/// The same of a capture that kept no more than so many bytes of each frame.
fn dissect_cut(
    samples: &[Sample],
    names: &[&str],
    script: Option<&str>,
    most: usize,
) -> Vec<Dissected> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let capture = directory.path().join("samples.pcap");
    let frames = samples.iter().map(|sample| &sample.bytes[..]);
    write_cut_pcap(&capture, frames, most).expect("the capture is written");

    let mut tshark = Command::new("tshark");
    tshark.args([
        "-n",
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "aggregator=|",
        "-r",
    ]);
    tshark.arg(&capture);
    if let Some(script) = script {
        tshark.args(["-X", &format!("lua_script:{script}")]);
    }
    // It would take the payload of any SEND for NFS.
    tshark.args(["--disable-protocol", "rpcordma"]);
    // RoCEv2 has no UDP checksum over IPv6 either, where Wireshark wants one by default: its ICRC
    // covers more (InfiniBand architecture annex A17, RFC 6936 §3).
    let checks = [
        "ip.check_checksum",
        "udp.check_checksum",
        "udp.ignore_ipv6_zero_checksum",
    ];
    checks.iter().for_each(|check| {
        tshark.args(["-o", &format!("{check}:TRUE")]);
    });
    for field in ["_ws.expert.severity", "_ws.expert.message", "_ws.malformed"] {
        tshark.args(["-e", field]);
    }
    names.iter().for_each(|name| {
        tshark.args(["-e", name]);
    });
    let output = tshark.env("HOME", directory.path()).output();
    let output = output.unwrap_or_else(|error| panic!("tshark: {error}; run `make setup`"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {complaint}");
    String::from_utf8(output.stdout)
        .expect("text")
        .lines()
        .map(dissected)
        .collect()
}

fn dissected(line: &str) -> Dissected {
    let mut columns = line.split('\t').map(str::to_owned);
    let mut next = || columns.next().expect("a column for each field");
    let (severities, messages, malformed) = (next(), next(), next());
    Dissected {
        severities: severities
            .split(',')
            .filter_map(|text| text.parse().ok())
            .collect(),
        messages,
        malformed: !malformed.is_empty(),
        // An ICMP error quotes a packet: the outer headers come first.
        values: columns
            .map(|all| all.split('|').next().unwrap_or_default().to_owned())
            .collect(),
    }
}

/// A number in either base, or the text.
fn normal(value: &str) -> String {
    let number = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    };
    number.map_or_else(
        || value.replace(':', "").to_lowercase(),
        |number| number.to_string(),
    )
}

/// HT-10, HT-11, HT-12, SW-30, SW-31: every kind of frame is what an independent dissector takes it
/// for, field by field.
#[test]
fn wireshark_reads_what_we_send() {
    let samples = samples();
    let names: BTreeSet<&str> = samples
        .iter()
        .flat_map(|sample| sample.fields.iter().map(|(name, _)| *name))
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    let found = dissect(&samples, &names, None);
    assert_eq!(found.len(), samples.len(), "frames that Wireshark found");

    let mut wrong = Vec::new();
    for (sample, found) in samples.iter().zip(&found) {
        let grave = found.severities.iter().any(|severity| *severity >= WARNING);
        if found.malformed || grave {
            wrong.push(format!("{}: {}", sample.name, found.messages));
        }
        for (name, expected) in &sample.fields {
            let at = names.binary_search(name).expect("asked for");
            let value = &found.values[at];
            if normal(value) != normal(expected) {
                wrong.push(format!(
                    "{}: {name} is {value:?}, not {expected:?}",
                    sample.name
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "Wireshark disagrees:\n  {}",
        wrong.join("\n  ")
    );
}

/// HT-11, HT-46: Wireshark with `etc/wireshark/mpeh.lua` shows the MPEH, its Scheduling Tag and its
/// extension field by field, of packets that have one and of no others, and finds fault with what
/// is not as it should be.
#[test]
fn the_script_for_wireshark_shows_the_mpeh() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/mpeh.lua");
    let names = [
        "mpeh.opcode",
        "mpeh.path",
        "mpeh.flags",
        "mpeh.flowlet",
        "mpeh.tag",
        "mpeh.ext.length",
        "mpeh.ext.blocks",
        "mpeh.ext.cookie",
        "mpeh.sack.trigger",
        "mpeh.tag.clock",
        "mpeh.tag.movable",
        "mpeh.tag.priority",
        "mpeh.tag.pattern",
        "mpeh.tag.blocks",
        "mpeh.tag.delay",
    ];
    let mut samples = samples();
    samples.retain(|sample| !sample.name.contains("about"));
    let found = dissect(&samples, &names, Some(script));
    assert_eq!(found.len(), samples.len(), "frames that Wireshark found");
    let mut seen = 0;
    for (sample, found) in samples.iter().zip(&found) {
        let values: Vec<String> = found.values.iter().map(|value| normal(value)).collect();
        if !sample.name.starts_with("Multipath") {
            let none = values.iter().all(String::is_empty);
            assert!(none, "{}: {values:?}", sample.name);
            continue;
        }
        assert!(!found.malformed, "{}: {}", sample.name, found.messages);
        if sample.name.starts_with("Multipath change") {
            continue;
        }
        seen += 1;
        let cookie = format!("{:012x}", SAMPLE_COOKIE.bits());
        let expected = ["3", "1", "1029", "1543", "2", "0", &cookie];
        assert_eq!(values[1..8], expected, "{}", sample.name);
        let acknowledges = sample.name.contains("(Acknowledge)");
        let tag = if acknowledges {
            ["", "", "", "", "", "1543"]
        } else {
            ["12", "0", "0", "1", "3", ""]
        };
        assert_eq!(values[9..], tag, "{}", sample.name);
        let trigger = if acknowledges { "9991768" } else { "" };
        assert_eq!(values[8], trigger, "{}", sample.name);
    }
    assert_eq!(seen, 46, "every operation over both versions of IP");

    let mut wrong = samples
        .iter()
        .find(|sample| sample.name == "Multipath(SendOnly) v4")
        .expect("a sample")
        .clone();
    wrong.bytes[ROCE_V4_AT + 20] = 1;
    let found = dissect(&[wrong], &names, Some(script));
    assert!(
        found[0].messages.contains("wrong length"),
        "{}",
        found[0].messages
    );
}

/// HT-11, HT-22: Wireshark with `etc/wireshark/mpeh.lua` shows each kind of block 0 field by field.
#[test]
fn the_script_for_wireshark_shows_changes() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/mpeh.lua");
    let names = [
        "mpeh.ext.length",
        "mpeh.ext.blocks",
        "mpeh.change.kind",
        "mpeh.change.serial",
        "mpeh.change.fields",
        "mpeh.change.made",
        "mpeh.change.granularity",
        "mpeh.change.packets",
        "mpeh.change.time",
        "mpeh.change.timeout",
        "mpeh.change.outcome",
        "mpeh.change.path",
        "mpeh.change.paths",
        "mpeh.ext.unknown",
    ];
    let mut samples = samples();
    samples.retain(|sample| sample.name.starts_with("Multipath change"));
    let paths = format!("ff01{}", "0".repeat(60));
    let expected = [
        vec![
            "14", "1", "1", "258", "31", "772", "1", "1286", "1800", "2314", "", "", &paths, "",
        ],
        vec![
            "14", "1", "2", "258", "", "", "", "", "", "", "1", "", "", "",
        ],
        vec![
            "14", "1", "3", "5", "", "", "", "", "", "", "", "23", "", "",
        ],
        vec![
            "14", "1", "4", "5", "", "", "", "", "", "", "", "23", "", "",
        ],
    ];
    let found = dissect(&samples, &names, Some(script));
    assert_eq!(found.len(), expected.len());
    for ((sample, found), expected) in samples.iter().zip(&found).zip(expected) {
        assert!(!found.malformed, "{}: {}", sample.name, found.messages);
        let values: Vec<String> = found.values.iter().map(|value| normal(value)).collect();
        assert_eq!(values, expected, "{}", sample.name);
    }
}

/// CS-1: Wireshark with `etc/wireshark/csig.lua` shows both forms of the tag field by field, also
/// behind a VLAN tag, and then the packet; it finds fault with what is no tag.
#[test]
fn the_script_for_wireshark_shows_congestion_signals() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/csig.lua");
    let names = [
        "csig.form",
        "csig.signal",
        "csig.value",
        "csig.locator",
        "csig.final",
        "csig.reserved",
        "udp.dstport",
    ];
    let tag = |form, kind, is_final| {
        let fields = Tag {
            kind,
            value: form_value(form),
            locator: 0x43,
            is_final,
            reserved: if form == Form::Expanded { 5 } else { 0 },
        };
        let mut tag = vec![0; form.len()];
        tag[..2].copy_from_slice(&Tpids::default().of(form).to_be_bytes());
        fields.write(form, &mut tag).expect("it is that long");
        tag
    };
    let plain = samples().swap_remove(0);
    let with = |at: usize, tags: &[u8]| {
        let mut sample = plain.clone();
        sample.bytes.splice(at..at, tags.iter().copied());
        sample
    };
    let compact = tag(Form::Compact, 2, false);
    let expanded = [&[0x81, 0, 0, 5][..], &tag(Form::Expanded, 1, true)].concat();
    let reserved = tag(Form::Compact, 5, false);
    let twice = compact.repeat(2);
    let mut telemetry = vec![0; int::LEN];
    int::clear(int::TPID, &mut telemetry).expect("room");
    let both = [&compact[..], &telemetry].concat();
    let all = [&compact, &expanded, &reserved, &twice, &both].map(|tags| with(12, tags));
    let found = dissect(&all, &names, Some(script));
    let values = |at: usize| -> Vec<String> {
        let values = found[at].values.iter();
        values.map(|value| normal(value)).collect()
    };
    assert_eq!(values(0), ["compact", "2", "22", "67", "0", "", "4791"]);
    assert_eq!(
        values(1),
        ["expanded", "1", "703710", "67", "1", "5", "4791"]
    );
    for (at, complaint) in [(2, "reserved"), (3, "Another tag"), (4, "Another tag")] {
        let messages = &found[at].messages;
        assert!(messages.contains(complaint), "{messages}");
    }
    assert!(found[..2].iter().all(|it| !it.malformed));
}

/// SW-52: Wireshark with `etc/wireshark/int.lua` shows telemetry hop by hop, also behind a VLAN
/// tag, and then the packet; it finds fault with counts that lie and with another tag behind it.
#[test]
fn the_script_for_wireshark_shows_telemetry() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/int.lua");
    let names = [
        "int.version",
        "int.full",
        "int.hops",
        "int.sent",
        "int.time",
        "int.queue",
        "int.speed",
        "udp.dstport",
    ];
    let tag = |hops: u32| {
        let mut tag = vec![0; int::LEN];
        int::clear(int::TPID, &mut tag).expect("room");
        for hop in 0..hops {
            let hop = Hop {
                sent: 1_000 + hop,
                at: 2_000 + hop,
                queue: Scaled::of(3_000),
                speed: Scaled::of(100_000_000),
            };
            int::add(&mut tag, &hop).expect("whole");
        }
        tag
    };
    let plain = samples().swap_remove(0);
    let with = |tags: &[u8]| {
        let mut sample = plain.clone();
        sample.bytes.splice(12..12, tags.iter().copied());
        sample
    };
    let full = [&[0x81, 0, 0, 5][..], &tag(6)].concat();
    let mut lying = tag(1);
    lying[3] = 9;
    let all = [&tag(2), &full, &lying, &tag(1).repeat(2)].map(|tags| with(tags));
    let found = dissect(&all, &names, Some(script));
    let values = |at: usize| -> Vec<String> {
        let values = found[at].values.iter();
        values.map(|value| normal(value)).collect()
    };
    let two = ["0", "0", "2", "1000", "2000", "3000", "99942400", "4791"];
    assert_eq!(values(0), two);
    assert_eq!(values(1)[1..3], ["1", "5"]);
    assert_eq!(values(1)[7], "4791");
    for (at, complaint) in [(2, "more hops than"), (3, "Another tag")] {
        let messages = &found[at].messages;
        assert!(messages.contains(complaint), "{messages}");
    }
    assert!(found[..2].iter().all(|it| !it.malformed));
}

/// MG-9, SW-12: Wireshark with `etc/wireshark/schedule.lua` shows what both ends of a link say of
/// themselves, field by field, and finds fault with what makes no sense; what others say by the
/// EtherType is none of it.
#[test]
fn the_script_for_wireshark_shows_announcements() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/schedule.lua");
    let names = [
        "fsa.role",
        "fsa.spread",
        "fsa.seconds",
        "fsa.name",
        "fsa.pause.response",
        "fsa.pause.backlog",
        "fsa.asks",
        "fsa.field.value",
    ];
    let short = Announcement {
        role: Role::Host,
        spread: Spread::Packets,
        seconds: 4,
        pauses: None,
        asks: false,
        name: "host7",
    };
    let pauses = PauseTerms {
        response: Some(Span::from_micros(100)),
        backlog: 131_072,
    };
    let long = Announcement {
        role: Role::Switch,
        spread: Spread::Flowlets,
        pauses: Some(pauses),
        asks: true,
        name: "leaf1",
        ..short
    };
    let own = Mac([2, 0, 0, 0, 0, 1]);
    let said = |announcement: &Announcement<'_>| announcement.frame(own);
    let changed = |at: usize, byte: u8| {
        let mut bytes = said(&long);
        bytes[14 + at] = byte;
        bytes
    };
    // A field of a later version stands where the pause was.
    let later = [changed(14, 9), vec![0; 4]].concat();
    let wrong = [
        (changed(3, b'2'), "An unknown version"),
        (changed(4, 2), "An unknown role"),
        (changed(5, 4), "An unknown way"),
        (changed(8, 64), "too long or cut"),
        (changed(15, 255), "A field is cut"),
        (changed(15, 7), "A field is cut"),
        (said(&long)[..20].to_vec(), "is cut"),
    ];
    let mut frames = vec![said(&short), said(&long), later, changed(0, b'x')];
    frames.extend(wrong.iter().map(|(frame, _)| frame.clone()));
    let all: Vec<Sample> = frames
        .into_iter()
        .map(|bytes| Sample {
            bytes,
            ..samples().swap_remove(0)
        })
        .collect();
    let found = dissect(&all, &names, Some(script));
    let values = |at: usize| -> Vec<String> {
        let values = found[at].values.iter();
        values.map(|value| normal(value)).collect()
    };
    assert_eq!(values(0), ["0", "3", "4", "host7", "", "", "", ""]);
    let told = ["1", "2", "4", "leaf1", "100000", "131072", "1", ""];
    assert_eq!(values(1), told);
    let bytes = "000186a000020000";
    assert_eq!(values(2), ["1", "2", "4", "leaf1", "", "", "1", bytes]);
    assert!(values(3).iter().all(String::is_empty), "{:?}", values(3));
    for (at, (_, complaint)) in wrong.iter().enumerate() {
        let messages = &found[4 + at].messages;
        assert!(messages.contains(complaint), "{at}: {messages}");
    }
    assert!(found[..3].iter().all(|it| it.messages.is_empty()));
}

/// SW-40: Wireshark with `etc/wireshark/compute.lua` shows messages of every kind field by field,
/// and finds fault with what is none.
#[test]
fn the_script_for_wireshark_shows_compute() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/compute.lua");
    let names = [
        "inc.kind",
        "inc.collective",
        "inc.operation",
        "inc.element",
        "inc.slot",
        "inc.slot_version",
        "inc.sequence",
        "inc.contributions",
        "inc.length",
        "inc.job",
        "inc.epoch",
        "inc.rank",
        "inc.reason",
        "inc.world",
        "inc.generation",
        "inc.slots",
        "inc.above.trees",
        "inc.lease",
        "inc.complete",
        "inc.above.first",
        "inc.root",
        "inc.last",
        "inc.shared",
    ];
    let all = compute_samples();
    let found = dissect(&all, &names, Some(script));
    assert_eq!(found.len(), all.len());
    let values = |name: &str| -> Vec<String> {
        let at = all.iter().position(|it| it.name == name);
        let found = &found[at.expect("a sample")];
        assert!(!found.malformed, "{name}: {}", found.messages);
        found.values.iter().map(|value| normal(value)).collect()
    };
    let of = ["16909060", "1286", "2"];
    for version in ["v4", "v6"] {
        let chunk = |name: &str| values(&format!("{name} {version}"));
        let sum = ["1", "0", "1", "7", "6", "1", "70", "4", "4"];
        assert_eq!(chunk("contribution")[..9], sum);
        let max = ["2", "1", "4", "2", "6", "1", "70", "4", "16"];
        assert_eq!(chunk("result")[..9], max);
        assert_eq!(chunk("result")[18..], ["60", "", "0", "", ""]);
        assert_eq!(chunk("contribution")[18..], ["", "", "0", "0", "1"]);
        let broadcast = ["1", "2", "", "", "6", "1", "70", "4", "5"];
        assert_eq!(chunk("broadcast")[..9], broadcast);
        assert_eq!(chunk("broadcast")[20..], ["1", "1", "0"]);
        assert_eq!(chunk("barrier")[..3], ["2", "3", ""]);
        for (name, kind) in [("error", "3"), ("refuse", "6"), ("leave", "9")] {
            let values = chunk(name);
            assert_eq!(values[0], kind);
            assert_eq!(values[9..12], of);
            let rest = ["1", "9", "3", "", "", "", "", ""];
            assert_eq!(values[12..20], rest, "{name}");
        }
        assert_eq!(chunk("join")[13..20], ["9", "3", "128", "4", "", "", "3"]);
        assert_eq!(chunk("admit")[14..20], ["3", "64", "", "2000", "", ""]);
        for (name, kind) in [("keepalive", "7"), ("alive", "8"), ("left", "10")] {
            assert_eq!(chunk(name)[0], kind);
        }
    }
    let payload = 14 + 20 + 8;
    let faults = [
        (0, 0x21, "version"),
        (0, 0x1b, "kind"),
        (33, 5, "length"),
        (2, 5, "No such"),
        (1, 0x40, "flag"),
        (2, 0x11, "Shared"),
    ];
    for (at, value, complaint) in faults {
        let mut wrong = all[0].clone();
        wrong.bytes[payload + at] = value;
        let found = dissect(&[wrong], &names, Some(script));
        assert!(
            found[0].messages.contains(complaint),
            "{}",
            found[0].messages
        );
    }
}

/// SW-42: the script finds fault with a message that must have the checksum of UDP and has none.
#[test]
fn the_script_for_wireshark_misses_checksums() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/compute.lua");
    let mut all = compute_samples();
    all.retain(|it| it.name == "join v4" || it.name == "join v6");
    for (transport, sample) in [34, 54].into_iter().zip(&mut all) {
        sample.bytes[transport + 6..transport + 8].fill(0);
    }
    let found = dissect(&all, &["inc.kind"], Some(script));
    assert_eq!(found.len(), 2);
    for found in found {
        let messages = found.messages;
        assert!(messages.contains("Without the checksum"), "{messages}");
    }
}

/// SW-40: what a capture did not keep of a message is no fault of the message.
#[test]
fn the_script_for_wireshark_knows_cut_captures() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../etc/wireshark/compute.lua");
    let mut all = compute_samples();
    all.retain(|it| it.name.ends_with("v4"));
    for (most, kind) in [(14 + 20 + 8 + 49, true), (14 + 20 + 8 + 20, false)] {
        let found = dissect_cut(&all, &["inc.kind"], Some(script), most);
        assert_eq!(found.len(), all.len());
        for (sample, found) in all.iter().zip(found) {
            let messages = found.messages;
            let is_whole = sample.bytes.len() <= most;
            assert!(
                !messages.contains("length") && !messages.contains("cut"),
                "{messages}"
            );
            let is_shown = !found.values[0].is_empty();
            assert_eq!(is_shown, kind || is_whole, "{}, {most} bytes", sample.name);
        }
    }
}

fn form_value(form: Form) -> u32 {
    match form {
        Form::Compact => 22,
        Form::Expanded => 0xa_bcde,
    }
}
