use super::super::call::{Algorithm, Collective};
use super::super::failure::Cause;
use super::*;
use proptest::prelude::*;

/// What members say of the switches.
fn of_switches(call: Call) -> Vec<Message> {
    let reason = FailureReason::SwitchLost;
    let nobody = Why { reason, rank: None };
    let why = Why {
        rank: Some(9),
        ..nobody
    };
    let position = Position {
        sequence: 1 << 40,
        call,
        switched: true,
        done: 1 << 33,
        complete: false,
    };
    let agreement = Agreement {
        sequence: u64::MAX,
        complete: true,
        agreed: 1 << 33,
        holder: Some(63),
        done: (0..64).collect(),
    };
    let attempt = Attempt {
        generation: 1 << 30,
        trees: 4,
        first: 1,
    };
    let standings = [
        Standing::Idle,
        Standing::Pending,
        Standing::Admitted,
        Standing::Failed(why),
    ];
    let words = [
        Word::Join(attempt),
        Word::Try(attempt, 1 << 63),
        Word::Use,
        Word::Wait(6),
        Word::Stay(7),
    ];
    let ready = |standing| {
        Message::Ready(Ready {
            parents: 3,
            standing,
        })
    };
    let all = standings.into_iter().map(ready);
    let mut all: Vec<_> = all.chain(words.map(Message::Word)).collect();
    all.extend(Heard::ALL.map(|heard| Message::Report(position, why, heard)));
    all.extend([
        Message::Recall(why),
        Message::Recall(nobody),
        Message::Plan(why, 1 << 62, agreement),
    ]);
    all
}

fn every() -> Vec<Message> {
    let call = Call {
        collective: Collective::Broadcast { root: 3 },
        algorithm: Algorithm::Ring,
        len: 77,
    };
    let header = Header {
        sequence: 1 << 40,
        call,
        number: 9,
    };
    let state = State {
        sequence: (1 << 40) + 5,
        calls: vec![call; REMEMBERED],
        waits_for: Some(63),
    };
    let rank = 9;
    let suspicion = Failure {
        rank,
        cause: Cause::Late,
    };
    let failed = |cause| Message::Failed(Failure { rank, cause });
    let others = Call { len: 78, ..call };
    let called = call;
    let member = |n| SocketAddr::new([10, 0, 0, n].into(), 7000);
    vec![
        Message::Segment(header, 7),
        Message::Credit(4),
        failed(Cause::Lost),
        failed(Cause::Left),
        failed(Cause::Late),
        failed(Cause::Missing),
        failed(Cause::Mismatch { called, others }),
        failed(Cause::Abandoned),
        failed(Cause::Protocol),
        failed(Cause::Unable),
        Message::Table {
            group: 1 << 50,
            members: (0..64).map(member).collect(),
            seat: Ok(Seat {
                job: 1 << 31,
                rank: 3,
                size: 7,
                leaf: 1,
                leaves: 2,
            }),
        },
        Message::Table {
            group: 5,
            members: (0..2).map(member).collect(),
            seat: Err(Leafless {
                rank: 63,
                others: true,
            }),
        },
        Message::Goodbye(1 << 33),
        Message::Appeal(state.clone(), suspicion),
        Message::Inquiry,
        Message::State(State {
            waits_for: None,
            ..state.clone()
        }),
        Message::State(state),
    ]
}

/// HT-50: messages are read as they were written; one that is cut is none.
#[test]
fn messages_round_trip() {
    let Message::Segment(header, _) = every()[0] else {
        panic!("the first one");
    };
    for message in every().into_iter().chain(of_switches(header.call)) {
        let bytes = message.encode();
        let bytes = bytes.as_slice();
        assert_eq!(Message::decode(bytes).as_ref(), Ok(&message));
        let cut = &bytes[..bytes.len() - 1];
        assert_ne!(Message::decode(cut).as_ref(), Ok(&message), "{message:?}");
    }
    assert_eq!(every()[0].encode().as_slice().len(), HEADER);
    for hello in [
        Hello::Join {
            rank: 1,
            size: 2,
            port: 3,
            segment: 4,
            leaf: Some(IpAddr::from([10, 0, 0, 1])),
        },
        Hello::Join {
            rank: 1,
            size: 2,
            port: 3,
            segment: 4,
            leaf: None,
        },
        Hello::Member { rank: 5, group: 6 },
    ] {
        assert_eq!(Hello::from_private(&hello.to_private()), Some(hello));
    }
    assert_eq!(Hello::from_private(&Private::EMPTY), None);
    for refusal in Refusal::ALL {
        let told = Refusal::from_private(&refusal.to_private());
        assert_eq!(told, Some(refusal));
    }
}

proptest! {
    /// HT-50: what a peer sends is read without a panic, whatever it is.
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..16) {
        let _ = Message::decode(&bytes);
        let mut bytes = bytes;
        if let Some([first, second]) = bytes.first_chunk_mut() {
            (*first, *second) = (kind, 0);
            let _ = Message::decode(&bytes);
        }
    }
}
