//! The HTTP listener: answers in the form that was asked for.

use super::guard::{Guarded, LIMITS, Limits};
use super::{Source, openmetrics};
use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Arc;

/// Answers `GET /metrics` and `GET /healthz` on `listener` until the task is dropped: one request a
/// connection, which ends after ten seconds whatever comes; of more than 32 connections the oldest
/// end.
///
/// # Errors
/// The listener failed.
pub async fn serve(
    listener: tokio::net::TcpListener,
    source: Arc<dyn Source>,
) -> std::io::Result<()> {
    serve_within(listener, source, LIMITS).await
}

/// As [`serve`], within `limits`.
pub(super) async fn serve_within(
    listener: tokio::net::TcpListener,
    source: Arc<dyn Source>,
    limits: Limits,
) -> std::io::Result<()> {
    let health = source.clone();
    let scrape = async move |headers: HeaderMap| metrics(&headers, &*source);
    let router = Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", get(async move || healthz(&*health)))
        .layer(map_response(close));
    axum::serve(Guarded::new(listener, limits), router).await
}

/// Says that this was the only request of its connection.
async fn close(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn metrics(headers: &HeaderMap, source: &dyn Source) -> Response {
    let families = source.scrape();
    let (media_type, text) = if wants_openmetrics(headers) {
        (openmetrics::MEDIA_TYPE, families.openmetrics())
    } else {
        (prometheus::TEXT_FORMAT, families.text())
    };
    let always = [
        (header::CONTENT_TYPE, media_type),
        (header::VARY, "accept, accept-encoding"),
    ];
    if quality(headers, &header::ACCEPT_ENCODING, &["gzip", "*"]) > 0.0 {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let written = encoder.write_all(text.as_bytes());
        let packed = written.and_then(|()| encoder.finish());
        let packed = packed.expect("a Vec takes all bytes");
        return (always, [(header::CONTENT_ENCODING, "gzip")], packed).into_response();
    }
    (always, text).into_response()
}

/// Whether the client prefers OpenMetrics to the older text, which it must name itself: a client
/// that takes anything gets what every client reads.
fn wants_openmetrics(headers: &HeaderMap) -> bool {
    let openmetrics = quality(
        headers,
        &header::ACCEPT,
        &[
            "application/openmetrics-text;version=1.0.0",
            "application/openmetrics-text",
        ],
    );
    let text = quality(headers, &header::ACCEPT, &["text/plain", "text/*"]);
    openmetrics > 0.0 && openmetrics >= text
}

/// The weight (RFC 9110, 12.4.2) that the client gives to the first of `names` that it mentions;
/// zero if it mentions none. A name with a version asks for this version, one without for an entry
/// that names none, or any where versions are not told apart.
fn quality(headers: &HeaderMap, field: &HeaderName, names: &[&str]) -> f64 {
    let values = headers.get_all(field).iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    let entries = || values.iter().flat_map(|value| value.split(',')).map(entry);
    let weight = |name: &&str| {
        let (name, version) = name
            .split_once(";version=")
            .map_or((*name, None), |it| (it.0, Some(it.1)));
        let mut same = entries().filter(|it| it.name.eq_ignore_ascii_case(name));
        let versions = name.starts_with("application/openmetrics");
        same.find(|it| !versions || it.version == version)
            .map(|it| it.quality)
    };
    names.iter().find_map(weight).unwrap_or(0.0)
}

struct Entry<'a> {
    name: &'a str,
    version: Option<&'a str>,
    quality: f64,
}

fn entry(text: &str) -> Entry<'_> {
    let mut parts = text.split(';').map(str::trim);
    let mut entry = Entry {
        name: parts.next().unwrap_or(""),
        version: None,
        quality: 1.0,
    };
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key.trim() {
            "version" => entry.version = Some(value.trim()),
            "q" | "Q" => entry.quality = value.trim().parse().unwrap_or(0.0),
            _ => {}
        }
    }
    entry
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

    fn headers(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        headers
    }

    /// MG-5: who asks for OpenMetrics 1.0.0 gets it; the second line is what Prometheus sends.
    #[test]
    fn the_format_is_the_preferred_one() {
        for (accept, openmetrics) in [
            ("application/openmetrics-text", true),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text; version=1.0.0; q=0.4, text/plain;q=0.5",
                false,
            ),
            ("application/openmetrics-text;version=0.0.1", false),
            ("application/openmetrics-text;q=0", false),
            ("text/plain", false),
            ("*/*", false),
            ("", false),
            (";;q=,=;q=x", false),
        ] {
            assert_eq!(wants_openmetrics(&headers(accept)), openmetrics, "{accept}");
        }
        assert!(!wants_openmetrics(&HeaderMap::new()));
    }
}
