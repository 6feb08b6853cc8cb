//! Whether the process at the other end of a Unix socket lives.

#![allow(unsafe_code, reason = "pidfd_open has no wrapper yet")]

use nix::sys::socket::{getsockopt, sockopt};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor of the process that connected `socket`; it becomes readable when that process has
/// ended, whoever else has the socket.
///
/// # Errors
/// The process has ended, or is of a PID namespace that cannot be seen from here and the kernel is
/// older than Linux 6.5.
pub fn peer_process(socket: impl AsFd) -> io::Result<OwnedFd> {
    match getsockopt(&socket, sockopt::PeerPidfd) {
        Err(nix::Error::ENOPROTOOPT) => {}
        found => return Ok(found?),
    }
    let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
    // SAFETY: it takes two numbers, and refers to no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, peer.pid(), 0) };
    let fd = RawFd::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Command, Stdio};

    fn has_ended(process: &OwnedFd, timeout: u16) -> bool {
        let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(timeout)).expect("polled") == 1
    }

    #[test]
    fn a_process_that_lives_is_told_from_one_that_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("bound");
        let _own = UnixStream::connect(&path).expect("it listens");
        let (accepted, _) = listener.accept().expect("a connection");
        let own = peer_process(&accepted).expect("this process");
        assert!(!has_ended(&own, 0));

        let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                      sys.stdin.read()";
        let mut other = Command::new("/usr/bin/python3")
            .args(["-c", script])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("Python");
        let (accepted, _) = listener.accept().expect("a connection");
        let process = peer_process(&accepted).expect("a process");
        assert!(!has_ended(&process, 0));
        other.kill().expect("killed");
        assert!(has_ended(&process, 10_000));
        other.wait().expect("waited for");
    }
}
