//! Numbers for people and for programs.

/// What came of one length: microseconds of a call, as each member has measured it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) bytes: usize,
    iterations: u32,
    min: f64,
    avg: f64,
    max: f64,
    /// Members whose result is wrong.
    pub(crate) wrong: usize,
    /// Switches have done it, to the end.
    switched: bool,
}

/// The heading of the table.
pub(crate) fn heading() -> String {
    format!(
        "{:>10} {:>10} {:>12} {:>12} {:>12} {:>10} {:>9}",
        "bytes", "iterations", "min us", "avg us", "max us", "MB/s", "by"
    )
}

impl Line {
    #[expect(clippy::cast_precision_loss, reason = "display values")]
    pub(crate) fn new(bytes: usize, iterations: u32, times: &[f64], wrong: usize) -> Self {
        Self {
            bytes,
            iterations,
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            avg: times.iter().sum::<f64>() / times.len().max(1) as f64,
            max: times.iter().copied().fold(0.0, f64::max),
            wrong,
            switched: false,
        }
    }

    /// The same, done by switches or not.
    pub(crate) fn by_switches(self, switched: bool) -> Self {
        Self { switched, ..self }
    }

    /// Bytes of the vector in the time of the slowest member: the algorithmic bandwidth.
    #[expect(clippy::cast_precision_loss, reason = "display values")]
    fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.max.max(1e-3)
    }

    /// A line of the table.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:>10} {:>10} {:>12.2} {:>12.2} {:>12.2} {:>10.2} {:>9}",
            self.bytes,
            self.iterations,
            self.min,
            self.avg,
            self.max,
            self.bandwidth(),
            if self.switched { "switches" } else { "hosts" }
        )
    }

    /// An object of the JSON.
    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"bytes\":{},\"iterations\":{},\"min_us\":{:.3},\"avg_us\":{:.3},\"max_us\":{:.3},\
             \"megabytes_per_second\":{:.3},\"wrong\":{},\"switched\":{}}}",
            self.bytes,
            self.iterations,
            self.min,
            self.avg,
            self.max,
            self.bandwidth(),
            self.wrong,
            self.switched
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_of_all_members() {
        let line = Line::new(1 << 20, 100, &[100.0, 400.0, 250.0], 0);
        let json = line.json();
        for part in [
            "\"min_us\":100.000",
            "\"avg_us\":250.000",
            "\"max_us\":400.000",
            "\"switched\":false",
        ] {
            assert!(json.contains(part), "{json}");
        }
        assert!(json.contains("\"megabytes_per_second\":2621.440"), "{json}");
        let columns = |text: &str| text.replace("us", "").split_whitespace().count();
        assert_eq!(columns(&line.text()), columns(&heading()));
        assert!(line.text().ends_with(" hosts"), "{}", line.text());
        let line = line.by_switches(true);
        assert!(line.text().ends_with(" switches"), "{}", line.text());
    }
}
