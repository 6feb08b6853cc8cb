//! Connections to other members, made when a collective needs them for the first time.

use super::attempts::is_for_later;
use super::failure::GroupError;
use super::flow::Flow;
use super::link::{Link, Phase};
use super::member::Group;
use super::message::Hello;
use crate::abi::answer::Event;
use crate::abi::message::Request as Ask;
use crate::queue_pair::established;
use crate::{ConnectRequest, Connected, Error, Private};
use std::time::Instant;

/// What the session's socket told of a connection.
enum News {
    Asked(ConnectRequest),
    Answered(usize, bool, Result<Connected, Error>),
}

impl Group {
    /// Has connections to all peers of a collective made. True while some are not up.
    pub(super) fn connect(&mut self, flow: &Flow<'_>) -> Result<bool, GroupError> {
        let mut waiting = false;
        let served = self.offload.as_ref().map(|it| it.served());
        let peers = 0..flow.progress.peers();
        let peers = peers.map(|peer| flow.progress.rank(peer));
        for rank in peers.chain(served.unwrap_or_default()) {
            match self.data[rank].as_ref().map(|link| link.phase) {
                Some(Phase::Begun) => waiting = true,
                Some(_) => {}
                // The higher rank connects.
                None if rank > self.rank || self.attempts[rank].rest() => waiting = true,
                None => {
                    waiting = true;
                    let made = self.reach(rank);
                    made.map_err(|error| self.broken(error))?;
                }
            }
        }
        Ok(waiting)
    }

    fn reach(&mut self, rank: usize) -> Result<(), Error> {
        let link = Link::create(&self.context, &self.queue, rank, self.options.segment)?;
        let own = u16::try_from(self.rank).unwrap_or(u16::MAX);
        let group = self.id;
        let hello = Hello::Member { rank: own, group }.to_private();
        let request = link.queue_pair.connect_request(self.members[rank], hello);
        self.context.inner.channel.call(&request, None)?;
        link.queue_pair.begin_sends();
        self.data[rank] = Some(link);
        Ok(())
    }

    /// Takes what the session's socket says of the group's connections.
    pub(super) fn hear(&mut self) -> Result<bool, GroupError> {
        let mut moved = false;
        loop {
            let news = {
                let (listener, rows) = (&self.listener, [&self.control, &self.data]);
                let wanted = |event: &Event| {
                    if let Some(request) = listener.requested(event) {
                        return Some(News::Asked(request));
                    }
                    [true, false]
                        .into_iter()
                        .zip(rows)
                        .find_map(|(control, links)| {
                            links.iter().enumerate().find_map(|(rank, link)| {
                                let ours = link.as_ref()?.queue_pair.handle;
                                let answer = established(ours, event)?;
                                Some(News::Answered(rank, control, answer))
                            })
                        })
                };
                self.context
                    .inner
                    .channel
                    .wait_event(Instant::now(), wanted)
            };
            match news {
                // That strangers ask is no progress: they could keep who is late from being found.
                Ok(News::Asked(request)) => moved |= self.asked(request)?,
                Ok(News::Answered(rank, control, answer)) => {
                    let answered = self.answered(rank, control, &answer);
                    moved |= answered.map_err(|error| self.broken(error))?;
                }
                Err(Error::TimedOut) => return Ok(moved),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    /// Whether that is progress.
    fn answered(
        &mut self,
        rank: usize,
        control: bool,
        answer: &Result<Connected, Error>,
    ) -> Result<bool, Error> {
        let asked = rank < self.rank;
        let Some(link) = self.link(control, rank) else {
            return Ok(false);
        };
        match answer {
            Ok(_) => {
                link.phase = Phase::Up;
                // The one that was asked sends nothing before it hears that this side has its
                // answer. That is said once, and then as often as it asks; what goes over the
                // connection says it too, and is repeated until it is there.
                if asked {
                    link.probe()?;
                }
                return Ok(true);
            }
            // That one that stood has ended the completions tell, after what came before.
            Err(_) if link.phase != Phase::Begun => {}
            Err(Error::ConnectFailed { reason, .. }) if is_for_later(*reason) => {
                self.put_off(rank, control);
            }
            Err(_) => self.unmet(rank, control),
        }
        Ok(false)
    }

    /// The other host lives, and says no: its member has not called what needs the connection, for
    /// it takes none while it computes. It is asked again for as long as the group has patience.
    fn put_off(&mut self, rank: usize, control: bool) {
        self.forget(rank, control);
        self.attempts[rank].put_off();
    }

    fn forget(&mut self, rank: usize, control: bool) {
        let links = if control {
            &mut self.control
        } else {
            &mut self.data
        };
        links[rank] = None;
    }

    /// A connection did not come about. Half of the messages may have met a dead switch, so the one
    /// that asked asks again, and the other one waits for that. Who is dead is found by the
    /// connections for control.
    pub(super) fn unmet(&mut self, rank: usize, control: bool) {
        self.forget(rank, control);
        if self.attempts[rank].are_enough() && !control {
            self.lost.push(rank);
        }
    }

    /// A member, or somebody else, wants a connection. Whether one was begun.
    fn asked(&mut self, request: ConnectRequest) -> Result<bool, GroupError> {
        let hello = Hello::from_private(&request.private());
        let Some(Hello::Member { rank, group }) = hello else {
            return self.joins(request, hello);
        };
        let rank = usize::from(rank);
        let expected = group == self.id && rank > self.rank && rank < self.size;
        // It asks again when it has not heard the answer, or has given up what nothing went over.
        let stands = |link: &Link| link.phase != Phase::Begun && link.used;
        if !expected || self.data[rank].as_ref().is_some_and(stands) {
            request.reject(Private::EMPTY);
            return Ok(false);
        }
        let segment = self.options.segment;
        let link = Link::create(&self.context, &self.queue, rank, segment);
        match link.and_then(|link| self.admit(request, link)) {
            Ok(link) => self.data[rank] = link,
            Err(error) => return Err(self.broken(error)),
        }
        Ok(self.data[rank].is_some())
    }

    /// Begins to accept a connection with this end of it; `None` if the peer has gone meanwhile.
    pub(super) fn admit(
        &self,
        mut request: ConnectRequest,
        link: Link,
    ) -> Result<Option<Link>, Error> {
        request.answered = true;
        let accept = Ask::Accept {
            request: request.request,
            qp: link.queue_pair.handle,
            private: Private::EMPTY,
        };
        match self.context.inner.channel.call(&accept, None) {
            Ok(_) => {}
            Err(Error::Refused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        link.queue_pair.begin_sends();
        Ok(Some(link))
    }
}
