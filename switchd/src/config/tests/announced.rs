//! Headroom with what peers say of themselves (SW-12).

use super::*;
use crate::config::Planned;
use common::schedulers::PauseAnnouncement;
use common::time::Span;
use common::wire::schedule::{PauseTerms, Role};

/// A lossless class at two ports of 100 Gb/s, whose peers announced this.
fn compiled(
    headroom: &str,
    more: &str,
    announced: [Option<PauseTerms>; 2],
) -> Result<Compiled, String> {
    let text = format!(
        "[headroom]\npoll_gap_microseconds = 20\n{headroom}\n[flow_control]\nmode = \"pfc\"\n\
         [[group]]\ngroups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = \"auto\"\n\
         [[queue]]\nqueues = [3]\nlossless = true\n{more}"
    );
    let qos: Qos = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
    let mut facts = facts();
    for (facts, terms) in facts.iter_mut().zip(announced) {
        facts.announced = terms.map(|terms| PauseAnnouncement {
            role: Role::Switch,
            name: format!("of-{}", facts.name),
            terms,
        });
    }
    qos.compile(&facts).map_err(|error| error.to_string())
}

const LARGE: &str = "[buffer]\nsize_bytes = 67108864";

fn terms(response: Option<u64>, backlog: u32) -> Option<PauseTerms> {
    Some(PauseTerms {
        response: response.map(Span::from_nanos),
        backlog,
    })
}

fn planned(compiled: &Compiled, port: usize) -> &Planned {
    compiled.headroom[port].as_ref().expect("computed")
}

/// Response and backlog in bytes of a port, and where they are from.
fn of_peer(compiled: &Compiled, port: usize) -> (u64, u64, &str, &str) {
    let it = planned(compiled, port);
    let (response, backlog) = (it.made_of.response, it.made_of.peer_backlog);
    let from = (it.response_from.as_str(), it.backlog_from.as_str());
    (response.bytes, backlog.bytes, from.0, from.1)
}

/// SW-12: what a peer announced is what headroom has room for, at its port alone; numbers of the
/// operator count more, and one that is too small is a warning; a host that does not know how late
/// it is counts as late as this switch.
#[test]
fn headroom_has_room_for_what_was_announced() {
    let with = |lines: &str, announced| compiled(lines, LARGE, announced).unwrap();
    let none = with("", [None, None]);
    let hardware = "qos.headroom.peer: hardware";
    assert_eq!(of_peer(&none, 0), (25_216, 0, hardware, hardware));
    let one = with("", [terms(Some(4_000), 70_000), None]);
    let said = "announced by of-a";
    assert_eq!(of_peer(&one, 0), (50_000, 70_000, said, said));
    assert_eq!(of_peer(&one, 1), of_peer(&none, 1));
    assert_eq!(one.warnings, none.warnings);
    let group = |compiled: &Compiled, port: usize| compiled.policy.ports[port].groups[3].headroom;
    let cells = planned(&one, 0).made_of.cells();
    assert_eq!(u64::from(group(&one, 0)), cells);
    assert_eq!(group(&one, 1), group(&none, 1));

    let host = with("", [terms(None, 131_072), None]);
    let gap = "qos.headroom.poll_gap_microseconds";
    assert_eq!(of_peer(&host, 0), (250_000, 131_072, gap, said));
    let lines = "peer_response_nanoseconds = 1000\npeer_backlog_bytes = 5000";
    let own = with(lines, [terms(Some(4_000), 70_000), terms(Some(999), 4_999)]);
    let keys = [
        "qos.headroom.peer_response_nanoseconds",
        "qos.headroom.peer_backlog_bytes",
    ];
    assert_eq!(of_peer(&own, 0), (12_500, 5_000, keys[0], keys[1]));
    let more = |what: &str| {
        let its = own.warnings.iter().filter(|it| it.contains(what));
        its.count()
    };
    assert_eq!(
        (more("a: of-a announces"), more("b: of-b announces")),
        (2, 0)
    );
    let deaf = with("announced_percent = 0", [terms(Some(4_000), 70_000), None]);
    assert_eq!(deaf, none);
}

/// SW-12: whatever peers announce, all together get no more than their part of the buffer beyond
/// what is planned without them, and who wants more is a warning.
#[test]
fn no_peer_takes_the_buffer() {
    let lie = terms(Some(u64::from(u32::MAX)), u32::MAX);
    let cells = |compiled: &Compiled, port: usize| {
        let made_of = planned(compiled, port).made_of;
        made_of.response.cells + made_of.peer_backlog.cells
    };
    let all = (64 << 20) / 256;
    for (percent, lies) in [(25, 1), (25, 2), (1, 2), (50, 2)] {
        let lines = format!("announced_percent = {percent}");
        let announced = [lie, if lies == 2 { lie } else { terms(Some(1), 1) }];
        let compiled = compiled(&lines, LARGE, announced).unwrap();
        // What is planned without them: 394 quanta.
        let share = all * percent / 100 / 2 + 25_216_u64.div_ceil(84);
        let got = cells(&compiled, 0);
        assert!(got <= share && got + 4 >= share, "{percent}: {got} {share}");
        assert!(planned(&compiled, 0).wanted.is_some());
        let warned = compiled.warnings.iter();
        let warned = warned.filter(|it| it.contains("announced_percent"));
        assert_eq!(warned.count(), lies);
        if lies == 1 {
            assert_eq!(
                (cells(&compiled, 1), &planned(&compiled, 1).wanted),
                (2, &None)
            );
        }
    }
    // Groups whose headroom is not computed have no part in it.
    let more = format!("{LARGE}\n[[group]]\ngroups = [1, 5]\n");
    let plain = compiled("", &more, [lie, lie]).unwrap();
    let same = compiled("", LARGE, [lie, lie]).unwrap();
    assert_eq!(cells(&plain, 0), cells(&same, 0));
    // What is planned for a switchd may well be announced by one, where the share is less.
    let lines = "peer = \"switchd\"\nannounced_percent = 1";
    let without = compiled(lines, LARGE, [None, None]).unwrap();
    let same = compiled(lines, LARGE, [terms(Some(20_000), 312_500), None]).unwrap();
    assert_eq!(cells(&same, 0), cells(&without, 0));
    assert_eq!(planned(&same, 0).wanted, None);
    let more = compiled(lines, LARGE, [lie, None]).unwrap();
    let most = cells(&without, 0) + all / 100 / 2;
    let got = cells(&more, 0);
    assert!(got <= most && got + 4 >= most, "{got} {most}");
    assert_eq!(of_peer(&more, 0).2, "announced by of-a, cut");
    assert!(planned(&more, 0).wanted.is_some());
    let error = compiled("announced_percent = 51", LARGE, [None, None]).unwrap_err();
    assert!(
        error.starts_with("qos.headroom.announced_percent: 51"),
        "{error}"
    );
}

/// SW-12: what peers announce makes no configuration impossible: the largest is left out until it
/// fits, and told of; and what is impossible without them is refused as ever.
#[test]
fn announcements_that_do_not_fit_are_left_out() {
    // What is planned without them leaves 1,000 cells of the pool.
    let pool = |cells: u64| {
        format!(
            "[buffer]\nsize_bytes = 67108864\nshared_headroom_bytes = {}",
            cells * 256
        )
    };
    let alone = compiled("", LARGE, [None, None]).unwrap();
    let own = planned(&alone, 0).made_of.cells();
    let small = terms(Some(1), 40_000);
    let announced = [small, terms(Some(1), 1 << 20)];
    let both = compiled("", &pool(own + 1000), announced).unwrap();
    assert_eq!(planned(&both, 0).backlog_from, "announced by of-a");
    assert_eq!(planned(&both, 1), planned(&alone, 1));
    let told: Vec<_> = both
        .warnings
        .iter()
        .filter(|it| it.contains("does not fit"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("b: what of-b announces of pauses does not fit"),
        "{told:?}"
    );
    // Exactly the headroom of a group is enough of a pool.
    assert!(compiled("", &pool(own), [None, None]).is_ok());
    let error = compiled("", &pool(own - 1), announced).unwrap_err();
    assert_eq!(Err(error), compiled("", &pool(own - 1), [None, None]));
}

/// SW-12: what is left out is the announcement that asks for most beyond what is planned without
/// it, not that of the port with the most headroom.
#[test]
fn a_long_cable_leaves_no_announcement_out() {
    let far = "announced_percent = 50\n[[headroom.port]]\nports = [\"a\"]\ncable_metres = 10000";
    let alone = compiled(far, LARGE, [None, None]).unwrap();
    let [a, b] = [0, 1].map(|port| planned(&alone, port).made_of.cells());
    assert!(a > b + 10_000, "{a} {b}");
    let buffer = format!("[buffer]\nsize_bytes = {}", (a + b + 3000) * 256);
    let announced = [terms(Some(1), 100_000), terms(Some(1), 1 << 19)];
    let both = compiled(far, &buffer, announced).unwrap();
    assert_eq!(planned(&both, 0).backlog_from, "announced by of-a");
    assert_eq!(planned(&both, 1), planned(&alone, 1));
}

/// SW-12: a switch says of itself what a switch of the same configuration plans for it.
#[test]
fn a_switch_announces_what_is_planned_for_one_like_it() {
    let facts = facts();
    let qos: Qos = toml::from_str("[headroom]\npoll_gap_microseconds = 20").unwrap();
    let said = qos.pause_terms(&facts[0]);
    let by_kind = compiled("peer = \"switchd\"", LARGE, [None, None]).unwrap();
    let heard = compiled("", LARGE, [said, said]).unwrap();
    assert_eq!(planned(&heard, 0).made_of, planned(&by_kind, 0).made_of);
    let unshaped = PortFacts {
        speed: None,
        ..facts[0].clone()
    };
    let ring = u64::from(unshaped.transmit_ring) * (u64::from(unshaped.mtu) + 14 + 24);
    assert_eq!(u64::from(qos.pause_terms(&unshaped).unwrap().backlog), ring);
    let unknown = PortFacts {
        speed: None,
        link: None,
        ..facts[0].clone()
    };
    assert_eq!(qos.pause_terms(&unknown), None);
}
