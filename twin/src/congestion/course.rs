//! The courses: networks of 100 Gb/s whose data class loses nothing, and what is sent over them.

use crate::scenario::Scenario;
use common::time::Span;
use hostd::verbs::Congestion;
use serde::Serialize;
use std::fmt::Write;

/// What all algorithms have to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Course {
    /// Eight hosts send 10 MB each to a ninth.
    Incast,
    /// Each 2 ms a host more sends to the same one, until there are four.
    Staircase,
    /// Each of 16 hosts sends 20 MB to one other, over four spines that have room for all.
    Permutation,
    /// Flows of a web search cluster between 32 hosts, at half of their speed; each has a
    /// connection of its own.
    WebSearch,
}

/// Bytes of a host's link in a millisecond.
const LINE: u64 = 12_500_000;

/// When flows of the staircase join.
pub(super) const STEP: Span = Span::from_millis(2);

/// How long each of them could have the line for itself, in milliseconds: the fourth has joined for
/// 2 ms before the first one ends.
pub(super) const STAIRS: [u64; 4] = [5, 3, 2, 1];

/// All hosts on one switch, 12 µs there and back.
const STAR: &str = "kind = \"star\"\nhosts = 9\ndelay = \"3us\"\n";

/// Four switches with hosts; as long a way there and back.
const LEAVES: &str = "kind = \"leaf-spine\"\nleaves = 4\ndelay = \"1500ns\"\n";

/// The longest way without queues, with the packets' times and what acknowledgements wait.
const STAR_RTT: &str = "14us";
const LEAVES_RTT: &str = "16us";

/// A class that loses nothing, with the room of a large switch. Each flow can have more than two
/// products of delay and bandwidth in a switch before anybody is paused.
const NETWORK: &str = r#"
[qos]
queue_depth_bytes = 16000000
[qos.buffer]
size_bytes = 67108864
[qos.headroom]
cable_metres = 600
poll_gap_microseconds = 1
[qos.flow_control]
mode = "pfc"
[[qos.group]]
groups = [3]
xoff_bytes = 500000
xon_bytes = 400000
headroom = "auto"
[[qos.queue]]
queues = [3]
lossless = true
"#;

/// What an algorithm is given.
struct Needs {
    /// Tables of the switches.
    switches: &'static str,
    /// From where on they mark, where they mark as much as they do below all, and how much.
    marks: Option<(u32, u32, f64)>,
    /// Keys of `[host]`; `base_rtt` is given to all.
    host: &'static str,
}

/// Switches that know congestion signals.
const SIGNALS: &str = "[csig]\nenabled = true\nwindow_microseconds = 20\n";

/// Marks are as in `tests/congestion.rs`, which says where they are from.
const fn needs(algorithm: Congestion) -> Needs {
    let (switches, marks, host) = match algorithm {
        Congestion::Fixed | Congestion::Swift | Congestion::Rttcc => ("", None, ""),
        Congestion::Auto | Congestion::Nscc => ("", Some((60_000, 180_000, 100.0)), ""),
        Congestion::SwiftCsig => (SIGNALS, None, "csig = {}\n"),
        Congestion::Poseidon => (SIGNALS, None, "csig = { signals = [\"delay\"] }\n"),
        Congestion::Dctcp => ("", Some((35_000, 140_000, 100.0)), ""),
        Congestion::Dcqcn => (
            "",
            Some((100_000, 400_000, 20.0)),
            "cnp_interval = \"20us\"\n",
        ),
        Congestion::Timely => ("", None, "timely_low = \"20us\"\ntimely_high = \"50us\"\n"),
        // Its window is that of a path.
        Congestion::Hpcc => (
            "[int]\nenabled = true\n",
            None,
            "int = {}\nhpcc_flows = 16\ncongestion_scope = \"path\"\n",
        ),
    };
    Needs {
        switches,
        marks,
        host,
    }
}

impl Course {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Incast,
        Self::Staircase,
        Self::Permutation,
        Self::WebSearch,
    ];

    /// Its name, as it is asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incast => "incast",
            Self::Staircase => "staircase",
            Self::Permutation => "permutation",
            Self::WebSearch => "web-search",
        }
    }

    /// What it is, in a few words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Incast => "8:1 incast",
            Self::Staircase => "staircase",
            Self::Permutation => "permutation",
            Self::WebSearch => "web search, 50 %",
        }
    }

    /// The network's shape and its longest round trip.
    fn network(self) -> (String, &'static str) {
        match self {
            Self::Incast | Self::Staircase => (STAR.to_owned(), STAR_RTT),
            Self::Permutation => (
                format!("{LEAVES}spines = 4\nhosts_per_leaf = 4\n"),
                LEAVES_RTT,
            ),
            Self::WebSearch => (
                format!("{LEAVES}spines = 8\nhosts_per_leaf = 8\n"),
                LEAVES_RTT,
            ),
        }
    }

    /// What is sent.
    fn workload(self) -> String {
        match self {
            Self::Incast => {
                "[[workload]]\nkind = \"incast\"\ntarget = \"h9\"\nsize = \"10MB\"\n".to_owned()
            }
            Self::Staircase => {
                let flow = |(step, lines): (u64, u64)| {
                    format!(
                        "[[workload]]\nkind = \"incast\"\nhosts = [\"h{}\", \"h9\"]\n\
                         target = \"h9\"\nstart = \"{}ms\"\nsize = \"{}B\"\n",
                        step + 1,
                        step * STEP.nanos() / 1_000_000,
                        LINE * lines
                    )
                };
                (0..).zip(STAIRS).map(flow).collect()
            }
            Self::Permutation => {
                "[[workload]]\nkind = \"permutation\"\nsize = \"20MB\"\n".to_owned()
            }
            Self::WebSearch => "[[workload]]\nkind = \"poisson\"\nsizes = \"web-search\"\n\
                 load = 0.5\ncount = 1000\napart = true\nstart = \"5ms\"\n"
                .to_owned(),
        }
    }

    /// The scenario in which an algorithm runs it.
    ///
    /// # Errors
    /// What the twin refuses of it.
    pub fn scenario(self, algorithm: Congestion) -> Result<Scenario, String> {
        let text = self.text(algorithm);
        let name = format!("{} with {}", self.name(), algorithm.name());
        Scenario::parse(&text, &name, &|file| Err(format!("no {file}")))
            .map_err(|refusal| format!("{name}: line {}: {}", refusal.line, refusal.reason))
    }

    fn text(self, algorithm: Congestion) -> String {
        let (shape, round_trip) = self.network();
        let Needs {
            switches,
            marks,
            host,
        } = needs(algorithm);
        let mut text =
            format!("sample = \"5us\"\nlossless = true\n[topology]\n{shape}{switches}{NETWORK}");
        if let Some((min, max, percent)) = marks {
            let _ = write!(
                text,
                "[qos.queue.wred]\nmin_bytes = {min}\nmax_bytes = {max}\n\
                 probability_percent = {percent:.1}\n"
            );
        }
        let _ = write!(
            text,
            "[host]\nack_packets = 4\ncongestion = \"{}\"\nbase_rtt = \"{round_trip}\"\n{host}{}",
            algorithm.name(),
            self.workload()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each algorithm that there is has a scenario for each course.
    #[test]
    fn every_algorithm_can_run_every_course() {
        for course in Course::ALL {
            for algorithm in Congestion::ALL {
                let scenario = course.scenario(algorithm).expect("a scenario");
                assert_eq!(scenario.host.congestion, algorithm);
                assert!(scenario.lossless);
            }
        }
    }
}
