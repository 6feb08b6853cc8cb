//! Changes of a multipath connection that operators ask for (HT-32).

use crate::edge::command::{Command, WorkerHandle};
use crate::verbs::{ChangeRefused, ChangeStanding, Granularity, MultipathChange};
use common::time::Span;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// How often, and how far apart, the answer of the peer is looked for.
const LOOKS: u32 = 100;
const LOOK: Duration = Duration::from_millis(20);

/// A request on the admin socket: one JSON line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskChange {
    /// What to change.
    pub set: Wanted,
}

/// What is to become other; what is not named stays as it is. See [`MultipathChange`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wanted {
    /// The queue pair.
    pub qpn: u32,
    /// Sub-paths to put in force.
    pub add: Vec<u8>,
    /// Sub-paths to take out.
    pub remove: Vec<u8>,
    /// Path ID and weight.
    pub weights: Vec<(u8, u8)>,
    /// "flow", "flowlet" or "packet".
    pub granularity: Option<String>,
    /// Packets by which one may be overtaken.
    pub reorder_packets: Option<u16>,
    /// Microseconds by which a packet may be late.
    pub reorder_time_us: Option<u32>,
    /// Microseconds of a pause that ends a flowlet.
    pub flowlet_timeout_us: Option<u32>,
}

impl Wanted {
    /// The change for the engine.
    ///
    /// # Errors
    /// There is no such granularity.
    pub fn change(&self) -> Result<MultipathChange, String> {
        let named = |word: &str| {
            let mut all = Granularity::ALL.into_iter();
            let found = all.find(|granularity| granularity.label() == word);
            found.ok_or_else(|| format!("{word:?} is not flow, flowlet or packet"))
        };
        let granularity = self.granularity.as_deref().map(named).transpose()?;
        let micros = |micros: u32| Span::from_micros(micros.into());
        Ok(MultipathChange {
            add: self.add.iter().copied().collect(),
            remove: self.remove.iter().copied().collect(),
            weights: self.weights.clone(),
            granularity,
            reorder_packets: self.reorder_packets,
            reorder_time: self.reorder_time_us.map(micros),
            flowlet_timeout: self.flowlet_timeout_us.map(micros),
        })
    }
}

/// Makes the change and waits for the peer; the answer for the operator.
pub(super) async fn carry_out(wanted: &Wanted, worker: &WorkerHandle) -> Value {
    match make(wanted, worker).await {
        Ok(()) => json!([]),
        Err(error) => json!({ "error": format!("queue pair {}: {error}", wanted.qpn) }),
    }
}

async fn make(wanted: &Wanted, worker: &WorkerHandle) -> Result<(), String> {
    let (qpn, change) = (wanted.qpn, wanted.change()?);
    let asked = worker.ask(|answer| Command::ChangeMultipath(qpn, change, answer));
    let ended = || "the worker has ended".to_owned();
    let said: Result<Option<u16>, ChangeRefused> = asked.await.ok_or_else(ended)?;
    let Some(name) = said.map_err(|refused| refused.to_string())? else {
        return Ok(());
    };
    for _ in 0..LOOKS {
        let asked = worker.ask(|answer| Command::ChangeStanding(qpn, name, answer));
        match asked.await.ok_or_else(ended)? {
            None => return Err("it has ended".to_owned()),
            Some(ChangeStanding::Refused) => {
                return Err("the peer refused the change, or the connection has ended".to_owned());
            }
            Some(ChangeStanding::Made) => return Ok(()),
            Some(ChangeStanding::Pending) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
    Err("the peer has not answered yet; it is asked again until it does".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-32: what an operator asks for is what the engine is asked for; words that do not exist
    /// are refused.
    #[test]
    fn requests_become_changes() {
        let line = r#"{"set":{"qpn":7,"add":[3],"remove":[1,2],"weights":[[3,9]],
            "granularity":"flowlet","reorder_packets":5,"reorder_time_us":200,
            "flowlet_timeout_us":60}}"#;
        let ask: AskChange = serde_json::from_str(line).expect("a request");
        let change = ask.set.change().expect("possible");
        let expected = MultipathChange {
            add: [3].into_iter().collect(),
            remove: [1, 2].into_iter().collect(),
            weights: vec![(3, 9)],
            granularity: Some(Granularity::Flowlet),
            reorder_packets: Some(5),
            reorder_time: Some(Span::from_micros(200)),
            flowlet_timeout: Some(Span::from_micros(60)),
        };
        assert_eq!((ask.set.qpn, change), (7, expected));
        let wrong = Wanted {
            granularity: Some("message".to_owned()),
            ..Wanted::default()
        };
        let refused = wrong.change().expect_err("no such granularity");
        assert_eq!(refused, "\"message\" is not flow, flowlet or packet");
        let unknown = serde_json::from_str::<AskChange>(r#"{"set":{"qpn":7,"drop":[1]}}"#);
        assert!(unknown.is_err());
    }
}
