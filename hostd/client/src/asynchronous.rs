//! Waits as futures, on tokio.
//!
//! Tasks and threads may wait for one session at once. Any of them reads the socket for all, as
//! [`crate::channel`] says; tasks never block, and learn from `tasks` that another one has read
//! something. A session is used by one runtime: that in which the first of its futures ran.

use crate::abi::answer::{Event, Reply};
use crate::abi::message::Request;
use crate::abi::paths::PathRequest;
use crate::channel::{Channel, REPLY_TIMEOUT, State};
use crate::paths::{Changing, LOOK};
use crate::queue_pair::{disconnected, established};
use crate::shm_socket;
use crate::tasks::{kernel, register};
use crate::{
    Completion, CompletionQueue, ConnectRequest, Connected, Context, Error, ErrorCode, Listener,
    PathChange, Private, QueuePair, SharedQueue,
};
use nix::errno::Errno;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// A request that was sent. If its future is dropped nobody takes the reply.
struct Awaited<'a> {
    channel: &'a Channel,
    tag: u32,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.channel.abandon(self.tag);
    }
}

impl Channel {
    /// Waits until `pick` finds what is wanted.
    async fn until<T>(&self, mut pick: impl FnMut(&mut State) -> Option<T>) -> Result<T, Error> {
        let socket = self.tasks.registered(self.as_fd())?;
        loop {
            let stirred = self.tasks.stirred.notified();
            tokio::pin!(stirred);
            // From here on nothing that another one reads is missed.
            stirred.as_mut().enable();
            if let Some(found) = self.look(&mut pick)? {
                return Ok(found);
            }
            tokio::select! {
                () = stirred => {}
                ready = socket.readable() => ready.map_err(kernel("epoll_wait"))?.clear_ready(),
            }
        }
    }

    pub(crate) async fn event<T>(
        &self,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Result<T, Error> {
        self.until(|state| state.event(&mut wanted)).await
    }

    async fn send_async(&self, request: &Request, tag: u32) -> Result<(), Error> {
        let record = request.encode(tag);
        let socket = self.tasks.registered(self.as_fd())?;
        loop {
            match shm_socket::send(self.as_fd(), record.as_slice(), &[]) {
                Ok(()) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let ready = socket.writable().await;
                    ready.map_err(kernel("epoll_wait"))?.clear_ready();
                }
                // It may have said why before it closed.
                Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => return Ok(()),
                Err(reason) => {
                    return Err(Error::Kernel {
                        what: "sendmsg",
                        reason,
                    });
                }
            }
        }
    }

    /// Sends a request and waits for its reply. Refusals are errors.
    async fn call_async(&self, request: &Request) -> Result<Reply, Error> {
        let tag = self.next_tag();
        let answer = async {
            self.send_async(request, tag).await?;
            let awaited = Awaited { channel: self, tag };
            let answer = self.until(|state| state.answer(tag)).await;
            std::mem::forget(awaited);
            answer
        };
        match timeout(REPLY_TIMEOUT, answer).await {
            Ok(Ok((Reply::Error { code, text }, _))) => Err(Error::Refused { code, text }),
            Ok(other) => other.map(|(reply, _)| reply),
            Err(_) => {
                // What the daemon did is unknown now, so the session cannot go on.
                self.close();
                Err(Error::DaemonGone)
            }
        }
    }
}

impl CompletionQueue {
    /// Takes the oldest completion, waiting for it. A future that is dropped takes none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] as [`Self::poll`].
    pub async fn next_async(&mut self) -> Result<Completion, Error> {
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            if !self.arm()? && !self.woken().await? {
                return self.flush_one();
            }
        }
    }

    /// As [`Self::wait_solicited`], without an end.
    ///
    /// # Errors
    /// [`Error::DaemonGone`], when nothing is outstanding.
    pub async fn wait_solicited_async(&mut self) -> Result<(), Error> {
        while !self.arm_solicited()? {
            if !self.woken().await? {
                let some = self.arm_solicited()? || self.outlives();
                return some.then_some(()).ok_or(Error::DaemonGone);
            }
        }
        Ok(())
    }

    /// Waits until the queue, which is armed, says something; `false`: the daemon is gone.
    async fn woken(&mut self) -> Result<bool, Error> {
        if self.readiness.is_none() {
            self.readiness = Some(register(CompletionQueue::as_fd(self))?);
        }
        let readiness = self.readiness.as_ref().expect("set above");
        let gone = self.context.channel.event(|_| None::<()>);
        tokio::select! {
            ready = readiness.readable() => {
                ready.map_err(kernel("epoll_wait"))?.clear_ready();
                Ok(true)
            }
            _ = gone => Ok(false),
        }
    }
}

impl Context {
    /// As [`Self::connect_within`]. It does not block a task, but a thread of the runtime, which
    /// tries until the end of `timeout` also if the future is dropped.
    ///
    /// # Errors
    /// No daemon there after `timeout`, or it refuses this user or this version.
    pub async fn connect_within_async(path: &Path, timeout: Duration) -> Result<Self, Error> {
        let path = path.to_owned();
        let connecting = move || Self::connect_within(&path, timeout);
        match spawn_blocking(connecting).await {
            Ok(connected) => connected,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

impl SharedQueue {
    /// As [`Self::wait_limit`], without an end. A future that is dropped takes nothing.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub async fn wait_limit_async(&self) -> Result<(), Error> {
        let channel = &self.context.channel;
        channel.event(|event| self.reached_limit(event)).await
    }
}

impl QueuePair {
    /// As [`Self::connect`]. A future that is dropped leaves the attempt to the daemon: the queue
    /// pair has to be dropped, too, or reset by its disconnection.
    ///
    /// # Errors
    /// [`Error::ConnectFailed`] with the reason.
    pub async fn connect_async(
        &mut self,
        peer: SocketAddr,
        private: Private,
    ) -> Result<Connected, Error> {
        let request = self.connect_request(peer, private);
        self.begin(&request).await
    }

    /// Asks the daemon for a connection, and waits until it stands.
    async fn begin(&mut self, request: &Request) -> Result<Connected, Error> {
        let channel = &self.context.channel;
        channel.call_async(request).await?;
        self.begin_sends();
        let ours = self.handle;
        channel.event(|event| established(ours, event)).await?
    }

    /// As [`Self::disconnect`].
    ///
    /// # Errors
    /// A refusal if there is no connection.
    pub async fn disconnect_async(&mut self) -> Result<(), Error> {
        let request = Request::Disconnect { qp: self.handle };
        self.context.channel.call_async(&request).await?;
        // Told before: nothing more comes.
        if self.ended.get().is_some() {
            return Ok(());
        }
        self.wait_disconnected_async().await.map(drop)
    }

    /// As [`Self::wait_drained`], without an end. A future that is dropped takes nothing.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub async fn wait_drained_async(&self) -> Result<(), Error> {
        let channel = &self.context.channel;
        channel.event(|event| self.drained(event)).await
    }

    /// As [`Self::wait_last_receive`], without an end. A future that is dropped takes nothing.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub async fn wait_last_receive_async(&self) -> Result<(), Error> {
        let channel = &self.context.channel;
        channel.event(|event| self.took_last(event)).await
    }

    /// As [`Self::change_paths`], without an end: the peer is asked until it answers, also if the
    /// future is dropped.
    ///
    /// # Errors
    /// A refusal that says what is not possible, here or at the peer: nothing has changed.
    pub async fn change_paths_async(&mut self, change: &PathChange) -> Result<(), Error> {
        let channel = &self.context.channel;
        let request = self.path_request(PathRequest::Change(*change))?;
        let mut change = Changing::begin(channel.call_async(&request).await?)?;
        while let Changing::Asked(name) = change {
            let question = self.path_request(PathRequest::Outcome(name))?;
            change = Changing::look(name, channel.call_async(&question).await?)?;
            if matches!(change, Changing::Asked(_)) {
                sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// As [`Self::wait_disconnected`].
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub async fn wait_disconnected_async(&self) -> Result<ErrorCode, Error> {
        let ours = self.handle;
        let channel = &self.context.channel;
        let reason = channel.event(|event| disconnected(ours, event)).await?;
        let _ = self.ended.set(reason);
        Ok(reason)
    }
}

impl Listener {
    /// As [`Self::get_request`]. A future that is dropped takes none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub async fn get_request_async(&self) -> Result<ConnectRequest, Error> {
        let channel = &self.context.channel;
        channel.event(|event| self.requested(event)).await
    }
}

impl ConnectRequest {
    /// As [`Self::accept`].
    ///
    /// # Errors
    /// [`Error::ConnectFailed`] if the peer has gone meanwhile.
    pub async fn accept_async(
        mut self,
        queue_pair: &mut QueuePair,
        private: Private,
    ) -> Result<Connected, Error> {
        let request = Request::Accept {
            request: self.request,
            qp: queue_pair.handle,
            private,
        };
        // If that fails, or nobody waits for its end, the peer is turned down, unless the daemon
        // has an answer for it.
        let connected = queue_pair.begin(&request).await?;
        self.answered = true;
        Ok(self.with_data(connected))
    }
}
