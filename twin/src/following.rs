//! What the control of a switch knows of RoCEv2 flows, and the notifications that it has made for
//! them (SW-25): switchd's own, fed by a simulated worker.

use common::time::{Span, Time};
use crossbeam_channel::Sender;
use switchd::config::Config;
use switchd::control::flows::Book;
use switchd::control::iqcn::Keeper;
use switchd::flows::observers;
use switchd::worker::events::WorkerCommand;

/// How often control looks: more often than in the daemon, which does so each half second, for
/// simulations are shorter than that.
pub const LOOK: Span = Span::from_micros(200);

/// The flows of a switch.
#[derive(Debug)]
pub struct Following {
    book: Book,
    keeper: Keeper,
}

impl Following {
    /// Of a switch with one worker that is to make notifications, which is told at its start.
    pub fn new(config: &Config, seed: u64, commands: &Sender<WorkerCommand>) -> Self {
        let (flows, iqcn) = (&config.flows, &config.iqcn);
        let slots = 2 * flows.max_flows as usize;
        let (keeper, compensators) = Keeper::new(iqcn, 1, seed);
        let all = observers(1, slots, flows.active(), seed);
        let (observers, ends): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for (observer, compensator) in observers.into_iter().zip(compensators) {
            let both = [
                WorkerCommand::Observe(Some(Box::new(observer))),
                WorkerCommand::Compensate(Some(Box::new(compensator))),
            ];
            for command in both {
                commands.send(command).expect("there is room for both");
            }
        }
        let book = Book::new(flows, ends);
        Self { book, keeper }
    }

    /// Looks at what the worker saw.
    pub fn look(&mut self, now: Time) {
        self.book.read(now);
        self.keeper.look(&self.book);
    }
}
