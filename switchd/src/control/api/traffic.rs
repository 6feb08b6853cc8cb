//! Reports of the traffic manager: buffer, priority groups, headroom, flow control, events.

use serde::{Deserialize, Serialize};

/// Cells, and as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Cells.
    pub cells: u64,
    /// The same in bytes.
    pub bytes: u64,
}

/// The buffer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BufferReport {
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Its regions.
    pub regions: Vec<RegionRow>,
    /// What its packets take by port.
    pub ports: Vec<PortUsageRow>,
}

/// A region of the buffer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegionRow {
    /// `all`, and as ingress accounts it `guaranteed`, `service`, `headroom`; as egress does
    /// `egress_guaranteed`, `egress_service`.
    pub region: String,
    /// Its size.
    pub size: Amount,
    /// In use now.
    pub used: Amount,
    /// Most since the watermarks were cleared; `null`: not watched.
    pub watermark: Option<Amount>,
    /// In use of its size, in percent.
    pub percent: f64,
}

/// What packets of a port take.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortUsageRow {
    /// Interface.
    pub port: String,
    /// Packets that arrived there.
    pub ingress: Amount,
    /// Most of that since the watermarks were cleared.
    pub ingress_watermark: Amount,
    /// The limit; `null`: none of its own.
    pub ingress_limit: Option<Amount>,
    /// Packets that will leave there.
    pub egress: Amount,
    /// Most of that since the watermarks were cleared.
    pub egress_watermark: Amount,
    /// The limit; `null`: none of its own.
    pub egress_limit: Option<Amount>,
}

/// A priority group of an ingress port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PriorityGroupRow {
    /// Interface.
    pub port: String,
    /// Its number.
    pub group: u8,
    /// Priorities that are charged to it.
    pub priorities: Vec<u8>,
    /// Its peer is paused before anything is dropped.
    pub lossless: bool,
    /// What nobody else may use.
    pub guaranteed: Amount,
    /// In use now, headroom excepted.
    pub used: Amount,
    /// Most of that since the watermarks were cleared.
    pub watermark: Amount,
    /// Headroom in use now.
    pub headroom: Amount,
    /// Most of that since the watermarks were cleared.
    pub headroom_watermark: Amount,
    /// Headroom that it may use.
    pub headroom_limit: Amount,
    /// Where it pauses its peer, or drops, now; `null`: it has no threshold of its own.
    pub xoff: Option<Amount>,
    /// Where its peer may resume now; `null`: the group never pauses it.
    pub xon: Option<Amount>,
    /// Its peer is asked to pause now.
    pub xoff_now: bool,
}

impl PriorityGroupRow {
    /// It is worth showing: not plain, or it took some of the buffer.
    pub fn is_remarkable(&self) -> bool {
        let cells = [
            self.guaranteed,
            self.watermark,
            self.used,
            self.headroom_watermark,
        ];
        self.lossless || cells.iter().any(|amount| amount.cells > 0)
    }
}

/// What the headroom of a port's lossless groups is made of, where it is computed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeadroomRow {
    /// Interface.
    pub port: String,
    /// The part; `all` for their sum.
    pub term: String,
    /// Bytes that arrive on the wire.
    pub wire_bytes: u64,
    /// What they take of the buffer at worst.
    pub headroom: Amount,
    /// Where the numbers of the peer are from; empty for the other parts.
    #[serde(default)]
    pub origin: String,
}

/// Pauses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PfcReport {
    /// By port.
    pub ports: Vec<PfcPort>,
    /// By port and priority.
    pub priorities: Vec<PfcPriority>,
}

/// Pauses of a port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PfcPort {
    /// Interface.
    pub port: String,
    /// `off`, `pause` (802.3x) or `pfc` (802.1Qbb).
    pub mode: String,
    /// Which way pauses go: `off`, `rx` (obeyed), `tx` (sent) or `both`.
    #[serde(default)]
    pub directions: String,
    /// Length of the pauses that are sent, in quanta.
    pub quanta: Option<u16>,
    /// Speed of the link, which quanta are counted at; `null`: not known.
    #[serde(default)]
    pub link_speed: Option<String>,
    /// `software`: switchd sends and obeys; `mac-managed`: the device may keep the frames of the
    /// peer for itself; `unavailable`.
    pub capability: String,
    /// Why.
    pub reason: String,
    /// PAUSE frames received.
    pub pause_received: u64,
    /// PAUSE frames sent.
    pub pause_sent: u64,
    /// PAUSE frames received but not obeyed.
    pub pause_ignored: u64,
    /// MAC control frames received in all.
    pub control_received: u64,
    /// MAC control frames sent in all.
    pub control_sent: u64,
}

/// Pauses of a priority of a port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PfcPriority {
    /// Interface.
    pub port: String,
    /// The priority.
    pub priority: u8,
    /// The peer is paused when a group of it is full.
    pub sends: bool,
    /// The peer's pauses are obeyed.
    pub obeys: bool,
    /// PFC frames received that pause it.
    pub received_xoff: u64,
    /// PFC frames received that let it go on.
    pub received_xon: u64,
    /// PFC frames received that name it but are not obeyed.
    pub ignored: u64,
    /// PFC frames sent that pause it at the peer.
    pub sent_xoff: u64,
    /// PFC frames sent that let it go on there.
    pub sent_xon: u64,
    /// How long it was paused.
    pub paused_milliseconds: f64,
    /// It is paused now.
    pub paused: bool,
}

impl PfcPriority {
    /// It is worth showing: it takes part in flow control, or did.
    pub fn is_remarkable(&self) -> bool {
        let counts = [
            self.received_xoff,
            self.received_xon,
            self.ignored,
            self.sent_xoff,
            self.sent_xon,
        ];
        self.sends || self.obeys || self.paused || counts.iter().any(|count| *count > 0)
    }
}

/// A priority of a port under the watchdog.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WatchdogRow {
    /// Interface.
    pub port: String,
    /// The priority.
    pub priority: u8,
    /// operational, stormed or off.
    pub state: String,
    /// What is done about a storm; `null`: the watchdog is off.
    pub action: Option<String>,
    /// Storms found.
    pub storms: u64,
    /// Storms that ended.
    pub restored: u64,
    /// Seconds since the last storm was found.
    pub last_storm_seconds: Option<f64>,
    /// A pause of the peer holds its queue now; not while the action against a storm is in force.
    pub paused_now: bool,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in seconds since 1970 (UTC); filled in when it is noted.
    pub time: f64,
    /// What kind of thing.
    pub kind: EventKind,
    /// How much it matters.
    #[serde(default)]
    pub severity: Severity,
    /// What, in a sentence.
    pub text: String,
    /// Interface, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Priority, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Priority group, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u8>,
    /// Egress queue, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u8>,
}

/// How much an event matters, and at which level it is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It belongs to the work of a switch.
    #[default]
    Info,
    /// Packets may suffer, or an operator wants to know.
    Warning,
    /// Something that was asked for is not done.
    Error,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A lossless group is over its threshold: its peer is asked to wait.
    Xoff,
    /// It has been below its threshold for a second.
    Xon,
    /// A region of the buffer is nearly full.
    BufferHigh,
    /// It is not any more.
    BufferLow,
    /// The configuration was read again and put in force.
    #[default]
    Reload,
    /// It was read again and refused.
    ReloadRefused,
    /// An operator holds a queue.
    Hold,
    /// An operator released it.
    Release,
    /// The peer of a port pauses a priority without end.
    Storm,
    /// The peer is obeyed again.
    Restored,
    /// Flow control was turned off after too many storms.
    PfcOff,
    /// It was turned on again.
    PfcOn,
    /// All packets of a port are left to the kernel, or are not any more.
    Punt,
    /// The workers of a port took no packets for too long, and the kernel got them.
    Takeover,
    /// They take packets again.
    TakeoverOver,
    /// An interface became a port, or is none any more, or has another name or speed.
    Port,
    /// The link of a port came up.
    LinkUp,
    /// The link of a port went down.
    LinkDown,
    /// A station of a bridge moves between ports.
    StationMoves,
    /// Bridges know more stations than there is room for.
    FdbFull,
    /// There is room for all again.
    FdbRoom,
    /// Marking thresholds follow the traffic.
    Thresholds,
    /// Congestion notifications of a flow are missing, and are made; or not any more.
    Iqcn,
    /// A job of in-network compute runs, is over, or was refused, or a member of one was.
    Compute,
    /// Headroom follows what the peer of a port says of itself.
    Headroom,
}

impl EventKind {
    /// How much an event of this kind matters, unless more is known of it.
    pub const fn severity(self) -> Severity {
        match self {
            Self::ReloadRefused | Self::Takeover | Self::PfcOff => Severity::Error,
            Self::Storm | Self::LinkDown | Self::StationMoves | Self::FdbFull => Severity::Warning,
            Self::Xoff
            | Self::Xon
            | Self::BufferHigh
            | Self::BufferLow
            | Self::Reload
            | Self::Hold
            | Self::Release
            | Self::Restored
            | Self::PfcOn
            | Self::Punt
            | Self::TakeoverOver
            | Self::Port
            | Self::LinkUp
            | Self::FdbRoom
            | Self::Thresholds
            | Self::Iqcn
            | Self::Compute
            | Self::Headroom => Severity::Info,
        }
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xoff => "xoff",
            Self::Xon => "xon",
            Self::BufferHigh => "buffer_high",
            Self::BufferLow => "buffer_low",
            Self::Reload => "reload",
            Self::ReloadRefused => "reload_refused",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Storm => "storm",
            Self::Restored => "restored",
            Self::PfcOff => "pfc_off",
            Self::PfcOn => "pfc_on",
            Self::Punt => "punt",
            Self::Takeover => "takeover",
            Self::TakeoverOver => "takeover_over",
            Self::Port => "port",
            Self::LinkUp => "link_up",
            Self::LinkDown => "link_down",
            Self::StationMoves => "station_moves",
            Self::FdbFull => "fdb_full",
            Self::FdbRoom => "fdb_room",
            Self::Thresholds => "thresholds",
            Self::Iqcn => "iqcn",
            Self::Compute => "compute",
            Self::Headroom => "headroom",
        }
    }
}
