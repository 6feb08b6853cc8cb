//! Lossless classes in the twin: incast at full rate, and the thresholds at which peers are paused and go on.

use common::time::Span;
use fabric_tests::twin::bench::{Bench, Setup, StreamId, at};
use fabric_tests::twin::switch::SwitchSettings;
use fabric_tests::twin::tester::{Sizes, Stream};
use std::sync::Arc;
use switchd::config::Qos;

/// Class 3 is lossless: each port pauses its peer from `xoff` bytes on.
fn qos(xoff: u32, more: &str) -> Arc<Qos> {
    let xon = xoff / 2;
    let text = format!(
        r#"
[buffer]
size_bytes = 67108864
[headroom]
cable_metres = 100
poll_gap_microseconds = 1
[flow_control]
mode = "pfc"
[[group]]
groups = [3]
xoff_bytes = {xoff}
xon_bytes = {xon}
headroom = "auto"
[[queue]]
queues = [3]
lossless = true
{more}
"#
    );
    Arc::new(toml::from_str(&text).expect("a configuration"))
}

fn star(testers: usize, qos: Arc<Qos>) -> Setup {
    let mut setup = Setup::star(testers, at(100));
    setup.lossless = true;
    setup.switch = SwitchSettings {
        packets: 262_144,
        poll: Span::from_nanos(250),
        qos: Some(qos),
        ..setup.switch
    };
    setup
}

fn lossless(to: usize, sizes: Sizes) -> Stream {
    Stream {
        dscp: 24,
        sizes,
        ..Stream::to(to)
    }
}

/// Bytes of line time that what arrived of a stream took: preamble and gap are 20 bytes of each frame.
fn line_bytes(bench: &Bench, stream: StreamId) -> u64 {
    let received = bench.received(stream);
    received.bytes + 20 * received.packets
}

/// Many ports send to one at full rate: nothing of the lossless class is lost, and the line is kept busy.
fn incast(senders: usize, sizes: Sizes, seed: u64, lasting: Span) {
    let mut setup = star(senders + 1, qos(100_000, ""));
    setup.seed = seed;
    let mut bench = Bench::new(setup);
    let streams: Vec<_> = (1..=senders)
        .map(|from| bench.send(from, lossless(0, sizes.clone())))
        .collect();
    bench.run_for(lasting);
    let busy: u64 = streams.iter().map(|it| line_bytes(&bench, *it)).sum();
    bench.finish();
    for &stream in &streams {
        assert_eq!(bench.missing(stream), 0, "{senders}:1, {sizes:?}");
        assert!(bench.received(stream).packets > 0);
    }
    let line = bench.speed(0).bytes_in(lasting);
    eprintln!("{busy} of {line} {sizes:?}");
    assert!(
        busy * 100 > line * 95,
        "{senders}:1, {sizes:?}: {busy} bytes of {line}"
    );
    let switch = bench.switch(0);
    assert_eq!(switch.sum(|port| port.dropped_in_all()), 0);
    assert!(switch.sum(|port| port.pauses[3].sent_xoff.get()) >= senders as u64);
}

/// SW-12, SW-31: incast at full rate of frames of any size loses nothing.
#[test]
fn incast_loses_nothing() {
    for size in [64, 65, 128, 1500, 4096] {
        incast(8, Sizes::Fixed(size), 1, Span::from_micros(500));
    }
}
