//! Groups that form, and collectives that end, as futures.

use super::failure::GroupError;
use super::link::Link;
use super::member::{Group, GroupOptions};
use super::rendezvous::{RETRY, wait_at};
use super::request::Request;
use crate::channel::deadline;
use crate::tasks::{kernel, register};
use crate::{CompletionQueue, Context, Error, Listener};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// The longest sleep: time may be up, or another one may have read what the session's socket says.
const LOOK: Duration = Duration::from_millis(20);

impl Group {
    /// As [`Self::create`]. If the future is dropped the members that have joined learn that rank 0
    /// left.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn create_async(
        context: &Context,
        port: u16,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        Self::gather_async(context, wait_at(context, port)?, size, options).await
    }

    /// As [`Self::gather`], and [`Self::create_async`].
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub async fn gather_async(
        context: &Context,
        listener: Listener,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let mut group = Self::begin_gathering(context, listener, size, options)?;
        let until = deadline(options.join_timeout);
        while !group.gather_turn(until)? {
            group.rest().await?;
        }
        group.end_gathering()?;
        Ok(group)
    }

    /// As [`Self::join`]. If the future is dropped rank 0 learns that this member left, if it had
    /// joined: another one may join as this rank. Only if all had come meanwhile the group has
    /// formed, and its first collective fails.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub async fn join_async(
        context: &Context,
        root: SocketAddr,
        rank: usize,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let mut group = Self::begin_joining(context, rank, size, options)?;
        let until = deadline(options.join_timeout);
        loop {
            let mut link = Link::create(context, &group.queue, 0, 0)?;
            let left = until.saturating_duration_since(Instant::now());
            let reaching = link.queue_pair.connect_async(root, group.hello());
            let answer = timeout(left, reaching).await;
            let answer = answer.unwrap_or(Err(Error::TimedOut));
            if group.found(link, answer.map(drop), until)? {
                break;
            }
            sleep(RETRY).await;
        }
        while !group.join_turn(until)? {
            group.rest().await?;
        }
        group.end_joining(root)?;
        Ok(group)
    }

    /// Waits until something may have come, or it is time to look whether time is up.
    async fn rest(&mut self) -> Result<(), GroupError> {
        self.rest_or_fail()
            .await
            .map_err(|error| self.broken(error))
    }

    async fn rest_or_fail(&mut self) -> Result<(), Error> {
        if self.queue.arm()? {
            return Ok(());
        }
        let queue = &mut self.queue;
        if queue.readiness.is_none() {
            queue.readiness = Some(register(CompletionQueue::as_fd(queue))?);
        }
        let completions = queue.readiness.as_ref().expect("set above");
        let channel = &self.context.inner.channel;
        let socket = channel.tasks.registered(channel.as_fd())?;
        tokio::select! {
            ready = completions.readable() => ready.map_err(kernel("epoll_wait"))?.clear_ready(),
            ready = socket.readable() => ready.map_err(kernel("epoll_wait"))?.clear_ready(),
            () = channel.tasks.stirred.notified() => {}
            () = sleep(LOOK) => {}
        }
        Ok(())
    }
}

impl Request<'_> {
    /// As [`Self::wait`], as a future. One that is dropped before it is over makes the group fail.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub async fn finish(mut self) -> Result<(), GroupError> {
        while !self.poll()? {
            self.group.rest().await?;
        }
        Ok(())
    }
}
