//! What the kernel has that judges or changes packets which it forwards: chains of nftables, tables
//! of the older iptables, policies of IPsec. Who forwards in place of the kernel passes them by.

use super::attribute::{DecodeError, attributes, u16_at, u32_at};
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_XFRM};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

/// Takes a message of a dump: its type and what it carries.
type Take<'a> = dyn FnMut(u16, &[u8]) -> Result<(), DecodeError> + 'a;

const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// struct nlmsghdr.
const HEADER_LEN: usize = 16;

/// `NFNL_SUBSYS_NFTABLES` with `NFT_MSG_GETCHAIN`, and the answer (linux/netfilter/nf_tables.h).
const GET_CHAIN: u16 = 10 << 8 | 4;
const NEW_CHAIN: u16 = 10 << 8 | 3;

/// `XFRM_MSG_GETSPDINFO`, and the answer (linux/xfrm.h).
const GET_POLICY_COUNTS: u16 = 0x25;
const NEW_POLICY_COUNTS: u16 = 0x24;

/// Tables of the older iptables that are in use, a name a line.
const LEGACY_TABLES: [(&str, &str); 2] = [
    ("iptables", "/proc/thread-self/net/ip_tables_names"),
    ("ip6tables", "/proc/thread-self/net/ip6_tables_names"),
];

/// Something that packets pass which the kernel forwards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filter {
    /// A base chain of nftables (and of iptables that writes to nftables) on the way of forwarded
    /// packets. One without rules that accepts everything is left out.
    Chain {
        /// The family of its table, as `nft` calls it.
        family: &'static str,
        /// Its table.
        table: String,
        /// Its name.
        chain: String,
        /// Where on the way it is, as `nft` calls it.
        hook: &'static str,
    },
    /// A table of the older iptables that is in use. Whether it has rules cannot be seen.
    LegacyTable {
        /// `iptables` or `ip6tables`.
        program: &'static str,
        /// Its name.
        table: String,
    },
    /// Policies of IPsec for packets that are forwarded or sent.
    IpsecPolicies(u32),
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain {
                family,
                table,
                chain,
                hook,
            } => write!(
                f,
                "nftables chain {chain} of table {family} {table} ({hook})"
            ),
            Self::LegacyTable { program, table } => write!(f, "{program} table {table}"),
            Self::IpsecPolicies(1) => f.write_str("1 policy of IPsec"),
            Self::IpsecPolicies(count) => write!(f, "{count} policies of IPsec"),
        }
    }
}

/// What the kernel tells of its filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Those that there are.
    pub found: Vec<Filter>,
    /// Programs whose tables this process may not see: those of the older iptables are root's to
    /// see.
    pub hidden: Vec<&'static str>,
}

/// What packets would pass that the kernel of this network namespace forwards.
///
/// # Errors
/// The kernel refuses to tell: without CAP_NET_ADMIN, for example. What it lacks is no error.
pub fn filters() -> io::Result<Filters> {
    let mut found = chains()?;
    let mut hidden = Vec::new();
    for (program, path) in LEGACY_TABLES {
        match std::fs::read_to_string(path) {
            Ok(text) => found.extend(text.lines().map(|table| Filter::LegacyTable {
                program,
                table: table.to_owned(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => hidden.push(program),
            Err(error) => return Err(error),
        }
    }
    found.extend(ipsec_policies()?);
    found.sort();
    Ok(Filters { found, hidden })
}

fn chains() -> io::Result<Vec<Filter>> {
    let mut found = Vec::new();
    // struct nfgenmsg with zeros: of all families.
    ask(NETLINK_NETFILTER, GET_CHAIN, DUMP, &mut |kind, body| {
        if kind == NEW_CHAIN {
            found.extend(chain(body)?);
        }
        Ok(())
    })?;
    Ok(found)
}

fn ipsec_policies() -> io::Result<Option<Filter>> {
    let mut found = None;
    ask(NETLINK_XFRM, GET_POLICY_COUNTS, 0, &mut |kind, body| {
        if kind == NEW_POLICY_COUNTS {
            found = policies(body)?;
        }
        Ok(())
    })?;
    Ok(found)
}

/// A chain, if packets that are forwarded pass it.
fn chain(body: &[u8]) -> Result<Option<Filter>, DecodeError> {
    const TABLE: u16 = 1;
    const NAME: u16 = 3;
    const HOOK: u16 = 4;
    const POLICY: u16 = 5;
    const USES: u16 = 6;
    const HOOK_NUMBER: u16 = 1;
    const ACCEPT: u32 = 1;
    let family = *body.first().ok_or(DecodeError::Short)?;
    let (mut table, mut name, mut hook) = (String::new(), String::new(), None);
    let (mut policy, mut uses) = (ACCEPT, 0);
    for attribute in attributes(body.get(4..).ok_or(DecodeError::Short)?) {
        let attribute = attribute?;
        match attribute.kind {
            TABLE => table = attribute.name()?,
            NAME => name = attribute.name()?,
            HOOK => {
                for inner in attributes(attribute.value) {
                    let inner = inner?;
                    if inner.kind == HOOK_NUMBER {
                        hook = Some(u32::from_be(inner.u32()?));
                    }
                }
            }
            POLICY => policy = u32::from_be(attribute.u32()?),
            USES => uses = u32::from_be(attribute.u32()?),
            _ => {}
        }
    }
    if policy == ACCEPT && uses == 0 {
        return Ok(None);
    }
    // Families and hooks of linux/netfilter.h; other chains are entered from these, or are for
    // packets of this machine.
    let way = match (family, hook) {
        (1 | 2 | 7 | 10, Some(0)) => "prerouting",
        (1 | 2 | 7 | 10, Some(2)) => "forward",
        (1 | 2 | 7 | 10, Some(4)) => "postrouting",
        (1, Some(5)) | (5, Some(0)) => "ingress",
        (5, Some(1)) => "egress",
        _ => return Ok(None),
    };
    let family = match family {
        1 => "inet",
        2 => "ip",
        7 => "bridge",
        10 => "ip6",
        _ => "netdev",
    };
    Ok(Some(Filter::Chain {
        family,
        table,
        chain: name,
        hook: way,
    }))
}

/// The policies for packets that go out or are forwarded, if there are any.
fn policies(body: &[u8]) -> Result<Option<Filter>, DecodeError> {
    /// `XFRMA_SPD_INFO`: struct xfrmu_spdinfo.
    const COUNTS: u16 = 1;
    for attribute in attributes(body.get(4..).ok_or(DecodeError::Short)?) {
        let attribute = attribute?;
        if attribute.kind == COUNTS {
            let out = u32_at(attribute.value, 4)?;
            let forward = u32_at(attribute.value, 8)?;
            let count = out.saturating_add(forward);
            return Ok((count > 0).then_some(Filter::IpsecPolicies(count)));
        }
    }
    Err(DecodeError::Missing(COUNTS))
}

/// Asks with four zero bytes behind the header, and hands over the messages of the answer.
fn ask(protocol: isize, kind: u16, flags: u16, take: &mut Take<'_>) -> io::Result<()> {
    /// The kernel builds parts of an answer of up to 32 KiB.
    const DATAGRAM: usize = 64 << 10;
    let socket = match Socket::new(protocol) {
        Err(error) if lacks(&error) => return Ok(()),
        socket => socket?,
    };
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(2))?;
    let mut request = Vec::with_capacity(HEADER_LEN + 4);
    request.extend(20_u32.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend((REQUEST | flags).to_ne_bytes());
    request.extend([0; 12]);
    socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let len = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
        match messages(&buffer[..len], take) {
            Ok(true) if flags & DUMP != 0 => {}
            Ok(_) => return Ok(()),
            Err(error) if lacks(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Whether the kernel was built without what was asked for.
fn lacks(error: &io::Error) -> bool {
    let lacking = [Errno::EPROTONOSUPPORT, Errno::EINVAL, Errno::EOPNOTSUPP];
    let number = error.raw_os_error().map(Errno::from_raw);
    number.is_some_and(|number| lacking.contains(&number))
}

/// The first message: its length with its header, its type, and what follows the header.
fn first(bytes: &[u8]) -> Result<(usize, u16, &[u8]), DecodeError> {
    let len = u32_at(bytes, 0)? as usize;
    let body = bytes.get(HEADER_LEN..len).ok_or(DecodeError::Length)?;
    Ok((len, u16_at(bytes, 4)?, body))
}

/// Hands over the messages of a datagram. Returns whether more may follow.
fn messages(mut bytes: &[u8], take: &mut Take<'_>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let (len, kind, body) = first(bytes).map_err(io::Error::other)?;
        match kind {
            DONE => return Ok(false),
            ERROR => {
                let number = u32_at(body, 0).map_err(io::Error::other)?;
                return match number.cast_signed() {
                    0 => Ok(false),
                    number => Err(io::Error::from_raw_os_error(-number)),
                };
            }
            _ => take(kind, body).map_err(io::Error::other)?,
        }
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lying_lengths_end_in_errors() {
        let take = &mut |_: u16, body: &[u8]| chain(body).map(drop);
        for len in [0, 8, 15, 16, 17, 19, 20, 24, 25, 40_u32] {
            let mut bytes = vec![0; 24];
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&NEW_CHAIN.to_ne_bytes());
            // An attribute that is longer than its message.
            bytes[20..22].copy_from_slice(&9_u16.to_ne_bytes());
            assert!(messages(&bytes, take).is_err(), "{len}");
        }
        assert!(policies(&[0; 4]).is_err());
    }
}
