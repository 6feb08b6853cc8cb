//! Records with file descriptors over a Unix SOCK_SEQPACKET socket.
//!
//! Beside [`crate::shm`] the only unsafe code of the library: descriptors that arrive are numbers,
//! and become owned here, once, so that none is leaked whatever a peer sends.

#![allow(
    unsafe_code,
    reason = "received descriptors become owned; see each SAFETY"
)]

use crate::abi::{DESCRIPTORS_MAX, MESSAGE_MAX};
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// One received record.
#[derive(Debug)]
pub struct Received {
    /// The bytes, without what did not fit.
    pub bytes: Vec<u8>,
    /// The descriptors that came along.
    pub descriptors: Vec<OwnedFd>,
    /// The record, or its descriptors, were longer than any lawful one; the rest is lost.
    pub truncated: bool,
    /// This process had no room for all of the descriptors; the others are lost.
    pub shortage: bool,
}

/// The most descriptors that Linux lets one message carry (`SCM_MAX_FD`).
const KERNEL_DESCRIPTORS_MAX: usize = 253;

/// Room for the control messages of a record, aligned as the kernel requires. The most that a
/// sender can attach fits, so that no descriptor is cut off.
#[repr(align(8))]
struct Control {
    bytes: [u8; 16 + 4 * KERNEL_DESCRIPTORS_MAX + 4],
}

/// A copy of `descriptor` that tells the runtime when it is ready.
#[cfg(feature = "tokio")]
pub(crate) fn register(
    descriptor: BorrowedFd<'_>,
) -> std::io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    let copy = descriptor.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` owns its descriptor, and nobody replaces it in there.
    Ok(unsafe { tokio::io::unix::AsyncFd::register(copy) }?)
}

/// Receives one record without waiting; `None` at the end of the connection. An empty record is an
/// end too, unless descriptors came with it.
///
/// # Errors
/// `EAGAIN` if there is none now; what `recvmsg` says otherwise.
pub fn receive(socket: BorrowedFd<'_>) -> Result<Option<Received>, Errno> {
    receive_with(socket, size_of::<Control>())
}

/// As [`receive`], with this many bytes for control messages.
fn receive_with(socket: BorrowedFd<'_>, room: usize) -> Result<Option<Received>, Errno> {
    let mut buffer = [0_u8; MESSAGE_MAX];
    let mut control = Control {
        bytes: [0; size_of::<Control>()],
    };
    assert!(room <= control.bytes.len(), "the buffer has no more");
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: a message header is plain data, for which all zeros are valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.as_mut_ptr().cast();
    header.msg_controllen = room;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points at buffers of the lengths that it says, alive during the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
    let len = usize::try_from(Errno::result(got)?).expect("not negative");
    let descriptors = own_descriptors(&header);
    let truncated = header.msg_flags & libc::MSG_TRUNC != 0 || descriptors.len() > DESCRIPTORS_MAX;
    // The buffer takes all that a sender can attach: what is missing found no free number.
    let shortage = header.msg_flags & libc::MSG_CTRUNC != 0;
    // SEQPACKET: no bytes is the end; an empty record is no lawful message either. One that brings
    // descriptors is given out, because the caller may not be where they may be closed.
    if len == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    Ok(Some(Received {
        bytes: buffer[..len].to_vec(),
        descriptors,
        truncated,
        shortage,
    }))
}

/// Takes every descriptor that a message brought. Not through `nix`, which gives none of them out
/// when some were cut off, and so would let a sender leave descriptors open here.
fn own_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut owned = Vec::new();
    // SAFETY: the kernel filled the control buffer and set its length; the macros stay within it.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: not null, so it points at a whole control header within the buffer.
        let (level, kind, len) = unsafe {
            (
                (*control).cmsg_level,
                (*control).cmsg_type,
                (*control).cmsg_len,
            )
        };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: only computes the length of the header.
            let head = usize::try_from(unsafe { libc::CMSG_LEN(0) }).expect("a small number");
            // SAFETY: the data of this control message, within the buffer.
            let data = unsafe { libc::CMSG_DATA(control) };
            for index in 0..len.saturating_sub(head) / size_of::<RawFd>() {
                // SAFETY: within the data; the kernel has just installed this descriptor for us,
                // nobody else knows its number, and it becomes owned exactly once.
                owned.push(unsafe {
                    OwnedFd::from_raw_fd(data.cast::<RawFd>().add(index).read_unaligned())
                });
            }
        }
        // SAFETY: as for the first.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    owned
}

/// Sends one record without waiting.
///
/// # Errors
/// `EAGAIN` if the socket is full; what `sendmsg` says otherwise.
pub fn send(
    socket: BorrowedFd<'_>,
    record: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let controls = if numbers.is_empty() {
        &[][..]
    } else {
        &rights[..]
    };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(record)],
        controls,
        flags,
        None,
    )?;
    Ok(())
}

/// The groups of the process at the other end when it connected, beside its primary one
/// (`SO_PEERGROUPS`).
///
/// # Errors
/// What `getsockopt` says.
pub fn peer_groups(socket: BorrowedFd<'_>) -> Result<Vec<libc::gid_t>, Errno> {
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let bytes = groups.len() * size_of::<libc::gid_t>();
        let mut len = libc::socklen_t::try_from(bytes).map_err(|_| Errno::ERANGE)?;
        // SAFETY: the kernel writes at most `len` bytes, which `groups` has.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let count = usize::try_from(len).unwrap_or(0) / size_of::<libc::gid_t>();
        match Errno::result(result) {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            // Then `len` says how many there are.
            Err(Errno::ERANGE) if count > groups.len() => groups.resize(count, 0),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::OFlag;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::os::fd::AsFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .expect("a socket pair")
    }

    #[test]
    fn records_keep_their_bounds_and_descriptors() {
        let (a, b) = pair();
        assert_eq!(receive(b.as_fd()).unwrap_err(), Errno::EAGAIN);
        let file = std::fs::File::open("/dev/null").expect("/dev/null");
        send(a.as_fd(), b"one", &[file.as_fd(), file.as_fd()]).expect("sent");
        send(a.as_fd(), b"two", &[]).expect("sent");
        let one = receive(b.as_fd()).expect("a record").expect("not the end");
        assert_eq!(
            (one.bytes.as_slice(), one.descriptors.len(), one.truncated),
            (&b"one"[..], 2, false)
        );
        let two = receive(b.as_fd()).expect("a record").expect("not the end");
        assert_eq!(
            (two.bytes.as_slice(), two.descriptors.len()),
            (&b"two"[..], 0)
        );
        drop(a);
        assert!(receive(b.as_fd()).expect("the end").is_none());
    }

    /// HT-3: descriptors of an empty record are not closed here, where that may take long.
    #[test]
    fn an_empty_record_with_descriptors_is_given_out() {
        let (a, b) = pair();
        send(a.as_fd(), b"", &[a.as_fd()]).expect("sent");
        let received = receive(b.as_fd()).expect("a record").expect("not the end");
        assert!(received.bytes.is_empty());
        assert_eq!(received.descriptors.len(), 1);
    }

    /// HT-3: what a receiver has no room for is told apart from what is too long, and what came is
    /// closed.
    #[test]
    fn a_shortage_of_descriptors_is_noticed() {
        let (a, b) = pair();
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_NONBLOCK).expect("a pipe");
        send(a.as_fd(), b"x", &[writer.as_fd(), writer.as_fd()]).expect("sent");
        drop(writer);
        // As when the kernel finds a free number for one of the two.
        let received = receive_with(b.as_fd(), 16 + 4).expect("a record");
        let received = received.expect("not the end");
        assert!(received.shortage && !received.truncated);
        assert_eq!(received.descriptors.len(), 1);
        drop(received);
        let got = nix::unistd::read(&reader, &mut [0; 1]);
        assert_eq!(got, Ok(0), "a write end is still open");
    }

    /// HT-3: what is too long is noticed, and no descriptor stays open.
    #[test]
    fn excess_is_noticed_and_closed() {
        let (a, b) = pair();
        send(a.as_fd(), &[7; MESSAGE_MAX + 1], &[]).expect("sent");
        assert!(
            receive(b.as_fd())
                .expect("a record")
                .expect("not the end")
                .truncated
        );
        for count in [3, KERNEL_DESCRIPTORS_MAX] {
            let (reader, writer) = nix::unistd::pipe2(OFlag::O_NONBLOCK).expect("a pipe");
            send(a.as_fd(), b"x", &vec![writer.as_fd(); count]).expect("sent");
            drop(writer);
            let received = receive(b.as_fd()).expect("a record").expect("not the end");
            assert!(received.truncated);
            drop(received);
            let got = nix::unistd::read(&reader, &mut [0; 1]);
            assert_eq!(got, Ok(0), "a write end is still open");
        }
    }
}
