//! Between two collectives: others may still lack what this member has of the last one.

use super::failure::GroupError;
use super::flow::{Flow, Stage};
use super::member::Group;
use super::progress::Progress;
use std::time::{Duration, Instant};

/// For how long a member that is dropped still gives others what they lack.
const PARTING: Duration = Duration::from_secs(2);

impl Flow<'static> {
    /// The last collective of a group, as it is over for this member: enough to say how far it is,
    /// and to give what the group keeps of its result. `None` if it has called none.
    fn ended(group: &Group) -> Option<Self> {
        let sequence = group.sequence.checked_sub(1)?;
        let call = *group.history.front()?;
        let complete = group.switched;
        let now = Instant::now();
        Some(Self {
            call,
            meant: call,
            sequence,
            stage: if complete { Stage::Done } else { Stage::Hosts },
            switched: complete,
            unposted: false,
            done: if complete { call.len } else { 0 },
            complete,
            rest: None,
            base: 0,
            numbers: Vec::new(),
            progress: Progress::new(Vec::new(), group.options.segment, false),
            vector: None,
            is_past: true,
            moved: now,
            probed: now,
            answered: false,
            noted: false,
            appealed: None,
        })
    }
}

impl Group {
    /// Whether others need this member for more than it calls.
    pub(super) fn binds(&self) -> bool {
        self.offload.as_ref().is_some_and(|it| it.binds())
    }

    /// Before it is dropped: goes on with what others need of this member, but not for long.
    pub(super) fn serve_last(&mut self) {
        let until = Instant::now() + PARTING;
        while self.binds() && Instant::now() < until {
            self.stirred = true;
            let parted = self.attend();
            // Who waits for it learns by its end that it is gone.
            if parted.and_then(|()| self.pause(until)).is_err() {
                return;
            }
        }
    }

    /// Does what others need of this member while it calls nothing: says how far it is, and gives
    /// results to those whom the switches have left without.
    pub(super) fn attend(&mut self) -> Result<(), GroupError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut flow = match self.last.take() {
            Some(flow) => flow,
            None => match Flow::ended(self) {
                Some(flow) => Box::new(flow),
                // Others may need connections for theirs already.
                None => return self.hear().map(drop),
            },
        };
        if !self.binds() {
            // Nobody needs it: it stands still for as long as it likes.
            (flow.moved, flow.probed) = (Instant::now(), Instant::now());
        }
        let result = self.turn(&mut flow);
        self.last = Some(flow);
        result.map(drop)
    }
}
