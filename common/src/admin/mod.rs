//! The admin socket of a daemon: one request line, one answer line, then the end of the stream.
//!
//! ```text
//!   bind ──▶ accept ──▶ read a line ──▶ the daemon's handler ──▶ write the answer, close
//!             at most     within             in its own             within
//!             32 at once  the time-out       time                   the time-out
//! ```
//!
//! Whoever may open the socket may ask: the permissions of its file are the access control. What
//! requests and answers mean is the daemon's business; both write JSON. [`client`] is for the tools
//! that ask.

pub mod client;

use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Bytes of the longest request, without the end of its line.
pub const REQUEST_MAX: usize = 4096;

/// How long the listener rests when the kernel refuses a connection, for example because no
/// descriptors are left.
const REST: Duration = Duration::from_millis(100);

/// A request longer than [`REQUEST_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is longer than {REQUEST_MAX} bytes")]
pub struct TooLong;

/// What a client may take of the daemon.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Clients served at a time; further ones wait in the socket's queue.
    clients: usize,
    /// A client has this long to ask, and as long again to take the answer.
    timeout: Duration,
}

const LIMITS: Limits = Limits {
    clients: 32,
    timeout: Duration::from_secs(5),
};

/// An admin socket that is bound.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    limits: Limits,
}

impl Listener {
    /// Binds a socket at `path` with the permissions `mode`, and makes the folder if it is missing.
    /// A socket that nobody listens on any more is replaced. `daemon` is the program's name, for
    /// the message when another one listens there. Needs a tokio runtime.
    ///
    /// # Errors
    /// Somebody listens there already, something other than a socket is there, or the folder does
    /// not permit it.
    pub fn bind(path: &Path, mode: u32, daemon: &str) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if path.exists() {
            crate::sys::require_socket(path)?;
            match std::os::unix::net::UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path)?;
                }
                Err(error) => return Err(error),
                Ok(_) => {
                    let text = format!("another {daemon} listens there");
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
                }
            }
        }
        let socket = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(Self {
            socket,
            limits: LIMITS,
        })
    }

    /// Serves clients until the task is dropped. `handler` gets a request without the end of its
    /// line and returns the answer without it; each client has a task of its own.
    pub async fn serve<H, F>(self, handler: H)
    where
        H: Fn(Result<Vec<u8>, TooLong>) -> F + Send + Sync + 'static,
        F: Future<Output = Vec<u8>> + Send,
    {
        let Self { socket, limits } = self;
        let handler = Arc::new(handler);
        let places = Arc::new(Semaphore::new(limits.clients));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                return;
            };
            match socket.accept().await {
                Ok((stream, _)) => {
                    let handler = handler.clone();
                    tokio::spawn(async move {
                        if let Err(error) = serve_client(stream, limits.timeout, &*handler).await {
                            tracing::debug!("admin client: {error}");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!("admin socket: {error}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }
}

async fn serve_client<H, F>(mut stream: UnixStream, limit: Duration, handler: &H) -> io::Result<()>
where
    H: Fn(Result<Vec<u8>, TooLong>) -> F,
    F: Future<Output = Vec<u8>>,
{
    let request = timeout(limit, read_line(&mut stream)).await??;
    let mut answer = handler(request).await;
    answer.push(b'\n');
    timeout(limit, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    })
    .await?
}

/// Bytes up to the end of the line or of the stream.
async fn read_line(stream: &mut UnixStream) -> io::Result<Result<Vec<u8>, TooLong>> {
    let mut line = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let len = stream.read(&mut buffer).await?;
        let part = &buffer[..len];
        let end = part.iter().position(|&byte| byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(len)]);
        if line.len() > REQUEST_MAX {
            return Ok(Err(TooLong));
        }
        if end.is_some() || part.is_empty() {
            return Ok(Ok(line));
        }
    }
}

#[cfg(test)]
mod tests;
