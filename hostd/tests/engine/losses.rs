//! Every reason for which the engine drops a packet, brought about on purpose.

use crate::network::{Network, cookie_of};
use common::wire::Mac;
use common::wire::cm::{Mad, Message, Pair};
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{
    AckKind, Aeth, Bth, Cookie, Deth, Extension, Flow, Headers, Opcode, Operation, Reth,
};
use hostd::verbs::{DropReason, EngineConfig, MultipathConfig, SendOpcode, SendRequest};

fn network() -> Network {
    Network::new(1, [EngineConfig::default(), EngineConfig::default()])
}

/// A sealed frame from host 0 to host 1.
fn frame(network: &Network, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let [source, destination] = &network.hosts;
    let flow = Flow {
        src_mac: Mac([2; 6]),
        dst_mac: Mac([2; 6]),
        addresses: Addresses::new(source.address, destination.address).expect("one version"),
        src_port: 0xc000,
        flow_label: 0,
        traffic_class: 0,
        ttl: 64,
    };
    let mut headers = *headers;
    if headers.bth.opcode.is_multipath() && headers.extension.is_none() {
        headers.extension = Some(Extension::new(cookie_of(destination.address)));
    }
    let mut bytes = vec![0; layout(flow.addresses, &headers, payload.len()).len];
    let place = emit(&mut bytes, &flow, &headers, payload.len());
    bytes[place].copy_from_slice(payload);
    seal(&mut bytes).expect("a frame");
    bytes
}

fn data(network: &Network, qpn: u32, psn: u32) -> Vec<u8> {
    let opcode = Opcode::Multipath(Operation::SendOnly);
    frame(network, &Headers::new(Bth::new(opcode, qpn, psn)), b"data")
}

fn management(network: &Network, mad: &[u8]) -> Vec<u8> {
    let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, 1, 0));
    headers.deth = Some(Deth {
        qkey: Deth::GSI_QKEY,
        src_qp: 1,
    });
    frame(network, &headers, mad)
}

fn drops(network: &Network, reason: DropReason) -> u64 {
    network.hosts[1].engine.statistics().drops.get(reason)
}

/// HT-3: a packet of a multipath connection with another cookie than its peer was told changes
/// nothing, whatever it is.
#[test]
fn packets_without_the_cookie() {
    let mut network = network();
    let [_, receiver] = network.connected(Some(MultipathConfig::default()));
    let before = network.hosts[1].engine.queue_pair_statistics(receiver);
    let operations = [
        Operation::SendOnly,
        Operation::ReadRequest,
        Operation::FetchAdd,
        Operation::Acknowledge,
        Operation::ReadResponseOnly,
        Operation::AtomicAcknowledge,
    ];
    for (operation, lost) in operations.into_iter().zip(1..) {
        let psn = if operation.is_response() {
            0xff_ffef
        } else {
            0xff_fff0
        };
        let mut headers = Headers::new(Bth::new(Opcode::Multipath(operation), receiver, psn));
        let right = cookie_of(network.hosts[1].address);
        headers.extension = Some(Extension::new(Cookie::new(right.bits() ^ 1)));
        headers.aeth = operation.has_aeth().then_some(Aeth {
            kind: AckKind::Ack { credits: 31 },
            msn: 0,
        });
        let bytes = frame(&network, &headers, &[]);
        network.inject(1, &bytes);
        assert_eq!(
            drops(&network, DropReason::WrongCookie),
            lost,
            "{operation:?}"
        );
    }
    let after = network.hosts[1].engine.queue_pair_statistics(receiver);
    assert_eq!(format!("{after:?}"), format!("{before:?}"));
    let statistics = network.hosts[1].engine.statistics();
    assert_eq!(statistics.drops.total(), 6);
    network.close();
}

/// HT-40: what came before is counted and acknowledged again, what is too far ahead too, what waits
/// when its queue pair ends, and what comes afterwards.
#[test]
fn packets_out_of_their_place() {
    let mut network = network();
    let [_, receiver] = network.connected(Some(MultipathConfig::default()));
    let expected = 0xff_fff0_u32;
    let bytes = data(&network, receiver, expected - 1);
    network.inject(1, &bytes);
    let statistics = network.hosts[1].engine.statistics();
    assert_eq!((statistics.duplicates, statistics.drops.total()), (1, 0));
    let bytes = data(&network, receiver, (expected + 512) & 0xff_ffff);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::BeyondWindow), 1);
    let bytes = data(&network, receiver, expected + 2);
    network.inject(1, &bytes);
    network.hosts[1]
        .engine
        .destroy_queue_pair(receiver)
        .expect("exists");
    assert_eq!(drops(&network, DropReason::QueuePairEnded), 1);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::QueuePairEnded), 2);
    let statistics = network.hosts[1].engine.statistics();
    assert_eq!(statistics.drops.total(), 3);
    // MG-5: what a queue pair counted stays counted when it has ended.
    assert_eq!(statistics.transport.out_of_order, 1);
    network.close();
}

/// HT-10: nothing waits for a plain peer, neither for a packet before it nor for a receive.
#[test]
fn packets_of_a_plain_peer() {
    let mut network = network();
    let [_, receiver] = network.connected(None);
    let plain = |network: &Network, psn| {
        let opcode = Opcode::Rc(Operation::SendOnly);
        frame(
            network,
            &Headers::new(Bth::new(opcode, receiver, psn)),
            b"data",
        )
    };
    let bytes = plain(&network, 0xff_fff2);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::OutOfOrder), 1);
    let bytes = plain(&network, 0xff_fff0);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::ReceiverNotReady), 1);
    network.close();
}

/// HT-43: an acknowledgement of what was never sent.
#[test]
fn acknowledgements_of_nothing() {
    let mut network = network();
    let [_, receiver] = network.connected(None);
    let opcode = Opcode::Rc(Operation::Acknowledge);
    let mut headers = Headers::new(Bth::new(opcode, receiver, 5));
    headers.aeth = Some(Aeth {
        kind: AckKind::Ack { credits: 31 },
        msn: 0,
    });
    let bytes = frame(&network, &headers, &[]);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::ImpossibleAcknowledgement), 1);
    network.close();
}

/// HT-1: a packet that claims a number which a READ before it takes for its answers, a question
/// that is asked again when its answer is forgotten, and answers that are not what was asked for.
#[test]
fn answers_out_of_their_place() {
    let mut network = network();
    let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
    let first = 0xff_fff0;
    let bytes = data(&network, receiver, first + 2);
    network.inject(1, &bytes);
    let rkey = network.hosts[1].keys.rkey;
    let read = |network: &Network, psn, len| {
        let opcode = Opcode::Multipath(Operation::ReadRequest);
        let mut headers = Headers::new(Bth::new(opcode, receiver, psn));
        let address = 0;
        headers.reth = Some(Reth { address, rkey, len });
        frame(network, &headers, &[])
    };
    let bytes = read(&network, first, 3000);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::InsideRead), 1);
    let bytes = read(&network, first - 1, 10);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::ForgottenAnswer), 1);
    // Host 0 asks for 10 bytes, and gets 4, or the result of an atomic operation.
    let request = SendRequest {
        opcode: SendOpcode::RdmaRead,
        rkey,
        ..network.hosts[0].send(1, 0, 10)
    };
    let engine = &mut network.hosts[0].engine;
    engine.post_send(sender, request).expect("room");
    network.turn();
    network.hosts.swap(0, 1);
    for operation in [Operation::ReadResponseOnly, Operation::AtomicAcknowledge] {
        let opcode = Opcode::Multipath(operation);
        let headers = Headers::new(Bth::new(opcode, sender, first));
        let payload: &[u8] = if operation.has_payload() {
            b"data"
        } else {
            &[]
        };
        let bytes = frame(&network, &headers, payload);
        network.inject(1, &bytes);
    }
    assert_eq!(drops(&network, DropReason::WrongAnswer), 2);
    network.close();
}

/// HT-10: connection messages that make no sense, or are about nothing that is known.
#[test]
fn connection_messages_about_nothing() {
    let mut network = network();
    let bytes = management(&network, &[0; 256]);
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::MalformedManagement), 1);
    let stray = Mad {
        transaction: 1,
        message: Message::Rtu(Pair {
            local_comm_id: 1,
            remote_comm_id: 2,
        }),
    };
    let bytes = management(&network, &stray.emit());
    network.inject(1, &bytes);
    assert_eq!(drops(&network, DropReason::UnknownConnection), 1);
    network.close();
}
