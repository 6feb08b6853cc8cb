//! Random messages through a network that reorders, loses and repeats, and random nonsense in order
//! and out of order: what is placed before its turn changes nothing that anybody may see (HT-40).

use crate::network::{Impairment, Network};
use crate::services::{FIRST, packet};
use common::time::Span;
use common::wire::roce::{Operation, Reth};
use hostd::memory::RegionMemory;
use hostd::verbs::{
    Completion, EngineConfig, MultipathConfig, SendOpcode, Service, Sge, State, Status,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;

/// Bytes of a full packet.
const MTU: u32 = 1024;

/// Messages in a run.
const COUNT: usize = 60;

/// Room of a message where it arrives, in pieces with room between them.
const SLOT: u64 = 44_000;

/// READs read from here, at the receiver, and into here, at the sender.
const READ: u64 = 2_700_000;

/// SENDs without an order go here.
const RECEIVED: u64 = 3_500_000;

fn below(random: &mut Pcg64Mcg, n: u32) -> u32 {
    random.next_u32() % n
}

/// A message, and where its bytes are to be seen.
#[derive(Debug)]
struct Sent {
    opcode: SendOpcode,
    /// Where its bytes come from.
    from: u64,
    len: u32,
    /// Where they go at the receiver.
    pieces: Vec<Sge>,
}

impl Sent {
    fn draw(index: usize, random: &mut Pcg64Mcg, lkey: u32) -> Self {
        let opcode = [
            SendOpcode::Send,
            SendOpcode::SendWithImm,
            SendOpcode::RdmaWrite,
            SendOpcode::RdmaWrite,
            SendOpcode::RdmaWriteWithImm,
            SendOpcode::RdmaRead,
        ][below(random, 6) as usize];
        let most = [1, MTU, 3 * MTU, 40_000][below(random, 4) as usize];
        let len = below(random, most + 1);
        let slot = index as u64 * SLOT;
        let whole = Sge {
            addr: slot,
            len,
            lkey,
        };
        let pieces = match opcode {
            SendOpcode::RdmaRead => Vec::new(),
            SendOpcode::Send | SendOpcode::SendWithImm => {
                // In reverse order, so that nothing is right by chance.
                let cuts = [below(random, len + 1), below(random, len + 1), len];
                let [a, b, _] = cuts;
                let (a, b) = (a.min(b), a.max(b));
                [(0, a), (a, b - a), (b, len - b)]
                    .into_iter()
                    .zip([2, 1, 0])
                    .map(|((before, len), gaps)| Sge {
                        addr: slot + u64::from(whole.len - before - len) + gaps * 999,
                        len,
                        lkey,
                    })
                    .collect()
            }
            _ => vec![whole],
        };
        Self {
            opcode,
            from: u64::from(below(random, 1_000_000)),
            len,
            pieces,
        }
    }

    /// What is there of it.
    fn there(&self, network: &Network) -> Vec<u8> {
        let memory = &network.hosts[1].memory;
        let pieces = self.pieces.iter().map(|piece| {
            let mut bytes = vec![0; piece.len as usize];
            assert!(memory.copy_out(piece.addr, &mut bytes));
            bytes
        });
        pieces.collect::<Vec<_>>().concat()
    }

    fn wanted<'a>(&self, source: &'a [u8]) -> &'a [u8] {
        let from = usize::try_from(self.from).expect("small");
        let len = if self.pieces.is_empty() { 0 } else { self.len };
        &source[from..from + len as usize]
    }
}

/// Bytes of which none is zero, in the whole memory of a host.
fn fill(network: &mut Network, host: usize, from: u64, random: &mut Pcg64Mcg) {
    let memory = &network.hosts[host].memory;
    let mut bytes = vec![0; usize::try_from(memory.len() - from).expect("small")];
    random.fill_bytes(&mut bytes);
    bytes.iter_mut().for_each(|byte| *byte |= 1);
    assert!(memory.copy_in(from, &bytes));
}

/// What is seen while messages arrive in order.
struct Watch<'a> {
    sent: &'a [Sent],
    source: &'a [u8],
    /// So many are whole, each after the one before it.
    whole: usize,
}

impl Watch<'_> {
    /// Of the first message that is not whole the last packet is not there, nothing of the next
    /// ones is, and no receive completes before its message is whole.
    fn look(&mut self, network: &Network) {
        let seed = network.seed;
        let mut there = Vec::new();
        while let Some(next) = self.sent.get(self.whole) {
            there = next.there(network);
            if there != next.wanted(self.source) {
                break;
            }
            self.whole += 1;
        }
        let later = self.sent[self.whole.min(self.sent.len())..].iter();
        for (index, message) in later.enumerate().take(4) {
            let packets = message.len.div_ceil(MTU).max(1);
            let bytes = match index {
                0 => &there[((packets - 1) * MTU) as usize..],
                _ => &message.there(network)[..],
            };
            let number = self.whole + index;
            let hidden = bytes.iter().all(|byte| *byte == 0);
            assert!(hidden, "seed {seed}: message {number} is seen too early");
        }
        let takes = self.sent[..self.whole].iter();
        let complete = takes.filter(|it| it.opcode.takes_receive()).count();
        let completed = network.hosts[1].completions.len();
        assert!(completed <= complete, "seed {seed}: completed too early");
    }
}

fn drawn(random: &mut Pcg64Mcg) -> Impairment {
    let micros = |n: u32| Span::from_micros(n.into());
    Impairment {
        loss: [0, 5, 50][below(random, 3) as usize],
        duplication: [0, 100, 500][below(random, 3) as usize],
        jitter: micros([0, 3, 60][below(random, 3) as usize]),
        skew: micros([0, 5, 40][below(random, 3) as usize]),
        ..Impairment::default()
    }
}

fn posts(network: &mut Network, sender: u32, sent: &[Sent]) {
    let keys = network.hosts[1].keys;
    for (index, message) in sent.iter().enumerate() {
        let number = index as u64;
        let mut request = network.hosts[0].send(number, message.from, message.len);
        request.opcode = message.opcode;
        request.rkey = keys.rkey;
        request.imm = u32::try_from(index).expect("few");
        if message.opcode == SendOpcode::RdmaRead {
            request.remote_addr = READ + message.from % 10_000;
            request.addr = READ;
        } else {
            request.remote_addr = number * SLOT;
        }
        let posted = network.hosts[0].engine.post_send(sender, request);
        posted.expect("room");
    }
}

/// Posts the receive of a message; one for immediate data has no bytes. Without an order it may be
/// taken by any message, and its bytes are not looked at.
fn receive(network: &mut Network, receiver: u32, ordered: bool, taker: (usize, &Sent)) {
    let (index, message) = taker;
    let anywhere = [Sge {
        addr: RECEIVED,
        len: 40_000,
        lkey: network.hosts[1].keys.lkey,
    }];
    let pieces = match message.opcode {
        _ if !ordered => &anywhere[..],
        SendOpcode::RdmaWriteWithImm => &[],
        _ => &message.pieces[..],
    };
    let engine = &mut network.hosts[1].engine;
    let posted = engine.post_receive_into(receiver, index as u64, pieces);
    posted.expect("room");
}

fn counted(completions: &[Completion], seed: u64) -> Vec<u64> {
    let good = completions.iter().all(|it| it.status == Status::Success);
    assert!(good, "seed {seed}");
    completions.iter().map(|it| it.wr_id).collect()
}

/// A run of random messages; packets that came out of order, and those of them that were placed.
fn run(seed: u64, service: Service) -> [u64; 2] {
    let mut random = Pcg64Mcg::new(u128::from(seed) << 32 | 7);
    let mut network = Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
    network.impairment = drawn(&mut random);
    let multipath = MultipathConfig {
        service,
        ..MultipathConfig::default()
    };
    let [sender, receiver] = network.connected(Some(multipath));
    fill(&mut network, 0, 0, &mut random);
    fill(&mut network, 1, READ, &mut random);
    let source = network.hosts[0].memory.to_vec();
    let lkey = network.hosts[1].keys.lkey;
    let sent: Vec<_> = (0..COUNT)
        .map(|index| Sent::draw(index, &mut random, lkey))
        .collect();
    let ordered = service == Service::Ordered;
    let takers = || {
        let all = sent.iter().enumerate();
        all.filter(|(_, message)| message.opcode.takes_receive())
    };
    let takes = takers().count();
    // Receives come late in every other run with order: without one their places are not known.
    let ahead = if ordered && seed.is_multiple_of(2) {
        2
    } else {
        COUNT
    };
    let mut receives = takers().take(takes);
    let mut posted = 0;
    posts(&mut network, sender, &sent);
    let mut watch = Watch {
        sent: &sent,
        source: &source,
        whole: 0,
    };
    let done = network.run(Span::from_secs(60), |network| {
        while posted < network.hosts[1].completions.len() + ahead
            && let Some(next) = receives.next()
        {
            receive(network, receiver, ordered, next);
            posted += 1;
        }
        if ordered {
            watch.look(network);
        }
        let standing = network.hosts[1].engine.queue_pair_statistics(receiver);
        let waiting = standing.expect("exists").reordering as usize;
        assert_eq!(waiting, network.hosts[1].engine.held_packets());
        network.hosts[0].completions.len() == COUNT && network.hosts[1].completions.len() == takes
    });
    assert!(done, "seed {seed}");
    network.pass(Span::from_millis(5));
    let [sends, receives] = [0, 1].map(|host| counted(&network.hosts[host].completions, seed));
    let [all, taken]: [Vec<u64>; 2] = [
        (0..COUNT as u64).collect(),
        takers().map(|(index, _)| index as u64).collect(),
    ];
    if ordered {
        assert_eq!((sends, receives), (all, taken), "seed {seed}");
        let right = |it: &Sent| it.there(&network) == it.wanted(&source);
        assert!(sent.iter().all(right), "seed {seed}");
    } else {
        let set = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<_>>();
        assert_eq!((sends.len(), set(&sends)), (COUNT, set(&all)));
        assert_eq!((receives.len(), set(&receives)), (takes, set(&taken)));
        let right = |it: &Sent| it.there(&network) == it.wanted(&source);
        let writes = sent.iter().filter(|it| it.opcode.is_write());
        assert!(writes.into_iter().all(right), "seed {seed}");
    }
    let standing = network.hosts[1].engine.queue_pair_statistics(receiver);
    let counters = standing.expect("exists").counters;
    network.close();
    [counters.out_of_order, counters.early_placed]
}

/// HT-40: random messages of all kinds over ways that differ, with jitter, loss and duplicates: at
/// each time that anything changes, nothing is seen of a message before all before it are whole,
/// nor the last packet of one before its others; in the end every byte is right, and each request
/// and receive has completed once, in order.
#[test]
fn nothing_is_seen_before_its_time() {
    let all = (0..30).map(|seed| run(seed, Service::Ordered));
    let [early, placed] = all.fold([0; 2], |sum, run| [sum[0] + run[0], sum[1] + run[1]]);
    println!("{placed} of {early} early packets were placed at once");
    assert!(placed > early / 8, "{placed} of {early}");
}

/// HT-39, HT-40: the same without an order, where WRITEs are right to the byte, and each message
/// completes once.
#[test]
fn messages_without_an_order_are_placed_too() {
    let all = (100..110).map(|seed| run(seed, Service::Unordered));
    let placed: u64 = all.map(|[_, placed]| placed).sum();
    assert!(placed > 50, "{placed}");
}

/// A packet: operation, RETH, and how many bytes it carries.
type Made = (Operation, Option<(u64, u32)>, u32);

/// Messages in packets, of which some are wrong.
fn nonsense(random: &mut Pcg64Mcg) -> Vec<Made> {
    use Operation as O;
    let mut made: Vec<Made> = Vec::new();
    while made.len() < 50 {
        let (write, packets) = (below(random, 2) == 0, 1 + below(random, 9));
        let last = 1 + below(random, MTU);
        let len = (packets - 1) * MTU + last;
        let reth = Some((u64::from(below(random, 100_000)), len));
        for n in 0..packets {
            let ends = n + 1 == packets;
            let operation = match (write, n == 0, ends) {
                (false, true, true) => O::SendOnly,
                (false, true, false) => O::SendFirst,
                (false, false, true) => O::SendLastImmediate,
                (false, false, false) => O::SendMiddle,
                (true, true, true) => O::WriteOnlyImmediate,
                (true, true, false) => O::WriteFirst,
                (true, false, true) => O::WriteLast,
                (true, false, false) => O::WriteMiddle,
            };
            let reth = reth.filter(|_| operation.has_reth());
            made.push((operation, reth, if ends { last } else { MTU }));
        }
    }
    for (operation, reth, len) in &mut made {
        match below(random, 500) {
            0 => *len -= 1,
            1 => *len = 0,
            2 => *operation = O::SendMiddle,
            3 => *operation = O::WriteMiddle,
            4 => *operation = O::SendLast,
            5 => *operation = O::WriteLast,
            6 => *operation = O::SendFirst,
            7 => *operation = O::ReadRequest,
            8 => *operation = O::SendOnly,
            _ => {}
        }
        if *operation == O::ReadRequest {
            *len = 0;
        }
        let named = reth.or(Some((0, MTU)));
        *reth = named.filter(|_| operation.has_reth());
    }
    made
}

/// What became of packets that came in this order.
fn outcome(seed: u64, made: &[Made], order: &[usize]) -> (Vec<Completion>, State, u64, Vec<u8>) {
    let mut network = Network::new(seed, [EngineConfig::default(), EngineConfig::default()]);
    let [_, receiver] = network.connected(Some(MultipathConfig::default()));
    let rkey = network.hosts[1].keys.rkey;
    for number in 0..60 {
        // Some are too short for what comes.
        let len = 9 * MTU - if number % 7 == 6 { 3000 } else { 0 };
        network.hosts[1].receive_into(receiver, number, 200_000 + number * 20_000, len);
    }
    for index in order {
        let (operation, named, len) = made[*index];
        let number = u32::try_from(*index).expect("few");
        let reth = named.map(|(address, len)| Reth { address, rkey, len });
        let payload = vec![u8::try_from(index + 1).expect("few"); len as usize];
        let frame = packet(
            &network,
            receiver,
            operation,
            FIRST + number,
            reth,
            &payload,
        );
        network.inject(1, &frame);
    }
    network.pass(Span::from_micros(10));
    let engine = &network.hosts[1].engine;
    assert_eq!(engine.held_packets(), 0, "seed {seed}");
    let statistics = engine.statistics();
    assert_eq!(statistics.rx_packets, statistics.settled(), "seed {seed}");
    let standing = engine.queue_pair_statistics(receiver).expect("exists");
    let memory = network.hosts[1].memory.to_vec();
    let completions = std::mem::take(&mut network.hosts[1].completions);
    network.close();
    let messages = standing.counters.rx_messages;
    (completions, standing.state, messages, memory)
}

/// HT-40, HT-3: whatever a peer sends, what completes, and how, is the same if its packets come in
/// any order, and some twice, as if they came one after the other; and so is memory, if nothing is
/// refused.
#[test]
fn disorder_changes_no_outcome() {
    let mut refused = 0;
    for seed in 0..150 {
        let mut random = Pcg64Mcg::new(u128::from(seed) << 32 | 9);
        let made = nonsense(&mut random);
        let sorted: Vec<usize> = (0..made.len()).collect();
        let mut order = sorted.clone();
        // Near their places, or anywhere.
        let reach = [2, 6, 60][below(&mut random, 3) as usize];
        for index in (1..order.len()).rev() {
            let back = below(&mut random, reach).min(u32::try_from(index).expect("few"));
            order.swap(index, index - back as usize);
        }
        let again = order[below(&mut random, 40) as usize];
        order.push(again);
        let [straight, disorderly] = [&sorted, &order].map(|it| outcome(seed, &made, it));
        assert_eq!(straight.0, disorderly.0, "seed {seed}");
        assert_eq!(
            (straight.1, straight.2),
            (disorderly.1, disorderly.2),
            "seed {seed}"
        );
        if straight.1 == State::Error {
            refused += 1;
        } else {
            assert!(straight.3 == disorderly.3, "seed {seed}");
        }
    }
    println!("{refused} of 150 were refused");
    assert!((40..130).contains(&refused), "{refused}");
}
