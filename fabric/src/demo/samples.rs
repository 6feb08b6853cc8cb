//! Samples of a queue and of the pauses while hosts send, and the series made from them.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::topology::NodeRole;
use lab::{Lab, LabError, Topology};
use switchd::control::api::{Answer, PfcReport, PriorityGroupRow, QueueRow, Topic};

/// Between two looks at the queue: a fraction of the time that it takes from xoff to xon, so that
/// the teeth are seen.
const LOOK: Duration = Duration::from_millis(25);

/// Looks at the queue for one at the pauses, which asks every switch.
const TURNS: u32 = 4;

/// Rates are those of this time at least: shorter, the few packets or frames in it jump.
const MARKS: Duration = Duration::from_millis(100);
const PAUSES: Duration = Duration::from_millis(300);

/// Points of a line: seconds, and a value.
pub(super) type Points = Vec<(f64, f64)>;

/// The queue at a moment; packets are counted since the switch was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Depth {
    at: Duration,
    bytes: u64,
    sent: u64,
    marked: u64,
}

impl Depth {
    fn of(at: Duration, row: &QueueRow) -> Depth {
        Depth {
            at,
            bytes: row.depth_bytes,
            sent: row.sent_packets,
            marked: row.marked_packets,
        }
    }
}

/// Who has a peer paused: a switch, and the port to the peer, which is named after it.
pub(super) type Direction = (String, String);

/// Frames that pause a peer, by way and priority, since the switch was started.
pub(super) type Pauses = BTreeMap<(Direction, u8), u64>;

/// Adds what a switch says of its pauses; ways without any are left out.
fn add(pauses: &mut Pauses, switch: &str, pfc: &PfcReport) {
    for row in pfc.priorities.iter().filter(|row| row.sent_xoff > 0) {
        let way = (switch.to_owned(), row.port.clone());
        pauses.insert((way, row.priority), row.sent_xoff);
    }
}

/// What was seen of a fabric.
#[derive(Debug, Default)]
pub(super) struct Series {
    depths: Vec<Depth>,
    pauses: Vec<(Duration, Pauses)>,
}

impl Series {
    /// Bytes in the queue.
    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    pub(super) fn depth(&self) -> Points {
        let depths = self.depths.iter();
        depths
            .map(|depth| (depth.at.as_secs_f64(), depth.bytes as f64))
            .collect()
    }

    /// Packets a second that have left the queue with a mark, and without one.
    pub(super) fn marked(&self) -> [Points; 2] {
        // The counters move while they are read.
        [
            |it: &Depth| it.marked,
            |it: &Depth| it.sent.saturating_sub(it.marked),
        ]
        .map(|count| rates(self.depths.iter().map(|it| (it.at, count(it))), MARKS))
    }

    /// Pauses as they were counted last.
    pub(super) fn all_pauses(&self) -> Pauses {
        self.pauses
            .last()
            .map_or_else(Pauses::new, |(_, all)| all.clone())
    }

    /// Frames a second that pause a peer, by the name that `name` gives to a way; a way without any
    /// has no line.
    pub(super) fn paused(&self, name: impl Fn(&Direction) -> String) -> BTreeMap<String, Points> {
        let names: std::collections::BTreeSet<String> =
            self.all_pauses().keys().map(|(way, _)| name(way)).collect();
        let line = |wanted: String| {
            let of = |pauses: &Pauses| {
                let own = pauses.iter().filter(|((way, _), _)| name(way) == wanted);
                own.map(|(_, frames)| frames).sum()
            };
            let counts = self.pauses.iter().map(|(at, pauses)| (*at, of(pauses)));
            let points = rates(counts, PAUSES);
            (wanted, points)
        };
        names.into_iter().map(line).collect()
    }

    /// When the last look was.
    pub(super) fn end(&self) -> Duration {
        self.depths.last().map_or(Duration::ZERO, |depth| depth.at)
    }
}

/// How fast a counter grows: one value for each time of at least `window`, in the middle of it.
/// What is left at the end is too short to say anything.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
pub(super) fn rates(counts: impl IntoIterator<Item = (Duration, u64)>, window: Duration) -> Points {
    let mut counts = counts.into_iter();
    let Some(mut from) = counts.next() else {
        return Points::new();
    };
    let mut points = Points::new();
    for (at, count) in counts {
        let time = at.saturating_sub(from.0);
        if time < window {
            continue;
        }
        // A switch that was started again counts from zero.
        let gain = count.saturating_sub(from.1) as f64;
        let middle = from.0 + time / 2;
        points.push((middle.as_secs_f64(), gain / time.as_secs_f64()));
        from = (at, count);
    }
    points
}

/// Sum of lines whose points have the same times.
pub(super) fn total<'a>(lines: impl IntoIterator<Item = &'a Points>) -> Points {
    let mut lines = lines.into_iter();
    let mut all = lines.next().cloned().unwrap_or_default();
    for line in lines {
        for (sum, (_, value)) in all.iter_mut().zip(line) {
            sum.1 += value;
        }
    }
    all
}

/// The kind of a way, for few lines: `leaf1 → hosts`, `spines → leaf2`.
pub(super) fn kind(plan: &Topology, (from, to): &Direction) -> String {
    let kind = |node: &str| match plan.node(node).map(|node| node.role) {
        Some(NodeRole::Host) => "hosts".to_owned(),
        Some(NodeRole::Spine) => "spines".to_owned(),
        _ => node.to_owned(),
    };
    format!("{} → {}", kind(from), kind(to))
}

/// Looks at a queue and at the pauses of a whole laboratory.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    lab: &'a Lab,
    switches: Vec<&'a str>,
    queue: (&'a str, &'a str, u8),
    began: Instant,
    turn: u32,
    series: Series,
}

impl<'a> Watch<'a> {
    /// Begins to look at queue `queue.2` of port `queue.1` of switch `queue.0`.
    pub(super) fn begin(lab: &'a Lab, queue: (&'a str, &'a str, u8)) -> Result<Self, LabError> {
        let switches = [NodeRole::Leaf, NodeRole::Spine];
        let mut watch = Watch {
            lab,
            switches: switches
                .iter()
                .flat_map(|role| lab.plan().names(*role))
                .collect(),
            queue,
            began: Instant::now(),
            turn: 0,
            series: Series::default(),
        };
        watch.look()?;
        Ok(watch)
    }

    /// Since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits until it is time, and looks.
    pub(super) fn next(&mut self) -> Result<(), LabError> {
        self.turn += 1;
        sleep((LOOK * self.turn).saturating_sub(self.began.elapsed()));
        // Turns that are over are left out, not made up for.
        let over = self.began.elapsed().as_millis() / LOOK.as_millis();
        self.turn = self.turn.max(u32::try_from(over).unwrap_or(u32::MAX));
        self.look()
    }

    fn look(&mut self) -> Result<(), LabError> {
        let row = self.row()?;
        let depth = Depth::of(self.began.elapsed(), &row);
        self.series.depths.push(depth);
        let due = self
            .series
            .pauses
            .last()
            .is_none_or(|(at, _)| depth.at.saturating_sub(*at) + LOOK / 2 >= LOOK * TURNS);
        if due { self.look_at_pauses() } else { Ok(()) }
    }

    fn look_at_pauses(&mut self) -> Result<(), LabError> {
        let at = self.began.elapsed();
        let mut pauses = Pauses::new();
        for switch in &self.switches {
            if let Answer::Pfc(pfc) = self.lab.node(switch)?.show(Topic::Pfc)? {
                add(&mut pauses, switch, &pfc);
            }
        }
        self.series.pauses.push((at, pauses));
        Ok(())
    }

    /// The queue as it is now.
    pub(super) fn row(&self) -> Result<QueueRow, LabError> {
        let (switch, port, queue) = self.queue;
        let Answer::Queues(rows) = self.lab.node(switch)?.show(Topic::Queues)? else {
            return Err(unknown(switch, "queues"));
        };
        let mut rows = rows.into_iter();
        rows.find(|row| row.port == port && row.queue == usize::from(queue))
            .ok_or_else(|| unknown(switch, port))
    }

    /// The deepest use of headroom by any group of any switch.
    pub(super) fn headroom(&self) -> Result<Option<(Direction, PriorityGroupRow)>, LabError> {
        let mut deepest: Option<(Direction, PriorityGroupRow)> = None;
        for switch in &self.switches {
            let Answer::Pg(groups) = self.lab.node(switch)?.show(Topic::Pg)? else {
                return Err(unknown(switch, "priority groups"));
            };
            for group in groups {
                let used = |group: &PriorityGroupRow| group.headroom_watermark.bytes;
                if used(&group) > deepest.as_ref().map_or(0, |(_, group)| used(group)) {
                    deepest = Some((((*switch).to_owned(), group.port.clone()), group));
                }
            }
        }
        Ok(deepest)
    }

    /// What was seen, with a last look at the pauses.
    pub(super) fn finish(mut self) -> Result<Series, LabError> {
        self.look()?;
        self.look_at_pauses()?;
        Ok(self.series)
    }
}

fn unknown(switch: &str, what: &str) -> LabError {
    LabError::Answer {
        what: format!("switchd on {switch}"),
        reason: format!("tells nothing of {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::Options;
    use switchd::control::api::PfcPriority;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn pfc(rows: &[(&str, u8, u64)]) -> PfcReport {
        let row = |(port, priority, sent_xoff): &(&str, u8, u64)| PfcPriority {
            port: (*port).to_owned(),
            priority: *priority,
            sent_xoff: *sent_xoff,
            ..PfcPriority::default()
        };
        PfcReport {
            ports: Vec::new(),
            priorities: rows.iter().map(row).collect(),
        }
    }

    fn way(from: &str, to: &str) -> Direction {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn rates_are_those_of_whole_windows() {
        let counts = [
            (0, 10),
            (60, 16),
            (120, 22),
            (180, 40),
            (320, 50),
            (330, 900),
        ];
        let counts = counts.map(|(at, count)| (ms(at), count));
        let points = rates(counts, ms(100));
        // 12 in 120 ms, 28 in 200 ms; the last 10 ms are no window.
        assert_eq!(points, [(0.06, 100.0), (0.22, 140.0)]);
        assert_eq!(rates([], ms(100)), []);
        assert_eq!(rates([(ms(0), 7)], ms(100)), []);
    }

    #[test]
    fn a_counter_that_began_anew_is_no_gap_below_zero() {
        let counts = [(0, 1000), (100, 20), (200, 30)].map(|(at, count)| (ms(at), count));
        assert_eq!(rates(counts, ms(100)), [(0.05, 0.0), (0.15, 100.0)]);
    }

    #[test]
    fn rows_become_series() {
        let row = |bytes, sent, marked| QueueRow {
            depth_bytes: bytes,
            sent_packets: sent,
            marked_packets: marked,
            ..QueueRow::default()
        };
        let series = Series {
            depths: vec![
                Depth::of(ms(0), &row(0, 5, 1)),
                Depth::of(ms(50), &row(700, 10, 2)),
                Depth::of(ms(100), &row(300, 25, 11)),
            ],
            pauses: Vec::new(),
        };
        assert_eq!(series.depth(), [(0.0, 0.0), (0.05, 700.0), (0.1, 300.0)]);
        assert_eq!(series.marked(), [[(0.05, 100.0)], [(0.05, 100.0)]]);
        assert_eq!(series.end(), ms(100));
        assert!(series.all_pauses().is_empty());
    }

    #[test]
    fn pauses_are_summed_by_kind_of_way() {
        let plan = Topology::plan(&Options::default());
        let mut looks = Vec::new();
        for (at, frames) in [(0, 0), (500, 10)] {
            let mut pauses = Pauses::new();
            let leaf1 = pfc(&[
                ("h1", 3, frames),
                ("h2", 3, 2 * frames),
                ("spine1", 3, frames),
            ]);
            add(&mut pauses, "leaf1", &leaf1);
            add(
                &mut pauses,
                "spine1",
                &pfc(&[("leaf2", 3, frames / 10), ("leaf1", 3, 0)]),
            );
            looks.push((ms(at), pauses));
        }
        let series = Series {
            depths: Vec::new(),
            pauses: looks,
        };
        let paused = series.paused(|way| kind(&plan, way));
        let expected = [
            ("leaf1 → hosts", 60.0),
            ("leaf1 → spines", 20.0),
            ("spines → leaf2", 2.0),
        ];
        let expected = expected.map(|(name, rate)| (name.to_owned(), vec![(0.25, rate)]));
        assert_eq!(paused, BTreeMap::from(expected));
        assert_eq!(total(paused.values()), [(0.25, 82.0)]);
        // Who was never paused is in no row.
        let all = series.all_pauses();
        assert_eq!(all.get(&(way("leaf1", "h2"), 3)), Some(&20));
        assert!(!all.contains_key(&(way("spine1", "leaf1"), 3)));
    }
}
