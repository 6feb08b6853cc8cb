//! A session with the daemon.

use crate::abi::answer::Reply;
use crate::abi::doorbell::Doorbell;
use crate::abi::message::Request;
use crate::abi::types::Access;
use crate::abi::{VERSION_MAJOR, feature};
use crate::channel::{Channel, deadline};
use crate::session::{Limits, Session, descriptors, unexpected};
use crate::{
    CompletionQueue, Error, Listener, MemoryWindow, QueuePair, QueuePairOptions, Region,
    SharedQueue,
};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Environment variable that names the daemon's application socket.
pub const SOCKET_ENV: &str = "HOSTD_SOCKET";

/// Default path of the daemon's application socket.
pub const SOCKET_DEFAULT: &str = "/run/hostd/hostd.sock";

/// The path of the application socket: from [`SOCKET_ENV`], or [`SOCKET_DEFAULT`].
pub fn socket_path() -> PathBuf {
    std::env::var_os(SOCKET_ENV).map_or_else(|| PathBuf::from(SOCKET_DEFAULT), PathBuf::from)
}

/// Time between two looks for a daemon that is not there.
const RETRY: Duration = Duration::from_millis(50);

/// Whether this is how it looks while no daemon runs, or one begins or ends.
fn is_absent(error: &Error) -> bool {
    let Error::NoDaemon { reason, .. } = error else {
        return matches!(error, Error::DaemonGone);
    };
    matches!(reason, Errno::ENOENT | Errno::ECONNREFUSED | Errno::EAGAIN)
}

/// A session with the daemon; `ibv_context` and its protection domain in one. Clones share it, and
/// the objects made from it keep it alive.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) inner: Arc<Session>,
}

impl Context {
    /// Opens a session with the daemon at the path that [`socket_path`] tells.
    ///
    /// # Errors
    /// No daemon there, or it refuses this user or this version.
    pub fn open() -> Result<Self, Error> {
        Self::connect(&socket_path())
    }

    /// Opens a session with the daemon at `path`.
    ///
    /// # Errors
    /// No daemon there, or it refuses this user or this version.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let no_daemon = |reason: Errno| Error::NoDaemon {
            path: path.to_owned(),
            reason,
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
            .map_err(Error::kernel("socket"))?;
        let address = UnixAddr::new(path).map_err(no_daemon)?;
        connect(fd.as_raw_fd(), &address).map_err(no_daemon)?;
        Self::over(fd)
    }

    /// Opens a session with the daemon at `path`, and waits for one that is not there, or is just
    /// being started again. Tries every 50 ms, and sleeps meanwhile.
    ///
    /// # Errors
    /// No daemon there after `timeout`: why the last try failed; or it refuses this user or this
    /// version.
    pub fn connect_within(path: &Path, timeout: Duration) -> Result<Self, Error> {
        let until = deadline(timeout);
        loop {
            let absent = match Self::connect(path) {
                Err(error @ (Error::NoDaemon { .. } | Error::DaemonGone)) => error,
                other => return other,
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !is_absent(&absent) {
                return Err(absent);
            }
            std::thread::sleep(left.min(RETRY));
        }
    }

    /// Opens a session over a connected socket.
    ///
    /// # Errors
    /// The daemon refuses this user or this version.
    pub fn over(socket: OwnedFd) -> Result<Self, Error> {
        let channel = Channel::new(socket);
        let (reply, _) = channel.call(&Request::hello(), None)?;
        let Reply::Hello {
            major,
            features,
            memory,
            queue_pairs,
            message,
            ..
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        if major != VERSION_MAJOR || features & feature::SEND == 0 {
            return Err(Error::Protocol(format!("version {major} of hostd")));
        }
        let (page, doorbell) = Doorbell::create()?;
        let (_, fds) = channel.call(&Request::ShareDoorbells, Some(page.as_fd()))?;
        let [wake] = descriptors(fds)?;
        let limits = Limits {
            memory,
            queue_pairs,
            message,
        };
        Ok(Self {
            inner: Arc::new(Session {
                channel,
                doorbell,
                wake,
                limits,
                features,
                memory: AtomicU64::new(0),
                looked: AtomicU64::new(0),
            }),
        })
    }

    /// What the daemon allows this application.
    pub fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Allocates and registers memory of `len` zero bytes (`ibv_reg_mr`).
    ///
    /// # Errors
    /// [`Error::Refused`] with [`crate::ErrorCode::InvalidArgument`]: no bytes at all, or flags
    /// that do not go together; with [`crate::ErrorCode::Quota`]: more than
    /// [`Self::limits`] and the memory in use leave, which is found before any memory is
    /// allocated, or than the user's quota. The kernel has no memory.
    pub fn allocate(&self, len: usize, access: Access) -> Result<Region, Error> {
        Region::allocate(&self.inner, len, access)
    }

    /// Whether `region` was allocated in this session.
    pub fn owns(&self, region: &Region) -> bool {
        region.object().is_of(&self.inner)
    }

    /// Makes a memory window of type 2 (`ibv_alloc_mw`). It counts as a region.
    ///
    /// # Errors
    /// The daemon refuses: quota.
    pub fn create_window(&self) -> Result<MemoryWindow, Error> {
        MemoryWindow::create(&self.inner)
    }

    /// Creates a completion queue for at least `entries` completions (`ibv_create_cq`). It needs
    /// one for each work request that its queue pairs may have outstanding.
    ///
    /// # Errors
    /// The daemon refuses: quota, or a size that cannot be.
    pub fn create_completion_queue(&self, entries: u32) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(&self.inner, entries)
    }

    /// Creates a queue pair (`ibv_create_qp`) whose sends complete in `send` and whose receives
    /// complete in `receive`, which may be the same.
    ///
    /// # Errors
    /// The daemon refuses: quota, or sizes that cannot be.
    pub fn create_queue_pair(
        &self,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        QueuePair::create(&self.inner, send, receive, None, options)
    }

    /// The same, but receives are taken from `shared` (`srq` of `ibv_qp_init_attr`).
    /// `options.receive_entries` is how many completions of receives may wait in the daemon on
    /// behalf of this queue pair.
    ///
    /// # Errors
    /// The daemon refuses: quota, or sizes that cannot be.
    pub fn create_sharing_queue_pair(
        &self,
        send: &CompletionQueue,
        receive: &CompletionQueue,
        shared: &SharedQueue,
        options: QueuePairOptions,
    ) -> Result<QueuePair, Error> {
        let shared = Some((shared.handle(), shared.object()));
        QueuePair::create(&self.inner, send, receive, shared, options)
    }

    /// Creates a shared receive queue for at least `entries` receives (`ibv_create_srq`). With
    /// fewer than `limit` posted, which is at most `entries`,
    /// [`SharedQueue::wait_limit`] returns; zero: not before [`SharedQueue::set_limit`].
    ///
    /// # Errors
    /// The daemon refuses: quota, or sizes that cannot be.
    pub fn create_shared_queue(&self, entries: u32, limit: u32) -> Result<SharedQueue, Error> {
        SharedQueue::create(&self.inner, entries, limit)
    }

    /// Waits for connections to `port` (`rdma_listen`): at `address`, one of [`Self::gids`], or at
    /// all of them if it is the unspecified one (`0.0.0.0` or `::`). A port belongs to one
    /// listener, whatever its address. Port zero lets the daemon choose. At most `backlog` requests
    /// wait for an answer, at least one; of one peer at most 64, and 256 for all listeners of an
    /// application together. Further ones are turned down at once, with
    /// [`crate::ErrorCode::Busy`] at the peer.
    ///
    /// # Errors
    /// The port is taken, or the address is none of the daemon's interface.
    pub fn listen(&self, address: IpAddr, port: u16, backlog: u16) -> Result<Listener, Error> {
        Listener::create(&self.inner, address, port, backlog)
    }
}
