//! Connection messages that a test writes itself, and those that it overhears.

use crate::network::Network;
use common::wire::Mac;
use common::wire::cm::{
    Mad, Message, Pair, REJ_INFO_LEN, REJ_PRIVATE_LEN, RELIABLE_CONNECTION, REP_PRIVATE_LEN,
    REQ_PRIVATE_LEN, Rej, Rep, Req, service_id,
};
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{Bth, Deth, Flow, Headers, Opcode};
use hostd::verbs::DropReason;
use std::net::{IpAddr, Ipv4Addr};

/// Where the BTH begins behind Ethernet and IPv4.
const BTH: usize = 14 + 20 + 8;
const MAD: usize = BTH + 12 + 8;

/// A sealed frame with a connection message.
pub(crate) fn frame(source: IpAddr, destination: IpAddr, mad: &Mad) -> Vec<u8> {
    let flow = Flow {
        src_mac: Mac([2, 0, 0, 0, 0, 0x51]),
        dst_mac: Mac([2, 0, 0, 0, 0, 0x52]),
        addresses: Addresses::new(source, destination).expect("one version"),
        src_port: 0xc000,
        flow_label: 0,
        traffic_class: 0,
        ttl: 64,
    };
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, 1, 0));
    headers.deth = Some(Deth {
        qkey: Deth::GSI_QKEY,
        src_qp: 1,
    });
    let payload = mad.emit();
    let mut bytes = vec![0; layout(flow.addresses, &headers, payload.len()).len];
    let place = emit(&mut bytes, &flow, &headers, payload.len());
    bytes[place].copy_from_slice(&payload);
    seal(&mut bytes).expect("a frame");
    bytes
}

/// A connection message of a frame over IPv4, with source and destination.
pub(crate) fn read(frame: &[u8]) -> Option<(IpAddr, IpAddr, Mad)> {
    if frame.get(BTH) != Some(&0x64) {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 4] = frame[at..at + 4].try_into().expect("four bytes");
        IpAddr::from(Ipv4Addr::from(octets))
    };
    let mad = Mad::parse(&frame[MAD..]).expect("whole");
    Some((address(26), address(30), mad))
}

/// The connection messages that were sent since this was last asked.
pub(crate) fn overheard(network: &mut Network) -> Vec<(IpAddr, IpAddr, Mad)> {
    let frames = network.tap.replace(Vec::new()).unwrap_or_default();
    frames.iter().filter_map(|frame| read(frame)).collect()
}

/// A REQ for port `port` that makes sense.
pub(crate) fn request(
    source: IpAddr,
    destination: IpAddr,
    port: u16,
    id: u32,
    qpn: u32,
) -> Box<Req> {
    Box::new(Req {
        local_comm_id: id,
        service_id: service_id(port),
        ca_guid: 0,
        local_qpn: qpn,
        responder_resources: 0,
        initiator_depth: 0,
        remote_cm_timeout: 18,
        transport: RELIABLE_CONNECTION,
        starting_psn: 0,
        local_cm_timeout: 18,
        retry_count: 7,
        partition: 0xffff,
        path_mtu: 3,
        rnr_retry_count: 7,
        max_cm_retries: 7,
        flow_label: 0,
        traffic_class: 0,
        hop_limit: 64,
        ack_timeout: 14,
        src_port: 0,
        src: source,
        dst: destination,
        private: [0; REQ_PRIVATE_LEN],
    })
}

/// A REP of queue pair `qpn`.
pub(crate) fn reply(pair: Pair, qpn: u32) -> Message {
    Message::Rep(Box::new(Rep {
        local_comm_id: pair.local_comm_id,
        remote_comm_id: pair.remote_comm_id,
        local_qpn: qpn,
        starting_psn: 0,
        responder_resources: 0,
        initiator_depth: 0,
        rnr_retry_count: 7,
        ca_guid: 0,
        private: [0; REP_PRIVATE_LEN],
    }))
}

/// A REJ of a message of kind `message`.
pub(crate) fn rejection(pair: Pair, message: u8, reason: u16) -> Message {
    Message::Rej(Box::new(Rej {
        local_comm_id: pair.local_comm_id,
        remote_comm_id: pair.remote_comm_id,
        message,
        reason,
        info_len: 0,
        info: [0; REJ_INFO_LEN],
        private: [0; REJ_PRIVATE_LEN],
    }))
}

pub(crate) fn pair(local_comm_id: u32, remote_comm_id: u32) -> Pair {
    Pair {
        local_comm_id,
        remote_comm_id,
    }
}

/// Gives `host` a message that claims to come from `source`.
pub(crate) fn forge(
    network: &mut Network,
    host: usize,
    source: IpAddr,
    transaction: u64,
    message: Message,
) {
    let destination = network.hosts[host].address;
    let mad = Mad {
        transaction,
        message,
    };
    network.inject(host, &frame(source, destination, &mad));
}

/// Packets that `host` lost for `reason`.
pub(crate) fn drops(network: &Network, host: usize, reason: DropReason) -> u64 {
    network.hosts[host].engine.statistics().drops.get(reason)
}

/// An address that nobody has.
pub(crate) fn stranger(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a01_0000 + number).into()
}
