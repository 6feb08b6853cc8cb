//! What applications tell of the traffic of their queue pairs, and ask of sub-paths, services
//! and congestion control.

use super::{Link, Table, reply};
use crate::edge::command::{ChangeAsked, PathsCommand, Readied, SessionId};
use crate::engine::{Engine, NotSteered};
use crate::memory::RegionMemory;
use crate::verbs::{ChangeStanding, Congestion, EngineError, MultipathChange, Service, Traffic};

impl<M: RegionMemory> Table<M> {
    /// Carries out what is asked about the sub-paths of a queue pair.
    pub(super) fn paths(
        &mut self,
        session: SessionId,
        qp: u32,
        asked: PathsCommand,
        engine: &mut Engine<M>,
    ) {
        match asked {
            PathsCommand::Describe(traffic, answer) => {
                reply(answer, self.describe(session, qp, traffic, engine));
            }
            PathsCommand::Change(change, answer) => {
                reply(answer, self.change_paths(session, qp, &change, engine));
            }
            PathsCommand::Standing(change, answer) => {
                reply(answer, self.change_standing(session, qp, change, engine));
            }
            PathsCommand::Serve(service, answer) => {
                reply(answer, self.choose_service(session, qp, service, engine));
            }
            PathsCommand::Steer(congestion, answer) => {
                reply(
                    answer,
                    self.choose_congestion(session, qp, congestion, engine),
                );
            }
        }
    }

    /// Notes what an application tells of its traffic.
    fn describe(
        &mut self,
        session: SessionId,
        qp: u32,
        traffic: Traffic,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        self.rings(session, qp)?;
        engine.describe_traffic(qp, traffic)
    }

    /// Chooses the service of the connection to come.
    fn choose_service(
        &mut self,
        session: SessionId,
        qp: u32,
        service: Service,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        if self.rings(session, qp)?.link != Link::None {
            return Err(EngineError::Connected);
        }
        engine.choose_service(qp, service)
    }

    /// Chooses the congestion control of the connection to come.
    fn choose_congestion(
        &mut self,
        session: SessionId,
        qp: u32,
        congestion: Congestion,
        engine: &mut Engine<M>,
    ) -> Result<Readied, EngineError> {
        if self.rings(session, qp)?.link != Link::None {
            return Err(EngineError::Connected);
        }
        match engine.choose_congestion(qp, congestion) {
            Ok(()) => Ok(Readied::Done),
            Err(NotSteered::Engine(error)) => Err(error),
            Err(refused) => Ok(Readied::Refused(refused.to_string())),
        }
    }

    /// Asks for a change of sub-paths.
    fn change_paths(
        &mut self,
        session: SessionId,
        qp: u32,
        change: &MultipathChange,
        engine: &mut Engine<M>,
    ) -> Result<ChangeAsked, EngineError> {
        self.rings(session, qp)?;
        Ok(match engine.change_multipath(qp, change) {
            Ok(Some(name)) => ChangeAsked::Peer(name),
            Ok(None) => ChangeAsked::Made,
            Err(refused) => ChangeAsked::Refused(refused.to_string()),
        })
    }

    /// What became of a change.
    fn change_standing(
        &mut self,
        session: SessionId,
        qp: u32,
        change: u16,
        engine: &Engine<M>,
    ) -> Result<ChangeStanding, EngineError> {
        self.rings(session, qp)?;
        engine
            .change_standing(qp, change)
            .ok_or(EngineError::Unknown)
    }
}
