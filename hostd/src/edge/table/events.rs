//! Events of the engine, on their way to applications.

use super::{Link, Notice, REQUESTS_OF_SOURCE, REQUESTS_WAITING, Table, Waiting, private};
use crate::edge::command::SessionId;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::stats::EngineStatistics;
use crate::verbs::Status;
use crate::verbs::{ConnectionId, Event as EngineEvent, Granularity, PrivateData, Untagged};
use common::wire::cm::reject;
use hostd_client::abi::answer::Event;
use hostd_client::abi::types::{self, ErrorCode};
use std::net::IpAddr;

impl<M: RegionMemory> Table<M> {
    /// Takes note of an event, and says what the control thread has to know of it.
    pub fn handle_event(&mut self, event: &EngineEvent, engine: &mut Engine<M>) -> Option<Notice> {
        match *event {
            EngineEvent::NeedRoute { destination } => Some(Notice::NeedRoute(destination)),
            EngineEvent::ConnectRequest {
                connection,
                port,
                source,
                ref private_data,
                ..
            } => self.connect_request(connection, port, source, private_data, engine),
            EngineEvent::Established {
                connection,
                qpn,
                ref private_data,
                ..
            } => {
                self.link(qpn, Link::Up(connection))?;
                self.mark(qpn);
                let session = self.owner(qpn)?;
                let standing = engine.queue_pair_statistics(qpn)?;
                if let Some(untagged) = &standing.untagged {
                    warn_untagged(untagged, standing.remote, engine.statistics());
                }
                let unspecified = IpAddr::from([0, 0, 0, 0]);
                let granularity = standing
                    .agreed
                    .map_or(Granularity::Flow, |agreed| agreed.granularity);
                let event = Event::Established {
                    qp: qpn,
                    peer: standing.remote.unwrap_or(unspecified),
                    mtu: standing.path_mtu,
                    paths: u16::try_from(standing.paths).unwrap_or(u16::MAX).max(1),
                    granularity: granularity_of(granularity),
                    private: private(private_data),
                };
                Some(Notice::Event(session, event))
            }
            EngineEvent::Rejected {
                qpn,
                reason,
                ref private_data,
                ..
            } => {
                let code = match reason {
                    reject::CONSUMER => ErrorCode::Rejected,
                    reject::NO_RESOURCES | reject::NO_QUEUE_PAIR => ErrorCode::Busy,
                    _ => ErrorCode::Refused,
                };
                self.connect_failed(qpn, code, reason, private(private_data))
            }
            EngineEvent::Unreachable { connection, qpn } => {
                self.requests.remove(&connection.number());
                self.connect_failed(qpn?, ErrorCode::TimedOut, 0, types::Private::EMPTY)
            }
            EngineEvent::Disconnected { qpn, .. } => self.ended(qpn, ErrorCode::Closed),
            EngineEvent::QueuePairFailed {
                qpn,
                status,
                refused,
            } => self.ended(qpn, reason_of(status, refused)),
            EngineEvent::SharedLimitReached { queue } => {
                let queue = queue.number();
                let (session, ..) = self.shared.get(&queue)?;
                Some(Notice::Event(*session, Event::SharedLimitReached { queue }))
            }
            EngineEvent::SendQueueDrained { qpn: qp } => {
                let session = self.owner(qp)?;
                Some(Notice::Event(session, Event::SendQueueDrained { qp }))
            }
            EngineEvent::LastReceiveTaken { qpn: qp } => {
                let session = self.owner(qp)?;
                Some(Notice::Event(session, Event::LastReceiveTaken { qp }))
            }
        }
    }

    /// The link of a queue pair before, unless it is over.
    fn link(&mut self, qp: u32, next: Link) -> Option<Link> {
        let (_, rings) = self.queue_pairs.get_mut(&qp)?;
        if matches!(rings.link, Link::Ended | Link::Broken) {
            return None;
        }
        Some(std::mem::replace(&mut rings.link, next))
    }

    fn connect_request(
        &mut self,
        connection: ConnectionId,
        port: u16,
        peer: IpAddr,
        data: &PrivateData,
        engine: &mut Engine<M>,
    ) -> Option<Notice> {
        let owner = self
            .listeners
            .get(&port)
            .copied()
            .filter(|_| !self.draining);
        let room = |(session, backlog): &(SessionId, u16)| {
            let backlog = usize::from(*backlog).max(1);
            let own = || self.requests.values().filter(|it| it.session == *session);
            own().count() < REQUESTS_WAITING
                && own().filter(|it| it.port == port).count() < backlog
                && own().filter(|it| it.source == peer).count() < REQUESTS_OF_SOURCE
        };
        let Some((session, _)) = owner.filter(room) else {
            self.statistics.refused_requests += 1;
            let _ = engine.turn_away(connection);
            return None;
        };
        let request = connection.number();
        let waiting = Waiting {
            session,
            connection,
            port,
            source: peer,
        };
        self.requests.insert(request, waiting);
        let (listener, private) = (u32::from(port), private(data));
        Some(Notice::Event(
            session,
            Event::ConnectRequest {
                listener,
                request,
                peer,
                private,
            },
        ))
    }

    fn connect_failed(
        &mut self,
        qp: u32,
        reason: ErrorCode,
        rej: u16,
        private: types::Private,
    ) -> Option<Notice> {
        self.link(qp, Link::Ended)?;
        self.mark(qp);
        let session = self.owner(qp)?;
        Some(Notice::Event(
            session,
            Event::ConnectFailed {
                qp,
                reason,
                rej,
                private,
            },
        ))
    }

    fn ended(&mut self, qp: u32, reason: ErrorCode) -> Option<Notice> {
        let before = self.link(qp, Link::Ended)?;
        self.mark(qp);
        let session = self.owner(qp)?;
        let event = match before {
            Link::Pending(_) => Event::ConnectFailed {
                qp,
                reason,
                rej: 0,
                private: types::Private::EMPTY,
            },
            _ => Event::Disconnected { qp, reason },
        };
        Some(Notice::Event(session, event))
    }
}

/// The connections that have no tags though both sides offer them are told in the log, one for each
/// time that there are twice as many as when one was told last.
fn warn_untagged(untagged: &Untagged, peer: Option<IpAddr>, statistics: &EngineStatistics) {
    let count = statistics.untagged_unlike + statistics.untagged_untold;
    if count.is_power_of_two() {
        tracing::warn!(?peer, count, "{untagged}");
    }
}

fn granularity_of(granularity: Granularity) -> types::Granularity {
    match granularity {
        Granularity::Flow => types::Granularity::Flow,
        Granularity::Flowlet => types::Granularity::Flowlet,
        Granularity::Packet => types::Granularity::Packet,
    }
}

/// Why a queue pair failed that has this status, as verbs tell it by asynchronous events.
/// `refused`: because of a request of the peer.
fn reason_of(status: Status, refused: bool) -> ErrorCode {
    match status {
        Status::RetryExceeded | Status::RnrRetryExceeded => ErrorCode::TimedOut,
        Status::Success | Status::WorkRequestFlushed => ErrorCode::Closed,
        Status::Fatal | Status::General => ErrorCode::Internal,
        Status::LocalAccess if refused => ErrorCode::Access,
        Status::LocalQpOperation if refused => ErrorCode::InvalidRequest,
        // Of a receive that was too short, or whose memory is gone, too.
        Status::LocalAccess
        | Status::LocalQpOperation
        | Status::LocalLength
        | Status::LocalProtection
        | Status::MemoryWindowBind
        | Status::RemoteInvalidRequest
        | Status::RemoteAccess
        | Status::RemoteOperation => ErrorCode::RequestFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-1: the peer is blamed for what it sent alone.
    #[test]
    fn own_requests_are_no_fault_of_the_peer() {
        for (status, refused, reason) in [
            (Status::LocalAccess, true, ErrorCode::Access),
            (Status::LocalQpOperation, true, ErrorCode::InvalidRequest),
            (Status::LocalLength, true, ErrorCode::RequestFailed),
            (Status::LocalQpOperation, false, ErrorCode::RequestFailed),
            (Status::RemoteAccess, false, ErrorCode::RequestFailed),
            (Status::RetryExceeded, false, ErrorCode::TimedOut),
        ] {
            assert_eq!(reason_of(status, refused), reason, "{status} {refused}");
        }
    }
}
