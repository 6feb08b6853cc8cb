//! Headroom that follows what peers announce while the switch runs (SW-12).

use super::*;
use common::schedulers::{PauseAnnouncement, SharedSchedulers};
use common::wire::schedule::{PauseTerms, Role, Spread};

fn said(backlog: u32) -> PauseAnnouncement {
    PauseAnnouncement {
        role: Role::Host,
        name: "h1".to_owned(),
        terms: PauseTerms {
            response: None,
            backlog,
        },
    }
}

/// Has the switch listen to its peers, by the ports that are up.
fn listen(bench: &mut Bench, now: Time) {
    let state = &mut bench.state;
    let known = || SharedSchedulers::new(Role::Switch, Spread::Nothing);
    let schedulers = state.schedulers.get_or_insert_with(known).clone();
    schedulers.set_ports(state.announced_ports(), now);
}

/// A switch that listens to its peers.
fn listening() -> Bench {
    let mut bench = Bench::new(&auto());
    listen(&mut bench, Time::ZERO);
    bench
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

/// The row of the peer's backlog at p1: bytes, and where they are from.
fn backlog(bench: &mut Bench) -> (u64, String) {
    let Answer::Headroom(rows) = bench.show(Topic::Headroom) else {
        panic!()
    };
    let its =
        |row: &&crate::control::api::HeadroomRow| row.port == "p1" && row.term == "peer's backlog";
    let row = rows.iter().find(its).expect("computed");
    (row.wire_bytes, row.origin.clone())
}

/// SW-12, MG-1: headroom, its rows and the policy of the workers follow what a peer announces, with
/// an event for each change; a reload keeps it; without flow control nothing is announced.
#[test]
fn headroom_follows_the_peer() {
    let mut bench = listening();
    let cells = |bench: &Bench| bench.state.policy().ports[0].groups[3].headroom;
    let before = cells(&bench);
    assert_eq!(
        backlog(&mut bench),
        (0, "qos.headroom.peer: hardware".to_owned())
    );
    bench
        .state
        .take_announcement(0, Some(said(10_000)), Time::ZERO);
    assert_eq!(backlog(&mut bench), (10_000, "announced by h1".to_owned()));
    let after = cells(&bench);
    assert!(after > before, "{after} {before}");
    let event = bench.last_event();
    let text = format!(
        "h1, a host, does not say when it obeys pauses, with a backlog of 10000 bytes: headroom of a \
         lossless group is {after} cells, was {before} cells"
    );
    assert_eq!(
        (event.kind, event.port.as_deref()),
        (EventKind::Headroom, Some("p1"))
    );
    assert_eq!(event.text, text);
    // The same again is nothing new, and other words for the same headroom are no event.
    let again = bench.state.announced.changes;
    bench
        .state
        .take_announcement(0, Some(said(10_000)), Time::ZERO);
    assert_eq!(bench.state.announced.changes, again);
    let renamed = PauseAnnouncement {
        name: "h2".to_owned(),
        ..said(10_000)
    };
    let events = bench.state.events.iter().count();
    bench.state.take_announcement(0, Some(renamed), Time::ZERO);
    assert_eq!(backlog(&mut bench).1, "announced by h2");
    assert_eq!(bench.state.events.iter().count(), events);
    bench.write(&auto());
    bench.state.reload().unwrap();
    assert_eq!(cells(&bench), after, "a reload keeps it");
    bench.state.take_announcement(0, None, Time::ZERO);
    assert_eq!(cells(&bench), before);
    assert!(
        bench
            .last_event()
            .text
            .contains("announces nothing of pauses any more")
    );
    assert_eq!(bench.metric("switchd_headroom_announcements_total"), "2");
    let terms = bench.state.pause_terms(0).expect("it obeys pauses");
    assert_eq!(
        (terms.response, terms.backlog),
        (Some(Span::from_micros(100)), 10_000)
    );
    let deaf =
        Bench::new(&auto().replace("[qos.flow_control]", "[qos.flow_control]\nobey = false"));
    assert_eq!(deaf.state.pause_terms(0), None);
}

/// SW-12: a peer that asks for everything gets its part, which is an event of consequence and
/// counted; one that says something else each second is heard once in ten.
#[test]
fn a_peer_that_lies_is_bounded() {
    let mut bench = listening();
    let cells = |bench: &Bench| bench.state.policy().ports[0].groups[3].headroom;
    let before = cells(&bench);
    bench
        .state
        .take_announcement(0, Some(said(u32::MAX)), Time::ZERO);
    let event = bench.last_event();
    assert_eq!(
        (event.kind, event.severity),
        (EventKind::Headroom, Severity::Warning)
    );
    assert!(
        event.text.contains("qos.headroom.announced_percent"),
        "{}",
        event.text
    );
    // Two ports have a lossless group each: an eighth of the buffer for this one.
    let total = bench.state.active.config.buffer_packets();
    let grown = cells(&bench) - before;
    assert!(grown <= total / 8, "{grown} of {total}");
    assert_eq!(
        bench.metric("switchd_headroom_announcements_bounded_total"),
        "1"
    );
    let told = bench.state.warnings();
    assert!(
        told.iter().any(|it| it.contains("announced_percent")),
        "{told:?}"
    );

    for second in 1..10 {
        bench.state.heed_announcements(at(second));
        assert_eq!(backlog(&mut bench).1, "announced by h1, cut", "{second}");
    }
    bench.state.heed_announcements(at(10));
    assert_eq!(backlog(&mut bench).1, "qos.headroom.peer: hardware");
}

/// SW-12: a device that changes keeps what its peer announced; while `[qos]` does not fit it, the
/// port stays as it is, whatever the peer says or does not say.
#[test]
fn a_device_that_changes_keeps_what_its_peer_announced() {
    let config = format!("{}[port_defaults]\nspeed = \"device\"\n", auto());
    let mut bench = Bench::new(&config);
    listen(&mut bench, Time::ZERO);
    let settings = bench.state.active.config.settings_of("p1").unwrap();
    let told = (10_000, "announced by h1".to_owned());
    bench
        .state
        .take_announcement(0, Some(said(10_000)), Time::ZERO);
    let slower = device(1500, Rate::from_gbps(5));
    bench.state.change_device(0, &settings, slower);
    assert_eq!(backlog(&mut bench), told);

    let too_fast = device(1500, Rate::from_gbps(400));
    bench.state.change_device(0, &settings, too_fast);
    assert_eq!(bench.state.active.misfits().len(), 1);
    let later = Time::ZERO + Span::from_secs(20);
    bench.state.heed_announcements(later);
    assert_eq!(backlog(&mut bench), told);
    let slower = device(1500, Rate::from_gbps(5));
    bench.state.change_device(0, &settings, slower);
    bench.state.heed_announcements(later);
    assert_eq!(backlog(&mut bench).1, "qos.headroom.peer: hardware");
}

/// SW-12: a link that was away has the headroom that it had: its peer, which is asked at once, has
/// as long to answer as what it says holds. Only then is silence taken for an answer.
#[test]
fn a_link_that_comes_back_keeps_what_its_peer_announced() {
    let mut bench = listening();
    let told = (10_000, "announced by h1".to_owned());
    bench
        .state
        .take_announcement(0, Some(said(10_000)), Time::ZERO);
    let schedulers = bench.state.schedulers.clone().expect("it listens");
    let gone = schedulers.set_ports(Vec::new(), at(17));
    assert!(gone.is_empty(), "{gone:?}");
    bench.state.heed_announcements(at(17));
    assert_eq!(backlog(&mut bench), told, "its link is down");
    listen(&mut bench, at(18));
    for second in 18..22 {
        bench.state.heed_announcements(at(second));
        assert_eq!(backlog(&mut bench), told, "{second}");
    }
    bench.state.heed_announcements(at(22));
    assert_eq!(backlog(&mut bench).1, "qos.headroom.peer: hardware");
}
