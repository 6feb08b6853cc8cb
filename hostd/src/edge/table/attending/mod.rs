//! Turns over the sessions that are looked at, and sleep for those only.

use super::attention::QUIET;
use super::{Application, Table};
use crate::edge::command::SessionId;
use crate::memory::RegionMemory;
use common::time::Time;
use hostd_client::abi::doorbell::WORDS;

impl Application {
    /// Whether the next turn has to look at it. One that rang long ago is told that its next bell
    /// has to wake the worker; an application in this process cannot do that.
    pub(super) fn stays_awake(&mut self, now: Time) -> bool {
        if self.pending != [0; WORDS] || self.waiting != [0; WORDS] {
            return true;
        }
        if !self.hearing.is_open() {
            return false;
        }
        let heard = self.heard.unwrap_or(now);
        !self.hearing.can_wake() || now.since(heard) < QUIET || self.doorbells.arm(self.words)
    }
}

impl<M: RegionMemory> Table<M> {
    /// The next turn looks at this session.
    pub(super) fn attend(&mut self, session: SessionId) {
        if let Some(application) = self.applications.get_mut(&session)
            && !std::mem::replace(&mut application.awake, true)
        {
            application.heard = None;
            self.attention.put_back(session);
        }
    }

    /// Listens to those again whose silence is over.
    pub(super) fn hear_again(&mut self, now: Time) {
        let Some(mut deaf) = self.attention.take_deaf(now) else {
            return;
        };
        let mut next = Time::NEVER;
        deaf.retain(|session| {
            let Some(application) = self.applications.get_mut(session) else {
                return false;
            };
            application.hearing.look_at(now);
            application.deaf = !application.hearing.is_open();
            next = next.min(application.hearing.deaf_until());
            if !application.deaf {
                self.attend(*session);
            }
            self.applications.get(session).is_some_and(|it| it.deaf)
        });
        self.attention.keep_deaf(deaf, next);
    }

    /// When bells are listened to next that are not now.
    pub fn next_hearing(&self) -> Time {
        self.attention.next_hearing()
    }

    /// Whether there are sessions that nobody looks at until they wake the worker.
    pub fn has_dormant(&self) -> bool {
        self.applications.len() > self.attention.awake()
    }

    /// Announces to the applications that the worker is about to sleep. True if a doorbell rang:
    /// then it must not.
    pub fn arm(&self) -> bool {
        let mut heard = self.awake().filter(|it| it.hearing.is_open());
        let rang = heard.any(|it| it.doorbells.arm(it.words));
        if rang {
            self.disarm();
        }
        rang
    }

    /// Announces to the applications that the worker is awake.
    pub fn disarm(&self) {
        self.awake().for_each(|it| it.doorbells.disarm());
    }

    fn awake(&self) -> impl Iterator<Item = &Application> {
        let sessions = self.attention.all_awake();
        sessions.filter_map(|session| self.applications.get(session))
    }
}

#[cfg(test)]
mod tests;
