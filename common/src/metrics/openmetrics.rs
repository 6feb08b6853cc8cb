//! OpenMetrics text, version 1.0.0: as the older format, but families of counters are named
//! without `_total`, and an end mark tells a complete answer from a broken one.

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use std::fmt::Write;

/// The media type of what [`encode`] writes.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The families as text, in their order.
pub(super) fn encode(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families {
        let name = family.name();
        let (base, kind) = match family.get_field_type() {
            MetricType::COUNTER => (name.strip_suffix("_total").unwrap_or(name), "counter"),
            MetricType::HISTOGRAM => (name, "histogram"),
            _ => (name, "gauge"),
        };
        let help = escape(family.help());
        line(&mut text, format_args!("# TYPE {base} {kind}"));
        line(&mut text, format_args!("# HELP {base} {help}"));
        for metric in family.get_metric() {
            add_metric(&mut text, name, family.get_field_type(), metric);
        }
    }
    text.push_str("# EOF\n");
    text
}

fn add_metric(text: &mut String, name: &str, kind: MetricType, metric: &Metric) {
    let labels = metric.get_label();
    match kind {
        MetricType::COUNTER => sample(text, name, labels, None, metric.get_counter().get_value()),
        MetricType::HISTOGRAM => {
            let histogram = metric.get_histogram();
            let bucket = format!("{name}_bucket");
            for it in histogram.get_bucket() {
                let bound = number(it.upper_bound());
                sample(text, &bucket, labels, Some(&bound), it.cumulative_count());
            }
            let count = histogram.get_sample_count();
            sample(text, &bucket, labels, Some("+Inf"), count);
            let sum = histogram.get_sample_sum();
            sample(text, &format!("{name}_sum"), labels, None, sum);
            sample(text, &format!("{name}_count"), labels, None, count);
        }
        _ => sample(text, name, labels, None, metric.get_gauge().get_value()),
    }
}

fn sample(
    text: &mut String,
    name: &str,
    labels: &[LabelPair],
    bound: Option<&str>,
    value: impl std::fmt::Display,
) {
    let pairs = labels
        .iter()
        .map(|pair| (pair.name(), escape(pair.value())))
        .chain(bound.map(|bound| ("le", bound.to_owned())));
    let pairs: Vec<String> = pairs.map(|(key, it)| format!("{key}=\"{it}\"")).collect();
    if pairs.is_empty() {
        line(text, format_args!("{name} {value}"));
    } else {
        line(text, format_args!("{name}{{{}}} {value}", pairs.join(",")));
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes all text");
}

/// A bound in the canonical form: with a point.
fn number(value: f64) -> String {
    let text = value.to_string();
    if text.contains('.') {
        text
    } else {
        text + ".0"
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}
