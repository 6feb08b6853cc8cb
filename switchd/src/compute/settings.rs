//! What is configured of in-network compute, for one worker.

use common::time::Span;
use common::wire::compute::{DSCP, Join, Operation, PAYLOAD_MAX, PORT};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// Settings of in-network compute. Each worker has its own share of jobs and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The UDP port that it is asked at.
    pub port: u16,
    /// The address from which the switch asks its parents.
    pub address: Option<IpAddr>,
    /// The switches above, the first one for the first tree.
    pub parents: Vec<SocketAddr>,
    /// Sources that may join.
    pub members: Vec<IpNet>,
    /// What all messages are sealed with, if they are.
    pub secret: Option<[u8; 32]>,
    /// Most jobs, those included that were over a moment ago.
    pub jobs: usize,
    /// Bytes that the vectors of all jobs may take.
    pub memory: usize,
    /// Most slots of a job.
    pub slots: u16,
    /// Most bytes of a vector.
    pub payload: u16,
    /// How long a member may be silent.
    pub lease: Span,
    /// In which time all members must come.
    pub forming: Span,
    /// How long it is remembered how a job ended.
    pub remembered: Span,
    /// Differentiated services code point of what is sent, which chooses its class.
    pub dscp: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: PORT,
            address: None,
            parents: Vec::new(),
            members: Vec::new(),
            secret: None,
            jobs: 16,
            memory: 64 << 20,
            slots: 1024,
            #[expect(clippy::cast_possible_truncation, reason = "1400")]
            payload: PAYLOAD_MAX as u16,
            lease: Span::from_secs(2),
            forming: Span::from_secs(5),
            remembered: Span::from_secs(10),
            dscp: DSCP,
        }
    }
}

/// Operations that are done: all that there are. So are all types, which fill their byte.
const OPERATIONS: u8 = {
    let (mut all, mut at) = (0, 0);
    while at < Operation::ALL.len() {
        all |= Operation::ALL[at].bit();
        at += 1;
    }
    all
};

impl Settings {
    /// Whether anything of a source is looked at: it may join, or is a parent.
    pub fn hears(&self, source: IpAddr) -> bool {
        self.allows(source) || self.parents.iter().any(|it| it.ip() == source)
    }

    /// Whether a source may join: any, if none is named.
    pub(super) fn allows(&self, source: IpAddr) -> bool {
        self.members.is_empty() || self.members.iter().any(|it| it.contains(&source))
    }
}

/// Whether all operations that a job wants are done here.
pub(super) fn are_done_here(join: &Join) -> bool {
    join.operations & !OPERATIONS == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-42: members and parents are heard, and nobody else if members are named.
    #[test]
    fn members_and_parents_are_heard() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let settings = Settings {
            members: vec!["10.1.0.0/16".parse().expect("a prefix")],
            parents: vec![SocketAddr::new(address("10.9.0.1"), PORT)],
            ..Settings::default()
        };
        let heard = ["10.1.2.3", "10.9.0.1", "10.9.0.2"].map(|it| settings.hears(address(it)));
        assert_eq!(heard, [true, true, false]);
        assert!(Settings::default().hears(address("10.9.0.2")));
    }
}
