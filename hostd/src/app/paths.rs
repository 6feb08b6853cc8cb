//! What applications tell of their traffic, and ask of sub-paths, services and congestion control.

use super::refusal::Refusal;
use super::session::{Outcome, Session};
use crate::edge::command::{ChangeAsked, PathsCommand, SessionCommand};
use crate::verbs::{ChangeStanding, Congestion, Granularity, MultipathChange, Service, Traffic};
use common::time::Span;
use common::wire::roce::{TrafficPattern, TrafficPriority};
use hostd_client::abi::answer::Reply;
use hostd_client::abi::paths::{self, PathChange, PathOutcome, PathRequest};
use hostd_client::abi::types::{self, ErrorCode};

impl Session {
    /// Carries out what is asked of the sub-paths of a queue pair.
    pub(super) async fn paths(&self, qp: u32, request: PathRequest) -> Outcome {
        let reply = match request {
            PathRequest::Describe(told) => {
                let told = traffic(&told);
                self.ask(|answer| of(qp, PathsCommand::Describe(told, answer)))
                    .await?;
                Reply::Done
            }
            PathRequest::Change(wanted) => {
                let change = Box::new(change(&wanted));
                let asked = self.ask(|answer| of(qp, PathsCommand::Change(change, answer)));
                match asked.await? {
                    ChangeAsked::Peer(change) => Reply::PathsAsked { change },
                    ChangeAsked::Made => Reply::PathsAsked { change: 0 },
                    ChangeAsked::Refused(text) => {
                        return Err(Refusal::new(ErrorCode::InvalidArgument, text));
                    }
                }
            }
            PathRequest::Outcome(change) => {
                let asked = |answer| of(qp, PathsCommand::Standing(change, answer));
                Reply::PathsOutcome(match self.ask(asked).await? {
                    ChangeStanding::Pending => PathOutcome::Pending,
                    ChangeStanding::Made => PathOutcome::Made,
                    ChangeStanding::Refused => PathOutcome::Refused,
                })
            }
            PathRequest::Serve(wanted) => {
                let service = service(wanted);
                self.ask(|answer| of(qp, PathsCommand::Serve(service, answer)))
                    .await?;
                Reply::Done
            }
            PathRequest::Steer(wanted) => {
                let congestion = congestion(wanted);
                let command = |answer| of(qp, PathsCommand::Steer(congestion, answer));
                return self.ready(command).await;
            }
        };
        Ok((reply, Vec::new()))
    }
}

const fn of(qp: u32, asked: PathsCommand) -> SessionCommand {
    SessionCommand::Paths(qp, asked)
}

const fn service(wanted: paths::Service) -> Service {
    match wanted {
        paths::Service::Ordered => Service::Ordered,
        paths::Service::Unordered => Service::Unordered,
        paths::Service::Idempotent => Service::Idempotent,
    }
}

const fn congestion(wanted: paths::Congestion) -> Congestion {
    match wanted {
        paths::Congestion::Auto => Congestion::Auto,
        paths::Congestion::Fixed => Congestion::Fixed,
        paths::Congestion::Nscc => Congestion::Nscc,
        paths::Congestion::Swift => Congestion::Swift,
        paths::Congestion::SwiftCsig => Congestion::SwiftCsig,
        paths::Congestion::Dctcp => Congestion::Dctcp,
        paths::Congestion::Dcqcn => Congestion::Dcqcn,
        paths::Congestion::Timely => Congestion::Timely,
        paths::Congestion::Poseidon => Congestion::Poseidon,
        paths::Congestion::Hpcc => Congestion::Hpcc,
        paths::Congestion::Rttcc => Congestion::Rttcc,
    }
}

const fn traffic(told: &paths::Traffic) -> Traffic {
    Traffic {
        block: told.block,
        pattern: match told.pattern {
            paths::TrafficPattern::Unknown => TrafficPattern::Unknown,
            paths::TrafficPattern::Pairs => TrafficPattern::Pairs,
            paths::TrafficPattern::ManyToOne => TrafficPattern::ManyToOne,
            paths::TrafficPattern::AllToAll => TrafficPattern::AllToAll,
        },
        priority: match told.priority {
            paths::TrafficPriority::Normal => TrafficPriority::Normal,
            paths::TrafficPriority::Low => TrafficPriority::Low,
            paths::TrafficPriority::High => TrafficPriority::High,
        },
    }
}

fn change(wanted: &PathChange) -> MultipathChange {
    let micros = |micros: u16| Span::from_micros(micros.into());
    MultipathChange {
        add: wanted.add.iter().collect(),
        remove: wanted.remove.iter().collect(),
        weights: wanted.weights.as_slice().to_vec(),
        granularity: wanted.granularity.map(|it| match it {
            types::Granularity::Flow => Granularity::Flow,
            types::Granularity::Flowlet => Granularity::Flowlet,
            types::Granularity::Packet => Granularity::Packet,
        }),
        reorder_packets: wanted.reorder_packets,
        reorder_time: wanted.reorder_time_us.map(micros),
        flowlet_timeout: wanted.flowlet_timeout_us.map(micros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CC-1 to CC-8: each algorithm has one name at both ends.
    #[test]
    fn algorithms_have_the_same_names() {
        for wanted in paths::Congestion::ALL {
            assert_eq!(congestion(wanted).name(), wanted.name());
        }
    }
}
