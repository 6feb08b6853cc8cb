//! Messages, written and read.

use super::*;
use proptest::prelude::*;

fn req(src: IpAddr, dst: IpAddr) -> Req {
    Req {
        local_comm_id: 0x0102_0304,
        service_id: service_id(7471),
        ca_guid: 0x1122_3344_5566_7788,
        local_qpn: 0x12_3456,
        responder_resources: 1,
        initiator_depth: 2,
        remote_cm_timeout: 20,
        transport: 3,
        starting_psn: 0xab_cdef,
        local_cm_timeout: 19,
        retry_count: 7,
        partition: 0xffff,
        path_mtu: 4,
        rnr_retry_count: 6,
        max_cm_retries: 15,
        flow_label: 0xf_1234,
        traffic_class: 0x60,
        hop_limit: 64,
        ack_timeout: 18,
        src_port: 40000,
        src,
        dst,
        private: std::array::from_fn(|n| u8::try_from(n).expect("56 bytes")),
    }
}

fn messages() -> Vec<Message> {
    let pair = Pair {
        local_comm_id: 1,
        remote_comm_id: 2,
    };
    let v4 = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
    let v6 = |n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
    vec![
        Message::Req(Box::new(req(v4(1), v4(2)))),
        Message::Req(Box::new(req(v6(1), v6(2)))),
        Message::Rep(Box::new(Rep {
            local_comm_id: 1,
            remote_comm_id: 2,
            local_qpn: 77,
            starting_psn: 88,
            responder_resources: 3,
            initiator_depth: 4,
            rnr_retry_count: 7,
            ca_guid: 5,
            private: [9; REP_PRIVATE_LEN],
        })),
        Message::Rej(Box::new(Rej {
            local_comm_id: 1,
            remote_comm_id: 2,
            message: 1,
            reason: reject::CONSUMER,
            info_len: 72,
            info: [7; REJ_INFO_LEN],
            private: [8; REJ_PRIVATE_LEN],
        })),
        Message::Rtu(pair),
        Message::Dreq(Dreq {
            pair,
            remote_qpn: 5,
        }),
        Message::Drep(pair),
        Message::Mra(Mra {
            pair,
            message: about::REP,
            service_timeout: 31,
        }),
        Message::Lap(Lap {
            pair,
            remote_qpn: 0xab_cdef,
        }),
        Message::Apr(Apr {
            pair,
            status: alternate::UNSUPPORTED,
        }),
        Message::SidrReq(SidrReq {
            request: 77,
            partition: 0xffff,
            service_id: service_id(7471),
        }),
        Message::SidrRep(SidrRep {
            request: 77,
            status: sidr::UNSUPPORTED,
            qpn: 0x12_3456,
            service_id: service_id(7471),
            qkey: 0x8001_0000,
        }),
    ]
}

/// HT-10: what is written is read back.
#[test]
fn messages_are_read_back() {
    for message in messages() {
        let mad = Mad {
            transaction: 42,
            message,
        };
        assert_eq!(Mad::parse(&mad.emit()), Ok(mad));
    }
}

#[test]
fn foreign_mads_are_refused() {
    let good = Mad {
        transaction: 1,
        message: messages().remove(0),
    }
    .emit();
    assert!(Mad::parse(&good[..255]).is_err());
    for (at, value) in [
        (0, 2),
        (1, 3),
        (2, 1),
        (3, 0x81),
        (17, 0x99),
        (24 + 140 + 1, 0x50),
    ] {
        let mut wrong = good;
        wrong[at] = value;
        assert!(Mad::parse(&wrong).is_err(), "byte {at}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0x10..0x1c_u8) {
        let mut bytes = bytes;
        let _ = Mad::parse(&bytes);
        if bytes.len() >= MAD_LEN {
            bytes[..4].copy_from_slice(&[1, CLASS, 2, 3]);
            (bytes[16], bytes[17]) = (0, kind);
            let _ = Mad::parse(&bytes);
        }
    }
}
