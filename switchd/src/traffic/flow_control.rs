//! Flow control of an egress port, both ways: pauses from its peer are obeyed, and its peer is
//! paused.
//!
//! ```text
//!   MAC control frame ─▶ owner of the port ─▶ pfc_rx ─▶ queues stopped until it ends
//!   group over its threshold ─▶ news ─▶ owner of the port ─▶ PFC frame, before everything else
//! ```

use crate::drop::DropReason;
use crate::id::PortId;
use crate::limits::{CONTROL_FRAMES, PRIORITIES};
use crate::stats::PortStats;
use crate::tables::policy::{FlowControl, Policy};
use crate::traffic::pfc_tx::PfcSender;
use common::flow_control::{Malformed, PfcReceiver, is_control};
use common::time::Time;
use common::units::Rate;
use common::wire::ethernet::{self, Mac};
use common::wire::pause::Control;

/// What a port knows of pauses, both ways.
#[derive(Debug, Default)]
pub struct Pauses {
    /// What its peer asked for.
    pub pfc_rx: PfcReceiver,
    /// What its peer was asked for.
    pub(super) sender: PfcSender,
    flow_control: FlowControl,
    /// The speed of the link, which quanta are counted at (IEEE 802.3 annex 31B.2); without one
    /// there is no flow control.
    speed: Option<Rate>,
    /// When the first pause that is obeyed now ends.
    over_at: Time,
    /// Bit n: class n is held by an operator.
    pub(super) held: u8,
    /// Bit n: PFC is off for priority n until an operator turns it on.
    pub(crate) off: u8,
}

/// What a port does about a peer whose pauses may have to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseStep {
    /// No frame is due.
    Nothing,
    /// No frame is due, but the time of the next one has changed.
    Replanned,
    /// A frame is due, as soon as the device has room, that pauses exactly these priorities (bit n:
    /// priority n).
    Send(u8),
}

impl Pauses {
    /// Follows the policy.
    pub(super) fn configure(
        &mut self,
        policy: &Policy,
        port: PortId,
        speed: Option<Rate>,
        now: Time,
    ) {
        self.speed = speed;
        self.flow_control = match policy.ports.get(port.index()) {
            Some(port) if speed.is_some() => port.flow_control,
            _ => FlowControl::Off,
        };
        let (obeyed, link) = match self.flow_control {
            FlowControl::Off => (0, false),
            FlowControl::Pause { obey, .. } => (0, obey),
            FlowControl::Pfc { obey, .. } => (obey, false),
        };
        self.pfc_rx.configure(obeyed, link, now);
    }

    /// Whether any priority can be paused by the peer.
    pub(super) fn obeys(&self) -> bool {
        self.flow_control.obeys() != 0
    }

    /// Places in the transmit ring that are kept free of packets: a pause must not wait for the
    /// next turn because the ring is full of short frames.
    #[inline]
    pub(super) fn reserved(&self) -> usize {
        if self.flow_control.sends() == 0 {
            0
        } else {
            CONTROL_FRAMES
        }
    }

    /// Takes a control frame of the peer.
    pub(super) fn take(&mut self, control: &Control, now: Time) {
        if let Some(speed) = self.speed {
            self.pfc_rx.receive(control, now, speed);
        }
    }

    /// The classes that may send nothing at `now`, until [`Self::over_at`] or the next change.
    pub(super) fn stopped(&mut self, policy: &Policy, now: Time) -> u8 {
        self.over_at = self.pfc_rx.next_expiry(now);
        let paused = self.pfc_rx.mask(now);
        if paused == 0 {
            return self.held;
        }
        self.held | mapped(paused, &policy.classify.class_of_priority)
    }

    /// The step after which the peer pauses exactly the priorities of `wanted`. `is_up`: the link
    /// is up.
    pub(super) fn next_step(&mut self, wanted: u8, is_up: bool, now: Time) -> PauseStep {
        let wanted = wanted & !self.off;
        let Some(speed) = self.speed else {
            return PauseStep::Nothing;
        };
        if !self.sender.is_due(wanted, self.flow_control, now) {
            return PauseStep::Nothing;
        }
        if self.flow_control == FlowControl::Off {
            // It was turned off while the peer waited: that ends by itself.
            self.sender.next(wanted, FlowControl::Off, speed, now);
            return PauseStep::Replanned;
        }
        if !is_up {
            self.sender.reset();
            return PauseStep::Replanned;
        }
        PauseStep::Send(wanted)
    }

    /// The frame of [`PauseStep::Send`]. It counts as sent.
    pub(super) fn next_frame(&mut self, wanted: u8, now: Time) -> Option<Control> {
        self.sender
            .next(wanted, self.flow_control, self.speed?, now)
    }

    /// Brings what control reads of the pauses up to date.
    pub(super) fn show(&self, stats: &PortStats, now: Time) {
        let (pfc_rx, sent) = (&self.pfc_rx, &self.sender.count);
        stats.pauses_at.set(now.nanos());
        stats.held.set(u64::from(self.held));
        for (priority, stats) in stats.pauses.iter().enumerate() {
            let received = pfc_rx.pfc_counters(priority);
            stats.received_xoff.set(received.pausing);
            stats.received_xon.set(received.resuming);
            stats.ignored.set(received.ignored);
            stats.sent_xoff.set(sent.xoff[priority]);
            stats.sent_xon.set(sent.xon[priority]);
            stats.paused_nanos.set(pfc_rx.paused_total(priority, now));
            let until = pfc_rx.paused_until(priority);
            stats.paused_until.set(until.nanos());
        }
        let link = pfc_rx.pause_counters();
        let counts = [link.pausing + link.resuming, sent.pause, link.ignored];
        for (stats, count) in stats.link_pauses.iter().zip(counts) {
            stats.set(count);
        }
    }

    /// The priorities whose pauses have to be measured (bit n: priority n): those that are obeyed.
    /// A PAUSE of the link pauses all alike, so one stands for all.
    pub fn to_measure(&self) -> u8 {
        match self.flow_control {
            FlowControl::Pfc { obey, .. } => obey,
            FlowControl::Pause { obey, .. } => u8::from(obey),
            FlowControl::Off => 0,
        }
    }

    /// When a pause ends.
    pub(super) fn over_at(&self) -> Time {
        self.over_at
    }
}

/// Bit c is set for each c that `map` makes of a priority in `mask`.
pub(super) fn mapped(mask: u8, map: &[u8; PRIORITIES]) -> u8 {
    (0..PRIORITIES)
        .filter(|priority| mask & 1 << priority != 0)
        .fold(0, |all, priority| all | 1 << (map[priority] & 7))
}

/// Parses a MAC control frame that arrived at a port with the MAC address `own`.
///
/// # Errors
/// [`DropReason::OtherMac`] if it is for another station, [`DropReason::Malformed`] behind a VLAN
/// tag, and the reason of what it lacks otherwise.
pub fn read(frame: &[u8], own: [u8; 6]) -> Result<Control, DropReason> {
    if frame.len() >= ethernet::HEADER_LEN && !is_control(frame) {
        // A VLAN tag before it: MAC control has none (IEEE 802.3 clause 31.4).
        return Err(DropReason::Malformed);
    }
    common::flow_control::read(frame, Some(Mac(own))).map_err(|why| match why {
        Malformed::Address => DropReason::OtherMac,
        Malformed::Length => DropReason::ControlLength,
        Malformed::Opcode => DropReason::ControlOpcode,
        Malformed::Vector => DropReason::ControlVector,
    })
}
