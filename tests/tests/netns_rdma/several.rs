//! Several queue pairs at once, each with a program of its own in the guest.

use std::collections::HashMap;
use std::time::Duration;

use hostd_client::{
    CompletionStatus, QueuePair, QueuePairOptions, ReceiveRequest, RemoteSlice, SendRequest,
    SharedQueue,
};
use lab::capture::dissect;
use lab::observe::{eventually, rows};
use serde_json::Value;

use crate::links::with_losses;
use crate::peer::{Meeting, Peer, pattern};
use crate::rig::{self, LIMIT, Rig};
use crate::talk::{Talk, memory};

/// Programs in the guest.
const PEERS: u16 = 4;

/// Where hostd writes to in the guest, and reads to at home.
const UPPER: usize = 8 << 20;

/// Meanwhile, in all of them: hostd writes to the guest and reads from it, and the guest sends.
fn all_at_once(talks: &mut [Talk], len: usize, round: u32) {
    for (talk, number) in talks.iter_mut().zip(0..) {
        let seed = round * 100 + number;
        talk.peer.must(&format!("fill 1 {len} {seed}"));
        talk.region.write(UPPER, &pattern(len, seed + 50)).unwrap();
        let local = talk.region.slice(0, len).unwrap();
        let receive = ReceiveRequest { wr_id: 1, local };
        talk.pair.post_receive(&receive).unwrap();
    }
    for talk in talks.iter_mut() {
        talk.peer.tell(&format!("do send 1 {len} 0 0 0 0 0"));
        let upper = RemoteSlice {
            address: talk.peer.remote.address + UPPER as u64,
            ..talk.peer.remote
        };
        let ours = talk.region.slice(UPPER, len).unwrap();
        let read = talk.region.slice(UPPER / 2, len).unwrap();
        let requests = [
            SendRequest::write(2, ours, upper),
            SendRequest::read(3, read, talk.peer.remote),
        ];
        assert_eq!(talk.pair.post_sends(&requests).unwrap(), 2);
    }
    for (talk, number) in talks.iter_mut().zip(0..) {
        let seed = round * 100 + number;
        let mut done = [0; 3].map(|_: u8| talk.next().wr_id);
        done.sort_unstable();
        assert_eq!(done, [1, 2, 3], "talk {number}");
        assert_eq!(talk.peer.hear(), "success", "talk {number}");
        for at in [0, UPPER / 2] {
            let mut found = vec![0; len];
            talk.region.read(at, &mut found).unwrap();
            assert!(found == pattern(len, seed), "talk {number}, at {at}");
        }
        talk.peer.must(&format!("at {UPPER}"));
        talk.peer.must(&format!("check 1 {len} {}", seed + 50));
        talk.peer.must("at 0");
    }
}

/// HT-1, HT-10, HT-43: four queue pairs at once, of IPv4 and IPv6 and with different path MTUs, in
/// each of which hostd writes and reads and the guest sends at the same time; then with losses of
/// one in a hundred packets either way. Every byte is right.
#[test]
fn several_queue_pairs_at_once() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let mtus = [256, 1024, 2048, 4096];
        let mut talks: Vec<_> = (0..PEERS)
            .zip(mtus)
            .map(|(number, mtu)| {
                Talk::begin(rig, Meeting::new(7041 + number, number % 2 == 1, mtu))
            })
            .collect();
        for (round, len) in (0..).zip([1, 4096, 100_001]) {
            all_at_once(&mut talks, len, round);
        }
        let file = capture.stop().unwrap();
        rig.assert_understood(&file);
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        with_losses(rig, |_| all_at_once(&mut talks, 500_000, 3));
        rig.assert_recovered(&capture.stop().unwrap());
        for talk in talks {
            talk.end(rig);
        }
    });
}

/// Bytes of a receive.
const ROOM: usize = 32 << 10;

/// Receives that are posted at most.
const RECEIVES: usize = 4;

/// The messages of one program, of which the next one is sent when the one before is complete.
const MESSAGES: usize = 8;

/// Of a message of a program.
fn size_and_seed(peer: usize, message: usize) -> (usize, u32) {
    let sizes = [0, 1, 257, 4097, ROOM];
    let seed = u32::try_from(peer * 100 + message).unwrap();
    (sizes[(peer + message) % sizes.len()], seed)
}

/// Programs of the guest with queue pairs of hostd.
fn meet(rig: &mut Rig, pairs: &mut [QueuePair]) -> Vec<Peer> {
    let mtus = [256, 1024, 4096, 2048];
    let met = pairs
        .iter_mut()
        .zip(mtus)
        .zip(7051..)
        .map(|((pair, mtu), port)| Peer::meet(rig, pair, Meeting::new(port, port % 2 == 0, mtu)));
    met.collect()
}

/// Four receives are posted: the third message is the one that leaves less than two.
fn the_limit_is_told(shared: &SharedQueue, peers: &mut [Peer]) {
    shared.set_limit(2).unwrap();
    for (peer, expected) in peers[..3].iter_mut().zip([false, false, true]) {
        let early = shared.wait_limit(Duration::from_millis(50));
        assert!(!early.unwrap(), "there are enough");
        assert_eq!(peer.ask("do send 1 1 0 0 0 0 0"), "success");
        if expected {
            assert!(shared.wait_limit(LIMIT).unwrap(), "one is left");
        }
    }
}

/// HT-1, HT-10: four queue pairs take their receives from one shared queue with fewer of them than
/// the guest sends at once: messages wait by RNR NAKs, each comes once, whole and in its
/// connection's order, and the queue's limit is told once.
#[test]
fn the_guest_sends_into_a_shared_receive_queue() {
    rig::with(|rig| {
        let context = rig.application();
        let mut completions = context.create_completion_queue(64).unwrap();
        let mut shared = context.create_shared_queue(16, 0).unwrap();
        let region = memory(&context, RECEIVES * ROOM);
        let options = QueuePairOptions::default();
        let mut pairs: Vec<_> = (0..PEERS)
            .map(|_| {
                context
                    .create_sharing_queue_pair(&completions, &completions, &shared, options)
                    .unwrap()
            })
            .collect();
        let mut peers = meet(rig, &mut pairs);
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        for (number, peer) in peers.iter_mut().enumerate() {
            for message in 0..MESSAGES {
                let (len, seed) = size_and_seed(number, message);
                peer.tell(&format!("fill 1 {len} {seed}"));
                peer.tell(&format!("do send 1 {len} 0 0 0 0 0"));
            }
        }
        let mut post = |number: usize| {
            let local = region.slice(number * ROOM, ROOM).unwrap();
            let wr_id = u64::try_from(number).unwrap();
            let receive = ReceiveRequest { wr_id, local };
            shared.post_receive(&receive).unwrap();
        };
        eventually("a message that waits", LIMIT, || {
            let pairs = rows(rig.lab.hostctl("h1", &["show", "qps"]).unwrap());
            let waits = |row: &Value| row["tx_rnr"].as_u64() > Some(0);
            pairs.iter().any(waits).then_some(()).ok_or(String::new())
        });
        for number in 0..RECEIVES {
            post(number);
        }
        let mut next: HashMap<u32, usize> = HashMap::new();
        for _ in 0..usize::from(PEERS) * MESSAGES {
            let completion = completions.next(LIMIT).unwrap();
            assert_eq!(completion.status, CompletionStatus::Success);
            let from = pairs
                .iter()
                .position(|pair| pair.id() == completion.queue_pair);
            let from = from.expect("one of them");
            let message = next.entry(completion.queue_pair).or_default();
            let (len, seed) = size_and_seed(from, *message);
            let place = usize::try_from(completion.wr_id).unwrap();
            let mut found = vec![0; completion.byte_len as usize];
            region.read(place * ROOM, &mut found).unwrap();
            assert!(
                found == pattern(len, seed),
                "{from}: {message}: {len} bytes"
            );
            *message += 1;
            post(place);
        }
        for peer in &mut peers {
            for _ in 0..MESSAGES {
                assert_eq!((peer.hear(), peer.hear()), ("ok".into(), "success".into()));
            }
        }
        the_limit_is_told(&shared, &mut peers);
        let file = capture.stop().unwrap();
        for peer in peers {
            peer.end(rig);
        }
        rig.assert_understood(&file);
        // Without a receive: RNR NAK with the timer that hostd was told.
        let naks = dissect(&file, "infiniband.aeth.syndrome == 0x2c", &["frame.number"]);
        assert!(!naks.unwrap().is_empty(), "messages had to wait");
    });
}
