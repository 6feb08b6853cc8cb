//! The file of traced packets, as Wireshark reads it: when, where and which way each frame went,
//! and why it was dropped.

use std::path::Path;
use std::process::Command;

use common::time::{Span, Time};
use fabric_tests::wire::sample;
use switchd::control::pcap;
use switchd::drop::DropReason;
use switchd::id::{GroupId, NextHopId, PortId};
use switchd::ingress::parse::parse;
use switchd::tables::PortEntry;
use switchd::tables::validation::SourceValidation;
use switchd::trace::{self, Arrival, Filter, How, Names, Step, Trace, Tracer};

const PORTS: [&str; 3] = ["swp1", "swp2", "swp3"];

/// 2026-01-01 00:00:00 UTC, when the switch's clock began.
const EPOCH: Span = Span::from_secs(1_767_225_600);

fn entry(name: &str) -> PortEntry {
    PortEntry {
        name: name.to_owned(),
        ifindex: 1,
        mac: [2; 6],
        up: true,
        mtu: 1500,
        speed: None,
        link: None,
        icmp_v4: None,
        icmp_v6: None,
        mtu_v6: u16::MAX,
        burst: 0,
        validation: SourceValidation::Off,
        csig: None,
        int: None,
    }
}

/// Receives a packet at the first port, gives it a route to the third, and says what became of it.
fn pass(tracer: &mut Tracer, nanos: u64, frame: &[u8], dropped: Option<DropReason>) {
    let arrival = Arrival {
        port: PortId(0),
        priority: None,
    };
    let own = *frame.first_chunk().expect("a frame");
    let parsed = parse(frame, own).expect("a good frame");
    let now = Time::from_nanos(nanos);
    let id = tracer.begin(now, arrival, frame, Some(&parsed));
    let (next_hop, egress) = (NextHopId(0), PortId(2));
    let route = Step::Route {
        group: GroupId(1),
        next_hop,
        egress,
        how: How::Ecmp,
    };
    tracer.step(now, id, route);
    let later = now + Span::from_nanos(1_001);
    match dropped {
        Some(reason) => tracer.dropped(
            later,
            id,
            arrival,
            Some(egress),
            reason,
            frame,
            Some(&parsed),
        ),
        None => {
            let mut sent = frame.to_vec();
            sent[..6].copy_from_slice(&[2, 0, 0, 0, 9, 9]);
            tracer.sent(later, id, egress, &sent);
        }
    }
}

fn traces() -> Vec<Trace> {
    let filter = Filter::parse("in=swp1", &PORTS).expect("a good filter");
    let (mut tracers, collector) = trace::session(1, filter, 1);
    let tracer = &mut *tracers[0];
    let (short, long) = (sample("Cnp v4").bytes, sample("Cnp v6").bytes);
    let long = [&long[..], &[0; 100]].concat();
    pass(tracer, 123_456_789, &short, None);
    // Received before the first is sent, so the file has them between one another.
    pass(tracer, 123_456_790, &long, Some(DropReason::QueueFull));
    tracer.flush();
    collector.finish().0
}

/// The fields of each frame, in the order of the file.
fn dissect(capture: &Path, home: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=/t", "-r"]);
    tshark.arg(capture);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.env("HOME", home).output();
    let output = output.unwrap_or_else(|error| panic!("tshark: {error}; run `make setup`"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {complaint}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// SW-51, MG-7: Wireshark shows each frame with its port, direction and time, and why it was
/// dropped.
#[test]
fn wireshark_shows_why_a_packet_was_dropped() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let capture = directory.path().join("trace.pcapng");
    let ports = PORTS.map(entry);
    let names = Names {
        ports: &ports,
        next_hops: &[],
    };
    let mut file = Vec::new();
    pcap::write(&mut file, &names, EPOCH, &traces()).expect("a vector takes everything");
    std::fs::write(&capture, &file).expect("the capture is written");

    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.len",
        "frame.cap_len",
        "eth.dst",
        "infiniband.bth.opcode",
        "frame.comment",
    ];
    let frames = dissect(&capture, directory.path(), &fields);
    let start: Vec<&[String]> = frames.iter().map(|frame| &frame[..7]).collect();
    let cnp = sample("Cnp v4").bytes.len().to_string();
    let long = sample("Cnp v6").bytes.len() + 100;
    let expected = [
        [
            "1767225600.123456789",
            "swp1",
            "0x00000001",
            &cnp,
            &cnp,
            "02:00:00:00:00:02",
            "129",
        ],
        [
            "1767225600.123456790",
            "swp1",
            "0x00000001",
            &long.to_string(),
            "128",
            "02:00:00:00:00:02",
            "129",
        ],
        [
            "1767225600.123457790",
            "swp3",
            "0x00000002",
            &cnp,
            &cnp,
            "02:00:00:00:09:09",
            "129",
        ],
    ];
    assert_eq!(start, expected);
    let comments: Vec<&String> = frames.iter().map(|frame| &frame[7]).collect();
    assert!(comments[0].contains("sent by swp3"), "{}", comments[0]);
    for part in [
        "dropped: queue_full: The egress queue has reached its threshold.",
        "group 1, next hop 0, port swp3, how ecmp",
        "+1001 ns",
    ] {
        assert!(comments[1].contains(part), "{}", comments[1]);
    }
    assert!(comments[2].contains("sent by swp3"), "{}", comments[2]);
    assert!(!comments[2].contains("ecmp"), "{}", comments[2]);
}

/// A packet of a port that has no name cannot be written, and no file lies about it.
#[test]
fn a_port_without_a_name_is_refused() {
    let ports = [entry("swp1")];
    let names = Names {
        ports: &ports,
        next_hops: &[],
    };
    let error = pcap::write(&mut Vec::new(), &names, EPOCH, &traces()).expect_err("no swp3");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
