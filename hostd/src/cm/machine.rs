//! The phases of a connection (InfiniBand 12.9.6, less what reliable datagrams need).
//!
//! ```text
//!   connect                                         REQ comes
//!      │                                                │
//!      ▼            REP                                 ▼        reject
//!  Requesting ──────────────┐                        Waiting ──────────────┐
//!      │                    │                           │ accept           │
//!      │ REJ, silence       ▼         RTU, data         ▼                  │
//!      │               Established ◀──────────────── Replying              │
//!      │                    │ disconnect                │ REJ, silence     │
//!      │                    ▼                           ▼                  │
//!      │                Draining                      (gone)               │
//!      ▼                    │ all acknowledged                             │
//!    (gone)                 ▼          DREP, silence                       ▼
//!                     Disconnecting ───────────────────────────────────▶ TimeWait ──▶ (gone)
//! ```
//!
//! A DREQ leads from every connected phase to TimeWait, which answers what is repeated.

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The REQ is on its way, again and again.
    Requesting,
    /// A REQ came; the application decides.
    Waiting,
    /// The REP is on its way, again and again.
    Replying,
    /// Connected.
    Established,
    /// To be disconnected when everything sent is acknowledged (HT-23).
    Draining,
    /// The DREQ is on its way, again and again.
    Disconnecting,
    /// Over; what the peer repeats is answered.
    TimeWait,
}

impl Phase {
    /// Whether a message is repeated until it is answered.
    pub(crate) const fn repeats(self) -> bool {
        matches!(
            self,
            Self::Requesting | Self::Replying | Self::Disconnecting
        )
    }
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The peer repeats its REQ.
    Request,
    /// REP.
    Reply,
    /// RTU, or data on the queue pair.
    Ready,
    /// REJ.
    Rejection,
    /// DREQ.
    DisconnectRequest,
    /// DREP.
    DisconnectReply,
    /// The application accepts.
    Accept,
    /// The application refuses.
    Reject,
    /// The application disconnects.
    Disconnect,
    /// Nothing is left to be acknowledged, or the queue pair is gone.
    Drained,
    /// The phase's time is over.
    GaveUp,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    Nothing,
    /// Send the last answer again.
    Repeat,
    /// Connect the queue pair, send RTU, tell the application.
    Connect,
    /// Send REP.
    Reply,
    /// Send REJ.
    Refuse,
    /// The same, and report that no decision is needed any more.
    Expire,
    /// Tell the application that it is connected.
    TellEstablished,
    /// Tell the application that the peer refused.
    TellRejected,
    /// Tell the application that the peer does not answer.
    TellUnreachable,
    /// End the queue pair and send DREQ.
    RequestDisconnect,
    /// Send DREP, end the queue pair, tell the application.
    Leave,
    /// Tell the application that it is disconnected.
    TellDisconnected,
}

/// What `input` does to a connection in `phase`: the next phase (`None`: the connection is gone)
/// and what is to be done. `None` if it does not fit.
pub(crate) fn step(phase: Phase, input: Input) -> Option<(Option<Phase>, Action)> {
    use Action as A;
    use Input as I;
    use Phase as P;
    let to = |phase, action| Some((Some(phase), action));
    match (phase, input) {
        (P::Requesting, I::Reply) => to(P::Established, A::Connect),
        (P::Requesting, I::Rejection) => Some((None, A::TellRejected)),
        (P::Requesting, I::GaveUp) => Some((None, A::TellUnreachable)),
        (P::Requesting, I::Disconnect | I::Drained) => Some((None, A::Nothing)),

        (P::Waiting, I::Request) => to(P::Waiting, A::Nothing),
        (P::Waiting, I::Accept) => to(P::Replying, A::Reply),
        (P::Waiting, I::Reject) => to(P::TimeWait, A::Refuse),
        (P::Waiting, I::GaveUp) => to(P::TimeWait, A::Expire),
        (P::Waiting, I::Rejection) => Some((None, A::TellUnreachable)),

        (P::Replying, I::Request) => to(P::Replying, A::Repeat),
        (P::Replying, I::Ready) => to(P::Established, A::TellEstablished),
        (P::Replying, I::Rejection) => Some((None, A::TellRejected)),
        (P::Replying, I::GaveUp) => Some((None, A::TellUnreachable)),
        (P::Replying, I::Disconnect | I::Drained) => to(P::Disconnecting, A::RequestDisconnect),
        (P::Replying, I::DisconnectRequest) => to(P::TimeWait, A::Leave),

        (P::Established, I::Reply) => to(P::Established, A::Repeat),
        (P::Established, I::Ready | I::Request) => to(P::Established, A::Nothing),
        (P::Established, I::Disconnect) => to(P::Draining, A::Nothing),
        (P::Established, I::Drained) => to(P::Disconnecting, A::RequestDisconnect),
        (P::Established, I::DisconnectRequest) => to(P::TimeWait, A::Leave),

        (P::Draining, I::Disconnect | I::Ready) => to(P::Draining, A::Nothing),
        (P::Draining, I::Reply) => to(P::Draining, A::Repeat),
        (P::Draining, I::Drained | I::GaveUp) => to(P::Disconnecting, A::RequestDisconnect),
        (P::Draining, I::DisconnectRequest) => to(P::TimeWait, A::Leave),

        (P::Disconnecting, I::DisconnectReply | I::GaveUp) => to(P::TimeWait, A::TellDisconnected),
        (P::Disconnecting, I::DisconnectRequest) => to(P::TimeWait, A::Leave),
        (P::Disconnecting, I::Disconnect | I::Drained) => to(P::Disconnecting, A::Nothing),

        (P::TimeWait, I::Request | I::DisconnectRequest) => to(P::TimeWait, A::Repeat),
        (P::TimeWait, I::Disconnect | I::Drained) => to(P::TimeWait, A::Nothing),
        (P::TimeWait, I::GaveUp) => Some((None, A::Nothing)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 7] = [
        Phase::Requesting,
        Phase::Waiting,
        Phase::Replying,
        Phase::Established,
        Phase::Draining,
        Phase::Disconnecting,
        Phase::TimeWait,
    ];

    /// No phase lasts for ever, except an established connection.
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

    /// A message out of place changes nothing.
    #[test]
    fn what_does_not_fit_is_refused() {
        for (phase, input) in [
            (Phase::Requesting, Input::Ready),
            (Phase::Requesting, Input::DisconnectRequest),
            (Phase::Waiting, Input::Reply),
            (Phase::Waiting, Input::Ready),
            (Phase::Established, Input::Accept),
            (Phase::Established, Input::Rejection),
            (Phase::Established, Input::DisconnectReply),
            (Phase::TimeWait, Input::Reply),
            (Phase::TimeWait, Input::Ready),
        ] {
            assert_eq!(step(phase, input), None, "{phase:?} {input:?}");
        }
    }
}
