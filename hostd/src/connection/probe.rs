//! Probes of silent peers, in packets.
//!
//! The probe is an empty RDMA WRITE under the number of the last packet that the peer has
//! acknowledged. Every responder of reliable connections takes it for a repetition: it answers and
//! changes nothing (InfiniBand 9.7.5.1.3), also when nothing was ever sent. So a probe takes no
//! place in a queue and no sequence number, and can be sent to a plain RoCEv2 peer.

use super::QueuePair;
use super::transmit::Departure;
use crate::frame::{self, timestamp};
use crate::send::awaited::Awaited;
use crate::verbs::{PortSet, Status};
use common::time::Time;
use common::wire::roce::{Bth, Headers, Mpeh, Opcode, Operation, Reth};
use common::xdp::frame::FramePool;

impl QueuePair {
    /// The peer may be gone: it is probed now.
    pub(crate) fn suspect(&mut self) {
        if self.state.sends() && self.is_routed() {
            self.pulse.suspect();
        }
    }

    /// When the silence of the peer has to be looked at.
    pub(super) fn pulse_deadline(&self) -> Time {
        if self.state.sends() {
            self.pulse.deadline()
        } else {
            Time::NEVER
        }
    }

    /// Looks at the silence of the peer.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn watch_silence(&mut self, now: Time) -> Result<(), Status> {
        let (requester, sends) = (&self.requester, self.state.sends());
        let Some(sender) = requester.sender.as_ref().filter(|_| sends) else {
            return Ok(());
        };
        let awaits = requester.awaited.as_ref();
        let answered = awaits.is_none_or(Awaited::is_empty);
        self.pulse
            .expire(!(sender.flight().is_idle() && answered), now)?;
        if self.pulse.is_due() && !self.is_routed() {
            // Without a way it comes as far as one that the network swallows.
            self.pulse.left(0, now);
        }
        Ok(())
    }

    /// The probe that is due, through one of the `free` ports.
    pub(super) fn transmit_probe(
        &mut self,
        free: PortSet,
        pool: &mut FramePool,
        now: Time,
    ) -> Departure {
        let (Some(peer), Some(sender)) = (&mut self.peer, &self.requester.sender) else {
            return Departure::Nothing;
        };
        let avoided = self.pulse.failed();
        let Some(choice) = peer.steering.choose(free, (0, true), avoided, now) else {
            return Departure::Nothing;
        };
        let Some(addressing) = peer.ways.of(choice.port) else {
            return Departure::Nothing;
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        let operation = Operation::WriteOnly;
        let opcode = match peer.agreed {
            Some(_) => Opcode::Multipath(operation),
            None => Opcode::Rc(operation),
        };
        let psn = sender.flight().unacknowledged().minus(1);
        let mut bth = Bth::new(opcode, peer.qpn, psn.value());
        bth.ack_request = true;
        let mut headers = Headers::new(bth);
        headers.reth = Some(Reth {
            address: 0,
            rkey: 0,
            len: 0,
        });
        headers.mpeh = peer.agreed.map(|_| Mpeh {
            path: choice.path.path,
            flags: 0,
            flowlet: choice.path.flowlet,
            tag: timestamp(now),
        });
        peer.label(&mut headers);
        let entropy = match peer.agreed {
            Some(_) => choice.entropy,
            // A plain peer has one path; each probe that is not answered takes another way.
            None => peer.steering.detour(self.pulse.unanswered()),
        };
        let flow = frame::on_path(&addressing.data, entropy.port, entropy.flow_label);
        let written = frame::lay_out(&mut frame, pool, &flow, &headers, 0);
        if written.is_none() || frame::seal(frame.bytes_mut()).is_err() {
            pool.give(frame);
            return Departure::Nothing;
        }
        self.pulse.left(choice.path.entropy, now);
        self.counters.keep_alives += 1;
        Departure::Frame(frame, choice.port)
    }
}
