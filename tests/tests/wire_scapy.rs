//! Scapy and the wire formats hold each other to their word: it computes the ICRC of what we build,
//! and we read what it builds.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use common::wire::arp::{self, Operation};
use common::wire::checksum::Sum;
use common::wire::ethernet::{self, ethertype};
use common::wire::ip::{protocol, v4, v6};
use common::wire::pause::Control;
use common::wire::roce::{AckKind, Aeth, Headers, icrc};
use common::wire::{udp, vlan};
use fabric_tests::wire::{ROCE_V4_AT, samples};
use serde::Deserialize;

/// Frames of each kind that scapy builds, with other random fields each time.
const ROUNDS: &str = "4";

/// The lines that scapy answers to `input`.
fn scapy(arguments: &[&str], input: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scapy/oracle.py");
    let mut child = Command::new("/usr/bin/python3")
        .args(["-B", script])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts; run `make setup`");
    let mut stdin = child.stdin.take().expect("a pipe");
    let text = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("scapy ends");
    assert!(
        output.status.success(),
        "scapy failed; if it is missing, run `make setup`"
    );
    writer
        .join()
        .expect("no panic")
        .expect("scapy reads all of its input");
    String::from_utf8(output.stdout).expect("text")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// HT-10, HT-11: the ICRC of every packet over IPv4 is the one that scapy computes. (Scapy 2.5 has
/// none for IPv6; a vector of others stands for it in `common::wire::roce`.)
#[test]
fn scapy_computes_the_same_icrc() {
    let frames: Vec<_> = samples()
        .into_iter()
        .filter(|sample| sample.name.ends_with(" v4") && sample.bytes.len() > ROCE_V4_AT)
        .collect();
    let input: String = frames
        .iter()
        .map(|sample| hex(&sample.bytes) + "\n")
        .collect();
    let output = scapy(&["icrc"], &input);
    assert_eq!(output.lines().count(), frames.len());
    assert!(frames.len() > 50, "{} frames", frames.len());
    for (sample, theirs) in frames.iter().zip(output.lines()) {
        let ours = hex(sample.bytes.last_chunk::<4>().expect("an ICRC"));
        assert_eq!(ours, theirs, "ICRC of {}", sample.name);
    }
}

/// A frame of scapy's, and what scapy says of it.
#[derive(Deserialize)]
struct Frame {
    name: String,
    hex: String,
    dst: String,
    src: String,
    ethertype: u16,
    tags: Vec<Tag>,
    v4: Option<V4>,
    v6: Option<V6>,
    udp: Option<Udp>,
    arp: Option<Arp>,
    bth: Option<Bth>,
    #[serde(default)]
    rest: String,
    aeth: Option<Syndrome>,
    pause: Option<u16>,
    pfc: Option<[Option<u16>; 8]>,
}

#[derive(Deserialize)]
struct Tag {
    pcp: u8,
    dei: bool,
    vid: u16,
}

#[derive(Deserialize)]
struct V4 {
    src: Ipv4Addr,
    dst: Ipv4Addr,
    tos: u8,
    ttl: u8,
    id: u16,
    df: bool,
    mf: bool,
    offset: u16,
    protocol: u8,
    header: usize,
    total: usize,
    checksum: u16,
}

#[derive(Deserialize)]
struct V6 {
    src: Ipv6Addr,
    dst: Ipv6Addr,
    tc: u8,
    fl: u32,
    hlim: u8,
    plen: usize,
    nh: u8,
    upper: u8,
    at: usize,
    offset: Option<u16>,
}

#[derive(Deserialize)]
struct Udp {
    sport: u16,
    dport: u16,
    len: usize,
    checksum: u16,
}

#[derive(Deserialize)]
struct Arp {
    op: u16,
    hwsrc: String,
    psrc: Ipv4Addr,
    hwdst: String,
    pdst: Ipv4Addr,
}

#[derive(Deserialize)]
struct Bth {
    opcode: u8,
    solicited: u8,
    migreq: u8,
    padcount: u8,
    pkey: u16,
    fecn: u8,
    becn: u8,
    dqpn: u32,
    ackreq: u8,
    psn: u32,
}

#[derive(Deserialize)]
struct Syndrome {
    syndrome: u8,
    msn: u32,
}

/// SW-11, HT-10: frames that scapy built are read with the fields that it put in.
#[test]
fn what_scapy_builds_is_read() {
    let seed = std::env::var("SCAPY_SEED").unwrap_or_else(|_| std::process::id().to_string());
    println!("SCAPY_SEED={seed} repeats this run");
    let output = scapy(&["frames", &seed, ROUNDS], "");
    let frames: Vec<Frame> = serde_json::from_str(&output).expect("frames in JSON");
    assert!(frames.len() > 200, "{} frames", frames.len());
    for frame in &frames {
        let shown = Shown(frame);
        frame.check();
        drop(shown);
    }
}

/// Shows the frame whose check failed.
struct Shown<'a>(&'a Frame);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}: {}", self.0.name, self.0.hex);
        }
    }
}

impl Frame {
    fn check(&self) {
        let bytes = unhex(&self.hex);
        let ethernet = ethernet::Frame::new_checked(&bytes[..]).expect("a frame");
        assert_eq!(ethernet.dst().to_string(), self.dst);
        assert_eq!(ethernet.src().to_string(), self.src);

        let stack = vlan::walk(&bytes).expect("whole tags");
        assert_eq!(
            (stack.tags, stack.ethertype),
            (self.tags.len(), self.ethertype)
        );
        let outer = stack.outer.map(|tci| (tci.pcp(), tci.dei(), tci.vid()));
        assert_eq!(
            outer,
            self.tags.first().map(|tag| (tag.pcp, tag.dei, tag.vid))
        );

        let payload = &bytes[stack.payload_at..];
        match stack.ethertype {
            ethertype::IPV4 => self.check_v4(payload),
            ethertype::IPV6 => self.check_v6(payload),
            ethertype::ARP => self.check_arp(payload),
            ethertype::MAC_CONTROL => self.check_control(payload),
            other => panic!("EtherType {other:#06x}"),
        }
    }

    fn check_v4(&self, bytes: &[u8]) {
        let packet = v4::Packet::new_checked(bytes).expect("a packet");
        let said = self.v4.as_ref().expect("scapy saw IPv4");
        assert_eq!((packet.src(), packet.dst()), (said.src, said.dst));
        assert_eq!((packet.traffic_class(), packet.ttl()), (said.tos, said.ttl));
        assert_eq!((packet.ident(), packet.dont_fragment()), (said.id, said.df));
        assert_eq!(packet.fragment_offset(), said.offset);
        assert_eq!(packet.is_fragment(), said.mf || said.offset > 0);
        assert_eq!(
            (packet.header_len(), packet.total_len()),
            (said.header, said.total)
        );
        assert_eq!(
            (packet.protocol(), packet.checksum()),
            (said.protocol, said.checksum)
        );
        assert!(packet.verify_checksum(), "header checksum");
        if packet.is_fragment() {
            return;
        }
        let len = u16::try_from(packet.payload().len()).expect("short");
        let pseudo = Sum::default()
            .bytes(&packet.src().octets())
            .bytes(&packet.dst().octets())
            .word(u16::from(packet.protocol()))
            .word(len);
        match packet.protocol() {
            protocol::UDP => self.check_udp(packet.payload(), pseudo),
            protocol::ICMP => assert!(Sum::default().bytes(packet.payload()).is_valid()),
            _ => assert!(pseudo.bytes(packet.payload()).is_valid()),
        }
        if self.bth.is_some() {
            self.check_roce(&bytes[..packet.total_len()], packet.payload());
        }
    }

    fn check_v6(&self, bytes: &[u8]) {
        let packet = v6::Packet::new_checked(bytes).expect("a packet");
        let said = self.v6.as_ref().expect("scapy saw IPv6");
        assert_eq!((packet.src(), packet.dst()), (said.src, said.dst));
        assert_eq!(
            (packet.traffic_class(), packet.flow_label()),
            (said.tc, said.fl)
        );
        assert_eq!(
            (packet.hop_limit(), packet.next_header()),
            (said.hlim, said.nh)
        );
        assert_eq!(packet.payload_len(), said.plen);
        let upper = packet.upper().expect("a whole chain");
        assert_eq!((upper.protocol, upper.at), (said.upper, said.at));
        assert_eq!(upper.fragment, said.offset);
        if upper.fragment.is_some() || self.name == "extensions" {
            // The checksum of a routed packet counts its last destination.
            return;
        }
        let payload = &bytes[upper.at..];
        let len = u32::try_from(payload.len()).expect("short");
        let pseudo = Sum::default().pseudo_v6(packet.src(), packet.dst(), upper.protocol, len);
        match upper.protocol {
            protocol::UDP => self.check_udp(payload, pseudo),
            _ => assert!(pseudo.bytes(payload).is_valid(), "checksum"),
        }
    }

    fn check_udp(&self, bytes: &[u8], pseudo: Sum) {
        let datagram = udp::Datagram::new_checked(bytes).expect("a datagram");
        let said = self.udp.as_ref().expect("scapy saw UDP");
        assert_eq!(
            (datagram.src_port(), datagram.dst_port()),
            (said.sport, said.dport)
        );
        assert_eq!(
            (datagram.len(), datagram.checksum()),
            (said.len, said.checksum)
        );
        assert!(said.checksum == 0 || pseudo.bytes(&bytes[..datagram.len()]).is_valid());
    }

    fn check_roce(&self, packet: &[u8], datagram: &[u8]) {
        assert_eq!(icrc::verify_sparse(packet, 0..0), Ok(()));
        let (headers, payload) = Headers::parse(&datagram[udp::HEADER_LEN..]).expect("RoCEv2");
        let said = self.bth.as_ref().expect("scapy saw a BTH");
        let bth = headers.bth;
        assert_eq!(bth.opcode.byte(), said.opcode);
        assert_eq!(
            (bth.solicited, bth.migrated),
            (said.solicited == 1, said.migreq == 1)
        );
        assert_eq!((bth.fecn, bth.becn), (said.fecn == 1, said.becn == 1));
        assert_eq!((bth.pad, bth.partition), (said.padcount, said.pkey));
        assert_eq!((bth.dest_qp, bth.psn), (said.dqpn, said.psn));
        assert_eq!(bth.ack_request, said.ackreq == 1);

        let rest = unhex(&self.rest);
        let extended = headers.len() - 12;
        let data = &rest[extended..rest.len() - usize::from(said.padcount)];
        assert_eq!(&datagram[udp::HEADER_LEN..][payload], data, "payload");
        let mut written = vec![0; headers.len()];
        headers.emit(&mut written);
        assert_eq!(
            written[12..],
            rest[..extended],
            "extended headers, written again"
        );
        if let Some(said) = &self.aeth {
            let Aeth { kind, msn } = headers.aeth.expect("an AETH");
            assert_eq!(msn, said.msn);
            let low = said.syndrome & 0x1f;
            match kind {
                AckKind::Ack { credits } => assert_eq!((said.syndrome >> 5, low), (0, credits)),
                AckKind::ReceiverNotReady { timer } => {
                    assert_eq!((said.syndrome >> 5, low), (1, timer));
                }
                AckKind::Nak(code) => assert_eq!(said.syndrome, 0x60 | code as u8),
            }
        }
    }

    fn check_arp(&self, bytes: &[u8]) {
        let packet = arp::Packet::parse(bytes).expect("ARP");
        let said = self.arp.as_ref().expect("scapy saw ARP");
        let operation = match said.op {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => Operation::Other(other),
        };
        assert_eq!(packet.operation, operation);
        assert_eq!((packet.sender, packet.target), (said.psrc, said.pdst));
        let macs = [packet.sender_mac, packet.target_mac].map(|mac| mac.to_string());
        assert_eq!(macs, [&said.hwsrc[..], &said.hwdst[..]]);
    }

    fn check_control(&self, bytes: &[u8]) {
        let control = Control::parse(bytes).expect("MAC control");
        let said = self
            .pfc
            .map(Control::Pfc)
            .or_else(|| self.pause.map(Control::Pause));
        assert_eq!(Some(control), said);
    }
}
