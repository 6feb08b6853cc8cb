//! UDP ports that hostd sends from past the kernel, held there so that nobody else has them.

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// Has the kernel give a UDP port to nobody else, at none of its addresses, as long as the sockets
/// are open. They are not read: the steering program takes what comes.
///
/// # Errors
/// Another socket has the port.
pub fn hold(port: u16) -> io::Result<Vec<OwnedFd>> {
    let mut held = vec![hold_at(Ipv4Addr::UNSPECIFIED.into(), port)?];
    match hold_at(Ipv6Addr::UNSPECIFIED.into(), port) {
        Ok(socket) => held.push(socket),
        // A kernel without IPv6: nobody sends with it.
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
        Err(error) => return Err(error),
    }
    Ok(held)
}

fn hold_at(address: IpAddr, port: u16) -> io::Result<OwnedFd> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    let address = SockaddrStorage::from(SocketAddr::new(address, port));
    bind(socket.as_raw_fd(), &address).map_err(|errno| {
        let error = io::Error::from(errno);
        let text = format!(
            "hostd holds UDP port {port}, so that no other program of this host speaks for it, and \
             cannot: {error}"
        );
        io::Error::new(error.kind(), text)
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// HT-50: nobody else gets a port that is held, at any address; one that is taken is named.
    #[test]
    fn a_held_port_is_nobody_elses() {
        let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are some");
        let port = taken.local_addr().expect("it has one").port();
        let error = hold(port).expect_err("it is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&port.to_string()), "{error}");
        drop(taken);
        let held = hold(port).expect("it is free");
        let addresses = [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv6Addr::LOCALHOST.into(),
            Ipv6Addr::UNSPECIFIED.into(),
        ];
        for address in &addresses[..2 * held.len()] {
            let error = UdpSocket::bind((*address, port)).expect_err("it is held");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{address}");
        }
        drop(held);
        UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free again");
    }
}
