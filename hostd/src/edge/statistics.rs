//! What the applications' edge counts.

/// Counters of the applications' edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeStatistics {
    /// Send requests taken from rings.
    pub sends: u64,
    /// Receives taken from rings.
    pub receives: u64,
    /// Completions put in rings.
    pub completions: u64,
    /// Times that an application was woken.
    pub wakes: u64,
    /// Queue pairs broken by an invalid descriptor or an impossible index.
    pub broken_queues: u64,
    /// Completions of queues that their application had broken, or whose ring had gone.
    pub lost_completions: u64,
    /// Connection requests of peers that were turned down because nobody listens, or too many wait
    /// for the application already.
    pub refused_requests: u64,
    /// Times that a completion ring became full, so that work had to wait.
    pub full_rings: u64,
    /// Times that a session rang so often for nothing that its bells were not listened to for a
    /// while.
    pub silences: u64,
}
