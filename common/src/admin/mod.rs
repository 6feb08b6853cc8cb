//! The admin socket of a daemon: one request line, one answer line, then the end of the stream.
//!
//! ```text
//!   bind ──▶ accept ──▶ read a line ──▶ the daemon's handler ──▶ write the answer, close
//!             at most     within             in its own             within
//!             32 at once  the time-out       time                   the time-out
//! ```
//!
//! Who opens connections and asks nothing, or a byte a minute, locks nobody out: when all places
//! are taken, the one that has waited longest for the rest of a request is closed; if all have
//! asked, the one that has taken its time longest with its answer.
//!
//! Whoever may open the socket may ask: the permissions of its file are the access control. What
//! requests and answers mean is the daemon's business; both write JSON. [`client`] is for the tools
//! that ask.

pub mod client;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Bytes of the longest request, without the end of its line.
pub const REQUEST_MAX: usize = 4096;

/// How long the listener rests when the kernel refuses a connection, for example because no
/// descriptors are left.
const REST: Duration = Duration::from_millis(100);

/// Permissions of a folder that is made for a socket.
const FOLDER_MODE: u32 = 0o755;

/// A request longer than [`REQUEST_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is longer than {REQUEST_MAX} bytes")]
pub struct TooLong;

/// What a client may take of the daemon.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Clients served at a time.
    clients: usize,
    /// A client has this long to ask, and as long again to take each part of the answer.
    timeout: Duration,
}

const LIMITS: Limits = Limits {
    clients: 32,
    timeout: Duration::from_secs(5),
};

/// How long a client may take for all of an answer: that of a full table has megabytes, and both
/// sides may wait for a core.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// An admin socket that is bound.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    limits: Limits,
}

impl Listener {
    /// Binds a socket at `path` with the permissions `mode`. A folder that is missing is made with
    /// 0755, because the socket's own permissions say who may ask; the one that it lies in is not:
    /// systemd makes both (`RuntimeDirectory=`), so a path that is so far off is a mistake. A
    /// socket that nobody listens on any more is replaced. `daemon` is the program's name, for the
    /// message when another one listens there. Needs a tokio runtime.
    ///
    /// # Errors
    /// Somebody listens there already, something other than a socket is there, or the folder does
    /// not permit it.
    pub fn bind(path: &Path, mode: u32, daemon: &str) -> io::Result<Self> {
        make_folder_of(path)?;
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
        // None of them is wanted, and the close of some takes as long as their sender likes.
        crate::sys::permit_descriptors(&socket, false)?;
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
        let clients = Arc::new(Clients::default());
        loop {
            match socket.accept().await {
                Ok((stream, _)) => {
                    clients.room(limits.clients).await;
                    let (handler, stage) = (handler.clone(), Arc::new(AtomicU8::new(READS)));
                    let place = Place(clients.clone(), stage.clone());
                    let task = tokio::spawn(async move {
                        let served = serve_client(stream, limits.timeout, &*handler, &place.1);
                        if let Err(error) = served.await {
                            tracing::debug!("admin client: {error}");
                        }
                    });
                    let client = Client {
                        stage,
                        task: task.abort_handle(),
                    };
                    clients.list().push_back(client);
                    // It may ask before others can take its place.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    tracing::warn!("admin socket: {error}");
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }
}

/// Makes the folder of a socket at `path` if it is missing, with 0755 whatever the umask is, and
/// says so. The folder around it is not made.
///
/// # Errors
/// There is none, and it cannot be made; the text names it.
pub fn make_folder_of(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|it| !it.as_os_str().is_empty()) else {
        return Ok(());
    };
    let made = std::fs::create_dir(folder).and_then(|()| {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(FOLDER_MODE))
    });
    match made {
        Ok(()) => tracing::info!("made the folder {} ({FOLDER_MODE:o})", folder.display()),
        Err(_) if folder.is_dir() => {}
        Err(error) => {
            let text = format!("the folder {} cannot be made: {error}", folder.display());
            return Err(io::Error::new(error.kind(), text));
        }
    }
    Ok(())
}

/// Stage of a client whose request is not complete.
const READS: u8 = 0;

/// Stage of a client whose request the daemon works on.
const WAITS: u8 = 1;

/// Stage of a client that takes its answer.
const WRITES: u8 = 2;

/// A client that is served.
#[derive(Debug)]
struct Client {
    /// [`READS`], [`WAITS`] or [`WRITES`].
    stage: Arc<AtomicU8>,
    task: AbortHandle,
}

/// The clients that are served, the oldest first.
#[derive(Debug, Default)]
struct Clients {
    list: Mutex<VecDeque<Client>>,
    /// Somebody left.
    left: Notify,
}

impl Clients {
    fn list(&self) -> MutexGuard<'_, VecDeque<Client>> {
        // Nothing panics that holds it.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for one more: closes the oldest that makes the daemon wait, or waits if there is
    /// none.
    async fn room(&self, most: usize) {
        loop {
            let left = self.left.notified();
            {
                let mut list = self.list();
                list.retain(|client| !client.task.is_finished());
                if list.len() < most {
                    return;
                }
                let at = |stage| {
                    let mut all = list.iter();
                    all.position(|client| client.stage.load(Ordering::Relaxed) == stage)
                };
                if let Some(client) = at(READS)
                    .or_else(|| at(WRITES))
                    .and_then(|it| list.remove(it))
                {
                    tracing::debug!("admin socket: the longest idle client makes room for another");
                    client.task.abort();
                    return;
                }
            }
            left.await;
        }
    }
}

/// What a client's task holds while it runs, also if it is aborted.
struct Place(Arc<Clients>, Arc<AtomicU8>);

impl Drop for Place {
    fn drop(&mut self) {
        let mut list = self.0.list();
        list.retain(|client| !Arc::ptr_eq(&client.stage, &self.1));
        drop(list);
        self.0.left.notify_one();
    }
}

async fn serve_client<H, F>(
    mut stream: UnixStream,
    limit: Duration,
    handler: &H,
    stage: &AtomicU8,
) -> io::Result<()>
where
    H: Fn(Result<Vec<u8>, TooLong>) -> F,
    F: Future<Output = Vec<u8>>,
{
    let request = timeout(limit, read_line(&mut stream)).await??;
    stage.store(WAITS, Ordering::Relaxed);
    // Who went away wants no answer: a request that takes time ends with him.
    let mut answer = tokio::select! {
        answer = handler(request) => answer,
        () = hung_up(&stream) => return Err(io::ErrorKind::ConnectionAborted.into()),
    };
    answer.push(b'\n');
    stage.store(WRITES, Ordering::Relaxed);
    timeout(LONGEST_ANSWER, async {
        let mut left = &answer[..];
        while !left.is_empty() {
            match timeout(limit, stream.write(left)).await?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                taken => left = &left[taken..],
            }
        }
        stream.shutdown().await
    })
    .await?
}

/// How often a client is looked at while its request is worked on.
const LOOK: Duration = Duration::from_millis(100);

/// Ends when the client closed its socket. One that only sends no more waits for its answer, so
/// the end of what it sends says nothing.
async fn hung_up(stream: &UnixStream) {
    loop {
        tokio::time::sleep(LOOK).await;
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        let polled = poll(&mut fds, PollTimeout::ZERO);
        let gone = |fd: &PollFd<'_>| {
            fd.revents()
                .is_some_and(|it| it.contains(PollFlags::POLLHUP))
        };
        if polled.is_ok_and(|count| count > 0) && gone(&fds[0]) {
            return;
        }
    }
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
