//! Waiting for connections.

use crate::abi::answer::{Event, Reply};
use crate::abi::message::Request;
use crate::abi::types::{ObjectKind, Private};
use crate::channel::deadline;
use crate::session::{Session, unexpected};
use crate::{Connected, Error, QueuePair};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A port on which connections are waited for (`rdma_listen`). When it is dropped the peers are
/// turned down whose requests were not taken; those that were can still be accepted.
#[derive(Debug)]
pub struct Listener {
    pub(crate) context: Arc<Session>,
    handle: u32,
    port: u16,
}

/// A peer that wants to connect. Dropping it turns the peer down.
#[derive(Debug)]
pub struct ConnectRequest {
    context: Arc<Session>,
    pub(crate) request: u32,
    peer: IpAddr,
    private: Private,
    pub(crate) answered: bool,
}

impl Listener {
    pub(crate) fn create(
        context: &Arc<Session>,
        address: IpAddr,
        port: u16,
        backlog: u16,
    ) -> Result<Self, Error> {
        let request = Request::Listen {
            address,
            port,
            backlog,
        };
        let reply = context.channel.listen(&request)?;
        let Reply::Listener { handle, port } = reply else {
            return Err(unexpected(&reply));
        };
        Ok(Self {
            context: context.clone(),
            handle,
            port,
        })
    }

    /// The port, also when the daemon chose it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for a connection request (`rdma_get_request`).
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::DaemonGone`].
    pub fn get_request(&self, timeout: Duration) -> Result<ConnectRequest, Error> {
        let until = deadline(timeout);
        let wanted = |event: &Event| self.requested(event);
        self.context.channel.wait_event(until, wanted)
    }

    /// The connection request that `event` tells this listener of.
    pub(crate) fn requested(&self, event: &Event) -> Option<ConnectRequest> {
        match *event {
            Event::ConnectRequest {
                listener,
                request,
                peer,
                private,
            } if listener == self.handle => Some(ConnectRequest {
                context: self.context.clone(),
                request,
                peer,
                private,
                answered: false,
            }),
            _ => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = self.handle;
        let request = Request::Destroy {
            kind: ObjectKind::Listener,
            handle: ours,
        };
        self.context.channel.close_listener(ours, &request);
    }
}

impl ConnectRequest {
    /// The peer's address.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Data of the peer's application.
    pub fn private(&self) -> Private {
        self.private
    }

    /// Accepts with `queue_pair` (`rdma_accept`) and waits until the connection stands. Receives
    /// that the peer's first messages need should be posted before.
    ///
    /// # Errors
    /// [`Error::ConnectFailed`] if the peer has gone meanwhile; [`Error::TimedOut`]; a refusal, as
    /// of a queue pair that is connected: the peer is turned down then.
    pub fn accept(
        mut self,
        queue_pair: &mut QueuePair,
        private: Private,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        // If that fails the peer is turned down, unless the daemon has done so.
        let connected = queue_pair.accept(self.request, private, timeout)?;
        self.answered = true;
        Ok(self.with_data(connected))
    }

    /// What came with the request: the peer's last message of the set-up carries no data.
    pub(crate) fn with_data(&self, connected: Connected) -> Connected {
        Connected {
            private: self.private,
            ..connected
        }
    }

    /// Turns the peer down (`rdma_reject`), which gets `private` with [`Error::ConnectFailed`].
    pub fn reject(mut self, private: Private) {
        self.answered = true;
        self.context.channel.tell(&Request::Reject {
            request: self.request,
            private,
        });
    }
}

impl Drop for ConnectRequest {
    fn drop(&mut self) {
        if !self.answered {
            let private = Private::EMPTY;
            self.context.channel.tell(&Request::Reject {
                request: self.request,
                private,
            });
        }
    }
}
