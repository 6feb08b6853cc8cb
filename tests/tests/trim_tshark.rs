//! Trimmed packets as Wireshark reads them: the IP header is right to the byte, and the transport's
//! headers are those of the packet that was sent.

use std::collections::BTreeMap;
use std::process::Command;

use common::wire::ethernet::{self, ethertype};
use common::wire::ip::{v4, v6};
use common::wire::roce::frame;
use common::wire::roce::{Bth, DataFlags, Headers, Mpeh, Opcode, Operation, Reth};
use common::wire::vlan;
use common::xdp::frame::{FramePool, Region};
use fabric_tests::wire::{flow, insert_tags, write_pcap};
use switchd::tables::trim::{SIZE_DEFAULT, TrimPolicy};
use switchd::traffic::trim::trim;

/// The DSCP of the samples' flow, and what it becomes.
const TRIMMABLE: u8 = 26;
const TRIMMED: u8 = 41;

/// Bytes of payload before the cut.
const PAYLOAD: usize = 1024;

/// Fields of the headers and the frame that trimming changes.
const CHANGED: [&str; 6] = [
    "frame.len",
    "ip.len",
    "ipv6.plen",
    "ip.dsfield.dscp",
    "ipv6.tclass.dscp",
    "udp.length",
];

/// Fields that it leaves alone. Wireshark 4.0 has no name for opcodes with an MPEH and shows the
/// four bytes that follow the BTH as `infiniband.vendor`: path, flags and flowlet of the MPEH.
const KEPT: [&str; 28] = [
    "eth.src",
    "eth.dst",
    "vlan.id",
    "ip.version",
    "ip.hdr_len",
    "ip.src",
    "ip.dst",
    "ip.ttl",
    "ip.dsfield.ecn",
    "ip.checksum.status",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hlim",
    "ipv6.flow",
    "ipv6.tclass.ecn",
    "udp.srcport",
    "udp.dstport",
    "udp.checksum",
    "infiniband.bth.opcode",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.vendor",
];

/// Wireshark's status of a checksum that is right.
const GOOD: &str = "1";

/// All that Wireshark has to say against a packet.
const REMARKS: &str = "_ws.expert.message";

/// One kind of frame.
#[derive(Clone, Copy, Debug)]
struct Kind {
    is_v6: bool,
    is_multipath: bool,
    is_tagged: bool,
}

impl Kind {
    fn all() -> impl Iterator<Item = Self> {
        (0..8).map(|n| Self {
            is_v6: n & 1 != 0,
            is_multipath: n & 2 != 0,
            is_tagged: n & 4 != 0,
        })
    }

    /// Where the IP header begins.
    fn network(self) -> usize {
        ethernet::HEADER_LEN + if self.is_tagged { vlan::TAG_LEN } else { 0 }
    }

    /// A sealed WRITE ONLY as a host sends it.
    fn frame(self) -> Vec<u8> {
        let opcode = if self.is_multipath {
            Opcode::Multipath(Operation::WriteOnly)
        } else {
            Opcode::Rc(Operation::WriteOnly)
        };
        let mut headers = Headers::new(Bth::new(opcode, 0x01_2345, 0x98_7654));
        headers.bth.ack_request = true;
        headers.mpeh = self.is_multipath.then_some(Mpeh {
            path: 3,
            flags: DataFlags::FLOWLET_BOUNDARY,
            flowlet: 0x0405,
            tag: 0x0607,
        });
        headers.reth = Some(Reth {
            address: 0x1112_1314_1516_1718,
            rkey: 0x2122_2324,
            len: 1024,
        });
        let flow = flow(self.is_v6);
        let mut bytes = vec![0; frame::layout(flow.addresses, &headers, PAYLOAD).len];
        let place = frame::emit(&mut bytes, &flow, &headers, PAYLOAD);
        bytes[place].fill(0x5a);
        frame::seal(&mut bytes).expect("a frame just written");
        if self.is_tagged {
            bytes = insert_tags(&bytes, &[(ethertype::VLAN, 0x6064)]);
        }
        bytes
    }
}

fn policy() -> TrimPolicy {
    let mut policy = TrimPolicy {
        trimmable: 1 << TRIMMABLE,
        ..TrimPolicy::default()
    };
    policy.trimmed_of[usize::from(TRIMMABLE)] = TRIMMED;
    policy.check().expect("a policy that makes sense");
    policy
}

/// The frame after a switch has trimmed it.
fn trimmed(bytes: &[u8], network: usize) -> Vec<u8> {
    let mut pool = FramePool::new(Region::heap(1, 2048, 0));
    let mut frame = pool.take_filled(bytes).expect("a free frame");
    let network = u16::try_from(network).expect("short");
    let what = trim(&mut frame, network, &policy()).expect("a trimmable packet");
    assert!(what.shortened && what.dscp == TRIMMED);
    let bytes = frame.bytes().to_vec();
    pool.give(frame);
    bytes
}

/// What Wireshark finds in a frame, by the names of fields. Some stand there several times: all of
/// them, the first one first; empty where there is none.
struct Found(BTreeMap<&'static str, String>);

impl Found {
    fn all(&self, name: &str) -> &str {
        &self.0[name]
    }

    fn first(&self, name: &str) -> &str {
        self.0[name].split('|').next().unwrap_or_default()
    }
}

fn dissect(frames: &[Vec<u8>]) -> Vec<Found> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let capture = directory.path().join("trimmed.pcap");
    write_pcap(&capture, frames.iter().map(Vec::as_slice)).expect("the capture is written");
    let names = || CHANGED.into_iter().chain(KEPT).chain([REMARKS]);
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=/t"]);
    tshark.args(["-E", "aggregator=|", "-r"]).arg(&capture);
    // RoCEv2 has no UDP checksum, over IPv6 neither (InfiniBand architecture annex A17).
    for check in ["ip.check_checksum", "udp.ignore_ipv6_zero_checksum"] {
        tshark.args(["-o", &format!("{check}:TRUE")]);
    }
    names().for_each(|name| {
        tshark.args(["-e", name]);
    });
    let output = tshark.env("HOME", directory.path()).output();
    let output = output.unwrap_or_else(|error| panic!("tshark: {error}; run `make setup`"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {complaint}");
    let text = String::from_utf8(output.stdout).expect("text");
    let found = |line: &str| Found(names().zip(line.split('\t').map(str::to_owned)).collect());
    let all: Vec<Found> = text.lines().map(found).collect();
    assert_eq!(all.len(), frames.len(), "frames that Wireshark found");
    all
}

/// What trimming changes must be what it makes of a packet of this kind.
fn assert_changed(kind: Kind, found: &Found) {
    let size = usize::from(SIZE_DEFAULT);
    let ip_len = size - kind.network();
    let (len, dscp) = (ip_len.to_string(), TRIMMED.to_string());
    let (expected, checksum) = if kind.is_v6 {
        let len = (ip_len - v6::HEADER_LEN).to_string();
        (["", &len, "", &dscp, &len].map(str::to_owned), "")
    } else {
        let datagram = (ip_len - v4::HEADER_LEN).to_string();
        ([&len, "", &dscp, "", &datagram].map(str::to_owned), GOOD)
    };
    assert_eq!(found.first(CHANGED[0]), size.to_string());
    let changed: Vec<&str> = CHANGED[1..].iter().map(|name| found.first(name)).collect();
    assert_eq!(changed, expected, "{kind:?}: {:?}", &CHANGED[1..]);
    assert_eq!(found.first("ip.checksum.status"), checksum, "{kind:?}");
}

/// SW-23: Wireshark finds the lengths, the DSCP and a good header checksum of the trimmed packet,
/// and everything else as it was sent: addresses, ECN, BTH, and RETH or MPEH. It has nothing to say
/// against the packet.
#[test]
fn wireshark_reads_what_was_trimmed() {
    let kinds: Vec<Kind> = Kind::all().collect();
    let whole: Vec<_> = kinds.iter().map(|kind| kind.frame()).collect();
    let cut = kinds.iter().zip(&whole);
    let cut: Vec<_> = cut
        .map(|(kind, bytes)| trimmed(bytes, kind.network()))
        .collect();
    let (before, after) = (dissect(&whole), dissect(&cut));
    for (&kind, (before, after)) in kinds.iter().zip(before.iter().zip(&after)) {
        assert_eq!(before.all(REMARKS), "", "{kind:?}");
        assert_eq!(after.all(REMARKS), "", "{kind:?}");
        assert_changed(kind, after);
        for name in KEPT {
            assert_eq!(after.first(name), before.first(name), "{kind:?}: {name}");
        }
        // That the fields are there at all: nothing equals nothing too.
        let (extended, value) = if kind.is_multipath {
            ("infiniband.vendor", "03010405")
        } else {
            ("infiniband.reth.va", "0x1112131415161718")
        };
        assert_eq!(after.first(extended), value, "{kind:?}");
        assert_eq!(after.first("infiniband.bth.psn"), 0x98_7654.to_string());
    }
}
