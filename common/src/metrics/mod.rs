//! Prometheus metrics: from the daemons' counters to the text that is scraped.
//!
//! The hot paths own plain single-writer counters. At a scrape the daemon copies them into
//! [`Families`], which keeps the rules of the text format (one family a name, help and type, base
//! units, `_total` on counters), and [`serve`] answers `GET /metrics` and `GET /healthz`. Who asks
//! for it gets OpenMetrics, or an answer packed with gzip.

mod guard;
mod listener;
mod openmetrics;
mod process;

pub use listener::serve;

use crate::histogram::Histogram;
use prometheus::proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};

/// The metrics of one scrape, family by family.
#[derive(Debug, Default)]
pub struct Families {
    families: Vec<MetricFamily>,
}

/// Adds the samples of one family.
#[derive(Debug)]
pub struct Family<'a> {
    family: &'a mut MetricFamily,
    counter: bool,
}

impl Families {
    /// No metrics yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A family of counters: values that only grow. `name` ends in `_total`.
    ///
    /// # Panics
    /// If the name does not, or was used before: a fault of the program.
    pub fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        assert!(name.ends_with("_total"), "counter {name} without _total");
        self.family(name, help, MetricType::COUNTER)
    }

    /// A family of gauges: values that go up and down.
    ///
    /// # Panics
    /// If the name was used before: a fault of the program.
    pub fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, help, MetricType::GAUGE)
    }

    /// Adds a family of one classic histogram without labels, in seconds. `name` ends in
    /// `_seconds`.
    ///
    /// # Panics
    /// If the name does not, or was used before: a fault of the program.
    #[expect(clippy::cast_precision_loss, reason = "the format knows doubles only")]
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        assert!(name.ends_with("_seconds"), "histogram {name} without unit");
        let buckets = histogram.cumulative().map(|(bound, count)| {
            let mut bucket = Bucket::default();
            // Rounded once, where the sum of parts would show in the label.
            bucket.set_upper_bound(bound.nanos() as f64 / 1e9);
            bucket.set_cumulative_count(count);
            bucket
        });
        let mut all = prometheus::proto::Histogram::default();
        all.set_bucket(buckets.collect());
        all.set_sample_count(histogram.count());
        all.set_sample_sum(histogram.sum().as_secs_f64());
        let mut metric = Metric::default();
        metric.set_histogram(all);
        let family = self.family(name, help, MetricType::HISTOGRAM);
        family.family.mut_metric().push(metric);
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType) -> Family<'_> {
        assert!(
            self.families.iter().all(|other| other.name() != name),
            "metric {name} twice"
        );
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        self.families.push(family);
        Family {
            family: self.families.last_mut().expect("was pushed"),
            counter: kind == MetricType::COUNTER,
        }
    }

    /// The text that Prometheus scrapes (exposition format 0.0.4). Families without a sample are
    /// left out.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.filled(), &mut text)
            .expect("families are complete and a Vec takes all bytes");
        String::from_utf8(text).expect("labels and names are text")
    }

    /// The same as OpenMetrics text, version 1.0.0.
    pub fn openmetrics(&self) -> String {
        openmetrics::encode(&self.filled())
    }

    fn filled(&self) -> Vec<MetricFamily> {
        let filled = self
            .families
            .iter()
            .filter(|it| !it.get_metric().is_empty());
        filled.cloned().collect()
    }
}

impl Family<'_> {
    /// Adds a sample of a whole number. Above 2^53 it is rounded, as Prometheus itself does.
    #[expect(clippy::cast_precision_loss, reason = "the format knows doubles only")]
    pub fn add(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Self {
        self.add_f64(labels, value as f64)
    }

    /// Adds a sample.
    pub fn add_f64(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        let labels = labels.iter().map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        let mut metric = Metric::from_label(labels.collect());
        if self.counter {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        self.family.mut_metric().push(metric);
        self
    }
}

/// What the HTTP listener asks the daemon.
pub trait Source: Send + Sync + 'static {
    /// The metrics of now.
    fn scrape(&self) -> Families;

    /// Whether the daemon does its work.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn health(&self) -> Result<(), String>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;
    use std::io::Read;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    struct Example;

    impl Source for Example {
        fn scrape(&self) -> Families {
            let mut families = Families::new();
            families
                .counter("x_port_receive_packets_total", "Packets received.")
                .add(&[("port", "eth\"0\"\n")], 3)
                .add(&[("port", "eth1")], 4);
            families.gauge("x_empty", "Has no sample.");
            families.gauge("x_load_ratio", "Load.").add_f64(&[], 0.5);
            families
        }

        fn health(&self) -> Result<(), String> {
            Err("worker 1 stands still".to_owned())
        }
    }

    #[test]
    fn text_follows_the_format() {
        assert_eq!(
            Example.scrape().text(),
            "# HELP x_port_receive_packets_total Packets received.\n\
             # TYPE x_port_receive_packets_total counter\n\
             x_port_receive_packets_total{port=\"eth\\\"0\\\"\\n\"} 3\n\
             x_port_receive_packets_total{port=\"eth1\"} 4\n\
             # HELP x_load_ratio Load.\n\
             # TYPE x_load_ratio gauge\n\
             x_load_ratio 0.5\n"
        );
    }

    /// MG-5: counters lose `_total` in the name of their family, bounds have a point, and the end
    /// is marked.
    #[test]
    fn openmetrics_follows_its_format() {
        let mut families = Example.scrape();
        let mut histogram = Histogram::default();
        histogram.observe(Span::from_micros(15));
        histogram.observe(Span::from_secs(20));
        families.histogram("x_rtt_seconds", "Round trip.", &histogram);
        let text = families.openmetrics();
        let start = "# TYPE x_port_receive_packets counter\n\
             # HELP x_port_receive_packets Packets received.\n\
             x_port_receive_packets_total{port=\"eth\\\"0\\\"\\n\"} 3\n\
             x_port_receive_packets_total{port=\"eth1\"} 4\n\
             # TYPE x_load_ratio gauge\n\
             # HELP x_load_ratio Load.\n\
             x_load_ratio 0.5\n\
             # TYPE x_rtt_seconds histogram\n";
        assert!(text.starts_with(start), "{text}");
        for line in [
            "x_rtt_seconds_bucket{le=\"0.00001\"} 0",
            "x_rtt_seconds_bucket{le=\"0.00002\"} 1",
            "x_rtt_seconds_bucket{le=\"10.0\"} 1",
            "x_rtt_seconds_bucket{le=\"+Inf\"} 2",
            "x_rtt_seconds_count 2",
            "x_rtt_seconds_sum 20.000015",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    async fn ask_with(address: std::net::SocketAddr, path: &str, headers: &str) -> Vec<u8> {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    }

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        String::from_utf8(ask_with(address, path, "").await).unwrap()
    }

    /// MG-5: both daemons answer a scrape.
    #[tokio::test(flavor = "current_thread")]
    async fn listener_answers_metrics_and_health() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Arc::new(Example)));
        let metrics = ask(address, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
        assert!(metrics.contains("text/plain; version=0.0.4"), "{metrics}");
        assert!(metrics.contains("x_load_ratio 0.5"), "{metrics}");
        let health = ask(address, "/healthz").await;
        assert!(health.starts_with("HTTP/1.1 503"), "{health}");
        assert!(health.ends_with("worker 1 stands still\n"), "{health}");
        assert!(ask(address, "/other").await.starts_with("HTTP/1.1 404"));

        let headers = "Accept: application/openmetrics-text\r\nAccept-Encoding: br, gzip\r\n";
        let answer = ask_with(address, "/metrics", headers).await;
        let body = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(answer[..body].to_vec()).unwrap();
        assert!(head.contains("content-encoding: gzip"), "{head}");
        assert!(
            head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        let mut text = String::new();
        flate2::read::GzDecoder::new(&answer[body..])
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, Example.scrape().openmetrics());
        server.abort();
    }
}
