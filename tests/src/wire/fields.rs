//! What Wireshark 4.0 must find in the samples, in its own names of fields.

use common::wire::cm::{Dreq, Mad, Message, Pair, Rej, Rep, Req};
use common::wire::ethernet::{self, ethertype};
use common::wire::icmp::Problem;
use common::wire::pause::Control;
use common::wire::roce::frame::Addresses;
use common::wire::roce::{AckKind, Bth, Flow, Headers, Opcode};
use common::wire::udp;
use common::wire::vlan::Tci;
use std::fmt::Display;
use std::net::IpAddr;

type Fields = Vec<(&'static str, String)>;

/// Gathers fields; numbers may be in any base, the comparison reads them.
struct Expect(Fields);

impl Expect {
    fn is(&mut self, field: &'static str, value: impl Display) -> &mut Self {
        self.0.push((field, value.to_string()));
        self
    }

    fn flag(&mut self, field: &'static str, value: bool) -> &mut Self {
        self.is(field, u8::from(value))
    }

    fn bytes(&mut self, field: &'static str, value: &[u8]) -> &mut Self {
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        self.is(field, hex)
    }
}

/// From Ethernet to the ICRC, which is taken from `frame`.
pub(super) fn roce(flow: &Flow, headers: &Headers, payload: &[u8], frame: &[u8]) -> Fields {
    let mut expect = Expect(Vec::new());
    network(&mut expect, flow);
    base(&mut expect, headers, payload.len());
    if headers.bth.opcode.is_multipath() || headers.bth.opcode == Opcode::Cnp {
        // Wireshark 4.0 has no name for these opcodes (its CNP is 0x80) and shows the four bytes
        // that follow the BTH: path, flags and flowlet of the MPEH, or zeros.
        let after = network_len(flow) + Bth::LEN;
        expect.bytes("infiniband.vendor", &frame[after..after + 4]);
        return expect.0;
    }
    extended(&mut expect, headers);
    let icrc = frame.last_chunk().expect("sealed");
    expect.is("infiniband.invariant.crc", u32::from_be_bytes(*icrc));
    expect.0
}

/// Bytes from Ethernet to UDP.
fn network_len(flow: &Flow) -> usize {
    ethernet::HEADER_LEN + flow.addresses.header_len() + udp::HEADER_LEN
}

fn network(expect: &mut Expect, flow: &Flow) {
    expect
        .is("eth.src", flow.src_mac)
        .is("eth.dst", flow.dst_mac);
    let (dscp, ecn) = (flow.traffic_class >> 2, flow.traffic_class & 3);
    match flow.addresses {
        Addresses::V4(src, dst) => {
            expect
                .is("ip.src", src)
                .is("ip.dst", dst)
                .is("ip.ttl", flow.ttl);
            expect.is("ip.dsfield.dscp", dscp).is("ip.dsfield.ecn", ecn);
            expect.flag("ip.flags.df", true).flag("ip.flags.mf", false);
            expect.is("ip.checksum.status", 1);
        }
        Addresses::V6(src, dst) => {
            expect
                .is("ipv6.src", src)
                .is("ipv6.dst", dst)
                .is("ipv6.hlim", flow.ttl);
            expect
                .is("ipv6.tclass.dscp", dscp)
                .is("ipv6.tclass.ecn", ecn);
            expect.is("ipv6.flow", flow.flow_label);
        }
    }
    expect
        .is("udp.srcport", flow.src_port)
        .is("udp.dstport", udp::ROCE_PORT)
        .is("udp.checksum", 0);
}

fn base(expect: &mut Expect, headers: &Headers, payload: usize) {
    let bth = &headers.bth;
    expect.is("infiniband.bth.opcode", bth.opcode.byte());
    expect
        .flag("infiniband.bth.se", bth.solicited)
        .flag("infiniband.bth.m", bth.migrated);
    expect
        .is("infiniband.bth.padcnt", payload.wrapping_neg() & 3)
        .is("infiniband.bth.tver", 0);
    expect
        .is("infiniband.bth.p_key", bth.partition)
        .is("infiniband.bth.destqp", bth.dest_qp);
    expect
        .flag("infiniband.bth.a", bth.ack_request)
        .is("infiniband.bth.reserved7", 0);
    expect.is("infiniband.bth.psn", bth.psn);
}

fn extended(expect: &mut Expect, headers: &Headers) {
    if let Some(deth) = headers.deth {
        expect
            .is("infiniband.deth.q_key", deth.qkey)
            .is("infiniband.deth.srcqp", deth.src_qp);
    }
    if let Some(reth) = headers.reth {
        expect
            .is("infiniband.reth.va", reth.address)
            .is("infiniband.reth.r_key", reth.rkey);
        expect.is("infiniband.reth.dmalen", reth.len);
    }
    if let Some(atomic) = headers.atomic {
        expect
            .is("infiniband.reth.va", atomic.address)
            .is("infiniband.reth.r_key", atomic.rkey);
        expect.is("infiniband.atomiceth.swapdt", atomic.swap_or_add);
        expect.is("infiniband.atomiceth.cmpdt", atomic.compare);
    }
    if let Some(aeth) = headers.aeth {
        expect.is("infiniband.aeth.msn", aeth.msn);
        match aeth.kind {
            AckKind::Ack { credits } => expect
                .is("infiniband.aeth.syndrome.opcode", 0)
                .is("infiniband.aeth.syndrome.credit_count", credits),
            AckKind::ReceiverNotReady { timer } => expect
                .is("infiniband.aeth.syndrome.opcode", 1)
                .is("infiniband.aeth.syndrome.timer", timer),
            AckKind::Nak(code) => expect
                .is("infiniband.aeth.syndrome.opcode", 3)
                .is("infiniband.aeth.syndrome.error_code", code as u8),
        };
    }
    if let Some(original) = headers.atomic_original {
        expect.is("infiniband.atomicacketh.origremdt", original);
    }
    if let Some(immediate) = headers.immediate {
        expect.bytes("infiniband.immdt", &immediate.to_be_bytes());
    }
    if let Some(key) = headers.invalidate {
        expect.bytes("infiniband.ieth", &key.to_be_bytes());
    }
}

/// The management datagram and its message.
pub(super) fn mad(mad: &Mad) -> Fields {
    let mut expect = Expect(Vec::new());
    expect
        .is("infiniband.mad.baseversion", 1)
        .is("infiniband.mad.mgmtclass", 7);
    expect
        .is("infiniband.mad.classversion", 2)
        .is("infiniband.mad.method", 3);
    expect.is("infiniband.mad.transactionid", mad.transaction);
    match &mad.message {
        Message::Req(req) => request(&mut expect, req),
        Message::Rep(rep) => reply(&mut expect, rep),
        Message::Rej(rej) => refusal(&mut expect, rej),
        Message::Rtu(Pair {
            local_comm_id,
            remote_comm_id,
        }) => {
            expect.is("infiniband.cm.rtu.localcommid", local_comm_id);
            expect.is("infiniband.cm.rtu.remotecommid", remote_comm_id);
        }
        Message::Dreq(Dreq { pair, remote_qpn }) => {
            expect.is("infiniband.cm.dreq.localcommid", pair.local_comm_id);
            expect.is("infiniband.cm.dreq.remotecommid", pair.remote_comm_id);
            expect.is("infiniband.cm.req.remoteqpneecn", remote_qpn);
        }
        Message::Drep(Pair {
            local_comm_id,
            remote_comm_id,
        }) => {
            expect.is("infiniband.cm.drsp.localcommid", local_comm_id);
            expect.is("infiniband.cm.drsp.remotecommid", remote_comm_id);
        }
        // Not among the samples.
        Message::Mra(_)
        | Message::Lap(_)
        | Message::Apr(_)
        | Message::SidrReq(_)
        | Message::SidrRep(_) => {}
    }
    expect.0
}

fn request(expect: &mut Expect, req: &Req) {
    expect.is("infiniband.cm.req", req.local_comm_id);
    expect.is("infiniband.cm.req.serviceid", req.service_id);
    expect.is("infiniband.cm.req.serviceid.protocol", 6);
    expect.is("infiniband.cm.req.serviceid.dport", req.service_id & 0xffff);
    expect.is("infiniband.cm.req.localcaguid", req.ca_guid);
    expect.is("infiniband.cm.req.localqpn", req.local_qpn);
    expect.is("infiniband.cm.req.responderres", req.responder_resources);
    expect.is("infiniband.cm.req.initdepth", req.initiator_depth);
    expect.is("infiniband.cm.req.remoteresptout", req.remote_cm_timeout);
    expect.is("infiniband.cm.req.transpsvctype", 0);
    expect.is("infiniband.cm.req.startpsn", req.starting_psn);
    expect.is("infiniband.cm.req.localresptout", req.local_cm_timeout);
    expect.is("infiniband.cm.req.retrcount", req.retry_count);
    expect.is("infiniband.cm.req.pkey", req.partition);
    expect.is("infiniband.cm.req.pppmtu", req.path_mtu);
    expect.is("infiniband.cm.req.rnrretrcount", req.rnr_retry_count);
    expect.is("infiniband.cm.req.maxcmretr", req.max_cm_retries);
    // Wireshark 4.0 reads three bytes of this field of 20 bits and masks them as if it had read
    // four.
    expect.is("infiniband.cm.req.prim_flowlabel", req.flow_label >> 8);
    expect.is("infiniband.cm.req.prim_tfcclass", req.traffic_class);
    expect.is("infiniband.cm.req.prim_hoplim", req.hop_limit);
    expect.is("infiniband.cm.req.prim_localacktout", req.ack_timeout);
    expect.is("infiniband.cm.req.ip_cm.sport", req.src_port);
    match (req.src, req.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            expect.is("infiniband.cm.req.prim_localgid_ipv4", src);
            expect.is("infiniband.cm.req.prim_remotegid_ipv4", dst);
            expect.is("infiniband.cm.req.ip_cm.ipv", 4);
            expect.is("infiniband.cm.req.ip_cm.sip4", src);
            expect.is("infiniband.cm.req.ip_cm.dip4", dst);
        }
        (src, dst) => {
            expect.is("infiniband.cm.req.prim_localgid", src);
            expect.is("infiniband.cm.req.prim_remotegid", dst);
            expect.is("infiniband.cm.req.ip_cm.ipv", 6);
            expect.is("infiniband.cm.req.ip_cm.sip6", src);
            expect.is("infiniband.cm.req.ip_cm.dip6", dst);
        }
    }
    expect.bytes("infiniband.cm.req.ip_cm.private", &req.private);
}

fn reply(expect: &mut Expect, rep: &Rep) {
    expect.is("infiniband.cm.rep", rep.local_comm_id);
    expect.is("infiniband.cm.rep.remotecommid", rep.remote_comm_id);
    expect.is("infiniband.cm.rep.localqpn", rep.local_qpn);
    expect.is("infiniband.cm.rep.startpsn", rep.starting_psn);
    expect.is("infiniband.cm.rep.respres", rep.responder_resources);
    expect.is("infiniband.cm.rep.initdepth", rep.initiator_depth);
    expect.is("infiniband.cm.rep.rnrretrcount", rep.rnr_retry_count);
    expect.is("infiniband.cm.rep.localcaguid", rep.ca_guid);
    expect.bytes("infiniband.cm.rep.private", &rep.private);
}

fn refusal(expect: &mut Expect, rej: &Rej) {
    expect.is("infiniband.cm.rej.localcommid", rej.local_comm_id);
    expect.is("infiniband.cm.rej.remotecommid", rej.remote_comm_id);
    expect.is("infiniband.cm.rej.msgrej", rej.message);
    expect.is("infiniband.cm.rej.reason", rej.reason);
    expect.bytes("infiniband.cm.rej.private", &rej.private);
}

/// PAUSE and priority-based flow control.
pub(super) fn control(control: &Control) -> Fields {
    const ENABLED: [&str; 8] = [
        "macc.cbfc.enbv.c0",
        "macc.cbfc.enbv.c1",
        "macc.cbfc.enbv.c2",
        "macc.cbfc.enbv.c3",
        "macc.cbfc.enbv.c4",
        "macc.cbfc.enbv.c5",
        "macc.cbfc.enbv.c6",
        "macc.cbfc.enbv.c7",
    ];
    const TIME: [&str; 8] = [
        "macc.cbfc.pause_time.c0",
        "macc.cbfc.pause_time.c1",
        "macc.cbfc.pause_time.c2",
        "macc.cbfc.pause_time.c3",
        "macc.cbfc.pause_time.c4",
        "macc.cbfc.pause_time.c5",
        "macc.cbfc.pause_time.c6",
        "macc.cbfc.pause_time.c7",
    ];
    let mut expect = Expect(Vec::new());
    expect
        .is("eth.dst", "01:80:c2:00:00:01")
        .is("eth.type", ethertype::MAC_CONTROL);
    match control {
        Control::Pause(time) => {
            expect.is("macc.opcode", 1).is("macc.pause_time", time);
        }
        Control::Pfc(times) => {
            expect.is("macc.opcode", 0x0101);
            for (n, time) in times.iter().enumerate() {
                expect
                    .flag(ENABLED[n], time.is_some())
                    .is(TIME[n], time.unwrap_or(0));
            }
        }
    }
    expect.0
}

/// The outer headers and the ICMP message.
pub(super) fn error(problem: Problem, v6: bool) -> Fields {
    let mut expect = Expect(Vec::new());
    let (type_v4, type_v6) = match problem {
        Problem::TimeExceeded => ((11, 0), (3, 0)),
        Problem::NoRoute => ((3, 0), (1, 0)),
        Problem::HostUnreachable => ((3, 1), (1, 3)),
        Problem::Prohibited => ((3, 13), (1, 1)),
        Problem::TooBig { .. } => ((3, 4), (2, 0)),
    };
    if v6 {
        expect
            .is("ipv6.src", "2001:db8::1")
            .is("ipv6.dst", "fd00::1")
            .is("ipv6.tclass", 0);
        expect
            .is("icmpv6.type", type_v6.0)
            .is("icmpv6.code", type_v6.1);
        expect.is("icmpv6.checksum.status", 1);
    } else {
        expect
            .is("ip.src", "192.0.2.1")
            .is("ip.dst", "10.0.0.1")
            // Internetwork control, with the type of service of the packet: 0x1e of 0x6a.
            .is("ip.dsfield", 0xca);
        expect.is("ip.checksum.status", 1);
        expect.is("icmp.type", type_v4.0).is("icmp.code", type_v4.1);
        expect.is("icmp.checksum.status", 1);
    }
    if let Problem::TooBig { mtu } = problem {
        expect.is(if v6 { "icmpv6.mtu" } else { "icmp.mtu" }, mtu);
    }
    expect.0
}

/// A stack of tags of which at most one is a customer tag.
pub(super) fn tags(stack: &[(u16, u16)]) -> Fields {
    let mut expect = Expect(Vec::new());
    for (tpid, tci) in stack {
        let tci = Tci(*tci);
        let [priority, dei, id] = if *tpid == ethertype::VLAN {
            ["vlan.priority", "vlan.dei", "vlan.id"]
        } else {
            ["ieee8021ad.priority", "ieee8021ad.dei", "ieee8021ad.id"]
        };
        expect
            .is(priority, tci.pcp())
            .flag(dei, tci.dei())
            .is(id, tci.vid());
    }
    expect.0
}
