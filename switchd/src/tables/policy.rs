//! The policy of the traffic manager: an immutable value that control publishes with the tables and
//! replaces as a whole.
//!
//! ```text
//!   DSCP or PCP ─▶ priority ─┬─▶ priority group   what is charged at the ingress port
//!                            └─▶ traffic class    the queue at the egress port
//! ```
//!
//! All amounts of buffer are in cells ([`CELL`](crate::limits::CELL)). [`Policy::check`] refuses
//! values that the engine cannot work with. The configuration refuses values that are merely
//! unwise.

use super::trim::{TrimPolicy, TrimPolicyError};
use super::wred::{Profile, ProfileError};
use super::{elephants, watchdog};
use crate::id::PortId;
use crate::limits::{CLASSES, MAX_CELLS, PRIORITIES};
use common::units::Rate;

/// How far usage may grow beyond what is guaranteed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// To this many cells.
    Static(u32),
    /// To α times the cells of the service region that are free, α = 2^n, n from -8 to 8 (Choudhury
    /// and Hahne, "Dynamic queue length thresholds"; `dynamic_th` of SONiC).
    Dynamic(i8),
}

/// Range of the exponent of [`Limit::Dynamic`].
pub const ALPHA: std::ops::RangeInclusive<i8> = -8..=8;

impl Limit {
    /// The limit while `free` cells of the service region are free.
    #[inline]
    pub const fn cells(self, free: u64) -> u64 {
        match self {
            Self::Static(cells) => cells as u64,
            Self::Dynamic(exponent) if exponent >= 0 => free << (exponent & 15),
            Self::Dynamic(exponent) => free >> ((-exponent) & 15),
        }
    }
}

/// How a priority group of an ingress port is accounted (SW-10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPolicy {
    /// Cells that nobody else may use.
    pub guaranteed: u32,
    /// Cells of the service region that it may use on top. A lossless group pauses its peer beyond
    /// (xoff), another one drops.
    pub limit: Limit,
    /// Cells for what arrives after xoff; a group is lossless if it has any.
    pub headroom: u32,
    /// It resumes when its usage has fallen to this many cells,
    pub xon: u32,
    /// or to this many below its limit, whichever is more.
    pub xon_offset: u32,
}

impl GroupPolicy {
    /// Whether it pauses its peer instead of dropping.
    #[inline]
    pub const fn is_lossless(&self) -> bool {
        self.headroom > 0
    }

    /// Cells that it holds when it pauses. With a dynamic threshold: while all `groups` are as full
    /// as they get, each has αS / (1 + nα) of the `service` region.
    pub fn xoff(&self, groups: u64, service: u64) -> u64 {
        let shared = match self.limit {
            Limit::Static(cells) => u64::from(cells),
            Limit::Dynamic(n) if n >= 0 => (service << n) / (1 + (groups << n)),
            Limit::Dynamic(n) => service / ((1 << -i16::from(n)) + groups),
        };
        u64::from(self.guaranteed) + shared
    }
}

/// How a queue of an egress port is accounted, served, and marked.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuePolicy {
    /// Cells that nobody else may use.
    pub guaranteed: u32,
    /// Cells of the service region that it may hold on top; `None`: as many as there are, because
    /// lossless packets are held back at their ingress.
    pub limit: Option<Limit>,
    /// Its share of the port.
    pub schedule: Schedule,
    /// Its own shaper: rate, and bytes that it may send at once.
    pub shaper: Option<(Rate, u32)>,
    /// What is marked or dropped before it is full.
    pub wred: Option<Wred>,
    /// Where trimmable packets are trimmed.
    pub trim: Option<TrimAt>,
}

/// Marks and early drops of a queue (SW-20, SW-21). Early drops happen at enqueue only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wred {
    /// At which depth, and which packets.
    pub profile: Profile,
    /// A packet is marked by the depth when it leaves, not when it arrived.
    pub at_dequeue: bool,
}

/// Depths of a queue, in bytes, that a trimmable packet may not make it exceed (SW-23).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimAt {
    /// For most.
    pub bytes: u32,
    /// For retransmissions.
    pub rtx_bytes: u32,
}

/// Weights that a queue may have, as in SONiC.
pub const WEIGHTS: std::ops::RangeInclusive<u8> = 1..=100;

/// How a queue shares its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Before all queues with a weight, and before strict queues of lower class (IEEE 802.1Q clause
    /// 8.6.8.1).
    Strict,
    /// By weight among the others.
    Dwrr(u8),
}

/// What a port does to be paused and to pause its peer. PAUSE and PFC exclude one another on a
/// link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowControl {
    /// Nothing: MAC control frames are counted and ignored.
    #[default]
    Off,
    /// 802.3x: all priorities together (SW-30).
    Pause {
        /// PAUSE frames are sent.
        send: bool,
        /// Those received are obeyed.
        obey: bool,
        /// Length of a pause in quanta.
        quanta: u16,
    },
    /// 802.1Qbb: each priority for itself (SW-31).
    Pfc {
        /// Bit n: priority n is paused at the peer.
        send: u8,
        /// Bit n: the peer's pauses of priority n are obeyed.
        obey: u8,
        /// Length of a pause in quanta.
        quanta: u16,
    },
}

impl FlowControl {
    /// Priorities that the peer may pause: by PFC each for itself, by PAUSE all together.
    pub const fn obeys(self) -> u8 {
        match self {
            Self::Off | Self::Pause { obey: false, .. } => 0,
            Self::Pause { obey: true, .. } => u8::MAX,
            Self::Pfc { obey, .. } => obey,
        }
    }

    /// Priorities that may be paused at the peer.
    pub const fn sends(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Pause { send, .. } => {
                if send {
                    u8::MAX
                } else {
                    0
                }
            }
            Self::Pfc { send, .. } => send,
        }
    }
}

/// The rewrite of a flow that comes from the uplink group and leaves through it (SW-33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its priority from here on, which chooses its queue.
    pub priority: u8,
    /// Its DSCP from here on, so that the next switches do the same.
    pub dscp: u8,
}

/// One port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortPolicy {
    /// Its priority groups.
    pub groups: [GroupPolicy; PRIORITIES],
    /// Its queues.
    pub queues: [QueuePolicy; CLASSES],
    /// Cells that packets which arrived here may take together.
    pub ingress_limit: u32,
    /// Cells that packets which leave here may take together.
    pub egress_limit: u32,
    /// What is paused, and by whom.
    pub flow_control: FlowControl,
    /// It belongs to the uplink group.
    pub uplink: bool,
}

/// From header fields to priority, group and class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classify {
    /// Priority of each DSCP.
    pub priority_of_dscp: [u8; 64],
    /// Priority of each PCP, for frames with a VLAN tag; `None`: tags do not matter.
    pub priority_of_pcp: Option<[u8; 8]>,
    /// Traffic class of each priority.
    pub class_of_priority: [u8; PRIORITIES],
    /// Priority group of each priority.
    pub group_of_priority: [u8; PRIORITIES],
}

impl Classify {
    /// The class of packets with this DSCP.
    pub fn class_of_dscp(&self, dscp: u8) -> u8 {
        let priority = self.priority_of_dscp[usize::from(dscp & 63)];
        self.class_of_priority[usize::from(priority & 7)]
    }
}

impl Default for Classify {
    /// The class selector of RFC 2474 §4.2.2 is the priority, a priority is its class and its
    /// group.
    fn default() -> Self {
        let same = std::array::from_fn(|n| u8::try_from(n).expect("8"));
        Self {
            priority_of_dscp: std::array::from_fn(|dscp| u8::try_from(dscp >> 3).expect("64 / 8")),
            priority_of_pcp: None,
            class_of_priority: same,
            group_of_priority: same,
        }
    }
}

/// Sizes of the regions of the buffer that are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Cells of the service region as ingress accounts it: what guarantees and headroom leave.
    pub service: u32,
    /// The same as egress accounts it: what the guarantees of queues leave.
    pub egress_service: u32,
    /// Cells of all headroom together. Less than the sum over the groups if the pool is
    /// oversubscribed.
    pub headroom: u32,
}

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// From header fields to priority, class and group.
    pub classify: Classify,
    /// Sizes of the regions.
    pub regions: Regions,
    /// By port.
    pub ports: Vec<PortPolicy>,
    /// Which packets are trimmed, and to what.
    pub trim: TrimPolicy,
    /// The watchdog against endless pauses; `None`: there is none.
    pub watchdog: Option<watchdog::Settings>,
    /// The rewrite of flows that come from the uplink group and leave through it; `None`: none.
    pub hook: Option<Hook>,
    /// Classes whose elephants go to a lower queue (SW-17).
    pub elephants: Vec<elephants::Settings>,
    /// Bit n: it is counted how the bytes of class n are shared among flows (SW-24).
    pub sketched: u8,
}

/// Why the engine cannot work with a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The buffer is too large to be counted.
    #[error("a buffer of {cells} cells; at most {MAX_CELLS} are possible")]
    TooLarge {
        /// Its size.
        cells: u64,
    },
    /// Guarantees and headroom exceed the buffer.
    #[error(
        "guarantees of {guaranteed} and headroom of {headroom} cells exceed the buffer of {cells}"
    )]
    Exceeded {
        /// Sum of the guarantees.
        guaranteed: u64,
        /// Size of the headroom.
        headroom: u64,
        /// Size of the buffer.
        cells: u64,
    },
    /// Trimmed packets could be confused with others.
    #[error(transparent)]
    Trim(#[from] TrimPolicyError),
    /// Elephants cannot be handled so.
    #[error(transparent)]
    Elephants(#[from] elephants::SettingsError),
    /// A queue's marks make no sense.
    #[error("port {port}, queue {queue}: {error}")]
    Wred {
        /// The port.
        port: usize,
        /// The queue.
        queue: usize,
        /// Why.
        error: ProfileError,
    },
    /// The watchdog's times make no sense.
    #[error("watchdog, {key}: {0}", key = .0.key())]
    Watchdog(#[from] watchdog::SettingsError),
    /// A map names something that does not exist.
    #[error("{from} {number} is mapped to {to} {value}; there are 0 to 7")]
    Map {
        /// What is mapped.
        from: &'static str,
        /// Which.
        number: usize,
        /// To what.
        to: &'static str,
        /// Which.
        value: u8,
    },
}

impl Policy {
    /// A switch that forwards and drops: eight queues in strict priority that hold `limit` cells
    /// each, no lossless group, no marking.
    pub fn plain(ports: usize, limit: u32) -> Self {
        let group = GroupPolicy {
            guaranteed: 0,
            limit: Limit::Static(MAX_CELLS),
            headroom: 0,
            xon: 0,
            xon_offset: 0,
        };
        let queue = QueuePolicy {
            guaranteed: 0,
            limit: Some(Limit::Static(limit)),
            schedule: Schedule::Strict,
            shaper: None,
            wred: None,
            trim: None,
        };
        let port = PortPolicy {
            groups: [group; PRIORITIES],
            queues: std::array::from_fn(|_| queue.clone()),
            ingress_limit: MAX_CELLS,
            egress_limit: MAX_CELLS,
            flow_control: FlowControl::Off,
            uplink: false,
        };
        Self {
            classify: Classify::default(),
            regions: Regions {
                service: MAX_CELLS,
                egress_service: MAX_CELLS,
                headroom: 0,
            },
            ports: vec![port; ports],
            trim: TrimPolicy::default(),
            watchdog: None,
            hook: None,
            elephants: Vec::new(),
            sketched: 0,
        }
    }

    /// Divides a buffer of `cells` among the regions: guarantees and headroom as the ports say, or
    /// `pool` cells of headroom for all together, and the rest for service.
    ///
    /// # Errors
    /// They do not fit.
    pub fn divide(&mut self, cells: u32, pool: Option<u32>) -> Result<(), PolicyError> {
        let sum = |of: &dyn Fn(&PortPolicy) -> u64| self.ports.iter().map(of).sum::<u64>();
        let guaranteed = sum(&|port| port.groups.iter().map(|it| u64::from(it.guaranteed)).sum());
        let queues = sum(&|port| port.queues.iter().map(|it| u64::from(it.guaranteed)).sum());
        let headroom = sum(&|port| port.groups.iter().map(|it| u64::from(it.headroom)).sum());
        let headroom = pool.map_or(headroom, u64::from);
        let exceeded = |guaranteed, headroom| PolicyError::Exceeded {
            guaranteed,
            headroom,
            cells: u64::from(cells),
        };
        let rest = |guaranteed: u64, headroom: u64| {
            let rest = u64::from(cells).checked_sub(guaranteed + headroom);
            rest.and_then(|rest| u32::try_from(rest).ok())
                .ok_or_else(|| exceeded(guaranteed, headroom))
        };
        let regions = Regions {
            service: rest(guaranteed, headroom)?,
            egress_service: rest(queues, 0)?,
            headroom: u32::try_from(headroom).map_err(|_| exceeded(guaranteed, headroom))?,
        };
        self.regions = regions;
        self.check()
    }

    /// Checks what the engine relies on.
    ///
    /// # Errors
    /// The first violation found.
    pub fn check(&self) -> Result<(), PolicyError> {
        let cells = u64::from(self.regions.service) + u64::from(self.regions.headroom);
        if cells > u64::from(MAX_CELLS) {
            return Err(PolicyError::TooLarge { cells });
        }
        self.trim.check()?;
        self.watchdog.map_or(Ok(()), |it| it.check())?;
        elephants::check(&self.elephants)?;
        for (number, port) in self.ports.iter().enumerate() {
            for (queue, policy) in port.queues.iter().enumerate() {
                let checked = policy.wred.map_or(Ok(()), |wred| wred.profile.check());
                checked.map_err(|error| PolicyError::Wred {
                    port: number,
                    queue,
                    error,
                })?;
            }
        }
        let classify = &self.classify;
        below("DSCP", &classify.priority_of_dscp, "priority")?;
        if let Some(pcp) = &classify.priority_of_pcp {
            below("PCP", pcp, "priority")?;
        }
        below("priority", &classify.class_of_priority, "class")?;
        below("priority", &classify.group_of_priority, "group")
    }

    /// Whether elephants are looked for among the packets of a class.
    #[inline]
    pub fn watches(&self, class: u8) -> bool {
        self.elephants.iter().any(|it| it.from == class)
    }

    /// Whether it matters to the traffic manager which flows the packets of a class belong to.
    #[inline]
    pub fn tells_flows_apart(&self, class: u8) -> bool {
        self.sketched & 1 << (class & 7) != 0 || self.watches(class)
    }

    /// By group: whether its packets wait in queues of a class.
    pub fn feeding(&self, class: usize) -> [bool; PRIORITIES] {
        let maps = &self.classify;
        let mut feeding = [false; PRIORITIES];
        let sends_elephants = |of: u8| {
            let mut all = self.elephants.iter();
            all.any(|it| it.from == of && usize::from(it.to) == class)
        };
        for (priority, of) in maps.class_of_priority.iter().enumerate() {
            if usize::from(*of) == class || sends_elephants(*of) {
                feeding[usize::from(maps.group_of_priority[priority])] = true;
            }
        }
        feeding
    }

    /// The lossless groups, of all ports, whose packets wait in queues of a class.
    pub fn feeders(&self, class: usize) -> impl Iterator<Item = &GroupPolicy> {
        let feeding = self.feeding(class);
        self.ports.iter().flat_map(move |port| {
            let groups = port.groups.iter().zip(feeding);
            let feeders = groups.filter(|(group, feeds)| *feeds && group.is_lossless());
            feeders.map(|(group, _)| group)
        })
    }

    /// Whether packets that are charged to this group of a port hold their sender back instead of
    /// being lost.
    #[inline]
    pub fn is_lossless(&self, port: PortId, group: u8) -> bool {
        self.ports
            .get(port.index())
            .is_some_and(|port| port.groups[usize::from(group & 7)].is_lossless())
    }

    /// The queues of these classes: their own, and those that their elephants go to.
    pub fn with_elephants(&self, classes: u8) -> u8 {
        let moved = self
            .elephants
            .iter()
            .filter(|it| classes & 1 << it.from != 0);
        moved.fold(classes, |queues, it| queues | 1 << it.to)
    }

    /// Bit n is set for each priority n that is charged to `group`.
    pub fn priorities_of(&self, group: usize) -> u8 {
        let groups = self.classify.group_of_priority.iter().enumerate();
        groups
            .filter(|(_, of)| usize::from(**of) == group)
            .fold(0, |mask, (priority, _)| mask | 1 << priority)
    }
}

fn below(from: &'static str, map: &[u8], to: &'static str) -> Result<(), PolicyError> {
    match map.iter().position(|to| usize::from(*to) >= CLASSES) {
        None => Ok(()),
        Some(number) => Err(PolicyError::Map {
            from,
            number,
            to,
            value: map[number],
        }),
    }
}
