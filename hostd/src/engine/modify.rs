//! Queue pairs that applications take through their states by hand (`ibv_modify_qp`).

use super::Engine;
use crate::cm::negotiation::path_mtu;
use crate::memory::RegionMemory;
use crate::verbs::{
    Access, Attributes, AttributesRefused, ChangeRefused, ChangeStanding, Congestion, EngineError,
    MultipathChange, MultipathState, Service, State, Traffic, Transition,
};

/// Why a queue pair does not get the congestion control that its application chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSteered {
    /// It is unknown, not in INIT, or has a connection.
    #[error(transparent)]
    Engine(EngineError),
    /// It is not among those that applications may choose.
    #[error("\"{0}\" is not among application.congestion of this hostd")]
    NotAllowed(&'static str),
    /// What it goes by is not enabled here: which key.
    #[error("{0} at this hostd")]
    Missing(&'static str),
}

impl<M: RegionMemory> Engine<M> {
    /// Takes a queue pair to state `next`, which may be the present one, with these attributes. A
    /// peer that is reached by hand is a plain one.
    ///
    /// # Errors
    /// The attribute, or the change, that is refused.
    pub fn modify_attributes(
        &mut self,
        qpn: u32,
        next: State,
        given: &Attributes,
    ) -> Result<(), AttributesRefused> {
        let queue_pair = self.queue_pairs.get(qpn);
        let queue_pair = queue_pair.ok_or(AttributesRefused::Unknown)?;
        let (from, known) = (queue_pair.state, queue_pair.attributes());
        given.check(from, next)?;
        let refused = AttributesRefused::NoTransition { from, to: next };
        let transition = match (from, next) {
            (_, State::Init) => {
                let access = given.access.or(known.access).unwrap_or(Access::NONE);
                Some(Transition::Init(access))
            }
            (_, State::ReadyToReceive) => {
                let attributes = given.ready_to_receive().ok_or(refused)?;
                self.free_queue_pair(qpn)
                    .map_err(|_| AttributesRefused::Connecting)?;
                let peer = attributes.destination;
                let local = self.queue_pairs.get(qpn).and_then(|pair| pair.source);
                if let Some(local) = local.filter(|it| it.is_ipv4() != peer.is_ipv4()) {
                    return Err(AttributesRefused::OtherFamily { peer, local });
                }
                let routed = self.ports.route(peer, local).is_some();
                let link = self.ports.mtu(peer, local);
                if let Some(link) = link.filter(|_| routed) {
                    let v6 = attributes.destination.is_ipv6();
                    let most = path_mtu(link, self.config.path_mtu, v6).unwrap_or(0);
                    if attributes.path_mtu > most {
                        return Err(AttributesRefused::OutOfRange("path_mtu"));
                    }
                }
                Some(Transition::ReadyToReceive(attributes))
            }
            (State::ReadyToReceive, State::ReadyToSend) => {
                let attributes = given.ready_to_send().ok_or(refused)?;
                Some(Transition::ReadyToSend(attributes))
            }
            (State::ReadyToSend, State::SendQueueDrained) => {
                Some(Transition::Drain(given.notify_drained == Some(true)))
            }
            (State::SendQueueDrained, State::ReadyToSend) => Some(Transition::Resume),
            (_, State::ReadyToSend | State::SendQueueDrained) => None,
            (_, State::Error) => Some(Transition::Error),
            (_, State::Reset) => {
                self.part(qpn);
                Some(Transition::Reset)
            }
        };
        if let Some(transition) = transition {
            self.modify_queue_pair(qpn, &transition)
                .map_err(|_| refused)?;
        }
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.adjust(given);
        }
        self.list(qpn);
        Ok(())
    }

    /// A queue pair is about to be reset: the peer of its connection is told of the end, and the
    /// application of nothing any more that happened before.
    fn part(&mut self, qpn: u32) {
        let partition = self.config.partitions.keys()[0];
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return;
        };
        queue_pair.partition = partition;
        if let Some(connection) = queue_pair.connection.take() {
            self.abandon_connection(connection);
        }
        self.events.retain(|event| event.queue_pair() != Some(qpn));
    }

    /// Changes the sub-paths of a connection and their use while it carries data (HT-22, HT-32).
    /// The peer is asked if it is concerned: then the change has a name, by which
    /// [`Self::change_standing`] tells what became of it.
    ///
    /// # Errors
    /// Why it is refused; nothing has changed.
    pub fn change_multipath(
        &mut self,
        qpn: u32,
        change: &MultipathChange,
    ) -> Result<Option<u16>, ChangeRefused> {
        let queue_pair = self.queue_pairs.get_mut(qpn);
        let unknown = Err(ChangeRefused::Unknown);
        let asked = queue_pair.map_or(unknown, |queue_pair| queue_pair.change(change));
        match asked {
            Ok(_) => self.list(qpn),
            Err(_) => self.statistics.impossible_changes += 1,
        }
        asked
    }

    /// Chooses the delivery service that a queue pair in INIT is to ask its peer for (HT-39); the
    /// stricter of both is agreed on. One that is set up by hand for a plain peer is ordered.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue pair. [`EngineError::State`]: it is not in
    /// INIT, or has a connection.
    pub fn choose_service(&mut self, qpn: u32, service: Service) -> Result<(), EngineError> {
        self.free_queue_pair(qpn)?;
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.service = service;
        }
        Ok(())
    }

    /// Chooses the congestion control of what a queue pair in INIT is to send.
    ///
    /// # Errors
    /// See [`NotSteered`]; nothing has changed then.
    pub fn choose_congestion(
        &mut self,
        qpn: u32,
        congestion: Congestion,
    ) -> Result<(), NotSteered> {
        self.free_queue_pair(qpn).map_err(NotSteered::Engine)?;
        let config = &self.config;
        if congestion != config.congestion && config.congestion_choices & congestion.bit() == 0 {
            return Err(NotSteered::NotAllowed(congestion.name()));
        }
        if let Some(missing) = congestion.missing(config.csig.as_deref(), config.int) {
            return Err(NotSteered::Missing(missing));
        }
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.congestion = Some(congestion);
        }
        Ok(())
    }

    /// An application tells of the traffic of a queue pair, at any time (HT-46).
    ///
    /// # Errors
    /// There is no such queue pair.
    pub fn describe_traffic(&mut self, qpn: u32, traffic: Traffic) -> Result<(), EngineError> {
        let queue_pair = self.queue_pairs.get_mut(qpn);
        let queue_pair = queue_pair.ok_or(EngineError::Unknown)?;
        queue_pair.describe(traffic, &self.config);
        Ok(())
    }

    /// What became of the change with this name; `None` if there is no such queue pair, or no
    /// multipath.
    pub fn change_standing(&self, qpn: u32, change: u16) -> Option<ChangeStanding> {
        self.queue_pairs.get(qpn)?.change_standing(change)
    }

    /// What the sides of a connection agreed on, as it stands; `None` if there is no such queue
    /// pair, or no multipath.
    pub fn multipath_state(&self, qpn: u32) -> Option<MultipathState> {
        self.queue_pairs.get(qpn)?.multipath_state()
    }

    /// The state and the attributes of a queue pair (`ibv_query_qp`); `None` if there is no such
    /// queue pair.
    pub fn query_queue_pair(&self, qpn: u32) -> Option<(State, Attributes)> {
        let queue_pair = self.queue_pairs.get(qpn)?;
        Some((queue_pair.state, queue_pair.attributes()))
    }
}
