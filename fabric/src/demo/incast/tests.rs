use super::*;

fn counts(rows: &[(&str, &str, u64)]) -> Counts {
    let row = |(node, reason, packets): &(&str, &str, u64)| {
        (((*node).to_owned(), (*reason).to_owned()), *packets)
    };
    rows.iter().map(row).collect()
}

#[test]
fn losses_of_switches_are_not_those_of_hosts() {
    let lost = counts(&[
        ("h2", "queue_pair_ended", 3),
        ("h3", "queue_pair_ended", 0),
        ("leaf1", "headroom_full", 1),
        ("spine1", "no_route", 0),
    ]);
    let (switches, hosts) = parted(&lost);
    assert_eq!(switches, counts(&[("leaf1", "headroom_full", 1)]));
    assert_eq!(hosts, counts(&[("h2", "queue_pair_ended", 3)]));
}

fn seen(copies: Vec<Copied>, lost: Counts, waited: u64) -> Seen {
    Seen {
        copies,
        series: Series::default(),
        queue: QueueRow::default(),
        headroom: None,
        lost,
        worst: Some(Wait {
            name: "leaf1".to_owned(),
            waited: Duration::from_millis(waited),
            within: Duration::from_millis(100),
        }),
    }
}

fn copied(same: bool, failure: Option<&str>) -> Copied {
    Copied {
        host: "h2".to_owned(),
        time: Duration::from_secs(1),
        digest: "0".repeat(64),
        same,
        failure: failure.map(str::to_owned),
        paused: Duration::ZERO,
    }
}

#[test]
fn losses_fail_unless_the_machine_is_slow() {
    let lost = || counts(&[("leaf1", "headroom_full", 1)]);
    assert!(verdict(&seen(vec![copied(true, None)], Counts::new(), 0)));
    assert!(!verdict(&seen(vec![copied(true, None)], lost(), 10)));
    assert!(verdict(&seen(vec![copied(true, None)], lost(), 90)));
    let failed = || vec![copied(false, Some("broke off"))];
    assert!(!verdict(&seen(failed(), Counts::new(), 10)));
    assert!(verdict(&seen(failed(), Counts::new(), 90)));
}

#[test]
fn no_machine_excuses_other_bytes() {
    let other = vec![copied(false, None)];
    assert!(!verdict(&seen(other, Counts::new(), 90)));
}

#[test]
fn only_the_lossless_priority_may_be_paused() {
    let way = ("leaf1".to_owned(), "h2".to_owned());
    let mut pauses = Pauses::from([((way.clone(), PRIORITY), 40)]);
    assert_eq!(stray(&pauses), 0);
    pauses.insert((way, 5), 2);
    assert_eq!(stray(&pauses), 2);
}

#[test]
fn pauses_that_are_not_spared_fail_unless_the_machine_is_slow() {
    let round = |pauses, waited| Round {
        fine: true,
        pauses,
        worst: Some(Wait {
            name: "leaf1".to_owned(),
            waited: Duration::from_millis(waited),
            within: Duration::from_millis(100),
        }),
    };
    assert!(compare(&round(100, 0), &round(50, 0)));
    assert!(!compare(&round(100, 0), &round(51, 0)));
    assert!(compare(&round(100, 0), &round(51, 90)));
}
