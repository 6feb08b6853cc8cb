//! Connections of applications: what they want of them, and how they are asked for.

use super::{Link, Table};
use crate::edge::command::{Readied, SessionId};
use crate::edge::queue_pair::WorkRings;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{ConnectionId, ConnectionParameters, EngineError};
use hostd_client::abi::options::ConnectionOptions;
use hostd_client::abi::types::Private;
use std::net::IpAddr;

impl<M: RegionMemory> Table<M> {
    /// Notes what the application wants of the connection that a queue pair will get.
    pub(super) fn set_options(
        &mut self,
        session: SessionId,
        qp: u32,
        options: ConnectionOptions,
    ) -> Result<Readied, EngineError> {
        let rings = self.rings(session, qp)?;
        if rings.link != Link::None {
            return Err(EngineError::Connected);
        }
        if let Some((name, value, most)) = options.wrong() {
            return Ok(Readied::Refused(format!("{name} is {value}, above {most}")));
        }
        rings.options = options;
        Ok(Readied::Done)
    }

    /// A queue pair that may be connected.
    fn unconnected(&mut self, session: SessionId, qp: u32) -> Result<&mut WorkRings, EngineError> {
        self.may_connect()?;
        let rings = self.rings(session, qp)?;
        if rings.link != Link::None {
            return Err(EngineError::Connected);
        }
        Ok(rings)
    }

    pub(super) fn connect(
        &mut self,
        session: SessionId,
        qp: u32,
        address: IpAddr,
        port: u16,
        private: &Private,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        let rings = self.unconnected(session, qp)?;
        let parameters = parameters(private, &rings.options);
        let connection = engine.connect(qp, address, port, &parameters)?;
        rings.link = Link::Pending(connection);
        Ok(())
    }

    /// Accepts a connection request. If that is refused, the peer is turned down, as by
    /// `rdma_accept`: it is not to wait for an answer that does not come.
    pub(super) fn accept(
        &mut self,
        session: SessionId,
        request: u32,
        qp: u32,
        private: &Private,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        let connection = self.take_request(session, request)?.connection;
        let accepted = self.accept_with(session, connection, qp, private, engine);
        if accepted.is_err() {
            // An error: the peer has given up meanwhile, so there is nobody to tell.
            let _ = engine.reject(connection, &[]);
        }
        accepted
    }

    fn accept_with(
        &mut self,
        session: SessionId,
        connection: ConnectionId,
        qp: u32,
        private: &Private,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        let options = self.unconnected(session, qp)?.options;
        // Receives that were posted before are in place when the first message comes.
        self.serve_one(qp, engine);
        engine.accept(connection, qp, &parameters(private, &options))?;
        self.rings(session, qp)?.link = Link::Pending(connection);
        Ok(())
    }

    /// Turns down the peers that wait for an answer of these.
    pub(super) fn reject_all(&mut self, of: impl Fn(SessionId) -> bool, engine: &mut Engine<M>) {
        self.requests.retain(|_, waiting| {
            let keep = !of(waiting.session);
            if !keep {
                // An error: the peer has given up meanwhile.
                let _ = engine.reject(waiting.connection, &[]);
            }
            keep
        });
    }
}

fn parameters<'a>(private: &'a Private, options: &ConnectionOptions) -> ConnectionParameters<'a> {
    ConnectionParameters {
        private_data: private.as_slice(),
        timeout: options.timeout,
        retry_count: options.retry_count,
        rnr_retry: options.rnr_retry,
        min_rnr_timer: options.min_rnr_timer,
        responder_resources: options.responder_resources,
        initiator_depth: options.initiator_depth,
    }
}
