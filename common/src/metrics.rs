//! Prometheus metrics: from the daemons' counters to the text that is scraped.
//!
//! The hot paths own plain single-writer counters. At a scrape the daemon copies them into
//! [`Families`], which keeps the rules of the text format (one family a name, help and type, base
//! units, `_total` on counters), and [`serve`] answers `GET /metrics` and `GET /healthz`.

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};
use std::sync::Arc;

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
        let filled: Vec<MetricFamily> = self
            .families
            .iter()
            .filter(|family| !family.get_metric().is_empty())
            .cloned()
            .collect();
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&filled, &mut text)
            .expect("families are complete and a Vec takes all bytes");
        String::from_utf8(text).expect("labels and names are text")
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

/// Answers `GET /metrics` and `GET /healthz` on `listener` until the task is dropped.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: tokio::net::TcpListener,
    source: Arc<dyn Source>,
) -> std::io::Result<()> {
    let health = source.clone();
    let router = Router::new()
        .route("/metrics", get(async move || metrics(&*source)))
        .route("/healthz", get(async move || healthz(&*health)));
    axum::serve(listener, router).await
}

fn metrics(source: &dyn Source) -> impl IntoResponse + use<> {
    let text = source.scrape().text();
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text)
}

fn healthz(source: &dyn Source) -> impl IntoResponse + use<> {
    match source.health() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    async fn ask(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
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
        server.abort();
    }
}
