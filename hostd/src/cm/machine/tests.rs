//! Every phase against everything that can happen to it.

use super::*;
use Action as A;
use Input as I;
use Phase as P;

const PHASES: [Phase; 8] = [
    P::Requesting,
    P::Waiting,
    P::Replying,
    P::Established,
    P::Draining,
    P::Refusing,
    P::Disconnecting,
    P::TimeWait,
];

/// What a cell says: the phase stays, is left for another, or the connection is gone.
#[derive(Clone, Copy)]
enum Cell {
    /// Out of place: dropped, or refused to the application.
    No,
    /// The phase stays.
    Stay(Action),
    /// The phase is left.
    To(Phase, Action),
    /// The connection is gone.
    Gone(Action),
}
use Cell::{Gone, No, Stay, To};

/// Columns as in [`PHASES`].
#[rustfmt::skip]
const TABLE: [(Input, [Cell; 8]); 15] = [
    (I::Request, [
        No, Stay(A::AskPatience), Stay(A::Repeat), Stay(A::Nothing), Stay(A::Nothing),
        No, No, No,
    ]),
    (I::Reply, [
        To(P::Established, A::Connect), No, No, Stay(A::Repeat), Stay(A::Repeat),
        No, No, No,
    ]),
    (I::Ready, [
        No, No, To(P::Established, A::TellEstablished), Stay(A::Nothing), Stay(A::Nothing),
        Stay(A::Nothing), No, No,
    ]),
    (I::Rejection, [
        Gone(A::TellRejected), Gone(A::TellUnreachable), Gone(A::TellRejected),
        To(P::TimeWait, A::TellDisconnected), To(P::TimeWait, A::TellDisconnected),
        To(P::TimeWait, A::TellDisconnected), No, No,
    ]),
    (I::Patience, [
        Stay(A::BePatient), No, Stay(A::BePatient), No, No,
        No, No, No,
    ]),
    (I::Alternate, [
        No, No, No, Stay(A::RefusePath), Stay(A::RefusePath),
        No, No, No,
    ]),
    (I::DisconnectRequest, [
        No, No, To(P::TimeWait, A::Leave), To(P::TimeWait, A::Leave), To(P::TimeWait, A::Leave),
        To(P::TimeWait, A::Leave), To(P::TimeWait, A::Leave), Stay(A::Repeat),
    ]),
    (I::DisconnectReply, [
        No, No, No, No, No,
        No, To(P::TimeWait, A::TellDisconnected), No,
    ]),
    (I::Accept, [
        No, To(P::Replying, A::Reply), No, No, No,
        No, No, No,
    ]),
    (I::Reject, [
        No, Gone(A::Refuse), No, No, No,
        No, No, No,
    ]),
    (I::Disconnect, [
        Gone(A::Cancel), No, To(P::Disconnecting, A::RequestDisconnect),
        To(P::Draining, A::Nothing), Stay(A::Nothing),
        Stay(A::Nothing), Stay(A::Nothing), Stay(A::Nothing),
    ]),
    (I::Drained, [
        Gone(A::Cancel), No, To(P::Disconnecting, A::RequestDisconnect),
        To(P::Disconnecting, A::RequestDisconnect), To(P::Disconnecting, A::RequestDisconnect),
        To(P::Disconnecting, A::RequestDisconnect), Stay(A::Nothing), Stay(A::Nothing),
    ]),
    (I::Refused, [
        No, No, To(P::Refusing, A::Nothing), To(P::Refusing, A::Nothing),
        To(P::Refusing, A::Nothing), Stay(A::Nothing), No, No,
    ]),
    (I::Slow, [
        No, Stay(A::AskPatience), No, No, No,
        No, No, No,
    ]),
    (I::GaveUp, [
        Gone(A::GiveUp), Gone(A::Expire), Gone(A::GiveUp), No,
        To(P::Disconnecting, A::RequestDisconnect), To(P::Disconnecting, A::RequestDisconnect),
        To(P::TimeWait, A::TellDisconnected), Gone(A::Nothing),
    ]),
];

/// HT-20, HT-23: one table of phase and input, with all of its cells.
#[test]
fn every_cell_of_the_table() {
    for (input, cells) in TABLE {
        for (phase, cell) in PHASES.into_iter().zip(cells) {
            let expected = match cell {
                No => None,
                Stay(action) => Some((Some(phase), action)),
                To(next, action) => Some((Some(next), action)),
                Gone(action) => Some((None, action)),
            };
            assert_eq!(step(phase, input), expected, "{phase:?} {input:?}");
        }
    }
}

/// No phase lasts for ever, except an established connection, which the keep-alive watches.
#[test]
fn time_ends_every_phase_but_one() {
    for phase in PHASES {
        let next = step(phase, Input::GaveUp);
        assert_eq!(next.is_none(), phase == Phase::Established, "{phase:?}");
    }
}

/// HT-20: a queue pair that goes away, or an application, ends what it was connected to.
#[test]
fn whoever_has_a_queue_pair_can_leave() {
    for phase in PHASES {
        if phase == Phase::Waiting {
            continue;
        }
        assert!(step(phase, Input::Disconnect).is_some(), "{phase:?}");
        assert!(step(phase, Input::Drained).is_some(), "{phase:?}");
    }
}
