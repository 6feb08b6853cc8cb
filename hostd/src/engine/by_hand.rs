//! Queue pairs that are set up by hand: the applications exchanged their numbers by other means.

use super::Engine;
use crate::cm::negotiation::path_mtu;
use crate::memory::RegionMemory;
use crate::verbs::{EngineError, ReadyToReceive, ReadyToSend, State, Transition};
use std::net::IpAddr;

/// Why a queue pair was not set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReadied {
    /// It is unknown, not in INIT, has a connection, or an attribute is out of range.
    #[error(transparent)]
    Engine(EngineError),
    /// An attribute is out of range.
    #[error(
        "out of range: numbers have 24 bits, the MTU is 256, 512, 1024, 2048 or 4096, time-outs \
         and RNR timers are below 32, retry counts below 8, READs and atomics at most 128"
    )]
    OutOfRange,
    /// The own address is of another family than the peer's.
    #[error("packets to {peer} cannot leave from {told}, which is of another family")]
    OtherFamily {
        /// The peer.
        peer: IpAddr,
        /// The own address that the peer was told.
        told: IpAddr,
    },
    /// The link does not carry full packets.
    #[error("an MTU of {wanted} does not fit: the link to {peer} carries at most {most}")]
    Mtu {
        /// The peer.
        peer: IpAddr,
        /// What was asked for.
        wanted: u16,
        /// What fits.
        most: u16,
    },
}

impl<M: RegionMemory> Engine<M> {
    /// Takes a queue pair from INIT to RTS for a peer that has a route. `local`: the own address
    /// that the peer was told, which packets leave from.
    ///
    /// # Errors
    /// See [`NotReadied`]; nothing has changed then.
    pub fn connect_by_hand(
        &mut self,
        qpn: u32,
        local: IpAddr,
        receive: &ReadyToReceive,
        send: &ReadyToSend,
    ) -> Result<(), NotReadied> {
        self.free_queue_pair(qpn).map_err(NotReadied::Engine)?;
        let peer = receive.destination;
        let to_receive = Transition::ReadyToReceive(*receive);
        let to_send = Transition::ReadyToSend(*send);
        to_receive
            .check(State::Init)
            .and_then(|_| to_send.check(State::ReadyToReceive))
            .map_err(|_| NotReadied::OutOfRange)?;
        let route = self.ports.route(peer, Some(local));
        let route = route.ok_or(NotReadied::Engine(EngineError::State))?;
        let link = self.ports.mtu(peer, Some(local)).unwrap_or(route.mtu);
        if peer.is_ipv4() != local.is_ipv4() {
            return Err(NotReadied::OtherFamily { peer, told: local });
        }
        let most = path_mtu(link, self.config.path_mtu, peer.is_ipv6()).unwrap_or(0);
        if receive.path_mtu > most {
            return Err(NotReadied::Mtu {
                peer,
                wanted: receive.path_mtu,
                most,
            });
        }
        self.leave_from(qpn, Some(local));
        self.modify_queue_pair(qpn, &to_receive)
            .and_then(|()| self.modify_queue_pair(qpn, &to_send))
            .map_err(NotReadied::Engine)
    }
}
