//! Operators of hosts, who change connections that carry data (HT-32).

use super::state::Simulation;
use crate::network::NodeId;
use hostd::verbs::{Granularity, MultipathChange, MultipathState};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// A number below `n`, which is at most 256.
fn below(random: &mut Pcg64Mcg, n: usize) -> u8 {
    let product = u64::from(random.next_u32()) * n as u64;
    u8::try_from(product >> 32).expect("at most 255")
}

/// A change that is possible as the connection stands.
fn draw(random: &mut Pcg64Mcg, stands: &MultipathState) -> MultipathChange {
    let mut change = MultipathChange::default();
    let path = below(random, usize::from(stands.agreed.paths));
    let in_force = stands.in_force.contains(path);
    match below(random, 4) {
        0 => {
            let granularity = below(random, Granularity::ALL.len());
            change.granularity = Some(Granularity::ALL[usize::from(granularity)]);
        }
        1 if in_force => change.weights = vec![(path, 1 + below(random, 10))],
        _ if !in_force => change.add.insert(path),
        _ if stands.in_force.count() > 1 => change.remove.insert(path),
        _ => change.granularity = Some(Granularity::Packet),
    }
    change
}

impl<const BYTES: bool> Simulation<BYTES> {
    /// The operator of a host changes one of its connections, unless the peer has still to answer
    /// the change before.
    pub(super) fn change_paths(&mut self, node: NodeId) {
        let host = self.fabric.host(node);
        let Some(worker) = host.worker() else { return };
        let engine = worker.engine();
        let ready = engine.queue_pairs().filter_map(|qpn| {
            let stands = engine.multipath_state(qpn)?;
            Some((qpn, stands)).filter(|_| stands.agreed.changes && !stands.pending)
        });
        let ready: Vec<_> = ready.take(256).collect();
        if ready.is_empty() {
            return;
        }
        let chosen = below(&mut self.operators, ready.len());
        let (qpn, stands) = &ready[usize::from(chosen)];
        let change = draw(&mut self.operators, stands);
        if let Some(app) = host.app() {
            app.change(*qpn, change);
        }
        self.fabric.rouse(node);
    }
}
