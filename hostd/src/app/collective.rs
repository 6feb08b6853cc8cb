//! Memberships of applications in jobs that switches compute for.

use super::ledger::Resource;
use super::opening::keep;
use super::refusal::Refusal;
use super::session::{Outcome, Session, ring_bytes, rounded};
use crate::edge::command::{NewMember, SessionCommand};
use hostd_client::abi::answer::Reply;
use hostd_client::abi::collective::JoinJob;
use hostd_client::abi::descriptor::{WORK_ENTRIES_MIN, WORK_LEN};
use hostd_client::abi::ring::ring_entries;
use hostd_client::abi::types::ErrorCode;
use std::os::fd::OwnedFd;

impl Session {
    /// The switch that members ask.
    pub(super) async fn leaf(&self) -> Outcome {
        let leaf = self.ask(SessionCommand::QueryLeaf).await?;
        Ok((Reply::Leaf(leaf), Vec::new()))
    }

    /// Its doorbell is one of those of queue pairs. Results that wait for their turn count as
    /// memory.
    pub(super) async fn join_job(&mut self, join: JoinJob, memfd: &OwnedFd) -> Outcome {
        let JoinJob {
            cq,
            entries,
            membership,
        } = join;
        let entries = rounded(entries)?;
        let places = ring_entries(entries, WORK_ENTRIES_MIN);
        let staging = u64::from(membership.slots) * u64::from(membership.payload);
        let opener = self.opener(&[
            (Resource::Memory, ring_bytes(places, WORK_LEN) + staging),
            (Resource::Memberships, 1),
            (Resource::WorkRequests, entries.into()),
            (Resource::Mappings, 1),
        ])?;
        let slot = self.free_slot()?;
        let ring = opener.open_ring::<WORK_LEN>("ring of collectives", memfd, places);
        let (ring, opener) = ring.await?;
        let request = Box::new(NewMember {
            cq,
            ring: ring.consumer(),
            entries,
            membership,
            slot,
        });
        let join = |answer| SessionCommand::JoinJob(request, answer);
        let joined = self.ask(join).await.map_err(explain);
        let (handle, claim) = keep(joined, ring, opener).await?;
        self.slots.insert(slot);
        self.members.insert(handle, (slot, claim));
        let reply = Reply::Member {
            handle,
            slot,
            entries: places,
        };
        Ok((reply, Vec::new()))
    }
}

/// Says more than the engine does.
fn explain(refusal: Refusal) -> Refusal {
    let text = match refusal.code {
        ErrorCode::InvalidState => {
            "hostd takes part in no collectives of switches: collective.leaf is not set"
        }
        ErrorCode::InUse => "another application of this host has the rank in this job",
        ErrorCode::Quota => {
            "there are as many memberships as may be, or their results have no room \
             (collective.memberships, collective.staging_mib)"
        }
        ErrorCode::InvalidArgument => "there can be no such member of a job",
        _ => return refusal,
    };
    Refusal::new(refusal.code, text)
}
