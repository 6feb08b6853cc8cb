//! ICMP errors of the switch to senders whose way only the kernel knows: it sends them.

use common::wire::ip::{v4, v6};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike, SockaddrStorage,
    sendto, socket,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// The sockets by which the kernel takes whole packets, of each version of IP.
#[derive(Debug, Default)]
pub(super) struct OwnErrors {
    v4: Option<OwnedFd>,
    v6: Option<OwnedFd>,
}

impl OwnErrors {
    /// Has the kernel send a packet where its own routes lead. It fills the source of one of IPv4
    /// in that has none.
    ///
    /// # Errors
    /// It is no packet, there is no socket for it, or the kernel has no way for it.
    pub(super) fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        let (to, family, socket): (IpAddr, _, _) = match packet.first().map(|byte| byte >> 4) {
            Some(4) if packet.len() >= v4::HEADER_LEN => {
                let to = v4::Packet::new_partial(packet, packet.len());
                let to = to.map_err(io::Error::other)?.dst();
                (to.into(), AddressFamily::Inet, &mut self.v4)
            }
            Some(6) if packet.len() >= v6::HEADER_LEN => {
                let to = v6::Packet::new_partial(packet, packet.len());
                let to = to.map_err(io::Error::other)?.dst();
                (to.into(), AddressFamily::Inet6, &mut self.v6)
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let socket = match socket {
            Some(socket) => socket,
            None => socket.insert(open(family)?),
        };
        let to = SockaddrStorage::from(SocketAddr::new(to, 0));
        debug_assert_eq!(to.family(), Some(family));
        sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty())?;
        Ok(())
    }
}

/// A socket that sends what it is given as it is, and hears nothing.
fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, SockType::Raw, flags, SockProtocol::Raw)?)
}
