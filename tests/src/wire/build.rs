//! The headers and messages of the samples: every field has a value that no other field has.

use common::wire::cm::{
    self, Dreq, Message, Pair, REJ_PRIVATE_LEN, REP_PRIVATE_LEN, REQ_PRIVATE_LEN, Rej, Rep, Req,
};
use common::wire::roce::frame::{self, Addresses};
use common::wire::roce::{
    AckKind, Aeth, AtomicEth, Bth, Cookie, DataFlags, Extension, Flow, Headers, Mpeh, Opcode,
    Operation, Reth, Sack,
};

/// Cookie of the samples of multipath connections.
pub const SAMPLE_COOKIE: Cookie = Cookie::new(0xb1b2_b3b4_b5b6);

/// Service identifier that the sample REQ asks for.
const SERVICE: u64 = cm::service_id(7471);

/// Headers of an operation with everything that its opcode announces.
pub(super) fn headers(opcode: Opcode) -> Headers {
    let operation = opcode.operation().expect("an operation of a connection");
    let multipath = opcode.is_multipath();
    let mut headers = Headers::new(Bth::new(opcode, 0x01_2345, 0x98_7654));
    headers.bth.solicited = operation.is_last() && !operation.is_response();
    headers.bth.ack_request = operation.is_last();
    headers.mpeh = multipath.then_some(Mpeh {
        path: 3,
        flags: DataFlags::FLOWLET_BOUNDARY,
        flowlet: 0x0405,
        tag: 0x0607,
    });
    headers.extension = multipath.then_some(Extension::new(SAMPLE_COOKIE));
    headers.reth = operation.has_reth().then_some(Reth {
        address: 0x1112_1314_1516_1718,
        rkey: 0x2122_2324,
        len: 7,
    });
    headers.atomic = operation.has_atomic().then_some(AtomicEth {
        address: 0x3132_3334_3536_3738,
        rkey: 0x4142_4344,
        swap_or_add: 0x5152_5354_5556_5758,
        compare: 0x6162_6364_6566_6768,
    });
    headers.aeth = operation.has_aeth().then_some(Aeth {
        kind: AckKind::Ack {
            credits: Aeth::NO_CREDIT_LIMIT,
        },
        msn: 0x71_7273,
    });
    headers.sack = (multipath && operation == Operation::Acknowledge).then(|| {
        let mut sack = Sack {
            trigger: 0x98_7658,
            ..Sack::default()
        };
        sack.set(3);
        sack.set(200);
        sack
    });
    headers.atomic_original =
        (operation == Operation::AtomicAcknowledge).then_some(0x8182_8384_8586_8788);
    headers.immediate = operation.has_immediate().then_some(0x9192_9394);
    headers.invalidate = operation.has_invalidate().then_some(0xa1a2_a3a4);
    headers
}

/// The whole frame, sealed.
pub(super) fn frame(flow: &Flow, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; frame::layout(flow.addresses, headers, payload.len()).len];
    let place = frame::emit(&mut bytes, flow, headers, payload.len());
    bytes[place].copy_from_slice(payload);
    frame::seal(&mut bytes).expect("a frame just written");
    bytes
}

/// One message of each kind between `addresses`.
pub(super) fn messages(addresses: Addresses) -> Vec<Message> {
    let pair = Pair {
        local_comm_id: 0x0a0b_0c0d,
        remote_comm_id: 0x1a1b_1c1d,
    };
    vec![
        Message::Req(Box::new(Req {
            local_comm_id: pair.local_comm_id,
            service_id: SERVICE,
            ca_guid: 0x1122_3344_5566_7788,
            local_qpn: 0x12_3456,
            responder_resources: 5,
            initiator_depth: 6,
            remote_cm_timeout: 20,
            transport: cm::RELIABLE_CONNECTION,
            starting_psn: 0xab_cdef,
            local_cm_timeout: 19,
            retry_count: 7,
            partition: 0xffff,
            path_mtu: 4,
            rnr_retry_count: 6,
            max_cm_retries: 15,
            flow_label: 0x5_4321,
            traffic_class: 0x6a,
            hop_limit: 64,
            ack_timeout: 18,
            src_port: 40_000,
            src: addresses.src(),
            dst: addresses.dst(),
            private: std::array::from_fn(|n| u8::try_from(REQ_PRIVATE_LEN - n).expect("short")),
        })),
        Message::Rep(Box::new(Rep {
            local_comm_id: pair.local_comm_id,
            remote_comm_id: pair.remote_comm_id,
            local_qpn: 0x65_4321,
            starting_psn: 0xfe_dcba,
            responder_resources: 3,
            initiator_depth: 4,
            rnr_retry_count: 7,
            ca_guid: 0x8877_6655_4433_2211,
            private: std::array::from_fn(|n| u8::try_from(REP_PRIVATE_LEN - n).expect("short")),
        })),
        Message::Rej(Box::new(Rej {
            local_comm_id: pair.local_comm_id,
            remote_comm_id: pair.remote_comm_id,
            message: 1,
            reason: cm::reject::CONSUMER,
            info_len: 0,
            info: [0; cm::REJ_INFO_LEN],
            private: std::array::from_fn(|n| u8::try_from(REJ_PRIVATE_LEN - n).expect("short")),
        })),
        Message::Rtu(pair),
        Message::Dreq(Dreq {
            pair,
            remote_qpn: 0x77_8899,
        }),
        Message::Drep(pair),
    ]
}
