//! Connection matrices of htsim (`.cm` files), which run unchanged.
//!
//! ```text
//!   Nodes 16                                  hosts
//!   Connections 2                             lines that follow
//!   Triggers 1                                may be left out
//!   0->1 id 1 start 0 size 2000000 send_done_trigger 1
//!   1->2 id 2 trigger 1 size 2000000
//!   trigger id 1 oneshot                      or multishot, or barrier count 3
//! ```
//!
//! Starts are in picoseconds, sizes in bytes. A flow with `trigger` starts when the trigger fires;
//! a flow with `send_done_trigger` or `recv_done_trigger` fires that trigger when it is done. A
//! priority (`prio`) is read and has no effect: all flows are of one class.

use super::flow::{Flow, Start, Trigger, Workload};
use super::network::NodeId;
use common::time::Time;
use std::collections::HashMap;
use std::str::SplitWhitespace;

/// Bytes of a flow at most.
const SIZE: u64 = 1 << 40;

/// Why a file is no connection matrix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct MatrixError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads a matrix for a fabric of `hosts` hosts. Flows start `from` after the workload began; they
/// are of class `class`.
///
/// # Errors
/// [`MatrixError`], naming the line.
pub fn read(text: &str, hosts: usize, from: Time, class: usize) -> Result<Workload, MatrixError> {
    let mut reader = Reader {
        hosts,
        from,
        class,
        ..Reader::default()
    };
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        reader
            .line(line, content)
            .map_err(|reason| MatrixError { line, reason })?;
    }
    reader.finish(text.lines().count().max(1))
}

#[derive(Default)]
struct Reader {
    hosts: usize,
    from: Time,
    class: usize,
    nodes: Option<usize>,
    connections: Option<usize>,
    triggers: Option<usize>,
    workload: Workload,
    /// By flow: the line that it stands in.
    lines: Vec<usize>,
    ids: HashMap<u64, usize>,
    /// Triggers by their name in the file, with the line that names them first.
    names: HashMap<u64, usize>,
    defined: Vec<Option<Trigger>>,
    named_at: Vec<usize>,
}

fn next<'a>(words: &mut SplitWhitespace<'a>, what: &str) -> Result<&'a str, String> {
    words.next().ok_or_else(|| format!("{what} has no value"))
}

fn whole(word: &str, what: &str) -> Result<u64, String> {
    word.parse()
        .map_err(|_| format!("{what} {word:?} is not a whole number"))
}

impl Reader {
    fn line(&mut self, line: usize, content: &str) -> Result<(), String> {
        let mut words = content.split_whitespace();
        match words.next() {
            None => Ok(()),
            Some("Nodes") => {
                let nodes = whole(next(&mut words, "Nodes")?, "Nodes")?;
                let nodes = usize::try_from(nodes).unwrap_or(usize::MAX);
                if nodes > self.hosts {
                    return Err(format!(
                        "{nodes} nodes, but the topology has {} hosts",
                        self.hosts
                    ));
                }
                self.nodes = Some(nodes);
                end(words)
            }
            Some("Connections") => self.header(words, "Connections"),
            Some("Triggers") => self.header(words, "Triggers"),
            Some("Failures") => match next(&mut words, "Failures")? {
                "0" => end(words),
                _ => Err("failures are said in the scenario, as [[fault]]".to_owned()),
            },
            Some("trigger") => self.trigger(line, words),
            Some(pair) if pair.contains("->") => self.connection(line, pair, words),
            Some(other) => Err(format!(
                "{other:?} is neither Nodes, Connections, Triggers, trigger nor SRC->DST"
            )),
        }
    }

    fn header(&mut self, mut words: SplitWhitespace<'_>, what: &str) -> Result<(), String> {
        let count = whole(next(&mut words, what)?, what)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match what {
            "Connections" => self.connections = Some(count),
            _ => self.triggers = Some(count),
        }
        end(words)
    }

    fn host(&self, word: &str) -> Result<NodeId, String> {
        let nodes = self.nodes.ok_or("the first line has to be: Nodes N")?;
        let number = whole(word, "host")?;
        match usize::try_from(number) {
            Ok(index) if index < nodes => Ok(NodeId(u32::try_from(number).expect("few nodes"))),
            _ => Err(format!("host {number} does not exist: Nodes is {nodes}")),
        }
    }

    fn connection(
        &mut self,
        line: usize,
        pair: &str,
        mut words: SplitWhitespace<'_>,
    ) -> Result<(), String> {
        let (from, to) = pair.split_once("->").expect("looked for by the caller");
        let (from, to) = (self.host(from)?, self.host(to)?);
        if from == to {
            return Err(format!("host {} sends to itself", from.0));
        }
        let (mut id, mut start, mut bytes) = (None, None, None);
        let (mut when_sent, mut when_received) = (None, None);
        while let Some(word) = words.next() {
            let value = next(&mut words, word)?;
            match word {
                "id" => id = Some(whole(value, "id")?),
                "start" | "trigger" if start.is_some() => {
                    return Err("the connection starts twice".to_owned());
                }
                "start" => start = Some(Start::At(self.start_at(value)?)),
                "trigger" => start = Some(Start::On(self.named(line, whole(value, word)?))),
                "size" => bytes = Some(whole(value, "size")?),
                "send_done_trigger" => when_sent = Some(self.named(line, whole(value, word)?)),
                "recv_done_trigger" => when_received = Some(self.named(line, whole(value, word)?)),
                "prio" => drop(whole(value, "prio")?),
                other => return Err(format!("a connection has no {other:?}")),
            }
        }
        let start = start.ok_or("the connection has neither start nor trigger")?;
        let bytes = match bytes.ok_or("the connection has no size")? {
            0 => return Err("size 0, a flow without end, cannot be simulated".to_owned()),
            bytes if bytes > SIZE => {
                return Err(format!("size {bytes}, at most {SIZE} is possible"));
            }
            bytes => bytes,
        };
        if let Some(id) = id {
            if id == 0 {
                return Err("id 0 is not allowed".to_owned());
            }
            if let Some(other) = self.ids.insert(id, line) {
                return Err(format!("id {id} is used in line {other} already"));
            }
        }
        // A connection for each line, as in htsim.
        let lane = u32::try_from(self.workload.flows.len()).map_err(|_| "too many connections")?;
        self.lines.push(line);
        self.workload.flows.push(Flow {
            from,
            to,
            lane,
            bytes,
            start,
            when_sent,
            when_received,
            class: self.class,
        });
        Ok(())
    }

    fn start_at(&self, word: &str) -> Result<Time, String> {
        let start: f64 = word
            .parse()
            .map_err(|_| format!("start {word:?} is not a number of picoseconds"))?;
        if !(0.0..1e18).contains(&start) {
            return Err(format!(
                "start {word} is not between 0 and 10^18 picoseconds"
            ));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range was checked"
        )]
        let nanos = (start / 1000.0) as u64;
        Ok(self.from + common::time::Span::from_nanos(nanos))
    }

    fn named(&mut self, line: usize, name: u64) -> usize {
        let next = self.names.len();
        *self.names.entry(name).or_insert_with(|| {
            self.defined.push(None);
            self.named_at.push(line);
            next
        })
    }

    fn trigger(&mut self, line: usize, mut words: SplitWhitespace<'_>) -> Result<(), String> {
        let (mut name, mut kind, mut count) = (None, None, 0);
        while let Some(word) = words.next() {
            match word {
                "id" => name = Some(whole(next(&mut words, "id")?, "id")?),
                "count" => count = whole(next(&mut words, "count")?, "count")?,
                "oneshot" | "multishot" | "barrier" if kind.is_none() => kind = Some(word),
                "oneshot" | "multishot" | "barrier" => {
                    return Err("a trigger of two kinds".to_owned());
                }
                other => return Err(format!("{other:?} is no part of a trigger")),
            }
        }
        let name = name
            .filter(|name| *name != 0)
            .ok_or("the trigger has no id above 0")?;
        let kind = match kind.ok_or("the trigger is neither oneshot, multishot nor barrier")? {
            "oneshot" => Trigger::Once,
            "multishot" => Trigger::Each,
            _ => {
                let count = u32::try_from(count).ok().filter(|count| *count > 0);
                Trigger::Barrier(count.ok_or("a barrier needs count, above 0")?)
            }
        };
        let index = self.named(line, name);
        if self.defined[index].replace(kind).is_some() {
            return Err(format!("trigger {name} is defined twice"));
        }
        Ok(())
    }

    fn finish(mut self, last: usize) -> Result<Workload, MatrixError> {
        let at = |line, reason: String| Err(MatrixError { line, reason });
        for (what, said, found) in [
            ("connections", self.connections, self.workload.flows.len()),
            ("triggers", self.triggers, self.defined.len()),
        ] {
            if said.is_some_and(|said| said != found) {
                let said = said.unwrap_or_default();
                return at(last, format!("{said} {what} are announced, {found} follow"));
            }
        }
        if self.workload.flows.is_empty() {
            return at(last, "there are no connections".to_owned());
        }
        for (index, kind) in self.defined.iter().enumerate() {
            match kind {
                Some(kind) => self.workload.triggers.push(*kind),
                None => {
                    let name = self.names.iter().find(|(_, place)| **place == index);
                    let name = name.map_or(0, |(name, _)| *name);
                    let reason = format!("trigger {name} is nowhere defined");
                    return at(self.named_at[index], reason);
                }
            }
        }
        if let Some(flow) = self.workload.never_starts() {
            let reason =
                "its trigger never fires: it waits for what never starts or for more than comes";
            return at(self.lines[flow], reason.to_owned());
        }
        Ok(self.workload)
    }
}

fn end(mut words: SplitWhitespace<'_>) -> Result<(), String> {
    match words.next() {
        None => Ok(()),
        Some(word) => Err(format!("{word:?} is one word too many")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: &str = "Nodes 16\nConnections 3\nTriggers 2\n0->1 id 1 start 0 size 2000000 \
        send_done_trigger 1\n1->2 id 2 trigger 1 size 1000 recv_done_trigger 9\n\n\
        2->3 id 3 trigger 9 size 7 prio 2\ntrigger id 1 oneshot\ntrigger id 9 barrier count 1\n";

    /// A flow that waits for itself, and one that waits for more than there is.
    #[test]
    fn what_never_starts_is_refused() {
        let circle = "Nodes 3\nConnections 2\n0->1 start 0 size 1\n1->2 trigger 1 size 1 send_done_trigger 1\n\
                      trigger id 1 oneshot\n";
        let barrier = "Nodes 3\nConnections 2\n0->1 start 0 size 1 send_done_trigger 1\n1->2 trigger 1 size 1\n\
                       trigger id 1 barrier count 2\n";
        for text in [circle, barrier] {
            let error = read(text, 3, Time::ZERO, 0).expect_err("it never starts");
            assert_eq!(error.line, 4);
            assert!(error.reason.contains("never fires"), "{error}");
        }
    }

    #[test]
    fn a_chain_is_read() {
        let workload = read(CHAIN, 16, Time::from_nanos(5), 0).expect("a matrix");
        assert_eq!(workload.flows.len(), 3);
        assert_eq!(workload.triggers, [Trigger::Once, Trigger::Barrier(1)]);
        assert_eq!(workload.flows[0].start, Start::At(Time::from_nanos(5)));
        assert_eq!(workload.flows[0].when_sent, Some(0));
        assert_eq!(workload.flows[1].start, Start::On(0));
        assert_eq!(workload.flows[2].start, Start::On(1));
        let late = "Nodes 2\nConnections 1\n0->1 start 2.5e6 size 1\n";
        let late = read(late, 2, Time::ZERO, 0).expect("a matrix");
        assert_eq!(late.flows[0].start, Start::At(Time::from_nanos(2500)));
    }

    /// Every refusal names its line and what is wrong there.
    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, line, reason) in [
            ("Nodes 17\n", 1, "the topology has 16 hosts"),
            ("Nodes x\n", 1, "not a whole number"),
            (
                "Nodes 4\nConnections 1\n4->0 start 0 size 1\n",
                3,
                "host 4 does not exist",
            ),
            ("0->1 start 0 size 1\n", 1, "the first line has to be"),
            ("Nodes 4\n1->1 start 0 size 1\n", 2, "sends to itself"),
            ("Nodes 4\n0->1 start 0\n", 2, "no size"),
            ("Nodes 4\n0->1 size 1\n", 2, "neither start nor trigger"),
            ("Nodes 4\n0->1 start -1 size 1\n", 2, "not between 0"),
            ("Nodes 4\n0->1 start nan size 1\n", 2, "not between 0"),
            ("Nodes 4\n0->1 start 0 size 0\n", 2, "without end"),
            (
                "Nodes 4\n0->1 start 0 size 1 colour 3\n",
                2,
                "no \"colour\"",
            ),
            ("Nodes 4\n0->1 start 0 size\n", 2, "size has no value"),
            ("Nodes 4\n0->1 trigger 7 size 1\n", 2, "nowhere defined"),
            (
                "Nodes 4\n0->1 id 1 start 0 size 1\n1->0 id 1 start 0 size 1\n",
                3,
                "line 2 already",
            ),
            (
                "Nodes 4\nConnections 2\n0->1 start 0 size 1\n",
                3,
                "2 connections are announced",
            ),
            ("Nodes 4\nConnections 0\n", 2, "no connections"),
            (
                "Nodes 4\ntrigger id 1 sometimes\n",
                2,
                "no part of a trigger",
            ),
            ("Nodes 4\ntrigger id 1\n", 2, "neither oneshot"),
            ("Nodes 4\ntrigger id 1 barrier count 0\n", 2, "needs count"),
            ("Nodes 4 5\n", 1, "one word too many"),
            ("Nodes 4\nFailures 1\n", 2, "[[fault]]"),
            ("hello\n", 1, "neither Nodes"),
        ] {
            let error = read(text, 16, Time::ZERO, 0).expect_err(text);
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.reason.contains(reason), "{text}: {error}");
        }
    }
}
