//! Thresholds that follow the traffic, between counters and reloads.

use super::*;
use crate::drop::DropReason;

/// A full line whose packets are marked, for one interval of 10 ms. All come from the second port.
fn congest(bench: &mut Bench, interval: u64) {
    congest_from(bench, interval, 0b10);
}

/// The same, from these ports.
fn congest_from(bench: &mut Bench, interval: u64, ports: u64) {
    let queue = &bench.state.workers[0].stats.ports[0].queues[3];
    queue.sent_packets.add(8000);
    queue.sent_bytes.add(8000 * 1540);
    queue.marked_packets.add(4000);
    queue.byte_time.add(40_000 * 10_000_000);
    queue.flows.answered.set(queue.flows.asked.get());
    queue.flows.sources.set(1);
    queue.flows.feeders[0].set(ports);
    let now = Time::from_nanos(interval * 10_000_000);
    bench.state.follow_traffic(now);
}

/// SW-24, MG-1: thresholds follow the traffic, through reloads of something else, until the mode
/// says otherwise; each change is an event, a row and a count. A broken model is refused with line
/// and key, and the old one stays.
#[test]
fn thresholds_follow_the_traffic() {
    let row = "[1.0, 1.0, 1.0, 0.5, 2.0, 2.0, 1.0]";
    let model = format!(
        "format = 1\nradius = 0.0\n[[scenario]]\nname = \"none\"\nkmin_bdp = 0.25\nkmax_bdp = 1.0\n\
         pmax_percent = 100.0\nseen = [{row}]\n"
    );
    let mut bench = Bench::new(LOSSLESS);
    let path = bench.folder.path().join("model.toml");
    std::fs::write(&path, &model).unwrap();
    let text = |mode: &str, weight: u8| {
        let queue = LOSSLESS.replace("weight = 50", &format!("weight = {weight}"));
        let wred = "[qos.queue.wred]\nmin_bytes = 15000\nmax_bytes = 60000\n";
        format!("{queue}{wred}[qos.aiecn]\nmode = \"{mode}\"\nmodel = {path:?}\n")
    };
    let kmax = |bench: &Bench| {
        let policy = bench.state.policy();
        let wred = policy.ports[0].queues[3].wred.unwrap();
        wred.profile.curve.certain()
    };
    bench.write(&text("ai", 50)).state.policy();
    bench.state.reload().unwrap();
    (0..10).for_each(|interval| congest(&mut bench, interval));
    let lower = kmax(&bench);
    assert!(lower < 60_000, "{lower}");
    let event = bench.last_event();
    assert_eq!((event.kind, event.queue), (EventKind::Thresholds, Some(3)));
    assert!(event.text.contains("unknown"), "{}", event.text);
    let report = bench.state.aiecn_report(Time::from_nanos(1));
    let row = &report.queues[0];
    assert_eq!((report.mode.as_str(), report.scenarios), ("ai", 1));
    assert_eq!(u64::from(row.in_force.max_bytes), lower);
    assert_eq!(row.configured.max_bytes, 60_000);
    assert_eq!(row.last.as_ref().unwrap().after, row.in_force);
    let labels = "{port=\"p1\",queue=\"3\"}";
    let changes = bench.metric(&format!("switchd_aiecn_changes_total{labels}"));
    assert_eq!(changes, row.changes.to_string());
    let metric = format!("switchd_aiecn_max_bytes{labels}");
    assert_eq!(bench.metric(&metric), lower.to_string());

    bench.write(&text("ai", 60));
    bench.state.reload().unwrap();
    assert_eq!(kmax(&bench), lower, "another key changed");
    std::fs::write(&path, model.replace("radius = 0.0", "radius = -2.0")).unwrap();
    let reason = bench.state.reload().unwrap_err();
    assert!(reason.contains("model.toml:2"), "{reason}");
    assert!(reason.contains("radius: -2"), "{reason}");
    assert_eq!(bench.state.aiecn.controller.model().radius.to_bits(), 0);
    std::fs::write(&path, model.replace("radius = 0.0", "radius = 0.25")).unwrap();
    let changes = bench.state.reload().unwrap();
    assert_eq!(
        (changes[0].key.as_str(), kmax(&bench)),
        ("qos.aiecn.model", lower)
    );

    bench.write(&text("frozen", 60));
    bench.state.reload().unwrap();
    (10..30).for_each(|interval| congest(&mut bench, interval));
    assert_eq!(kmax(&bench), lower);
    bench.write(&text("static", 60));
    bench.state.reload().unwrap();
    assert_eq!(kmax(&bench), 60_000);
    let is_told = |event: &Event| event.text.contains("as configured");
    assert!(bench.state.events.iter().any(is_told));
    bench.write(&text("off", 60));
    bench.state.reload().unwrap();
    congest(&mut bench, 31);
    let answer = bench.show(Topic::Aiecn);
    assert!(matches!(answer, Answer::Aiecn(report) if report.queues.is_empty()));
}

/// `[qos.aiecn]` with this mode, of a queue that marks above `max_bytes`.
fn following(mode: &str, max_bytes: u32) -> String {
    format!(
        "{LOSSLESS}[qos.queue.wred]\nmin_bytes = 15000\nmax_bytes = {max_bytes}\n\
         [qos.aiecn]\nmode = \"{mode}\"\n"
    )
}

/// What is being done about queue 3 of the first port.
fn stage(bench: &Bench) -> String {
    let report = bench.state.aiecn_report(Time::from_nanos(1));
    report.queues[0].state.clone()
}

/// SW-24: pauses and losses from before a queue is looked after are no news, whether the mode has
/// changed or its thresholds in the configuration. Those from then on are.
#[test]
fn what_was_paused_and_lost_before_is_no_news() {
    let mut bench = Bench::new(LOSSLESS);
    let stats = bench.state.workers[0].stats.clone();
    stats.ports[1].pauses[3].sent_xoff.add(7);
    stats.ports[0].queues[3].dropped_packets.add(3);
    let mut interval = 0;
    for (mode, max_bytes) in [
        ("ai", 60_000),
        ("ai", 50_000),
        ("off", 50_000),
        ("ai", 50_000),
    ] {
        bench.write(&following(mode, max_bytes));
        bench.state.reload().unwrap();
        for _ in 0..3 {
            interval += 1;
            congest(&mut bench, interval);
            if mode == "ai" {
                assert_ne!(stage(&bench), "fallback", "interval {interval}");
            }
        }
    }
    stats.ports[1].pauses[3].sent_xoff.add(1);
    congest(&mut bench, interval + 1);
    assert_eq!(stage(&bench), "fallback");
}

/// SW-24: pauses and losses concern a queue if they are of its class, and of ports that feed it or
/// its own. What happens to others costs it nothing.
#[test]
fn alarms_are_about_the_queue() {
    type Event = fn(&WorkerStats);
    let concern: [(&str, Event); 4] = [
        ("pause", |it| it.ports[1].pauses[3].sent_xoff.add(1)),
        ("PAUSE of the link", |it| it.ports[1].link_pauses[1].add(1)),
        ("refused", |it| it.ports[0].queues[3].dropped_packets.add(1)),
        ("headroom", |it| it.ports[1].headroom_lost[3].add(1)),
    ];
    let others: [(&str, Event); 7] = [
        ("pause of another port", |it| {
            it.ports[0].pauses[3].sent_xoff.add(1);
        }),
        ("pause of another class", |it| {
            it.ports[1].pauses[4].sent_xoff.add(1);
        }),
        ("PAUSE of another link", |it| {
            it.ports[0].link_pauses[1].add(1);
        }),
        ("refused by another queue", |it| {
            it.ports[0].queues[4].dropped_packets.add(1);
            it.ports[1].queues[3].dropped_packets.add(1);
        }),
        ("headroom of another port", |it| {
            it.ports[0].headroom_lost[3].add(1);
            it.ports[0].drops[DropReason::HeadroomFull.index()].add(1);
        }),
        ("headroom of another class", |it| {
            it.ports[1].headroom_lost[4].add(1);
            it.ports[1].drops[DropReason::HeadroomFull.index()].add(1);
        }),
        ("pauses received", |it| {
            it.ports[1].pauses[3].received_xoff.add(1);
            it.ports[1].link_pauses[0].add(1);
        }),
    ];
    let all = concern.map(|it| (it, true)).into_iter();
    for ((name, event), concerns) in all.chain(others.map(|it| (it, false))) {
        let mut bench = Bench::new(LOSSLESS);
        bench.write(&following("ai", 60_000));
        bench.state.reload().unwrap();
        (1..4).for_each(|interval| congest(&mut bench, interval));
        event(&bench.state.workers[0].stats);
        congest(&mut bench, 4);
        assert_eq!(stage(&bench) == "fallback", concerns, "{name}");
    }
    // Who feeds it is not known yet: it may be any port.
    let mut bench = Bench::new(LOSSLESS);
    bench.write(&following("ai", 60_000));
    bench.state.reload().unwrap();
    (1..4).for_each(|interval| congest(&mut bench, interval));
    bench.state.workers[0].stats.ports[0].pauses[3]
        .sent_xoff
        .add(1);
    congest_from(&mut bench, 4, 0);
    assert_eq!(stage(&bench), "fallback");
}
