//! Every size from 0 to 4200 bytes of every operation, byte by byte.

use crate::network::Network;
use common::time::Span;
use hostd::memory::RegionMemory;
use hostd::verbs::{
    CompletionOpcode, EngineConfig, MultipathConfig, SendOpcode, SendRequest, Status,
};

/// More than four packets of 1024 bytes.
const LONGEST: u32 = 4200;

/// Requests at a time: those of a batch go to places of their own.
const BATCH: u32 = 60;

/// Where the bytes of a request of a batch go, with room around them.
fn place(n: u32) -> u32 {
    n % BATCH * 5000 + 300
}

fn request(network: &Network, opcode: SendOpcode, n: u32) -> SendRequest {
    let (source, target) = (u64::from(n) * 7, u64::from(place(n)));
    let read = opcode == SendOpcode::RdmaRead;
    let (addr, remote_addr) = if read {
        (target, source)
    } else {
        (source, target)
    };
    SendRequest {
        opcode,
        remote_addr,
        rkey: network.hosts[1].keys.rkey,
        imm: n,
        ..network.hosts[0].send(u64::from(n), addr, n)
    }
}

fn clear(network: &Network, host: usize) {
    let zeros = vec![0; place(BATCH - 1) as usize + 5000];
    assert!(network.hosts[host].memory.copy_in(0, &zeros));
}

/// Does `opcode` with every size; what arrives is what left, and nothing beside it is touched.
fn every_size(multipath: Option<MultipathConfig>, opcode: SendOpcode) {
    let mut network = Network::new(1, [EngineConfig::default(), EngineConfig::default()]);
    let qpns = network.connected(multipath);
    let read = opcode == SendOpcode::RdmaRead;
    let (from, to) = if read { (1, 0) } else { (0, 1) };
    let bytes = network.fill(from);
    let receives = matches!(opcode, SendOpcode::Send | SendOpcode::SendWithImm);
    let written = opcode == SendOpcode::RdmaWriteWithImm;
    for start in (0..=LONGEST).step_by(BATCH as usize) {
        let sizes = start..(start + BATCH).min(LONGEST + 1);
        clear(&network, to);
        for n in sizes.clone() {
            if receives || written {
                // A buffer that is as long as the message, or none at all.
                let len = if receives { n } else { 0 };
                network.hosts[1].receive_into(qpns[1], u64::from(n), u64::from(place(n)), len);
            }
            let request = request(&network, opcode, n);
            let engine = &mut network.hosts[0].engine;
            engine.post_send(qpns[0], request).expect("room");
        }
        let expected = sizes.len();
        let done = network.run(Span::from_secs(1), |network| {
            let received = network.hosts[1].completions.len();
            network.hosts[0].completions.len() == expected
                && (received == expected || !(receives || written))
        });
        assert!(done, "{opcode:?} {multipath:?} from {start} on");
        for (host, n) in [0, 1]
            .into_iter()
            .flat_map(|host| sizes.clone().map(move |n| (host, n)))
        {
            let index = (n - start) as usize;
            let Some(completion) = network.hosts[host].completions.get(index) else {
                assert!(host == 1 && !receives && !written, "{opcode:?} of {n}");
                continue;
            };
            assert_eq!(completion.status, Status::Success, "{opcode:?} of {n}");
            assert_eq!((completion.wr_id, completion.byte_len), (u64::from(n), n));
            let name = match (host, receives) {
                (0, _) => CompletionOpcode::from(opcode),
                (_, true) => CompletionOpcode::Receive,
                (_, false) => CompletionOpcode::ReceiveRdmaWithImm,
            };
            assert_eq!(completion.opcode, name);
            let imm = (host == 1 && opcode.has_imm()).then_some(n);
            assert_eq!(completion.imm, imm);
        }
        let memory = network.hosts[to].memory.to_vec();
        let mut wanted = vec![0; place(BATCH - 1) as usize + 5000];
        for n in sizes {
            let (source, target, len) = (n as usize * 7, place(n) as usize, n as usize);
            wanted[target..target + len].copy_from_slice(&bytes[source..source + len]);
        }
        assert!(
            memory[..wanted.len()] == wanted,
            "{opcode:?} {multipath:?} from {start} on"
        );
        network
            .hosts
            .iter_mut()
            .for_each(|host| host.completions.clear());
    }
    network.close();
}

/// HT-1: SENDs, WRITEs and READs of 0 to 4200 bytes, with and without immediate data, over many
/// paths and over plain RoCEv2.
#[test]
fn every_size_of_every_operation() {
    for multipath in [Some(MultipathConfig::default()), None] {
        for opcode in [
            SendOpcode::Send,
            SendOpcode::SendWithImm,
            SendOpcode::RdmaWrite,
            SendOpcode::RdmaWriteWithImm,
            SendOpcode::RdmaRead,
        ] {
            every_size(multipath, opcode);
        }
    }
}

/// HT-1: every request that ends with an error completes, also one that asked for no completion
/// (InfiniBand 10.7.3.1): the one that failed says why, and those after it are flushed in order.
#[test]
fn a_completion_on_every_error() {
    let opcodes = [
        SendOpcode::Send,
        SendOpcode::SendWithImm,
        SendOpcode::RdmaWrite,
        SendOpcode::RdmaWriteWithImm,
        SendOpcode::RdmaRead,
        SendOpcode::AtomicCmpAndSwp,
        SendOpcode::AtomicFetchAndAdd,
    ];
    for multipath in [Some(MultipathConfig::default()), None] {
        for failing in opcodes {
            let mut network = Network::new(2, [EngineConfig::default(), EngineConfig::default()]);
            let [sender, receiver] = network.connected(multipath);
            network.hosts[1].receive_into(receiver, 50, 0, 100);
            network.hosts[1].receive_into(receiver, 51, 0, 100);
            for (wr_id, opcode) in (0..).zip([failing].into_iter().chain(opcodes)) {
                let mut request = SendRequest {
                    signaled: false,
                    ..request(&network, opcode, 8)
                };
                request.wr_id = wr_id;
                request.lkey ^= u32::from(wr_id == 0);
                let engine = &mut network.hosts[0].engine;
                engine.post_send(sender, request).expect("room");
            }
            network.pass(Span::from_millis(5));
            let ends: Vec<_> = network.hosts[0]
                .completions
                .iter()
                .map(|completion| (completion.wr_id, completion.status))
                .collect();
            let mut expected = vec![(0, Status::LocalProtection)];
            expected.extend((1..8).map(|wr_id| (wr_id, Status::WorkRequestFlushed)));
            assert_eq!(ends, expected, "{failing:?} {multipath:?}");
            network.close();
        }
    }
}
