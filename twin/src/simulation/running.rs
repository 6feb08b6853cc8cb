//! Jobs of a simulation and how far their members are.

use crate::app::MemberEnd;
use crate::collective::Seating;
use crate::collective::ledger::Ledger;
use crate::network::Plan;
use crate::scenario::Scenario;
use common::time::Time;
use std::cell::RefCell;
use std::rc::Rc;

/// A member of a job in the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Member {
    /// How it ended, and when.
    pub(crate) end: Option<(MemberEnd, Time)>,
}

/// A job in the simulation.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its number, which its members have agreed on.
    pub(crate) number: u32,
    pub(crate) seating: Seating,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    pub(crate) started: Option<Time>,
    /// By world rank.
    pub(crate) members: Vec<Member>,
}

/// The jobs of a scenario, none of which has begun.
pub(super) fn jobs(scenario: &Scenario, plan: &Plan, seed: u64) -> Vec<Running> {
    let jobs = scenario.jobs.iter().zip(1_u32..);
    let running = jobs.map(|(job, number)| {
        let own = seed ^ u64::from(number).rotate_left(32);
        let seating = job.seating(plan).expect("it was checked");
        Running {
            // As if drawn, and no two alike.
            number: number.wrapping_mul(0x9e37_79b1),
            ledger: Ledger::new(job, &seating, own),
            seating,
            started: None,
            members: vec![Member::default(); job.hosts.len()],
        }
    });
    running.collect()
}
