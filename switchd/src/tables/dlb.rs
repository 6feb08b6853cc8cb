//! Settings of dynamic load balancing, a part of the tables that control publishes to the workers.

use crate::id::GroupId;
use common::time::Span;
use common::units::Rate;
use serde::{Deserialize, Serialize};

/// Entries of a table if nothing else is configured: four times as many as flows that send within
/// one flowlet timeout on a busy port, 128 KiB for each worker, which stays in its second-level
/// cache.
pub const DEFAULT_ENTRIES: usize = 4096;

/// Most entries of a table: 2 MiB, what a worker has of second-level cache at most.
pub const MAX_ENTRIES: usize = 65_536;

/// Longest ageing time: an entry stores it in 32 bits of nanoseconds.
pub const MAX_AGEING: Span = Span::from_secs(4);

/// How a group chooses the next hop of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By bucket: static ECMP.
    #[default]
    Off,
    /// The best member when the flow is born; the flow keeps it until it has been silent for the
    /// ageing time.
    Flow,
    /// The best member for each flowlet.
    Flowlet,
    /// The best member for each packet, whatever that does to the order.
    Packet,
}

impl Mode {
    /// As it is configured and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Flow => "flow",
            Self::Flowlet => "flowlet",
            Self::Packet => "packet",
        }
    }
}

/// How flows of a group are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How the next hop is chosen.
    pub mode: Mode,
    /// The longest gap inside a flowlet. It must exceed the skew between paths and the jitter of
    /// the workers. It should be at least as long as a port takes to forget a flow that is silent:
    /// six samples with the default scale.
    pub timeout: Span,
    /// Silence after which a flow is forgotten. Not less than the timeout, at most [`MAX_AGEING`].
    pub ageing: Span,
    /// A flow stays on its member while that is not worse than the best by more than this many
    /// bands.
    pub hysteresis: u8,
    /// How long it takes until the band of a member shows that a flow has left. During that time
    /// only every other flow that would leave does so; otherwise all flows would leave and return
    /// together. Zero lets all leave.
    pub settle: Span,
}

impl Default for Settings {
    /// Static ECMP; the times are those of a group that is switched to another mode. A timeout of
    /// 256 µs as in SONiC; an ageing time of 10 ms as in CONGA, 40 timeouts: a flow that comes back
    /// within a few round trips finds its member, and one that has ended does not hold its entry in
    /// [`Mode::Flow`]. Four samples of 16 µs until a band has settled.
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            timeout: Span::from_micros(256),
            ageing: Span::from_millis(10),
            hysteresis: 0,
            settle: Span::from_micros(64),
        }
    }
}

impl Settings {
    /// Silence after which a flow is forgotten, limited to what an entry can store.
    pub(crate) fn ageing(&self) -> Span {
        self.ageing.min(MAX_AGEING).max(self.hold_of_flowlet())
    }

    /// Longest gap inside a flowlet, limited to what an entry can store.
    pub(crate) fn hold_of_flowlet(&self) -> Span {
        self.timeout.min(MAX_AGEING)
    }

    /// How long after its last packet a flow still relies on its member.
    pub(crate) fn hold(&self) -> Span {
        match self.mode {
            Mode::Flow => self.ageing(),
            Mode::Off | Mode::Flowlet | Mode::Packet => self.hold_of_flowlet(),
        }
    }
}

/// Shortest sampling interval: below, sampling would cost as much as forwarding a packet.
pub const MIN_INTERVAL: Span = Span::from_micros(1);

/// Bytes on the wire that a port can send in a sampling interval, at least: four frames of 1500
/// bytes. In a shorter one it is seen to send all or nothing.
const LEAST_SAMPLE: u64 = 4 * 1538;

/// The sampling interval of a port: the configured one, or longer if the port is slow.
pub fn sampling_interval(configured: Span, speed: Option<Rate>) -> Span {
    let least = speed
        .filter(|speed| speed.bps() > 0)
        .map_or(0, |speed| 8_000_000_000 * LEAST_SAMPLE / speed.bps());
    configured.max(MIN_INTERVAL).max(Span::from_nanos(least))
}

/// Largest exponent of the moving average: 2⁸ intervals of 16 µs are 4 ms, far more than a flowlet
/// remembers.
pub const MAX_EXPONENT: u8 = 8;

/// How the quality of a port is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Time between two samples; at least [`MIN_INTERVAL`].
    pub interval: Span,
    /// k: each sample has a weight of 2⁻ᵏ in the average, which so follows within 2ᵏ intervals; at
    /// most [`MAX_EXPONENT`].
    pub exponent: u8,
    /// Weight of the utilisation in the load.
    pub past_weight: u16,
    /// Weight of the queue in the load.
    pub future_weight: u16,
    /// A queue up to this many bytes counts as empty.
    pub queue_min: u32,
    /// A queue from this many bytes on counts as full.
    pub queue_max: u32,
}

impl Default for Scale {
    /// The defaults of SONiC. A queue is full at 128 KiB: 10 µs at 100 Gbit/s, beyond what ECN
    /// marks at.
    ///
    /// A flow's own use of its port is forgotten, band 0, after six samples: 96 µs, well within the
    /// flowlet timeout. Samples cost at least 16 ns a port: of a worker with 32 ports 3 % of its
    /// time, and would be 13 % at 4 µs.
    fn default() -> Self {
        Self {
            interval: Span::from_micros(16),
            exponent: 2,
            past_weight: 16,
            future_weight: 16,
            queue_min: 0,
            queue_max: 128 << 10,
        }
    }
}

/// How to recognise flows that their host sprays. RoCEv2 packets with an MPEH always are,
/// unless hints are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSprayed {
    /// Code points whose packets are: bit n stands for DSCP n.
    pub dscp: u64,
    /// UDP destination port whose packets are; `None`: no port.
    pub udp_port: Option<u16>,
    /// Packets with an MPEH whose sender leaves the way to switches are none: its hints are read
    /// (SW-6).
    pub reads_hints: bool,
}

/// How the groups spread flows over their members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DlbPolicy {
    settings: Settings,
    /// By group; those beyond the end are in the mode of `settings`.
    modes: Vec<Mode>,
    /// Some group chooses by more than the hash.
    is_on: bool,
    /// How the quality of ports is computed.
    pub scale: Scale,
    /// Flows that every group spreads by their hash only.
    pub spray: HostSprayed,
    /// Entries of the flow table of each worker.
    pub flows: usize,
}

impl Default for DlbPolicy {
    /// Static ECMP.
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl DlbPolicy {
    /// These settings for all groups.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            modes: Vec::new(),
            is_on: settings.mode != Mode::Off,
            scale: Scale::default(),
            spray: HostSprayed::default(),
            flows: DEFAULT_ENTRIES,
        }
    }

    /// The same with modes of their own for groups, by number.
    #[must_use]
    pub fn with_modes(&self, modes: Vec<Mode>) -> Self {
        let is_on = self.settings.mode != Mode::Off || modes.iter().any(|mode| *mode != Mode::Off);
        Self {
            modes,
            is_on,
            ..self.clone()
        }
    }

    /// The mode of groups without one of their own.
    pub fn common(&self) -> Mode {
        self.settings.mode
    }

    /// Silence after which flows are forgotten.
    pub fn ageing(&self) -> Span {
        self.settings.ageing
    }

    /// Modes of their own of the groups, by number.
    pub fn modes(&self) -> &[Mode] {
        &self.modes
    }

    /// Whether any group chooses by more than the hash. If not, workers measure and store nothing
    /// for it.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// How a group chooses.
    #[inline]
    pub fn mode(&self, group: GroupId) -> Mode {
        let own = self.modes.get(group.index()).copied();
        own.unwrap_or(self.settings.mode)
    }

    /// How a group spreads its flows.
    #[inline]
    pub fn settings(&self, group: GroupId) -> Settings {
        Settings {
            mode: self.mode(group),
            ..self.settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-4: each group has its own mode, or the common one; it is on as soon as one of them is.
    #[test]
    fn groups_have_modes_of_their_own() {
        let off = DlbPolicy::default();
        assert!(!off.is_on());
        let one = off.with_modes(vec![Mode::Off, Mode::Packet]);
        let modes = [0, 1, 2].map(|group| one.settings(GroupId(group)).mode);
        assert_eq!(modes, [Mode::Off, Mode::Packet, Mode::Off]);
        assert!(one.is_on() && !one.with_modes(vec![Mode::Off]).is_on());
        let flowlet = DlbPolicy::new(Settings {
            mode: Mode::Flowlet,
            ..Settings::default()
        });
        let except = flowlet.with_modes(vec![Mode::Off]);
        assert!(except.is_on());
        assert_eq!(except.mode(GroupId(7)), Mode::Flowlet);
    }
}
