//! The next hops of all packets of a batch.

use super::Batch;
use crate::forward::choice::{choose, choose_by};
use crate::forward::dlb::balancer::Balancer;
use crate::forward::ecmp;
use crate::tables::Tables;
use common::time::Time;

impl Batch {
    /// Chooses the next hops of all lanes.
    pub fn choose(&mut self, tables: &Tables, balancer: &mut Balancer, now: Time) {
        self.hashes.clear();
        if tables.dlb.is_on() || !tables.traffic.elephants.is_empty() {
            let lanes = self.lanes.iter().zip(&self.parsed);
            self.hashes.extend(lanes.map(|((frame, _), parsed)| {
                ecmp::flow_hash(frame.bytes(), parsed, &tables.hashing)
            }));
        }
        if tables.dlb.is_on() {
            return self.balance(tables, balancer, now);
        }
        let mut hashes = self.hashes.iter();
        let lanes = self.lanes.iter().zip(&self.parsed).zip(&self.groups);
        self.choices.extend(
            lanes.map(|(((frame, _), parsed), group)| match hashes.next() {
                Some(hash) => choose_by(tables, *group, || *hash, now),
                None => choose(tables, *group, (frame.bytes(), parsed), now),
            }),
        );
    }

    /// As `choose`, where some groups look at more than the hash. First all entries of the flow
    /// table are fetched, so that the waits for them overlap.
    fn balance(&mut self, tables: &Tables, balancer: &mut Balancer, now: Time) {
        self.flows.clear();
        let lanes = self.lanes.iter().zip(&self.parsed);
        let lanes = lanes.zip(self.groups.iter().zip(&self.hashes));
        self.flows
            .extend(lanes.map(|(((frame, _), parsed), (group, hash))| {
                balancer.flow(tables, *group, (frame.bytes(), parsed), *hash)
            }));
        let lanes = self.groups.iter().zip(&self.hashes).zip(&self.flows);
        let choices = lanes.map(|((group, hash), flow)| match flow {
            Some(flow) => balancer.choose(tables, *flow, now),
            None => choose_by(tables, *group, || *hash, now),
        });
        self.choices.extend(choices);
    }
}
