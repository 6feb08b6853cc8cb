//! The own addresses that connections have: where is listened, and where packets leave from.

use super::Engine;
use crate::memory::RegionMemory;
use crate::verbs::EngineError;
use std::net::IpAddr;

impl<M: RegionMemory> Engine<M> {
    /// Accepts connection requests for a service, at any own address.
    ///
    /// # Errors
    /// [`EngineError::Busy`]: somebody listens on this port. [`EngineError::TooMany`]: the table of
    /// listeners is full.
    pub fn listen(&mut self, port: u16) -> Result<(), EngineError> {
        self.connections.listen(port, None)
    }

    /// The same for requests that are sent to the own address `local`; others are refused.
    ///
    /// # Errors
    /// As [`Self::listen`].
    pub fn listen_at(&mut self, port: u16, local: IpAddr) -> Result<(), EngineError> {
        self.connections.listen(port, Some(local))
    }

    /// Chooses the own address that a queue pair in INIT is to connect from (`rdma_bind_addr`), or
    /// that packets leave from if it is set up by hand; without one it is that of the route. The
    /// caller knows which addresses are own ones.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue pair. [`EngineError::State`]: it is not in
    /// INIT, or has a connection.
    pub fn bind(&mut self, qpn: u32, local: IpAddr) -> Result<(), EngineError> {
        self.free_queue_pair(qpn)?;
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.source = Some(local);
        }
        Ok(())
    }

    /// Chooses the partition of a queue pair in INIT by the index of its key; that of the first key
    /// without it. A queue pair that accepts takes the one that the request names.
    ///
    /// # Errors
    /// As [`Self::bind`]. [`EngineError::Argument`]: there is no key at `index`.
    pub fn choose_partition(&mut self, qpn: u32, index: u16) -> Result<(), EngineError> {
        let keys = self.config.partitions.keys();
        let key = keys.get(usize::from(index)).copied();
        let key = key.ok_or(EngineError::Argument)?;
        self.free_queue_pair(qpn)?;
        self.put_in_partition(qpn, key);
        Ok(())
    }

    /// Refuses connection requests for a service from now on.
    pub fn unlisten(&mut self, port: u16) {
        self.connections.unlisten(port);
    }

    /// The packets of a queue pair carry this key.
    pub(super) fn put_in_partition(&mut self, qpn: u32, key: u16) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.partition = key;
        }
    }

    /// The packets of a queue pair leave from this own address.
    pub(super) fn leave_from(&mut self, qpn: u32, local: Option<IpAddr>) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.source = local;
        }
    }
}
