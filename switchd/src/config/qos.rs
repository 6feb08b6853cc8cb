//! `[qos]`: classes, buffer, queues, marks and flow control, as they are written.
//!
//! `etc/switchd.toml` explains every key. The module `policy` compiles it for the engine and
//! refuses contradictions.

use super::aiecn::AiEcn;
use crate::tables::trim::SIZE_DEFAULT;
use common::units::Rate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Quality of service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Qos {
    /// Which field of a packet gives its priority.
    pub trust: Trust,
    /// Limit of queues that no section names.
    pub queue_depth_bytes: u32,
    /// Round trip through the fabric without queueing: what Plane_BDP is computed from.
    pub base_rtt_microseconds: u64,
    /// Speed of the hosts' links, for Plane_BDP at ports that are faster; the port's own if it is
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plane_speed: Option<Rate>,
    /// Priority of a DSCP where it is not the upper three bits.
    pub priority_of_dscp: BTreeMap<String, u8>,
    /// Priority of a PCP where it is not the same number.
    pub priority_of_pcp: BTreeMap<String, u8>,
    /// Traffic class of a priority where it is not the same number.
    pub class_of_priority: BTreeMap<String, u8>,
    /// Priority group of a priority where it is not the same number.
    pub group_of_priority: BTreeMap<String, u8>,
    /// The buffer.
    pub buffer: Buffer,
    /// What headroom is computed from.
    pub headroom: Headroom,
    /// PFC and PAUSE.
    pub flow_control: FlowControl,
    /// The watchdog of endless pauses.
    pub watchdog: Watchdog,
    /// Which packets are trimmed, and to what.
    pub trim: Trim,
    /// The rewrite of flows that come from the uplink group and leave through it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
    /// Priority groups that are not plain.
    pub group: Vec<Group>,
    /// Queues that are not plain.
    pub queue: Vec<Queue>,
    /// Classes whose elephants go to a lower queue.
    pub elephants: Vec<Elephants>,
    /// Marking thresholds that follow the traffic.
    pub aiecn: AiEcn,
}

/// Which field gives the priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// The DSCP.
    #[default]
    Dscp,
    /// The PCP of the VLAN tag; the DSCP of frames without one.
    Pcp,
}

/// The buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Buffer {
    /// Its size.
    pub size_bytes: u32,
    /// Headroom that all groups share; zero: each has its own.
    pub shared_headroom_bytes: u32,
    /// What packets of one ingress port may take; zero: no limit.
    pub ingress_limit_bytes: u32,
    /// What packets of one egress port may take; zero: no limit.
    pub egress_limit_bytes: u32,
}

/// What headroom is computed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Headroom {
    /// Length of the cables.
    pub cable_metres: u32,
    /// Or how long they delay a bit, one way, as measured; zero: what follows from their length.
    pub cable_delay_nanoseconds: u64,
    /// What stops at the other end.
    pub peer: Peer,
    /// How long it takes to stop; zero: what follows from `peer`.
    pub peer_response_nanoseconds: u64,
    /// What its device still sends then; zero: what follows from `peer`.
    pub peer_backlog_bytes: u32,
    /// Shortest frame of lossless classes, without its check sequence.
    pub shortest_frame_bytes: u16,
    /// Longest time between two looks of a worker at its ports.
    pub poll_gap_microseconds: u64,
    /// Part of the buffer that announcements of peers may take; zero: they are not heeded.
    pub announced_percent: u8,
    /// Ports with cables or peers of their own.
    pub port: Vec<HeadroomPort>,
}

/// Cables and peers of some ports; those of all apply where one is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadroomPort {
    /// Names or patterns of ports; all if there are none.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Length of the cable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cable_metres: Option<u32>,
    /// Or how long it delays a bit, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cable_delay_nanoseconds: Option<u64>,
    /// What stops at the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Peer>,
    /// How long it takes to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_response_nanoseconds: Option<u64>,
    /// What its device still sends then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_backlog_bytes: Option<u32>,
}

/// What obeys pauses at the other end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// A device that stops within the time of 802.1Q.
    #[default]
    Hardware,
    /// A switchd that is as late as this one, and has a port like this.
    Switchd,
    /// A hostd that is as late as this switchd.
    Hostd,
}

impl Peer {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Switchd => "switchd",
            Self::Hostd => "hostd",
        }
    }
}

/// PFC and PAUSE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlowControl {
    /// Which of the two.
    pub mode: Mode,
    /// Priorities that PFC pauses; those of lossless groups if there are none.
    pub priorities: Vec<u8>,
    /// Length of a pause.
    pub quanta: u16,
    /// Peers are paused.
    pub send: bool,
    /// Peers are obeyed.
    pub obey: bool,
    /// Ports that do something else.
    pub port: Vec<FlowControlPort>,
}

/// What some ports send and obey, instead of what all do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowControlPort {
    /// Names or patterns of ports; all if there are none.
    #[serde(default)]
    pub ports: Vec<String>,
    /// 802.3x.
    #[serde(default)]
    pub pause: Directions,
    /// 802.1Qbb.
    #[serde(default)]
    pub pfc: Directions,
}

/// Which way pauses go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// None.
    #[default]
    Off,
    /// The peer's are obeyed.
    Rx,
    /// The peer is paused.
    Tx,
    /// Both.
    Both,
}

impl Directions {
    /// Whether the peer is paused.
    pub fn send(self) -> bool {
        matches!(self, Self::Tx | Self::Both)
    }

    /// Whether its pauses are obeyed.
    pub fn obey(self) -> bool {
        matches!(self, Self::Rx | Self::Both)
    }

    /// The ways of who sends, obeys, or does both.
    pub fn of(send: bool, obey: bool) -> Self {
        match (send, obey) {
            (false, false) => Self::Off,
            (false, true) => Self::Rx,
            (true, false) => Self::Tx,
            (true, true) => Self::Both,
        }
    }

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Rx => "rx",
            Self::Tx => "tx",
            Self::Both => "both",
        }
    }
}

/// How ports pause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Not at all.
    #[default]
    Off,
    /// 802.3x.
    Pause,
    /// 802.1Qbb.
    Pfc,
}

/// The watchdog of endless pauses, of PFC and of PAUSE. Names of keys are SONiC's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watchdog {
    /// Whether it runs.
    pub enabled: bool,
    /// How long a queue is stuck before it counts as stormed.
    pub detection_time_milliseconds: u64,
    /// How long the action is in force before its pauses are obeyed again.
    pub restoration_time_milliseconds: u64,
    /// Time between two looks.
    pub poll_interval_milliseconds: u64,
    /// drop, forward or alert.
    pub action: String,
    /// Storms within the window that are tolerated; zero: any number.
    pub storms: u8,
    /// How long a storm counts.
    pub window_milliseconds: u64,
    /// Priorities with times of their own.
    pub priority: Vec<WatchdogPriority>,
}

/// Times of the watchdog for some priorities; those above apply where one is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchdogPriority {
    /// The priorities.
    pub priorities: Vec<u8>,
    /// How long their queues are stuck before they count as stormed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detection_time_milliseconds: Option<u64>,
    /// How long the action is in force then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restoration_time_milliseconds: Option<u64>,
}

/// Packets that lose their payload where they would be dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trim {
    /// What is left of their frames.
    pub size_bytes: u16,
    /// Whether no payload is left of those of RoCEv2, however large the size is.
    pub headers_only: bool,
    /// By DSCP: what it becomes.
    pub trimmable: BTreeMap<String, u8>,
    /// Those of them that are retransmissions.
    pub rtx: Vec<u8>,
    /// Those of packets that are never trimmed, and that no trimmed packet may be taken for.
    pub control: Vec<u8>,
}

/// What hook flows become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// Their priority from here on.
    pub priority: u8,
    /// Their DSCP, so that the next switches do the same.
    pub dscp: u8,
}

/// Some priority groups of some ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Names or patterns of ports; all if there are none.
    #[serde(default)]
    pub ports: Vec<String>,
    /// The groups.
    pub groups: Vec<u8>,
    /// Reserved, in bytes.
    #[serde(default)]
    pub guaranteed_bytes: u32,
    /// Threshold of the whole group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xoff_bytes: Option<u32>,
    /// Or, beyond the guarantee, 2^n times what is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_th: Option<i8>,
    /// For what arrives after xoff.
    #[serde(default)]
    pub headroom: HeadroomSize,
    /// Where a lossless group resumes.
    #[serde(default)]
    pub xon_bytes: u32,
    /// Or so far below the threshold.
    #[serde(default)]
    pub xon_offset_bytes: u32,
}

/// Headroom of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadroomSize {
    /// None: it is not lossless.
    #[default]
    None,
    /// Computed.
    Auto,
    /// This.
    Bytes(u32),
}

impl Serialize for HeadroomSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.serialize_u32(0),
            Self::Auto => serializer.serialize_str("auto"),
            Self::Bytes(bytes) => serializer.serialize_u32(*bytes),
        }
    }
}

impl<'de> Deserialize<'de> for HeadroomSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = HeadroomSize;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of bytes or \"auto\"")
            }

            fn visit_u64<E: serde::de::Error>(self, bytes: u64) -> Result<HeadroomSize, E> {
                match u32::try_from(bytes) {
                    Ok(0) => Ok(HeadroomSize::None),
                    Ok(bytes) => Ok(HeadroomSize::Bytes(bytes)),
                    Err(_) => Err(E::custom(format_args!("{bytes} bytes are too many"))),
                }
            }

            fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<HeadroomSize, E> {
                let bytes = u64::try_from(bytes)
                    .map_err(|_| E::custom(format_args!("{bytes} is no number of bytes")))?;
                self.visit_u64(bytes)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<HeadroomSize, E> {
                match text {
                    "auto" => Ok(HeadroomSize::Auto),
                    _ => Err(E::custom(format_args!(
                        "{text:?} is neither a number of bytes nor \"auto\""
                    ))),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Some queues of some ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Names or patterns of ports; all if there are none.
    #[serde(default)]
    pub ports: Vec<String>,
    /// The queues.
    pub queues: Vec<u8>,
    /// A class of Ultra Ethernet; its recommendations replace keys that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uet: Option<Role>,
    /// Where the class "low" marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uet_marks: Option<Marks>,
    /// Reserved, in bytes.
    #[serde(default)]
    pub guaranteed_bytes: u32,
    /// Nothing is dropped here: the ingress holds back what is too much.
    #[serde(default)]
    pub lossless: bool,
    /// Where it drops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u32>,
    /// Or, beyond the guarantee, 2^n times what is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_th: Option<i8>,
    /// Its share of what strict queues leave; strict without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Most that it may send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// What it may send at once after a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u32>,
    /// Depth that trimmable packets may not make it exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trim_bytes: Option<u32>,
    /// The same for retransmissions; half as much again if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trim_rtx_bytes: Option<u32>,
    /// Marks and early drops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wred: Option<Wred>,
}

/// Where Ultra Ethernet recommends that data are marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Marks {
    /// More and more, from 0.2 to 0.8 × Plane_BDP.
    #[default]
    Line,
    /// All above 0.5 × Plane_BDP.
    Threshold,
}

/// A traffic class of Ultra Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Data.
    Low,
    /// Trimmed packets.
    Med,
    /// Control.
    High,
}

/// Marks and early drops of a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wred {
    /// Depth from which packets are marked.
    pub min_bytes: u32,
    /// Depth from which all are; the same as `min_bytes` for a threshold.
    pub max_bytes: u32,
    /// Percentage that is marked just below `max_bytes`.
    #[serde(default = "all")]
    pub probability_percent: f64,
    /// When the depth is looked at.
    #[serde(default)]
    pub mark_at: MarkAt,
    /// Packets of senders that understand marks are marked.
    #[serde(default = "yes")]
    pub ecn: bool,
    /// Packets of the others are dropped; if left out, only in queues that are not lossless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<bool>,
    /// The depth is an average that moves by 2^-n with each packet; zero: the depth itself.
    #[serde(default)]
    pub average_exponent: u8,
}

/// When the depth is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkAt {
    /// When a packet comes.
    Enqueue,
    /// When it leaves: the mark is not as old as the queue.
    #[default]
    Dequeue,
}

/// A class whose elephants go to a lower queue (SW-17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elephants {
    /// The class whose flows are followed.
    pub from: u8,
    /// The queue of its elephants.
    pub to: u8,
    /// What a flow may send beyond its rate before it is an elephant.
    pub bytes: u64,
    /// Rate that a mouse may keep up without end.
    #[serde(default)]
    pub rate: Rate,
    /// A flow that sends nothing for so long is forgotten.
    #[serde(default = "ageing")]
    pub ageing_milliseconds: u64,
    /// When a flow that has become an elephant moves.
    #[serde(default)]
    pub moves: Moves,
}

/// When a flow that has become an elephant moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moves {
    /// At once; its packets wait in the lower queue for those before them.
    #[default]
    Gated,
    /// When no packet of it is left in the queue.
    Drained,
}

fn ageing() -> u64 {
    10
}

fn all() -> f64 {
    100.0
}

fn yes() -> bool {
    true
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            trust: Trust::Dscp,
            queue_depth_bytes: 1 << 20,
            base_rtt_microseconds: 12,
            plane_speed: None,
            priority_of_dscp: BTreeMap::new(),
            priority_of_pcp: BTreeMap::new(),
            class_of_priority: BTreeMap::new(),
            group_of_priority: BTreeMap::new(),
            buffer: Buffer::default(),
            headroom: Headroom::default(),
            flow_control: FlowControl::default(),
            watchdog: Watchdog::default(),
            trim: Trim::default(),
            hook: None,
            group: Vec::new(),
            queue: Vec::new(),
            elephants: Vec::new(),
            aiecn: AiEcn::default(),
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            size_bytes: 4 << 20,
            shared_headroom_bytes: 0,
            ingress_limit_bytes: 0,
            egress_limit_bytes: 0,
        }
    }
}

impl Default for Trim {
    fn default() -> Self {
        Self {
            size_bytes: SIZE_DEFAULT,
            headers_only: false,
            trimmable: BTreeMap::new(),
            rtx: Vec::new(),
            control: Vec::new(),
        }
    }
}

impl Default for Headroom {
    fn default() -> Self {
        Self {
            cable_metres: 5,
            cable_delay_nanoseconds: 0,
            peer: Peer::Hardware,
            peer_response_nanoseconds: 0,
            peer_backlog_bytes: 0,
            shortest_frame_bytes: 60,
            poll_gap_microseconds: 100,
            announced_percent: 25,
            port: Vec::new(),
        }
    }
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            enabled: true,
            detection_time_milliseconds: 200,
            restoration_time_milliseconds: 400,
            poll_interval_milliseconds: 100,
            action: "drop".to_owned(),
            storms: 8,
            window_milliseconds: 60_000,
            priority: Vec::new(),
        }
    }
}

impl Default for FlowControl {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            priorities: Vec::new(),
            quanta: u16::MAX,
            send: true,
            obey: true,
            port: Vec::new(),
        }
    }
}
