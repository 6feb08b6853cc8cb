//! The phases of a connection (InfiniBand 12.9.6, less what reliable datagrams need).
//!
//! ```text
//!   connect                                         REQ comes
//!      │                                                │
//!      ▼            REP                                 ▼        reject, silence
//!  Requesting ──────────────┐                        Waiting ──────────────────▶ (gone)
//!      │                    │                           │ accept
//!      │ REJ, silence       ▼         RTU, data         ▼
//!      │               Established ◀──────────────── Replying
//!      │       ┌────────────┤                           │
//!      │       │ a request  │ disconnect                │ REJ, silence
//!      │       ▼ refused    ▼                           ▼
//!      │    Refusing       Draining                   (gone)
//!      ▼       │ some time  │ all acknowledged
//!    (gone)    └────────────┤
//!                           ▼          DREP, silence
//!                     Disconnecting ───────────────────▶ TimeWait ──▶ (gone)
//! ```
//!
//! MRA makes Requesting and Replying last longer. A DREQ leads from every connected phase to
//! TimeWait, which answers what is repeated. What is refused before there was a connection leaves
//! nothing behind: a REQ that is repeated then is a new one.

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
    /// The queue pair refused a request, which ended it. The peer has some time to learn of that by
    /// the NAK: a DREQ that came before would hide from it why.
    Refusing,
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

    /// Whether a peer that asked for the connection has not shown yet that it hears this side.
    pub(crate) const fn is_half_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Replying)
    }

    /// Whether the connection is about to end, or has ended.
    pub(crate) const fn ends(self) -> bool {
        matches!(self, Self::Refusing | Self::Disconnecting | Self::TimeWait)
    }
}

/// What happens to a connection. Messages were found to come from its peer.
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
    /// MRA.
    Patience,
    /// LAP.
    Alternate,
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
    /// Nothing is left to be acknowledged, or the queue pair failed or is gone.
    Drained,
    /// The queue pair refused a request of the peer, and failed.
    Refused,
    /// The application takes its time.
    Slow,
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
    /// Send MRA.
    AskPatience,
    /// Wait as long as the peer asks for.
    BePatient,
    /// Send APR: alternate paths are not supported.
    RefusePath,
    /// Tell the application that it is connected.
    TellEstablished,
    /// Tell the application that the peer refused.
    TellRejected,
    /// Tell the application that the peer does not answer.
    TellUnreachable,
    /// Send REJ: the time is over.
    Cancel,
    /// The same, and tell the application that the peer does not answer.
    GiveUp,
    /// End the queue pair and send DREQ.
    RequestDisconnect,
    /// Send DREP, end the queue pair, tell the application.
    Leave,
    /// End the queue pair and tell the application that it is disconnected.
    TellDisconnected,
}

/// What `input` does to a connection in `phase`: the next phase (`None`: the connection is gone)
/// and what is to be done. `None` if it does not fit.
pub(crate) fn step(phase: Phase, input: Input) -> Option<(Option<Phase>, Action)> {
    use Action as A;
    use Input as I;
    use Phase as P;
    let to = |phase, action| Some((Some(phase), action));
    let gone = |action| Some((None, action));
    match (phase, input) {
        (P::Requesting, I::Reply) => to(P::Established, A::Connect),
        (P::Requesting, I::Rejection) => gone(A::TellRejected),
        (P::Requesting, I::Patience) => to(P::Requesting, A::BePatient),
        (P::Requesting, I::GaveUp) => gone(A::GiveUp),
        (P::Requesting, I::Disconnect | I::Drained) => gone(A::Cancel),

        (P::Waiting, I::Request | I::Slow) => to(P::Waiting, A::AskPatience),
        (P::Waiting, I::Accept) => to(P::Replying, A::Reply),
        (P::Waiting, I::Reject) => gone(A::Refuse),
        (P::Waiting, I::GaveUp) => gone(A::Expire),
        (P::Waiting, I::Rejection) => gone(A::TellUnreachable),

        (P::Replying, I::Request) => to(P::Replying, A::Repeat),
        (P::Replying, I::Ready) => to(P::Established, A::TellEstablished),
        (P::Replying, I::Rejection) => gone(A::TellRejected),
        (P::Replying, I::Patience) => to(P::Replying, A::BePatient),
        (P::Replying, I::GaveUp) => gone(A::GiveUp),
        (P::Replying, I::Refused) => to(P::Refusing, A::Nothing),
        (P::Replying, I::Disconnect | I::Drained) => to(P::Disconnecting, A::RequestDisconnect),
        (P::Replying, I::DisconnectRequest) => to(P::TimeWait, A::Leave),

        (P::Established | P::Draining, I::Reply) => to(phase, A::Repeat),
        (P::Established | P::Draining, I::Ready | I::Request) => to(phase, A::Nothing),
        (P::Established | P::Draining, I::Alternate) => to(phase, A::RefusePath),
        (P::Established | P::Draining, I::Rejection) => to(P::TimeWait, A::TellDisconnected),
        (P::Established | P::Draining, I::DisconnectRequest) => to(P::TimeWait, A::Leave),
        (P::Established | P::Draining, I::Refused) => to(P::Refusing, A::Nothing),
        (P::Established | P::Draining, I::Disconnect) => to(P::Draining, A::Nothing),
        (P::Established | P::Draining, I::Drained) => to(P::Disconnecting, A::RequestDisconnect),
        (P::Draining, I::GaveUp) => to(P::Disconnecting, A::RequestDisconnect),

        (P::Refusing, I::Drained | I::GaveUp) => to(P::Disconnecting, A::RequestDisconnect),
        (P::Refusing, I::DisconnectRequest) => to(P::TimeWait, A::Leave),
        (P::Refusing, I::Rejection) => to(P::TimeWait, A::TellDisconnected),
        (P::Refusing, I::Disconnect | I::Refused | I::Ready) => to(P::Refusing, A::Nothing),

        (P::Disconnecting, I::DisconnectReply | I::GaveUp) => to(P::TimeWait, A::TellDisconnected),
        (P::Disconnecting, I::DisconnectRequest) => to(P::TimeWait, A::Leave),
        (P::Disconnecting, I::Disconnect | I::Drained) => to(P::Disconnecting, A::Nothing),

        (P::TimeWait, I::DisconnectRequest) => to(P::TimeWait, A::Repeat),
        (P::TimeWait, I::Disconnect | I::Drained) => to(P::TimeWait, A::Nothing),
        (P::TimeWait, I::GaveUp) => gone(A::Nothing),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
