//! Bounds of the metrics listener: clients that keep silent, or read nothing, lock nobody out.
//!
//! A connection carries one request. It has a time for all of it, and there are so many places;
//! when all are taken the oldest connection ends, so that a scrape always finds one.

use axum::serve::Listener;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// What clients may take of the daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at a time.
    pub(super) connections: usize,
    /// From the connection to the end of the answer.
    pub(super) time: Duration,
}

pub(super) const LIMITS: Limits = Limits {
    connections: 32,
    time: Duration::from_secs(10),
};

/// How long the listener rests when the kernel refuses a connection, for example because no
/// descriptors are left.
const REST: Duration = Duration::from_millis(100);

/// A listener whose connections are bounded.
pub(super) struct Guarded {
    listener: TcpListener,
    limits: Limits,
    /// Dropping one ends its connection; the oldest first.
    places: VecDeque<oneshot::Sender<()>>,
}

impl Guarded {
    pub(super) fn new(listener: TcpListener, limits: Limits) -> Self {
        Self {
            listener,
            limits,
            places: VecDeque::new(),
        }
    }
}

impl Listener for Guarded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.places.retain(|place| !place.is_closed());
                    if self.places.len() >= self.limits.connections {
                        self.places.pop_front();
                        // Its task closes it before the next is accepted.
                        tokio::task::yield_now().await;
                    }
                    let (place, evicted) = oneshot::channel();
                    self.places.push_back(place);
                    let end = Box::pin(tokio::time::sleep(self.limits.time));
                    let connection = Connection {
                        stream,
                        end,
                        evicted,
                    };
                    return (connection, address);
                }
                Err(error) => {
                    tracing::warn!("metrics listener: {error}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends by itself.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    evicted: oneshot::Receiver<()>,
}

impl Connection {
    /// Whether the time is over or the place is another's; wakes the task when that comes.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.end.as_mut().poll(context).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if Pin::new(&mut self.evicted).poll(context).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Families, Source, listener};
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// More than the buffers of a connection hold, so that who does not read holds it up.
    struct Long;

    impl Source for Long {
        fn scrape(&self) -> Families {
            let mut families = Families::new();
            let mut family = families.gauge("long", "Many samples.");
            for index in 0..200_000 {
                family.add(&[("number", &index.to_string())], 1);
            }
            families
        }

        fn health(&self) -> Result<(), String> {
            Ok(())
        }
    }

    async fn start(limits: Limits) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listener::serve_within(listener, Arc::new(Long), limits));
        address
    }

    async fn health(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        // The daemon closes, although the client did not ask for that.
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// MG-5: who opens connections and says nothing takes no place from those who ask.
    #[tokio::test(flavor = "current_thread")]
    async fn silent_clients_make_room() {
        let limits = Limits {
            connections: 4,
            time: Duration::from_secs(3600),
        };
        let address = start(limits).await;
        let mut silent = Vec::new();
        for _ in 0..40 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        assert!(health(address).await.starts_with("HTTP/1.1 200"));
        let gone = silent[0].read(&mut [0; 1]).await;
        assert!(matches!(gone, Ok(0) | Err(_)), "{gone:?}");
    }

    /// MG-5: silence and deafness end by themselves, so that no descriptor is held for ever.
    #[tokio::test(flavor = "current_thread")]
    async fn slow_clients_are_ended() {
        let limits = Limits {
            connections: 4,
            time: Duration::from_millis(300),
        };
        let address = start(limits).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let gone = silent.read(&mut [0; 1]).await;
        assert!(matches!(gone, Ok(0) | Err(_)), "{gone:?}");
        tokio::time::sleep(2 * limits.time).await;
        let mut rest = Vec::new();
        // What the buffers held, without the end of the answer; or a reset.
        let ended = deaf.read_to_end(&mut rest).await;
        let whole = rest.windows(6).any(|it| it == b"199999");
        assert!(ended.is_err() || !whole, "{} bytes", rest.len());
        assert!(health(address).await.starts_with("HTTP/1.1 200"));
    }
}
