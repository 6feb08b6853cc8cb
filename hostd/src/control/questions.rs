//! Questions for routes: who asks, and how answers come back.

use super::peers::Reached;
use super::port::Port;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Questions that may wait.
const QUESTIONS: usize = 256;

/// A destination that needs a route.
#[derive(Debug)]
pub struct Question {
    /// The address of the peer.
    pub destination: IpAddr,
    /// The own address that packets are to leave from; `None`: the kernel decides.
    pub source: Option<IpAddr>,
    /// The user whose application asks; `None` if packets wait.
    pub user: Option<u32>,
    /// Where the answer goes; `None` if only packets wait.
    pub(super) answer: Option<oneshot::Sender<Reached>>,
}

/// For those who need routes.
#[derive(Clone, Debug)]
pub struct RouterHandle {
    questions: mpsc::Sender<Question>,
    /// The user for whom is asked.
    user: Option<u32>,
    port: Arc<Port>,
}

/// What is asked of a router; the other end of a [`RouterHandle`].
#[derive(Debug)]
pub struct Questions(mpsc::Receiver<Question>);

/// A handle, and the questions that come through it. All routes lead through `port`.
pub fn questions(port: Arc<Port>) -> (RouterHandle, Questions) {
    let (sender, receiver) = mpsc::channel(QUESTIONS);
    let handle = RouterHandle {
        questions: sender,
        user: None,
        port,
    };
    (handle, Questions(receiver))
}

impl RouterHandle {
    /// A handle for the applications of a user, whose share of the table is bounded.
    pub fn for_user(&self, user: u32) -> Self {
        Self {
            questions: self.questions.clone(),
            user: Some(user),
            port: self.port.clone(),
        }
    }

    /// The port that routes lead through.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Packets to `destination` wait for a route.
    pub fn need(&self, destination: IpAddr) {
        // The engine asks again while they wait.
        let _ = self.questions.try_send(Question {
            destination,
            source: None,
            user: None,
            answer: None,
        });
    }

    /// Waits until `destination` can be reached, from the own address `source` if given.
    ///
    /// # Errors
    /// Why it cannot, for people.
    pub async fn reach(&self, destination: IpAddr, source: Option<IpAddr>) -> Reached {
        let (answer, reply) = oneshot::channel();
        let question = Question {
            destination,
            source,
            user: self.user,
            answer: Some(answer),
        };
        let asked = self.questions.send(question).await;
        match asked {
            Ok(()) => reply
                .await
                .unwrap_or_else(|_| Err("hostd is shutting down".to_owned())),
            Err(_) => Err("hostd is shutting down".to_owned()),
        }
    }
}

impl Questions {
    /// The next question; `None` once all handles are gone.
    pub async fn next(&mut self) -> Option<Question> {
        self.0.recv().await
    }
}

impl Question {
    /// Answers, if an answer is waited for.
    pub fn answer(self, reached: Reached) {
        if let Some(answer) = self.answer {
            let _ = answer.send(reached);
        }
    }
}
