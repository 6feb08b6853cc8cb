//! Numbers for people and for programs.

use std::fmt::Write;
use std::time::Duration;

/// The outcome of a bandwidth measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bandwidth {
    pub(crate) size: u32,
    pub(crate) messages: u64,
    pub(crate) time: Duration,
    pub(crate) paths: u16,
}

/// The outcome of a latency measurement.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    size: u32,
    /// Half round trips in microseconds, sorted.
    sorted: Vec<f64>,
}

impl Bandwidth {
    #[expect(clippy::cast_precision_loss, reason = "display values")]
    fn rates(&self) -> (f64, f64) {
        let seconds = self.time.as_secs_f64().max(1e-9);
        let bits = self.messages as f64 * f64::from(self.size) * 8.0;
        (bits / seconds / 1e6, self.messages as f64 / seconds)
    }

    /// The heading of the table.
    pub(crate) fn heading() -> String {
        format!(
            "{:>9} {:>10} {:>12} {:>12} {:>6}",
            "bytes", "messages", "Mbit/s", "messages/s", "paths"
        )
    }

    /// A line of the table.
    pub(crate) fn line(&self) -> String {
        let (megabits, messages) = self.rates();
        format!(
            "{:>9} {:>10} {megabits:>12.1} {messages:>12.0} {:>6}",
            self.size, self.messages, self.paths
        )
    }

    /// An object of the JSON.
    pub(crate) fn json(&self) -> String {
        let (megabits, messages) = self.rates();
        format!(
            "{{\"bytes\":{},\"messages\":{},\"seconds\":{:.6},\"mbit_per_second\":{megabits:.3},\
             \"messages_per_second\":{messages:.1},\"paths\":{}}}",
            self.size,
            self.messages,
            self.time.as_secs_f64(),
            self.paths
        )
    }
}

impl Latency {
    /// From the round trips.
    pub(crate) fn new(size: u32, round_trips: &[Duration]) -> Self {
        let mut sorted: Vec<f64> = round_trips
            .iter()
            .map(|time| time.as_secs_f64() * 1e6 / 2.0)
            .collect();
        sorted.sort_by(f64::total_cmp);
        Self { size, sorted }
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index computed from a share of the length, both small"
    )]
    fn quantile(&self, share: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.sorted.get(index).copied().unwrap_or(f64::NAN)
    }

    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len().max(1) as f64
    }

    fn columns(&self) -> [(&'static str, f64); 6] {
        [
            ("min", self.quantile(0.0)),
            ("median", self.quantile(0.5)),
            ("mean", self.mean()),
            ("p99", self.quantile(0.99)),
            ("p99_9", self.quantile(0.999)),
            ("max", self.quantile(1.0)),
        ]
    }

    /// The heading of the table.
    pub(crate) fn heading() -> String {
        let mut line = format!("{:>9} {:>10}", "bytes", "messages");
        for name in ["min", "median", "mean", "p99", "p99.9", "max"] {
            let _ = write!(line, " {:>10}", format!("{name} µs"));
        }
        line
    }

    /// A line of the table.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{:>9} {:>10}", self.size, self.sorted.len());
        for (_, value) in self.columns() {
            let _ = write!(line, " {value:>10.1}");
        }
        line
    }

    /// An object of the JSON.
    pub(crate) fn json(&self) -> String {
        let mut text = format!(
            "{{\"bytes\":{},\"messages\":{}",
            self.size,
            self.sorted.len()
        );
        for (name, value) in self.columns() {
            let _ = write!(text, ",\"{name}_us\":{value:.3}");
        }
        text.push('}');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right() {
        let time = Duration::from_secs(2);
        let bandwidth = Bandwidth {
            size: 1_000_000,
            messages: 250,
            time,
            paths: 8,
        };
        assert!(bandwidth.json().contains("\"mbit_per_second\":1000.000"));
        let trips: Vec<_> = (1..=1001).map(|n| Duration::from_micros(2 * n)).collect();
        let latency = Latency::new(2, &trips);
        let values = latency.columns().map(|(_, value)| value.round());
        assert_eq!(values, [1.0, 501.0, 501.0, 991.0, 1000.0, 1001.0]);
    }
}
