//! The port of the daemon: state, GIDs, partition keys, and what happens to it.

use crate::abi::answer::{Event, Reply};
use crate::abi::feature;
use crate::abi::message::Request;
use crate::abi::port::{PortAttributes, PortEvent, PortRequest, PortState};
use crate::abi::types::ErrorCode;
use crate::channel::deadline;
use crate::session::unexpected;
use crate::{Context, Error, QueuePair};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// A port as it is when it is asked for (`struct ibv_port_attr`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of the interface.
    pub interface: String,
    /// Whether packets can pass.
    pub state: PortState,
    /// Ethernet address.
    pub mac: [u8; 6],
    /// The longest IP packet that the link carries, in bytes.
    pub mtu: u32,
    /// Payload bytes of a packet of a new connection at most (`active_mtu`): 256 to 4096; zero if
    /// the link carries no packet of RoCE.
    pub path_mtu: u16,
    /// Bits a second on the link.
    pub speed: u64,
    /// Entries of the table of GIDs.
    pub gids: u16,
    /// Entries of the table of partition keys.
    pub partitions: u16,
}

/// An address by which peers reach applications of this host (`struct ibv_gid_entry`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its place in the table, which it keeps as long as the interface has the address.
    pub index: u16,
    /// The address.
    pub address: IpAddr,
    /// Length of the prefix that is on the link.
    pub prefix_len: u8,
    /// The interface that has it.
    pub interface: String,
    /// Whether packets can pass there.
    pub state: PortState,
}

impl Gid {
    /// The 128 bits that verbs and connection messages say: an IPv4 address is mapped into IPv6
    /// (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
    pub fn raw(&self) -> Ipv6Addr {
        match self.address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        }
    }
}

impl Context {
    fn requires_port(&self) -> Result<(), Error> {
        if self.inner.features & feature::PORT != 0 {
            return Ok(());
        }
        let text = "this hostd does not tell of its port: its ABI is older than 3.1".to_owned();
        let code = ErrorCode::BadVersion;
        Err(Error::Refused { code, text })
    }

    /// The port of the daemon (`ibv_query_port`).
    ///
    /// # Errors
    /// [`Error::DaemonGone`]; a refusal with [`ErrorCode::BadVersion`] by a hostd whose ABI is
    /// older than 3.1.
    pub fn port(&self) -> Result<Port, Error> {
        self.requires_port()?;
        let (reply, _) = self
            .inner
            .channel
            .call(&Request::Port(PortRequest::Query), None)?;
        let Reply::Port(PortAttributes {
            name,
            state,
            mac,
            mtu,
            path_mtu,
            speed,
            gids,
            partitions,
        }) = reply
        else {
            return Err(unexpected(&reply));
        };
        let end = name.iter().position(|byte| *byte == 0);
        let name = &name[..end.unwrap_or(name.len())];
        Ok(Port {
            interface: String::from_utf8_lossy(name).into_owned(),
            state,
            mac,
            mtu,
            path_mtu,
            speed,
            gids,
            partitions,
        })
    }

    /// The table of GIDs (`ibv_query_gid_table`), by index: the addresses of the daemon's
    /// interface, IPv4 and IPv6. A queue pair connects from the one that it is bound to
    /// ([`QueuePair::bind`]), and [`Self::listen`] takes one. What is asked while the table changes
    /// may be half of one and half of the other; [`PortEvent::GidChange`] comes then.
    ///
    /// # Errors
    /// As [`Self::port`].
    pub fn gids(&self) -> Result<Vec<Gid>, Error> {
        let port = self.port()?;
        let mut gids = Vec::new();
        let mut from = 0;
        loop {
            let request = Request::Port(PortRequest::Gid { from });
            let entry = match self.inner.channel.call(&request, None) {
                Ok((Reply::Gid(entry), _)) => entry,
                Ok((reply, _)) => return Err(unexpected(&reply)),
                Err(Error::Refused {
                    code: ErrorCode::NotFound,
                    ..
                }) => return Ok(gids),
                Err(error) => return Err(error),
            };
            gids.push(Gid {
                index: entry.index,
                address: entry.address,
                prefix_len: entry.prefix_len,
                interface: port.interface.clone(),
                state: port.state,
            });
            match entry.index.checked_add(1) {
                Some(next) => from = next,
                None => return Ok(gids),
            }
        }
    }

    /// The partition keys of the port (`ibv_query_pkey`), by index, as the daemon's configuration
    /// lists them; one at least. Packets of other partitions are dropped and counted
    /// (`wrong_partition`).
    ///
    /// # Errors
    /// As [`Self::port`].
    pub fn partitions(&self) -> Result<Vec<u16>, Error> {
        let count = self.port()?.partitions;
        let key = |index| {
            let request = Request::Port(PortRequest::Partition { index });
            match self.inner.channel.call(&request, None)? {
                (Reply::Partition { key }, _) => Ok(key),
                (reply, _) => Err(unexpected(&reply)),
            }
        };
        (0..count).map(key).collect()
    }

    /// Asks to be told what happens to the port from now on, or not any more. The state before is
    /// what [`Self::port`] tells when it is asked after this.
    ///
    /// # Errors
    /// As [`Self::port`].
    pub fn watch_port(&self, watch: bool) -> Result<(), Error> {
        self.requires_port()?;
        let request = Request::Port(PortRequest::Watch { watch });
        self.inner.channel.call(&request, None).map(|_| ())
    }

    /// The next event of the port (`ibv_get_async_event`), if [`Self::watch_port`] asked for them.
    /// One that waits is not said twice, so look at [`Self::port`] for how it stands.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::DaemonGone`].
    pub fn next_port_event(&self, timeout: Duration) -> Result<PortEvent, Error> {
        let channel = &self.inner.channel;
        channel.wait_event(deadline(timeout), port_event)
    }

    /// As [`Self::next_port_event`]. A future that is dropped takes none.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    #[cfg(feature = "tokio")]
    pub async fn next_port_event_async(&self) -> Result<PortEvent, Error> {
        self.inner.channel.event(port_event).await
    }
}

fn port_event(event: &Event) -> Option<PortEvent> {
    match *event {
        Event::Port { event } => Some(event),
        _ => None,
    }
}

impl QueuePair {
    /// Chooses the address, one of [`Context::gids`], that the queue pair connects from
    /// (`rdma_bind_addr`), or that its packets leave from after [`QueuePair::modify`] to RTR.
    /// Without it the kernel's route to the peer decides. What accepts a connection has the address
    /// that the peer asked for.
    ///
    /// # Errors
    /// The address is none of the interface, or the queue pair is connected; the daemon says which.
    /// A refusal with [`ErrorCode::BadVersion`] by a hostd whose ABI is older than 3.1.
    pub fn bind(&mut self, address: IpAddr) -> Result<(), Error> {
        let context = Context {
            inner: self.context.clone(),
        };
        context.requires_port()?;
        let request = Request::Bind {
            qp: self.handle,
            address,
        };
        self.context.channel.call(&request, None).map(|_| ())
    }

    /// Chooses the partition, by the index of its key in [`Context::partitions`], that the queue
    /// pair connects in, or is set up by hand in (`pkey_index`); without it the first one. What
    /// accepts a connection is in the partition that the peer's request names.
    ///
    /// # Errors
    /// There is no key at `index`, or the queue pair is connected. A refusal with
    /// [`ErrorCode::BadVersion`] by a hostd whose ABI is older than 3.2.
    pub fn choose_partition(&mut self, index: u16) -> Result<(), Error> {
        let context = &self.context;
        if context.features & feature::PARTITIONS == 0 {
            let text = "this hostd has one partition: its ABI is older than 3.2".to_owned();
            let code = ErrorCode::BadVersion;
            return Err(Error::Refused { code, text });
        }
        let qp = self.handle;
        let request = Request::ChoosePartition { qp, index };
        context.channel.call(&request, None).map(|_| ())
    }
}
