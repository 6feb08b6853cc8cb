//! Queues and links over time.

use super::fabric::{Fabric, Node};
use super::network::Plan;
use common::time::{Span, Time};

/// Values that all series together hold at most; more than that, and every other sample is given
/// up.
const VALUES: usize = 8 << 20;

/// Samples of one series at most, and at least whatever there is to sample.
const MOST: usize = 4096;
const LEAST: usize = 64;

/// One direction of a link over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Bytes in the queues of the port that it begins at.
    pub depth: Vec<u32>,
    /// Picoseconds that it was busy until then.
    pub busy: Vec<u64>,
}

/// What was seen at regular times.
#[derive(Clone, Debug)]
pub struct Samples {
    interval: Span,
    most: usize,
    /// Times of the samples, after the start of the workload.
    pub times: Vec<Span>,
    /// By wire.
    pub wires: Vec<Series>,
}

impl Samples {
    /// No sample yet; one each `interval` is wanted.
    pub fn new(plan: &Plan, interval: Span) -> Self {
        let wires = 2 * plan.links.len();
        Self {
            interval,
            most: (VALUES / wires.max(1)).clamp(LEAST, MOST),
            times: Vec::new(),
            wires: vec![Series::default(); wires],
        }
    }

    /// Time until the next sample.
    pub fn interval(&self) -> Span {
        self.interval
    }

    /// Takes a sample.
    pub fn take<const BYTES: bool>(&mut self, fabric: &Fabric<BYTES>, began: Time) {
        if self.times.len() >= self.most {
            self.thin_out();
        }
        self.times.push(fabric.now().since(began));
        for (series, wire) in self.wires.iter_mut().zip(&fabric.wires) {
            let depth = match &fabric.nodes[wire.from.node.index()] {
                Node::Switch(switch) => {
                    let port = &switch.stats().ports[usize::from(wire.from.port)];
                    port.queues
                        .iter()
                        .map(|queue| queue.depth_bytes.get())
                        .sum()
                }
                Node::Host(_) | Node::Tester(_) => 0,
            };
            series.depth.push(u32::try_from(depth).unwrap_or(u32::MAX));
            series.busy.push(wire.count.busy);
        }
    }

    fn thin_out(&mut self) {
        self.interval = self.interval.times(2);
        every_other(&mut self.times);
        for series in &mut self.wires {
            every_other(&mut series.depth);
            every_other(&mut series.busy);
        }
    }

    /// The deepest that the queue at the beginning of a wire was seen.
    pub fn deepest(&self, wire: usize) -> u32 {
        self.wires[wire].depth.iter().copied().max().unwrap_or(0)
    }

    /// Part of the time that a wire was busy between samples, from zero to one; the first is at the
    /// second sample.
    #[expect(clippy::cast_precision_loss, reason = "a figure to show")]
    pub fn utilisation(&self, wire: usize) -> Vec<f64> {
        let busy = self.wires[wire].busy.windows(2);
        let times = self.times.windows(2);
        busy.zip(times)
            .map(|(busy, times)| {
                let span = (times[1] - times[0]).nanos() * 1000;
                // A frame counts when it begins to be sent, so one may count too early.
                ((busy[1] - busy[0]) as f64 / span.max(1) as f64).min(1.0)
            })
            .collect()
    }
}

fn every_other<T: Copy>(values: &mut Vec<T>) {
    let kept: Vec<T> = values.iter().copied().step_by(2).collect();
    *values = kept;
}
