//! Whether the other end of a Unix socket may attach descriptors to what it sends.

#![allow(unsafe_code, reason = "the option has no wrapper yet")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_PASSRIGHTS`, since Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Permits or forbids descriptors (`SCM_RIGHTS`) in what arrives at `socket`; one that listens
/// hands its setting on to the connections made from then on. False where the kernel, older than
/// Linux 6.16, permits them always: the receiver is then the one who closes what it never wanted.
///
/// # Errors
/// It is no Unix socket.
pub fn permit_descriptors(socket: impl AsFd, permit: bool) -> io::Result<bool> {
    let value = libc::c_int::from(permit);
    let len = libc::socklen_t::try_from(size_of_val(&value)).expect("a small number");
    // SAFETY: the kernel reads `len` bytes of `value`, which lives during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            len,
        )
    };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENOPROTOOPT) {
        return Ok(false);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// Connections have the setting of their listener until they get another.
    #[test]
    fn descriptors_are_refused_to_their_sender() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bound");
        if !permit_descriptors(&listener, false).expect("a Unix socket") {
            return;
        }
        let client = UnixStream::connect(&path).expect("it listens");
        let send = || {
            let rights = [client.as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&rights)];
            let part = [IoSlice::new(b"x")];
            sendmsg::<()>(client.as_raw_fd(), &part, &rights, MsgFlags::empty(), None)
        };
        assert_eq!(send(), Err(Errno::EPERM), "before it is accepted");
        let (accepted, _) = listener.accept().expect("a connection");
        assert_eq!(send(), Err(Errno::EPERM));
        permit_descriptors(&accepted, true).expect("a Unix socket");
        assert_eq!(send(), Ok(1));
    }

    #[test]
    fn other_sockets_have_no_descriptors() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(!permit_descriptors(&socket, false).unwrap_or(false));
    }
}
