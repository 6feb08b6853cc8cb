//! Packets that are placed before their turn (HT-40): which they are, what nobody sees of others,
//! and what is not written any more.

use crate::network::{Network, PEERS};
use crate::services::{FIRST, packet};
use common::time::Span;
use common::wire::roce::{Headers, Operation, Reth};
use hostd::memory::{HeapMemory, RegionMemory};
use hostd::stats::QueuePairCounters;
use hostd::verbs::{
    Access, Completion, CompletionOpcode, DropReason, EngineConfig, Event, MultipathConfig,
    ReadyToSend, RegionKeys, SendOpcode, SendRequest, Service, Sge, State, Status, Transition,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Bytes of a full packet.
const MTU: usize = 1024;

/// The same, as lengths of receives are told.
const FULL: u32 = 1024;

/// A message in packets, of which none is written yet: no byte is zero.
#[derive(Clone, Debug)]
struct Message {
    write: bool,
    /// How far its first packet is behind [`FIRST`].
    first: u32,
    /// Where a WRITE goes, and the key.
    target: (u64, u32),
    bytes: Vec<u8>,
}

impl Message {
    fn packets(&self) -> u32 {
        u32::try_from(self.bytes.len().div_ceil(MTU)).expect("short")
    }

    /// Operation and payload of its n-th packet; of two at least.
    fn segment(&self, n: u32) -> (Operation, &[u8]) {
        use Operation as O;
        let last = n + 1 == self.packets();
        let operation = match (self.write, n) {
            (false, 0) => O::SendFirst,
            (true, 0) => O::WriteFirst,
            (false, _) if last => O::SendLast,
            (true, _) if last => O::WriteLastImmediate,
            (false, _) => O::SendMiddle,
            (true, _) => O::WriteMiddle,
        };
        let from = n as usize * MTU;
        let to = self.bytes.len().min(from + MTU);
        (operation, &self.bytes[from..to])
    }
}

/// Two hosts that are connected; the packets to the second one are made by hand.
struct Bed {
    network: Network,
    receiver: u32,
    random: Pcg64Mcg,
}

impl Bed {
    fn new(seed: u64) -> Self {
        Self::with(seed, Service::Ordered, EngineConfig::default())
    }

    fn with(seed: u64, service: Service, config: EngineConfig) -> Self {
        let mut network = Network::new(seed, [EngineConfig::default(), config]);
        let multipath = MultipathConfig {
            service,
            ..MultipathConfig::default()
        };
        let [_, receiver] = network.connected(Some(multipath));
        Self {
            network,
            receiver,
            random: Pcg64Mcg::new(u128::from(seed)),
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut byte = || u8::try_from(1 + self.random.next_u32() % 255).expect("a byte");
        (0..len).map(|_| byte()).collect()
    }

    fn send(&mut self, first: u32, len: usize) -> Message {
        Message {
            write: false,
            first,
            target: (0, 0),
            bytes: self.bytes(len),
        }
    }

    fn write(&mut self, first: u32, address: u64, len: usize) -> Message {
        Message {
            write: true,
            target: (address, self.network.hosts[1].keys.rkey),
            ..self.send(first, len)
        }
    }

    /// A packet comes.
    fn comes(&mut self, ahead: u32, operation: Operation, reth: Option<Reth>, payload: &[u8]) {
        let psn = FIRST + ahead;
        let frame = packet(&self.network, self.receiver, operation, psn, reth, payload);
        self.network.inject(1, &frame);
        self.books_balance();
    }

    /// The n-th packet of a message comes.
    fn comes_of(&mut self, message: &Message, n: u32) {
        let (operation, payload) = message.segment(n);
        let (address, rkey) = message.target;
        let reth = operation.has_reth().then(|| Reth {
            address,
            rkey,
            len: u32::try_from(message.bytes.len()).expect("short"),
        });
        self.comes(message.first + n, operation, reth, payload);
    }

    fn all_come(&mut self, message: &Message, numbers: impl IntoIterator<Item = u32>) {
        for n in numbers {
            self.comes_of(message, n);
        }
    }

    /// Of every packet it is known what became of it, and frames that wait are counted as such.
    fn books_balance(&self) {
        let engine = &self.network.hosts[1].engine;
        let statistics = engine.statistics();
        let known = statistics.settled() + engine.held_packets() as u64;
        assert_eq!(statistics.rx_packets, known, "{statistics:#?}");
        let standing = engine.queue_pair_statistics(self.receiver);
        let waiting = standing.expect("exists").reordering;
        assert_eq!(waiting as usize, self.held());
    }

    /// Frames that wait.
    fn held(&self) -> usize {
        self.network.hosts[1].engine.held_packets()
    }

    fn counters(&self) -> QueuePairCounters {
        let engine = &self.network.hosts[1].engine;
        let standing = engine.queue_pair_statistics(self.receiver);
        standing.expect("exists").counters
    }

    fn state(&self) -> State {
        let engine = &self.network.hosts[1].engine;
        let standing = engine.queue_pair_statistics(self.receiver);
        standing.expect("exists").state
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.network.hosts[1].engine.statistics().drops.get(reason)
    }

    fn memory(&self, from: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.network.hosts[1].memory.copy_out(from, &mut bytes));
        bytes
    }

    /// What completed at the receiver since the last look.
    fn told(&mut self) -> Vec<Completion> {
        self.network.pass(Span::from_micros(10));
        std::mem::take(&mut self.network.hosts[1].completions)
    }

    fn receive(&mut self, wr_id: u64, addr: u64, len: u32) {
        self.network.hosts[1].receive_into(self.receiver, wr_id, addr, len);
    }

    fn receive_pieces(&mut self, wr_id: u64, pieces: &[Sge]) {
        let engine = &mut self.network.hosts[1].engine;
        let posted = engine.post_receive_into(self.receiver, wr_id, pieces);
        posted.expect("room");
    }

    /// Another region of the receiver.
    fn region(&mut self, len: usize, rights: Access) -> (HeapMemory, RegionKeys) {
        let memory = HeapMemory::new(vec![0; len]);
        let host = &mut self.network.hosts[1];
        let keys = host
            .engine
            .register(host.domain, memory.clone(), 0, rights)
            .expect("room");
        (memory, keys)
    }

    /// These in another order, each one within a block of so many.
    fn shuffled(&mut self, numbers: impl Iterator<Item = u32>, block: usize) -> Vec<u32> {
        let mut numbers: Vec<u32> = numbers.collect();
        for block in numbers.chunks_mut(block) {
            for index in (1..block.len()).rev() {
                let other = self.random.next_u32() as usize % (index + 1);
                block.swap(index, other);
            }
        }
        numbers
    }

    fn close(self) {
        self.books_balance();
        self.network.close();
    }
}

fn statuses(told: &[Completion]) -> Vec<(u64, Status, u32)> {
    told.iter()
        .map(|it| (it.wr_id, it.status, it.byte_len))
        .collect()
}

/// HT-40, HT-44: of a WRITE of 500 packets the second one is missing, and all others come in any
/// order, each twice. One frame is enough. All are in memory at once but the last one, which nobody
/// sees before all is there; then it completes, once. Second copies write nothing.
#[test]
fn early_packets_of_a_write_need_no_frames() {
    for service in [Service::Ordered, Service::Unordered] {
        let config = EngineConfig {
            reorder_frames: 1,
            ..EngineConfig::default()
        };
        let mut bed = Bed::with(1, service, config);
        let message = bed.write(0, 5000, 499 * MTU + 100);
        let len = message.bytes.len();
        let forged = bed.bytes(MTU);
        bed.receive(7, 0, 0);
        bed.comes_of(&message, 0);
        for n in bed.shuffled(2..500, 500) {
            let (operation, payload) = message.segment(n);
            bed.comes_of(&message, n);
            bed.comes(n, operation, None, &forged[..payload.len()]);
            assert!(bed.held() <= 1);
        }
        assert_eq!(bed.held(), 1, "the last one");
        let counters = bed.counters();
        assert_eq!((counters.early_placed, counters.out_of_order), (497, 498));
        assert_eq!(counters.reorder_depth_max, 498);
        assert_eq!(counters.duplicates, 498);
        let mut wanted = message.bytes.clone();
        wanted[MTU..2 * MTU].fill(0);
        wanted[499 * MTU..].fill(0);
        assert!(bed.memory(5000, len) == wanted, "{service:?}");
        assert_eq!(bed.told(), []);
        bed.comes_of(&message, 1);
        let told = bed.told();
        let done = (7, Status::Success, u32::try_from(len).expect("short"));
        assert_eq!(statuses(&told), [done]);
        assert_eq!(told[0].imm, Some(499));
        for n in 1..500 {
            let (operation, payload) = message.segment(n);
            bed.comes(n, operation, None, &forged[..payload.len()]);
        }
        assert!(bed.memory(5000, len) == message.bytes, "{service:?}");
        let beside = [bed.memory(4000, 1000), bed.memory(5000 + len as u64, 1000)];
        assert!(beside.concat().iter().all(|byte| *byte == 0));
        assert_eq!(bed.told(), []);
        assert_eq!(bed.counters().rx_bytes, len as u64);
        assert_eq!(bed.counters().rx_messages, 1);
        assert_eq!(bed.dropped(DropReason::ReorderMemory), 0);
        bed.close();
    }
}

/// HT-40, HT-39: a peer whose messages are given out as they are whole sends another one among the
/// packets of a SEND that were placed already. What would count with a hole of old bytes in it is
/// refused.
#[test]
fn a_message_has_no_holes() {
    for service in [Service::Unordered, Service::Idempotent] {
        let mut bed = Bed::with(5, service, EngineConfig::default());
        bed.receive(7, 0, 10 * FULL);
        let full = bed.bytes(MTU);
        let nothing = Reth {
            address: 0,
            rkey: bed.network.hosts[1].keys.rkey,
            len: 0,
        };
        bed.comes(0, Operation::SendFirst, None, &full);
        bed.comes(2, Operation::SendMiddle, None, &full);
        bed.comes(4, Operation::SendMiddle, None, &full);
        assert_eq!(bed.counters().early_placed, 2);
        bed.comes(3, Operation::WriteOnly, Some(nothing), &[]);
        bed.comes(1, Operation::SendMiddle, None, &full);
        bed.comes(5, Operation::SendLast, None, &full[..100]);
        let told = bed.told();
        assert_eq!(statuses(&told), [(7, Status::LocalQpOperation, 0)]);
        let failed = Event::QueuePairFailed {
            qpn: bed.receiver,
            status: Status::LocalQpOperation,
            refused: true,
        };
        assert!(bed.network.hosts[1].events.contains(&failed));
        bed.close();
    }
}

/// Pieces of odd lengths, in any order, for `len` bytes and some more.
fn pieces(bed: &Bed, len: usize) -> Vec<Sge> {
    let lkey = bed.network.hosts[1].keys.lkey;
    let lens = [700, 1, 0, 3000, 100_000, 33];
    let mut left = u32::try_from(len).expect("short") + 5000;
    let mut pieces: Vec<Sge> = lens
        .into_iter()
        .zip([9, 4, 0, 7, 2, 5])
        .map(|(len, slot)| {
            left -= len;
            let addr = slot * 150_000 + 3;
            Sge { addr, len, lkey }
        })
        .collect();
    pieces.push(Sge {
        addr: 2_000_000,
        len: left,
        lkey,
    });
    pieces
}

fn gathered(bed: &Bed, pieces: &[Sge]) -> Vec<u8> {
    let all = pieces
        .iter()
        .map(|it| bed.memory(it.addr, it.len as usize))
        .collect::<Vec<_>>();
    all.concat()
}

/// HT-40: the same of a SEND into a list of pieces, whose packets overtake one another by some.
#[test]
fn early_packets_of_a_send_need_few_frames() {
    for block in [1, 8] {
        let mut bed = Bed::new(2);
        let message = bed.send(0, 299 * MTU + 100);
        let len = message.bytes.len();
        let list = pieces(&bed, len);
        bed.receive_pieces(7, &list);
        bed.comes_of(&message, 0);
        for n in bed.shuffled(2..299, block) {
            bed.comes_of(&message, n);
            assert!(bed.held() < block, "{} of {block}", bed.held());
        }
        bed.comes_of(&message, 299);
        assert_eq!(bed.held(), 1, "the last one");
        assert_eq!(bed.counters().early_placed, 297);
        let mut wanted = message.bytes.clone();
        wanted[MTU..2 * MTU].fill(0);
        wanted[299 * MTU..].fill(0);
        wanted.resize(len + 5000, 0);
        assert!(gathered(&bed, &list) == wanted, "{block}");
        assert_eq!(bed.told(), []);
        bed.network.tap = Some(Vec::new());
        bed.comes_of(&message, 1);
        wanted[..len].copy_from_slice(&message.bytes);
        assert!(gathered(&bed, &list) == wanted, "{block}");
        let done = (7, Status::Success, u32::try_from(len).expect("short"));
        assert_eq!(statuses(&bed.told()), [done]);
        assert_eq!(bed.held(), 0);
        bed.network.pass(Span::from_millis(1));
        let acknowledged = bed.network.tap.take().expect("a tap");
        let last = acknowledged.last().expect("an acknowledgement");
        let (headers, _) = Headers::parse(&last[42..]).expect("headers");
        let psn = (FIRST + 299) & 0xff_ffff;
        let msn = headers.aeth.map(|aeth| aeth.msn);
        assert_eq!((headers.bth.psn, msn), (psn, Some(1)));
        bed.close();
    }
}

/// HT-40: packets that wait in frames because the message had not begun, or because a SEND may have
/// ended and another one begun in what is missing, are placed as soon as that is known.
#[test]
fn frames_come_back_when_it_is_known_what_they_are_of() {
    for write in [false, true] {
        for missing in [&[1][..], &[1, 2], &[0, 1]] {
            let mut bed = Bed::new(3);
            let message = if write {
                bed.write(0, 5000, 100 * MTU)
            } else {
                bed.send(0, 100 * MTU)
            };
            bed.receive(7, 5000, 200_000);
            bed.all_come(&message, (0..100).filter(|n| !missing.contains(n)));
            let at_once = missing == [1] || (write && missing == [1, 2]);
            let came_in_order = usize::from(missing[0] > 0);
            let held = if at_once {
                1
            } else {
                100 - missing.len() - came_in_order
            };
            assert_eq!(bed.held(), held, "{write} {missing:?}");
            if let [before @ .., last] = missing {
                // What is missing of the beginning comes: the first packet, or one of two.
                let (late, first) = match before {
                    [0] => (*last, Some(0)),
                    [other] => (*other, Some(*last)),
                    _ => (*last, None),
                };
                bed.all_come(&message, first);
                assert_eq!(bed.held(), 1, "{write} {missing:?}");
                let placed = 99 - u64::from(late) - 1;
                assert_eq!(bed.counters().early_placed, placed, "{missing:?}");
                assert_eq!(bed.memory(5000 + 99 * MTU as u64, MTU), [0; MTU]);
                assert_eq!(bed.told(), []);
                bed.comes_of(&message, late);
            }
            assert!(bed.memory(5000, 100 * MTU) == message.bytes);
            assert_eq!(bed.told().len(), 1);
            assert_eq!(bed.held(), 0);
            bed.close();
        }
    }
}

/// HT-40: no byte of a message is seen before the one before it is whole, be it that the first one
/// is known to end before, or that it may.
#[test]
fn later_messages_wait() {
    // Which packets of the three messages of three packets each are missing.
    for missing in [
        &[1][..],
        &[2],
        &[1, 2],
        &[2, 3],
        &[1, 3],
        &[2, 3, 6],
        &[1, 5, 6],
        &[1, 2, 3, 5, 6, 8],
        &[1, 2, 3, 4, 5, 6],
    ] {
        for kinds in 0..8 {
            let mut bed = Bed::new(4);
            let mut messages = Vec::new();
            for (index, first) in [0, 3, 6].into_iter().enumerate() {
                let at = 20_000 * index as u64;
                bed.receive(index as u64, at, 20_000);
                messages.push(if kinds >> index & 1 == 1 {
                    bed.write(first, at, 2 * MTU + 500)
                } else {
                    bed.send(first, 2 * MTU + 500)
                });
            }
            let comes = |bed: &mut Bed, psn: u32| {
                bed.comes_of(&messages[psn as usize / 3], psn % 3);
            };
            (0..9)
                .filter(|psn| !missing.contains(psn))
                .for_each(|psn| comes(&mut bed, psn));
            for (index, psn) in missing.iter().enumerate() {
                // The message with the first missing packet is in progress.
                let current = *psn as usize / 3;
                for (number, message) in messages.iter().enumerate() {
                    let there = bed.memory(20_000 * number as u64, 20_000);
                    let (own, beyond) = there.split_at(message.bytes.len());
                    assert!(beyond.iter().all(|byte| *byte == 0), "{missing:?} {kinds}");
                    let is_whole = own == message.bytes;
                    assert_eq!(is_whole, number < current, "{missing:?} {kinds}");
                    let hidden = if number > current {
                        own
                    } else {
                        &own[2 * MTU..]
                    };
                    let is_hidden = hidden.iter().all(|byte| *byte == 0);
                    assert_eq!(is_hidden, number >= current, "{missing:?} {kinds}");
                }
                let done: Vec<_> = bed.told().iter().map(|it| it.wr_id).collect();
                let before = index.checked_sub(1).map_or(0, |it| missing[it] / 3);
                let newly: Vec<_> = (u64::from(before)..current as u64).collect();
                assert_eq!(done, newly, "{missing:?} {kinds}");
                comes(&mut bed, *psn);
            }
            assert_eq!(bed.held(), 0);
            for (index, message) in messages.iter().enumerate() {
                let there = bed.memory(20_000 * index as u64, message.bytes.len());
                assert!(there == message.bytes, "{missing:?} {kinds}");
            }
            bed.close();
        }
    }
}

/// HT-40, HT-3: when the region is gone, or the window that named it was taken back, nothing is
/// written any more, and the message is refused in its turn as ever.
#[test]
fn nothing_is_written_to_what_was_taken_back() {
    for window in [false, true] {
        let mut bed = Bed::new(5);
        let rights = Access::LOCAL_WRITE | Access::BIND | PEERS;
        let (memory, keys) = bed.region(200 * MTU, rights);
        let mut message = bed.write(0, 0, 100 * MTU);
        message.target = (0, keys.rkey);
        let local = |bed: &mut Bed, request: SendRequest| {
            let engine = &mut bed.network.hosts[1].engine;
            engine.post_send(bed.receiver, request).expect("room");
            assert_eq!(bed.told()[0].status, Status::Success);
        };
        if window {
            let host = &mut bed.network.hosts[1];
            let (window, rkey) = host.engine.create_window(host.domain).expect("room");
            message.target.1 = rkey & 0xffff_ff00 | rkey.wrapping_add(1) & 0xff;
            let bind = SendRequest {
                opcode: SendOpcode::BindMw,
                lkey: keys.lkey,
                rkey: message.target.1,
                imm: window,
                signaled: true,
                compare_add: Access::REMOTE_WRITE.bits().into(),
                swap: 200 * MTU as u64,
                ..SendRequest::default()
            };
            local(&mut bed, bind);
        }
        bed.all_come(&message, (0..50).filter(|n| *n != 1));
        assert_eq!((bed.held(), bed.counters().early_placed), (0, 48));
        if window {
            let taken_back = SendRequest {
                opcode: SendOpcode::LocalInv,
                imm: message.target.1,
                signaled: true,
                ..SendRequest::default()
            };
            local(&mut bed, taken_back);
        } else {
            let gone = bed.network.hosts[1].engine.deregister(keys.lkey);
            assert!(gone.is_ok());
        }
        let before = memory.to_vec();
        assert!(before[2 * MTU..50 * MTU] == message.bytes[2 * MTU..50 * MTU]);
        bed.all_come(&message, 50..100);
        assert!(memory.to_vec() == before, "window: {window}");
        assert_eq!((bed.held(), bed.counters().early_placed), (50, 48));
        bed.comes_of(&message, 1);
        assert_eq!((bed.state(), bed.held()), (State::Error, 0));
        assert_eq!(bed.dropped(DropReason::RequestRefused), 1);
        assert_eq!(bed.dropped(DropReason::QueuePairEnded), 50);
        bed.all_come(&message, 0..100);
        assert!(memory.to_vec() == before, "window: {window}");
        bed.close();
    }
}

/// HT-40: a placed packet whose region is gone by its turn is refused, though what closes the gap
/// before it, and what follows, go to another region that is there.
#[test]
fn memory_is_looked_at_again_in_turn() {
    let mut bed = Bed::new(6);
    let (memory, keys) = bed.region(10 * MTU, Access::LOCAL_WRITE);
    let good = bed.network.hosts[1].keys.lkey;
    let list =
        [(0, 2, good), (0, 4, keys.lkey), (9000, 2, good)].map(|(addr, packets, lkey)| Sge {
            addr,
            len: packets * FULL,
            lkey,
        });
    bed.receive_pieces(7, &list);
    let message = bed.send(0, 8 * MTU);
    bed.all_come(&message, (0..8).filter(|n| *n != 1));
    assert_eq!((bed.held(), bed.counters().early_placed), (1, 5));
    let before = memory.to_vec();
    assert!(before[..4 * MTU] == message.bytes[2 * MTU..6 * MTU]);
    assert!(bed.network.hosts[1].engine.deregister(keys.lkey).is_ok());
    bed.comes_of(&message, 1);
    assert_eq!(statuses(&bed.told()), [(7, Status::LocalProtection, 0)]);
    assert_eq!((bed.state(), bed.held()), (State::Error, 0));
    assert!(memory.to_vec() == before);
    bed.close();
}

/// HT-40: after the queue pair failed, or was reset, nothing of the message is written; its receive
/// is flushed once, and the next connection begins with nothing.
#[test]
fn nothing_is_written_after_the_end() {
    for reset in [false, true] {
        let mut bed = Bed::new(7);
        let message = bed.send(0, 100 * MTU);
        bed.receive(7, 0, 200_000);
        bed.all_come(&message, (0..50).filter(|n| *n != 1));
        assert_eq!(bed.counters().early_placed, 48);
        let before = bed.memory(0, 100 * MTU);
        let end = if reset {
            Transition::Reset
        } else {
            Transition::Error
        };
        let receiver = bed.receiver;
        let modify = |bed: &mut Bed, to: &Transition| {
            let engine = &mut bed.network.hosts[1].engine;
            engine.modify_queue_pair(receiver, to).expect("legal");
        };
        modify(&mut bed, &end);
        bed.all_come(&message, 0..100);
        assert!(bed.memory(0, 100 * MTU) == before);
        let flushed = (7, Status::WorkRequestFlushed, 0);
        let wanted: &[_] = if reset { &[] } else { &[flushed] };
        assert_eq!(statuses(&bed.told()), wanted);
        if !reset {
            modify(&mut bed, &Transition::Reset);
        }
        modify(&mut bed, &Transition::Init(PEERS));
        let sender = bed.network.hosts[0].queue_pair();
        let timeouts = ReadyToSend {
            sq_psn: FIRST,
            timeout: 12,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
        };
        let multipath = Some(MultipathConfig::default());
        bed.network.connect([sender, receiver], multipath, timeouts);
        let next = bed.send(0, 100 * MTU);
        bed.receive(8, 0, 200_000);
        bed.all_come(&next, (0..100).rev());
        assert!(bed.memory(0, 100 * MTU) == next.bytes);
        let done = (8, Status::Success, 100 * FULL);
        assert_eq!(statuses(&bed.told()), [done]);
        bed.close();
    }
}

/// Whether a message is a WRITE, and how many packets it has; a wrong packet, its number and how
/// many bytes it carries; the one that comes in the place of the second; how many are placed early.
type Case = (
    (bool, u32),
    (u32, Operation, usize),
    (Operation, usize),
    u64,
);

/// How a case ends if the second packet comes last, or in its turn.
fn judged(case: &Case, last: bool) -> Vec<(u64, Status, u32)> {
    let ((write, packets), odd, gap, placed) = *case;
    let mut bed = Bed::new(8);
    let len = packets as usize * MTU;
    let message = if write {
        bed.write(0, 0, len)
    } else {
        bed.send(0, len)
    };
    bed.receive(7, 0, 8 * FULL);
    bed.comes_of(&message, 0);
    if !last {
        bed.comes(1, gap.0, None, &[9; MTU][..gap.1]);
    }
    bed.all_come(&message, 2..odd.0);
    bed.comes(odd.0, odd.1, None, &[9; MTU][..odd.2]);
    if last {
        assert_eq!(bed.counters().early_placed, placed, "{case:?}");
        let waits = usize::from(placed < u64::from(odd.0) - 1);
        assert_eq!(bed.held(), waits, "{case:?}");
        bed.comes(1, gap.0, None, &[9; MTU][..gap.1]);
    }
    let told = bed.told();
    assert_eq!((bed.state(), bed.held()), (State::Error, 0), "{case:?}");
    bed.close();
    statuses(&told)
}

/// HT-40, HT-3: what is not certain to be right waits in a frame and is refused in its turn, with
/// the statuses that it has in order; and so is what was placed for a message that ends before it.
#[test]
fn what_may_be_wrong_is_judged_in_its_turn() {
    use Operation as O;
    let (write, send) = (true, false);
    let cases: [Case; 9] = [
        // Of another length, or at the end of the announced one; of another kind.
        (
            (write, 8),
            (3, O::WriteMiddle, 1023),
            (O::WriteMiddle, MTU),
            1,
        ),
        (
            (write, 8),
            (7, O::WriteMiddle, MTU),
            (O::WriteMiddle, MTU),
            5,
        ),
        (
            (write, 4),
            (3, O::WriteLast, 1023),
            (O::WriteMiddle, MTU),
            1,
        ),
        (
            (write, 8),
            (3, O::SendMiddle, MTU),
            (O::WriteMiddle, MTU),
            1,
        ),
        ((send, 8), (3, O::WriteMiddle, MTU), (O::SendMiddle, MTU), 1),
        ((send, 8), (3, O::SendMiddle, 1023), (O::SendMiddle, MTU), 1),
        // The receive is for eight.
        ((send, 20), (8, O::SendMiddle, MTU), (O::SendMiddle, MTU), 6),
        // The message ends in the gap.
        ((write, 8), (3, O::WriteMiddle, MTU), (O::WriteLast, MTU), 2),
        ((send, 8), (3, O::SendMiddle, MTU), (O::SendLast, 7), 2),
    ];
    for case in &cases {
        assert_eq!(judged(case, true), judged(case, false), "{case:?}");
    }
}

/// HT-40: a placed packet is acknowledged as one that waits in a frame: the sender repeats what is
/// missing, and nothing else.
#[test]
fn placed_packets_are_acknowledged() {
    let mut network = Network::new(9, [EngineConfig::default(), EngineConfig::default()]);
    let bytes = network.fill(0);
    let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
    network.impairment.loss = 20;
    let mut write = network.hosts[0].send(1, 0, 2_000_000);
    (write.opcode, write.rkey) = (SendOpcode::RdmaWrite, network.hosts[1].keys.rkey);
    let posted = network.hosts[0].engine.post_send(sender, write);
    posted.expect("room");
    let mut most = 0;
    let done = network.run(Span::from_secs(5), |network| {
        most = most.max(network.hosts[1].engine.held_packets());
        !network.hosts[0].completions.is_empty()
    });
    let completion = network.hosts[0].completions[0];
    assert!(done && completion.status == Status::Success);
    assert_eq!(completion.opcode, CompletionOpcode::RdmaWrite);
    let [sent, received] = [(0, sender), (1, receiver)].map(|(host, qpn): (usize, u32)| {
        let engine = &network.hosts[host].engine;
        engine.queue_pair_statistics(qpn).expect("exists").counters
    });
    println!("{most} frames at most, {received:#?}");
    assert_eq!(received.duplicates, 0);
    assert!(sent.retransmits < 80, "{}", sent.retransmits);
    assert!(received.early_placed > 500);
    assert!(most <= 1, "{most}");
    let memory = network.hosts[1].memory.to_vec();
    assert!(memory[..2_000_000] == bytes[..2_000_000]);
    network.close();
}
/// A message of 4 MB over a network with such losses and ways: frames that wait at most, and in the
/// mean over the times at which anything happens in hundredths.
fn frames(seed: u64, opcode: SendOpcode, (loss, skew): (u32, u64)) -> [usize; 2] {
    const LEN: u32 = 4_000_000;
    let mut network = Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
    let [sender, receiver] = network.connected(Some(MultipathConfig::default()));
    network.impairment.loss = loss;
    network.impairment.skew = Span::from_micros(skew);
    network.hosts[1].receive_into(receiver, 1, 0, LEN);
    let mut request = network.hosts[0].send(1, 0, LEN);
    (request.opcode, request.rkey) = (opcode, network.hosts[1].keys.rkey);
    let posted = network.hosts[0].engine.post_send(sender, request);
    posted.expect("room");
    let (mut most, mut sum, mut times) = (0, 0, 0);
    let done = network.run(Span::from_secs(5), |network| {
        let held = network.hosts[1].engine.held_packets();
        most = most.max(held);
        sum += held;
        times += 1;
        !network.hosts[0].completions.is_empty()
    });
    assert!(done, "seed {seed}");
    network.close();
    [most, 100 * sum / times]
}

/// HT-40: what waits in frames while a long message comes, as `docs/transport.md` declares it.
#[test]
fn long_messages_hold_few_frames() {
    for (opcode, network, mean) in [
        (SendOpcode::RdmaWrite, (10, 0), 100),
        (SendOpcode::RdmaWrite, (0, 30), 200),
        (SendOpcode::Send, (10, 0), 1000),
        (SendOpcode::Send, (0, 30), 4100),
    ] {
        for seed in 1..=3 {
            let held = frames(seed, opcode, network);
            println!("{opcode:?} {network:?}, seed {seed}: {held:?}");
            assert!(held[1] <= mean, "{opcode:?} {network:?}");
        }
    }
}
