//! Records of the real daemon, as tshark reads them: each field of both versions of IP (SW-50).

use super::{Collector, flows, number};
use crate::support::{Rig, eventually, privileged};
use common::wire::cm::{Mad, Message, RELIABLE_CONNECTION, Rep, Req};
use common::wire::ethernet::Mac;
use common::wire::roce::frame::{Addresses, Flow, emit, layout};
use common::wire::roce::{AckKind, Aeth, Bth, Headers, NakCode, Opcode, Operation};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// Sends RoCEv2 packets, given as hexadecimal digits, at once or when a packet came.
const SEND: &str = "
import socket, sys, time
when, own, to = sys.argv[1:4]
family = socket.AF_INET6 if ':' in own else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.bind((own, 50001))
if ':' in own:
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x68)
else:
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x68)
if when == 'answer':
    question = socket.socket(family, socket.SOCK_DGRAM)
    question.bind((own, 4791))
    question.settimeout(10)
    print('bound', flush=True)
    question.recv(2048)
for packet in sys.argv[4:]:
    s.sendto(bytes.fromhex(packet), (to, 4791))
    time.sleep(0.005)
";

/// Prints the messages that a collector gets, until one without a byte comes.
const LISTEN: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.1.0.2', 4739))
print('bound', flush=True)
while message := s.recv(2048):
    print(message.hex(), flush=True)
";

/// The last message to that collector, behind all others.
const END: &str = "
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ('10.1.0.2', 4739))
";

/// Addresses of `a` and `b`, and their queue pairs.
struct Pair {
    addresses: [IpAddr; 2],
    qps: [u32; 2],
}

impl Pair {
    /// Sends packets from one side, 0 or 1, to the other.
    fn send(&self, rig: &Rig, side: usize, packets: &[(Headers, Vec<u8>)]) {
        let words = self.words("now", side, packets);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        rig.on(["a", "b"][side], "python3", &words);
    }

    /// Sends a request from `a`, which `b` answers at once.
    fn ask(&self, rig: &Rig, request: (Headers, Vec<u8>), answer: (Headers, Vec<u8>)) {
        let words = self.words("answer", 1, &[answer]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut answering = rig.command("b", "python3", &words);
        let answering = answering.stdout(Stdio::piped()).spawn().expect("python3");
        let mut answering = Collector(answering);
        let stdout = answering.0.stdout.take().expect("a pipe");
        let mut bound = String::new();
        let read = BufReader::new(stdout).read_line(&mut bound);
        assert_eq!((read.is_ok(), bound.trim()), (true, "bound"));
        self.send(rig, 0, &[request]);
        let status = answering.0.wait().expect("our child");
        assert!(status.success(), "{status}");
    }

    /// The words of python3 that sends packets from one side to the other.
    fn words(&self, when: &str, side: usize, packets: &[(Headers, Vec<u8>)]) -> Vec<String> {
        let [from, to] = [self.addresses[side], self.addresses[1 - side]];
        let flow = Flow {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([2; 6]),
            addresses: Addresses::new(from, to).expect("of one version"),
            src_port: 50_001,
            flow_label: 0,
            traffic_class: 0,
            ttl: 64,
        };
        let hex = packets.iter().map(|(headers, payload)| {
            let mut bytes = vec![0; layout(flow.addresses, headers, payload.len()).len];
            let place = emit(&mut bytes, &flow, headers, payload.len());
            bytes[place].copy_from_slice(payload);
            // A socket makes the headers of Ethernet, IP and UDP.
            let behind = 14 + if from.is_ipv4() { 20 } else { 40 } + 8;
            let digits = bytes[behind..].iter().map(|byte| format!("{byte:02x}"));
            digits.collect::<String>()
        });
        let mut words = vec!["-c".to_owned(), SEND.to_owned()];
        words.extend([when.to_owned(), from.to_string(), to.to_string()]);
        words.extend(hex);
        words
    }

    /// A request of `a`, and what `b` answers.
    fn request(&self, psn: u32) -> (Headers, Vec<u8>) {
        let mut bth = Bth::new(Opcode::Rc(Operation::SendOnly), self.qps[1], psn);
        bth.ack_request = true;
        (Headers::new(bth), vec![0; 64])
    }

    fn answer(&self, psn: u32, kind: AckKind) -> (Headers, Vec<u8>) {
        let bth = Bth::new(Opcode::Rc(Operation::Acknowledge), self.qps[0], psn);
        let mut headers = Headers::new(bth);
        headers.aeth = Some(Aeth { kind, msn: 0 });
        (headers, Vec::new())
    }

    /// REQ and REP of connection management.
    fn set_up(&self, rig: &Rig) {
        let management = |message| {
            let mad = Mad {
                transaction: 1,
                message,
            };
            let headers = Headers::new(Bth::new(Opcode::UdSendOnly, 1, 0));
            (headers, mad.emit().to_vec())
        };
        let req = Req {
            local_comm_id: 5,
            service_id: 0,
            ca_guid: 1,
            local_qpn: self.qps[0],
            responder_resources: 1,
            initiator_depth: 1,
            remote_cm_timeout: 1,
            transport: RELIABLE_CONNECTION,
            starting_psn: 0,
            local_cm_timeout: 1,
            retry_count: 7,
            partition: 0xffff,
            path_mtu: 5,
            rnr_retry_count: 7,
            max_cm_retries: 1,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            ack_timeout: 14,
            src_port: 1,
            src: self.addresses[0],
            dst: self.addresses[1],
            private: [0; 56],
        };
        let rep = Rep {
            local_comm_id: 6,
            remote_comm_id: 5,
            local_qpn: self.qps[1],
            starting_psn: 0,
            responder_resources: 1,
            initiator_depth: 1,
            rnr_retry_count: 7,
            ca_guid: 2,
            private: [0; 196],
        };
        self.send(rig, 0, &[management(Message::Req(Box::new(req)))]);
        self.send(rig, 1, &[management(Message::Rep(Box::new(rep)))]);
    }

    /// Two requests that are acknowledged, for both directions have to be known before a round trip
    /// is measured; two more, of which one is asked for again, twice.
    fn exchange(&self, rig: &Rig) {
        let loss = AckKind::Nak(NakCode::PsnSequenceError);
        let source = self.addresses[0].to_string();
        for psn in [100, 101] {
            let acknowledgement = self.answer(psn, AckKind::Ack { credits: 31 });
            self.ask(rig, self.request(psn), acknowledgement);
            eventually("both directions", || {
                let rows = flows(rig);
                let mut own = rows.iter().filter(|row| row["source"] == source.as_str());
                own.any(|row| row["learned"].is_string() && row["backward"].is_object())
            });
        }
        self.send(rig, 0, &[self.request(102), self.request(103)]);
        self.send(rig, 1, &[self.answer(102, loss), self.answer(102, loss)]);
    }
}

/// A file with these messages in packets of IPv4 (link type 101), as tshark reads it.
fn file(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 101_u32] {
        file.extend(word.to_le_bytes());
    }
    for message in messages {
        let udp_len = u16::try_from(8 + message.len()).expect("short");
        let mut packet = vec![0x45, 0];
        packet.extend((20 + udp_len).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
        for word in [50_000, 4739, udp_len, 0] {
            packet.extend(word.to_be_bytes());
        }
        packet.extend(message);
        let len = u32::try_from(packet.len()).expect("short");
        for word in [0, 0, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

/// A record: source and destination, ports, protocol, octets, packets, why it is told, traffic
/// class; and the values of the enterprise's fields, by number from 1 on.
type Dissected = (Vec<String>, Vec<u64>);

/// What tshark reads in a file.
fn dissect(path: &str) -> Vec<Dissected> {
    const OWN: usize = 9;
    let mut words = vec![
        "-n",
        "-r",
        path,
        "-d",
        "udp.port==4739,cflow",
        "-T",
        "fields",
    ];
    let standard = [
        "cflow.srcport",
        "cflow.dstport",
        "cflow.protocol",
        "cflow.octets",
        "cflow.packets",
        "cflow.flow_end_reason",
        "cflow.tos",
    ];
    let addresses = [
        "cflow.srcaddr",
        "cflow.srcaddrv6",
        "cflow.dstaddr",
        "cflow.dstaddrv6",
    ];
    let own = ["cflow.enterprise_private_entry"];
    for field in addresses.iter().chain(&standard).chain(&own) {
        words.extend(["-e", field]);
    }
    let output = Command::new("tshark")
        .args(&words)
        .output()
        .expect("tshark");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut records = Vec::new();
    for line in text.lines() {
        let columns: Vec<Vec<&str>> = line
            .split('\t')
            .map(|column| column.split(',').filter(|it| !it.is_empty()).collect())
            .collect();
        let own: Vec<u64> = columns[11]
            .iter()
            .map(|digits| u64::from_str_radix(&digits.replace(':', ""), 16).expect("a number"))
            .collect();
        for (record, own) in own.chunks(OWN).enumerate() {
            let fields = columns[..11].iter().filter(|column| !column.is_empty());
            let fields = fields.map(|column| column[record].to_owned()).collect();
            records.push((fields, own.to_vec()));
        }
    }
    records
}

/// Sends both flows, one of them with its set-up, past a switch that then ends. What it showed of
/// them before, and what it told a collector.
fn told(rig: &mut Rig, pairs: &[Pair; 2]) -> (Vec<Value>, Vec<Vec<u8>>) {
    let listener = rig.command("a", "python3", &["-c", LISTEN]);
    let mut listener = { listener }
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut said = BufReader::new(listener.stdout.take().expect("a pipe"));
    let _listener = Collector(listener);
    let mut bound = String::new();
    said.read_line(&mut bound).expect("a line");
    rig.start(&[]);
    for pair in pairs {
        assert_eq!(rig.ping(&pair.addresses[1].to_string(), 1, 10), 1);
    }
    pairs[0].set_up(rig);
    pairs.iter().for_each(|pair| pair.exchange(rig));
    let is_paired = |row: &Value| row["backward"]["naks"] == 2;
    eventually("both flows", || {
        flows(rig).iter().filter(|it| is_paired(it)).count() == 2
    });
    let rows = flows(rig);
    rig.stop();
    rig.on("a", "python3", &["-c", END]);
    let mut text = String::new();
    said.read_to_string(&mut text).expect("text");
    let message = |line: &str| {
        let digits = (0..line.len()).step_by(2);
        let bytes = digits.map(|at| u8::from_str_radix(&line[at..at + 2], 16).expect("digits"));
        bytes.collect()
    };
    (rows, text.lines().map(message).collect())
}

/// SW-50: tshark reads in the records of IPv4 and of IPv6 what switchctl shows: addresses, queue
/// pairs, octets and packets, the traffic class, NAKs and when the last one passed, round trips,
/// and how the directions were paired: one flow was set up as it passed, the other was there
/// before.
#[test]
fn records_have_what_is_shown() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("fd");
    rig.settings("[flows]\nenabled = true\ncollector = \"10.1.0.2:4739\"\n");
    let pair = |addresses: [&str; 2], qps| Pair {
        addresses: addresses.map(|it| it.parse().expect("an address")),
        qps,
    };
    let pairs = [
        pair(["10.1.0.2", "10.2.0.2"], [0x12_3456, 0x65_4321]),
        pair(["2001:db8:1::2", "2001:db8:2::2"], [4097, 65_537]),
    ];
    let (rows, messages) = told(&mut rig, &pairs);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("messages.pcap");
    std::fs::write(&path, file(&messages)).expect("a file");
    let records = dissect(&path.display().to_string());
    assert_eq!(
        (rows.len(), records.len()),
        (2, 4),
        "{rows:#?}\n{records:?}"
    );
    for (pair, (learned, word)) in pairs.iter().zip([(1, "set-up"), (2, "data")]) {
        let [a, b] = pair.addresses.map(|it| it.to_string());
        let row = rows
            .iter()
            .find(|row| row["source"] == a.as_str())
            .expect("a flow");
        assert_eq!(row["learned"], word, "{row}");
        let ways = [
            ("forward", [&a, &b], pair.qps),
            ("backward", [&b, &a], {
                let [a, b] = pair.qps;
                [b, a]
            }),
        ];
        for (way, [from, to], qps) in ways {
            let record = records.iter().find(|it| it.0[0] == *from);
            let (fields, own) = record.unwrap_or_else(|| panic!("{from}: {records:?}"));
            let shown = |key: &str| number(row, &format!("/{way}/{key}"));
            let [octets, packets] = ["bytes", "packets"].map(|key| shown(key).to_string());
            let expected = [
                from,
                to,
                "50001",
                "4791",
                "17",
                octets.as_str(),
                &packets,
                "4",
                "0x68",
            ];
            assert_eq!(fields, &expected, "{way}");
            let rtt = row[way]["rtt_nanoseconds"].as_u64().unwrap_or(0);
            assert_eq!(rtt > 0, way == "forward", "{row}");
            // The time of the last NAK is shown in seconds. The clock may be set in between.
            let nak = row[way]["last_nak"].as_f64().unwrap_or(0.0) * 1000.0;
            assert!((own[3] as f64 - nak).abs() <= 200.0, "{} {nak}", own[3]);
            let [source, destination] = qps.map(u64::from);
            let expected = [
                source,
                destination,
                shown("naks"),
                own[3],
                rtt,
                0,
                0,
                0,
                learned,
            ];
            assert_eq!(own, &expected, "{way}");
        }
        assert_eq!(number(row, "/backward/naks"), 2);
        assert_eq!(number(row, "/forward/packets"), 4);
    }
}
