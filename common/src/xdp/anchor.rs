//! Where the first socket of a UMEM is bound.
//!
//! The kernel binds later sockets to a UMEM by way of the socket that was bound first, and libxdp
//! never closes that one. So the first is an *anchor* on a device that carries no packets for it,
//! and every port can be closed and opened again. A queue of a device takes one such socket, so
//! that daemons that run side by side in a network namespace need a device each:
//!
//! ```text
//!   own namespace   its loopback device; unseen, and gone with the socket. Needs CAP_SYS_ADMIN
//!   loopback        of the daemon's namespace: for the first daemon there
//!   xsk-anchorN     an end of a veth pair that is made for it and stays down: for further ones.
//!                   The pair outlives the daemon, and the next one takes it over
//! ```

use std::io;
use std::thread;

/// Daemons of one network namespace that may need a device for their anchors.
const DEVICES: usize = 16;

/// Registers a UMEM with `register` and binds its first socket with `bind`, in the first of the
/// places that is free. Each place needs a registration of its own: what libxdp sets up for the
/// first socket stays as it is after a failure.
///
/// # Errors
/// What `register` or `bind` answered in the last place; a queue that is taken ([`libc::EBUSY`])
/// and missing rights only lead to the next one.
pub(super) fn anchor<U: Send, S: Send, E: Send>(
    register: impl Fn() -> Result<U, E> + Sync,
    bind: impl Fn(&U, &str) -> io::Result<S> + Sync,
    refused: impl Fn(io::Error) -> E,
) -> Result<(U, S), E> {
    if let Some(anchored) = in_own_namespace(&register, &bind) {
        return anchored;
    }
    let umem = register()?;
    let mut error = match bind(&umem, "lo") {
        Ok(socket) => return Ok((umem, socket)),
        Err(error) => error,
    };
    for number in 0..DEVICES {
        if error.raw_os_error() != Some(libc::EBUSY) {
            break;
        }
        let name = device(number);
        // Both ends serve, the second one for the next daemon.
        if let Err(error) = add_pair(&device(number & !1), &device(number | 1)) {
            return Err(refused(io::Error::new(
                error.kind(),
                format!(
                    "another daemon has the loopback device, and {name} was not added: {error}"
                ),
            )));
        }
        let umem = register()?;
        error = match bind(&umem, &name) {
            Ok(socket) => return Ok((umem, socket)),
            Err(error) => error,
        };
    }
    Err(refused(error))
}

/// In a network namespace that nobody else sees. `None`: this process may not make one, or not
/// bind there.
fn in_own_namespace<U: Send, S: Send, E: Send>(
    register: &(impl Fn() -> Result<U, E> + Sync),
    bind: &(impl Fn(&U, &str) -> io::Result<S> + Sync),
) -> Option<Result<(U, S), E>> {
    let work = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).ok()?;
        let umem = match register() {
            Ok(umem) => umem,
            Err(error) => return Some(Err(error)),
        };
        let socket = bind(&umem, "lo").ok()?;
        Some(Ok((umem, socket)))
    };
    // The namespace is the thread's, and lives on as the socket's.
    thread::scope(|scope| scope.spawn(work).join().expect("the thread does not panic"))
}

/// What the names of devices for anchors begin with.
const PREFIX: &str = "xsk-anchor";

/// Name of a device for anchors.
fn device(number: usize) -> String {
    format!("{PREFIX}{number}")
}

/// Whether the device of this name is there for anchors: it carries no packets.
pub fn is_anchor(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Makes sure that there is this pair of devices.
fn add_pair(one: &str, other: &str) -> io::Result<()> {
    let work = || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            tokio::spawn(connection);
            let pair = rtnetlink::LinkVeth::new(one, other).build();
            match handle.link().add(pair).execute().await {
                Err(rtnetlink::Error::NetlinkError(answer))
                    if answer.raw_code() == -libc::EEXIST =>
                {
                    Ok(())
                }
                Err(rtnetlink::Error::NetlinkError(answer)) => {
                    Err(io::Error::from_raw_os_error(-answer.raw_code()))
                }
                other => other.map_err(io::Error::other),
            }
        })
    };
    // A runtime cannot be started in a thread that already drives one.
    thread::scope(|scope| scope.spawn(work).join().expect("the thread does not panic"))
}
