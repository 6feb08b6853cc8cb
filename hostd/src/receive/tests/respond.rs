use crate::frame::{IncomingSegment, Position, Refusal};
use crate::memory::{HeapMemory, RegionTable};
use crate::receive::posted::ReceiveQueue;
use crate::receive::respond::*;
use crate::verbs::{Access, Completion, CompletionOpcode, Sge, Status};

const MTU: u16 = 256;

struct Bed {
    regions: RegionTable<HeapMemory>,
    receives: ReceiveQueue,
    memory: HeapMemory,
    rkey: u32,
    lkey: u32,
    assembly: Assembly,
}

impl Bed {
    fn new() -> Self {
        let mut regions = RegionTable::new([3; 32]);
        let memory = HeapMemory::new(vec![0; 1024]);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let keys = regions
            .register(1, memory.clone(), 0, rights)
            .expect("room");
        Self {
            regions,
            receives: ReceiveQueue::new(4),
            memory,
            rkey: keys.rkey,
            lkey: keys.lkey,
            assembly: Assembly::Idle,
        }
    }

    fn post(&mut self, len: u32) {
        let (addr, lkey) = (0, self.lkey);
        self.receives.push(77, &[Sge { addr, len, lkey }]);
    }

    fn accept(&mut self, arrival: &IncomingSegment<'_>) -> Outcome {
        let mut target = Target {
            regions: &self.regions,
            receives: &mut self.receives,
            parts: &mut Vec::new(),
            rights: Rights {
                domain: 1,
                access: Access::REMOTE_WRITE,
                mtu: MTU,
                qpn: 5,
            },
        };
        self.assembly.accept(arrival, &mut target)
    }
}

fn send(position: Position, payload: &[u8]) -> IncomingSegment<'_> {
    IncomingSegment {
        write: false,
        position,
        target: None,
        imm: None,
        invalidate: None,
        solicited: false,
        payload,
    }
}

fn write<'a>(bed: &Bed, position: Position, total: u32, payload: &'a [u8]) -> IncomingSegment<'a> {
    IncomingSegment {
        write: true,
        target: position.begins().then_some((100, bed.rkey, total)),
        ..send(position, payload)
    }
}

fn refusal(outcome: Outcome) -> Option<(Refusal, Option<Status>)> {
    match outcome {
        Outcome::Refused(refusal, completion) => {
            Some((refusal, completion.map(|completion| completion.status)))
        }
        _ => None,
    }
}

/// HT-1: a SEND fills the oldest receive, which completes with what came.
#[test]
fn a_send_fills_a_receive() {
    let mut bed = Bed::new();
    bed.post(1000);
    let (full, rest) = ([1; 256], [2; 10]);
    assert_eq!(bed.accept(&send(Position::First, &full)), Outcome::Taken);
    assert_eq!(bed.accept(&send(Position::Middle, &full)), Outcome::Taken);
    let last = IncomingSegment {
        imm: Some(9),
        ..send(Position::Last, &rest)
    };
    let Outcome::Finished(Some(completion)) = bed.accept(&last) else {
        panic!("not finished");
    };
    assert_eq!((completion.wr_id, completion.byte_len), (77, 522));
    assert_eq!(
        (completion.imm, completion.status),
        (Some(9), Status::Success)
    );
    assert_eq!(
        bed.memory.to_vec()[512..523],
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0]
    );
}

/// HT-1: without a receive nothing changes, and the same segment is taken once there is one.
#[test]
fn without_a_receive_nothing_changes() {
    let mut bed = Bed::new();
    let only = send(Position::Only, b"x");
    assert_eq!(bed.accept(&only), Outcome::NotReady);
    let with_imm = IncomingSegment {
        imm: Some(1),
        ..write(&bed, Position::Only, 1, b"x")
    };
    assert_eq!(bed.accept(&with_imm), Outcome::NotReady);
    assert_eq!(bed.memory.to_vec()[100], 0);
    bed.post(10);
    assert!(matches!(
        bed.accept(&with_imm),
        Outcome::Finished(Some(Completion {
            opcode: CompletionOpcode::ReceiveRdmaWithImm,
            byte_len: 1,
            ..
        }))
    ));
    bed.post(10);
    assert!(matches!(bed.accept(&only), Outcome::Finished(Some(_))));
}

/// HT-1: a message longer than its receive fails on both sides.
#[test]
fn a_message_longer_than_its_receive() {
    let mut bed = Bed::new();
    bed.post(300);
    let full = [1; 256];
    assert_eq!(bed.accept(&send(Position::First, &full)), Outcome::Taken);
    let outcome = bed.accept(&send(Position::Last, &full));
    assert_eq!(
        refusal(outcome),
        Some((Refusal::InvalidRequest, Some(Status::LocalLength)))
    );
}

/// HT-1: keys, ranges and rights of a WRITE are checked before a byte is written.
#[test]
fn a_write_needs_its_key() {
    let full = [1; 256];
    let mut bed = Bed::new();
    let wrong = [
        (100, bed.lkey, 256),
        (100, bed.rkey ^ 1, 256),
        (1000, bed.rkey, 256),
        (u64::MAX, bed.rkey, 256),
    ];
    for target in wrong {
        let arrival = IncomingSegment {
            target: Some(target),
            ..write(&bed, Position::Only, 256, &full)
        };
        let outcome = bed.accept(&arrival);
        assert_eq!(refusal(outcome), Some((Refusal::RemoteAccess, None)));
    }
    assert!(bed.memory.to_vec().iter().all(|&byte| byte == 0));
    // An empty one touches nothing and needs nothing.
    let empty = IncomingSegment {
        target: Some((u64::MAX, 0, 0)),
        ..write(&bed, Position::Only, 0, b"")
    };
    assert_eq!(bed.accept(&empty), Outcome::Finished(None));
}

/// Whether a WRITE, where in the message, the payload, and the announced length.
type Step<'a> = (bool, Position, &'a [u8], u32);

/// HT-1: segments that do not fit one another or the MTU, and totals that lie.
#[test]
fn what_does_not_fit_is_refused() {
    let (full, short) = ([1; 256], [1; 255]);
    let cases: [&[Step<'_>]; 9] = [
        &[(false, Position::Middle, &full, 0)],
        &[(false, Position::Last, &full, 0)],
        &[(true, Position::Middle, &full, 0)],
        &[(false, Position::First, &short, 0)],
        &[
            (false, Position::First, &full, 0),
            (false, Position::Last, &[], 0),
        ],
        &[
            (false, Position::First, &full, 0),
            (false, Position::Only, &full, 0),
        ],
        &[
            (false, Position::First, &full, 0),
            (true, Position::Last, &full, 0),
        ],
        &[
            (true, Position::First, &full, 300),
            (true, Position::Last, &full, 0),
        ],
        &[(true, Position::Only, &short, 256)],
    ];
    for case in cases {
        let mut bed = Bed::new();
        bed.post(1024);
        let outcomes: Vec<_> = case
            .iter()
            .map(|&(is_write, position, payload, total)| {
                let arrival = if is_write {
                    write(&bed, position, total, payload)
                } else {
                    send(position, payload)
                };
                bed.accept(&arrival)
            })
            .collect();
        let last = refusal(*outcomes.last().expect("one at least"));
        assert_eq!(
            last.map(|(refusal, _)| refusal),
            Some(Refusal::InvalidRequest),
            "{case:?}"
        );
    }
}

impl Bed {
    /// A segment comes `ahead` packets before its turn.
    fn early(&self, ahead: u32, continues: bool, arrival: &IncomingSegment<'_>) -> bool {
        let memory = (&self.regions, &[][..]);
        let placed = self
            .assembly
            .place_early(arrival, ahead, || continues, memory, MTU);
        let right = |offset| offset / u32::from(MTU) == 1 + ahead;
        assert!(placed.is_none_or(right), "{placed:?}");
        placed.is_some()
    }

    /// It is the turn of one that was placed so far into the message.
    fn pass(&mut self, offset: u32) -> Outcome {
        let rights = Rights {
            domain: 1,
            access: Access::NONE,
            mtu: MTU,
            qpn: 5,
        };
        self.assembly.pass(offset, (&self.regions, &[]), rights)
    }
}

/// HT-40: what is placed before its turn is in the middle of the message, full, of the same kind,
/// and not at its end; of a SEND, certain to be of this one, and within the receive.
#[test]
fn what_is_placed_before_its_turn() {
    let (full, other, short) = ([1; 256], [2; 256], [2; 255]);
    let (middle, last) = (Position::Middle, Position::Last);
    for (is_write, ahead, continues, position, payload, placed) in [
        (true, 1, false, middle, &other[..], true),
        (true, 1, false, middle, &short[..], false),
        (true, 1, true, last, &other[..], false),
        (true, 2, true, middle, &other[..], false),
        (true, u32::MAX, true, middle, &other[..], false),
        (false, 1, true, middle, &other[..], true),
        (false, 1, false, middle, &other[..], false),
        (false, 2, true, middle, &other[..], true),
        (false, 3, true, middle, &other[..], false),
        (false, 1, true, middle, &short[..], false),
        (false, 1, true, last, &short[..], false),
        (false, 1, true, Position::First, &other[..], false),
    ] {
        let mut bed = Bed::new();
        bed.post(1024);
        let of = |bed: &Bed, position, payload| match is_write {
            true => write(bed, position, 900, payload),
            false => send(position, payload),
        };
        let case = (is_write, ahead, continues, position);
        let early = of(&bed, position, payload);
        assert!(!bed.early(ahead, continues, &early), "nothing has begun");
        let first = of(&bed, Position::First, &full);
        assert_eq!(bed.accept(&first), Outcome::Taken);
        let otherwise = IncomingSegment {
            write: !is_write,
            ..early
        };
        assert!(!bed.early(ahead, continues, &otherwise), "{case:?}");
        let before = bed.memory.to_vec();
        assert_eq!(bed.early(ahead, continues, &early), placed, "{case:?}");
        let mut wanted = before;
        if placed {
            let at = 256 * (1 + ahead as usize) + if is_write { 100 } else { 0 };
            wanted[at..at + 256].fill(2);
        }
        assert_eq!(bed.memory.to_vec(), wanted, "{case:?}");
    }
}

/// HT-40: a segment that was placed is counted in its turn, without its bytes; if the message has
/// ended, or its memory is gone, it is refused as it would have been.
#[test]
fn what_was_placed_is_counted_in_its_turn() {
    let (full, rest) = ([1; 256], [3; 8]);
    let mut bed = Bed::new();
    assert_eq!(refusal(bed.pass(0)), Some((Refusal::InvalidRequest, None)));
    bed.post(600);
    assert_eq!(bed.accept(&send(Position::First, &full)), Outcome::Taken);
    assert_eq!(bed.pass(256), Outcome::Taken);
    let Outcome::Finished(Some(completion)) = bed.accept(&send(Position::Last, &rest)) else {
        panic!("not finished");
    };
    assert_eq!(completion.byte_len, 520);
    assert_eq!(
        bed.memory.to_vec()[256..520],
        [vec![0; 256], vec![3; 8]].concat()
    );
    for is_write in [true, false] {
        let mut bed = Bed::new();
        bed.post(900);
        let first = match is_write {
            true => write(&bed, Position::First, 900, &full),
            false => send(Position::First, &full),
        };
        assert_eq!(bed.accept(&first), Outcome::Taken);
        assert!(bed.regions.deregister(bed.lkey).is_ok());
        let wanted = match is_write {
            true => (Refusal::RemoteAccess, None),
            false => (Refusal::RemoteOperation, Some(Status::LocalProtection)),
        };
        assert_eq!(refusal(bed.pass(256)), Some(wanted));
        // With a hole before it.
        let mut bed = Bed::new();
        bed.post(900);
        assert_eq!(bed.accept(&first), Outcome::Taken);
        let hole = refusal(bed.pass(512)).map(|(refusal, _)| refusal);
        assert_eq!(hole, Some(Refusal::InvalidRequest));
    }
}

/// HT-3: a region that goes away during a message stops it, and nothing is written.
#[test]
fn a_region_that_goes_away() {
    let mut bed = Bed::new();
    let full = [1; 256];
    let first = write(&bed, Position::First, 512, &full);
    assert_eq!(bed.accept(&first), Outcome::Taken);
    assert!(bed.regions.deregister(bed.lkey).is_ok());
    let last = write(&bed, Position::Last, 0, &full);
    assert_eq!(
        refusal(bed.accept(&last)),
        Some((Refusal::RemoteAccess, None))
    );
}
