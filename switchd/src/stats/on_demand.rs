//! What a worker reports only on request, because it has to search for it.

use common::sync::counter::Counter;
use std::sync::{Mutex, PoisonError};

/// Rows that control asks one worker for, and the answer.
#[derive(Debug)]
pub struct OnDemand<T> {
    /// How often control asked; control alone writes it.
    asked: Counter,
    /// Which of these the worker has answered last.
    answered: Counter,
    answer: Mutex<Vec<T>>,
}

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self {
            asked: Counter::new(),
            answered: Counter::new(),
            answer: Mutex::default(),
        }
    }
}

impl<T: Clone> OnDemand<T> {
    /// Asks again; for control, which then has to wake the worker. The worker answers in its next
    /// turn.
    pub fn ask(&self) {
        self.asked.add(1);
    }

    /// Answers an open request; for the worker. It never waits: if control is reading, it answers
    /// in its next turn.
    #[inline]
    pub fn answer(&self, rows: impl FnOnce() -> Vec<T>) {
        let asked = self.asked.get();
        if asked != self.answered.get()
            && let Ok(mut answer) = self.answer.try_lock()
        {
            *answer = rows();
            self.answered.set(asked);
        }
    }

    /// Whether the last question is answered, or none was asked.
    pub fn is_answered(&self) -> bool {
        self.asked.get() == self.answered.get()
    }

    /// The answer to what was asked last; `None` while there is none.
    pub fn answered(&self) -> Option<Vec<T>> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_answered().then(|| answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-7: an answer is to the question that was asked last, never to one before, and is worked
    /// out once.
    #[test]
    fn answers_are_to_the_last_question() {
        let rows = OnDemand::default();
        rows.answer(|| unreachable!("nobody asked"));
        rows.ask();
        assert_eq!(rows.answered(), None);
        rows.answer(|| vec![1, 2]);
        rows.answer(|| unreachable!("it is answered"));
        assert_eq!(rows.answered(), Some(vec![1, 2]));
        rows.ask();
        assert_eq!(rows.answered(), None);
        rows.answer(Vec::new);
        assert_eq!(rows.answered(), Some(Vec::new()));
    }
}
