//! Frames of one EtherType, sent and received by the kernel's side of interfaces (packet(7)).

#![allow(
    unsafe_code,
    reason = "packet sockets and their addresses; see each SAFETY"
)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A packet socket for one EtherType, on all interfaces of the namespace.
#[derive(Debug)]
pub struct LinkSocket {
    fd: OwnedFd,
    ethertype: u16,
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        other => Ok(other),
    }
}

fn len_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a few bytes")
}

impl LinkSocket {
    /// Opens a socket that does not block.
    ///
    /// # Errors
    /// The kernel refuses: `CAP_NET_RAW` is needed.
    pub fn open(ethertype: u16) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let protocol = libc::c_int::from(ethertype.to_be());
        // SAFETY: no pointers are given.
        let fd = checked(unsafe { libc::socket(libc::AF_PACKET, kind, protocol) })?;
        // SAFETY: the descriptor was just made, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, ethertype })
    }

    /// Has the interface take frames to this group address, too.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn join(&self, ifindex: u32, group: [u8; 6]) -> io::Result<()> {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&group);
        let request = libc::packet_mreq {
            mr_ifindex: libc::c_int::try_from(ifindex).map_err(io::Error::other)?,
            mr_type: libc::c_ushort::try_from(libc::PACKET_MR_MULTICAST).expect("zero"),
            mr_alen: 6,
            mr_address: address,
        };
        // SAFETY: the request lives until the call has returned, and the length is its own.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const request).cast(),
                len_of::<libc::packet_mreq>(),
            )
        };
        checked(result).map(drop)
    }

    /// Sends a frame by an interface.
    ///
    /// # Errors
    /// It is down, gone, or has no room.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> io::Result<()> {
        // SAFETY: all bytes zero are an address.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::c_ushort::try_from(libc::AF_PACKET).expect("a few bits");
        to.sll_protocol = self.ethertype.to_be();
        to.sll_ifindex = libc::c_int::try_from(ifindex).map_err(io::Error::other)?;
        // SAFETY: frame and address live until the call has returned, and the lengths are theirs.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                len_of::<libc::sockaddr_ll>(),
            )
        };
        if sent == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Takes a frame that another machine sent, as much of it as fits in `buffer`: the interface by
    /// which it came, and its bytes. `None`: there is none.
    ///
    /// # Errors
    /// As the kernel says, for instance that an interface has gone down.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<(u32, &'a [u8])>> {
        loop {
            // SAFETY: all bytes zero are an address.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut len = len_of::<libc::sockaddr_ll>();
            // SAFETY: buffer and address live until the call has returned, with their lengths.
            let got = unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut len,
                )
            };
            let Ok(got) = usize::try_from(got) else {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => Err(error),
                };
            };
            // What this machine sends comes here, too.
            if from.sll_pkttype == libc::PACKET_OUTGOING {
                continue;
            }
            let Ok(ifindex) = u32::try_from(from.sll_ifindex) else {
                continue;
            };
            return Ok(Some((ifindex, &buffer[..got.min(buffer.len())])));
        }
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
