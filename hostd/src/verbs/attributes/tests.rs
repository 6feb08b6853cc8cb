use super::*;
use std::net::Ipv4Addr;

/// All attributes.
fn all() -> Attributes {
    Attributes {
        access: Some(Access::NONE),
        destination: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        destination_qpn: Some(17),
        rq_psn: Some(0xff_ffff),
        sq_psn: Some(0),
        path_mtu: Some(256),
        min_rnr_timer: Some(31),
        max_dest_rd_atomic: Some(limits::RD_ATOMIC),
        max_rd_atomic: Some(0),
        timeout: Some(31),
        retry_count: Some(7),
        rnr_retry: Some(7),
        notify_drained: Some(true),
    }
}

/// These attributes alone.
fn only(names: &[&str]) -> Attributes {
    let all = all();
    let has = |name| names.contains(&name);
    Attributes {
        access: all.access.filter(|_| has(ACCESS)),
        destination: all.destination.filter(|_| has(DESTINATION)),
        destination_qpn: all.destination_qpn.filter(|_| has(DESTINATION_QPN)),
        rq_psn: all.rq_psn.filter(|_| has(RQ_PSN)),
        sq_psn: all.sq_psn.filter(|_| has(SQ_PSN)),
        path_mtu: all.path_mtu.filter(|_| has(PATH_MTU)),
        min_rnr_timer: all.min_rnr_timer.filter(|_| has(MIN_RNR_TIMER)),
        max_dest_rd_atomic: all.max_dest_rd_atomic.filter(|_| has(MAX_DEST_RD_ATOMIC)),
        max_rd_atomic: all.max_rd_atomic.filter(|_| has(MAX_RD_ATOMIC)),
        timeout: all.timeout.filter(|_| has(TIMEOUT)),
        retry_count: all.retry_count.filter(|_| has(RETRY_COUNT)),
        rnr_retry: all.rnr_retry.filter(|_| has(RNR_RETRY)),
        notify_drained: all.notify_drained.filter(|_| has(NOTIFY)),
    }
}

/// HT-1: of every pair of states, what is needed is missed by its name, what is taken may be
/// there, and everything else is refused by its name.
#[test]
fn each_change_takes_what_the_table_says() {
    let mut changes = 0;
    for from in State::ALL {
        for to in State::ALL {
            let Some((needed, taken)) = rules(from, to) else {
                let refused = only(&[]).check(from, to);
                assert_eq!(refused, Err(AttributesRefused::NoTransition { from, to }));
                continue;
            };
            changes += 1;
            assert_eq!(only(needed).check(from, to), Ok(()));
            for (attribute, ..) in all().each() {
                let others: Vec<_> = needed
                    .iter()
                    .copied()
                    .filter(|it| *it != attribute)
                    .collect();
                let with: Vec<_> = needed.iter().copied().chain([attribute]).collect();
                let answers = [only(&others).check(from, to), only(&with).check(from, to)];
                let missing = AttributesRefused::Missing {
                    attribute,
                    from,
                    to,
                };
                let wrong = AttributesRefused::NotAllowed {
                    attribute,
                    from,
                    to,
                };
                let expected = if needed.contains(&attribute) {
                    [Err(missing), Ok(())]
                } else if taken.contains(&attribute) {
                    [Ok(()), Ok(())]
                } else {
                    [Ok(()), Err(wrong)]
                };
                assert_eq!(answers, expected, "{from} to {to}: {attribute}");
            }
        }
    }
    assert_eq!(changes, 20, "six each to ERR and RESET, and eight");
}

/// HT-1: a value that is not possible is refused by the name of its attribute.
#[test]
fn impossible_values_are_named() {
    let (from, to) = (State::Init, State::ReadyToReceive);
    let (needed, _) = rules(from, to).expect("there is such a change");
    let good = only(needed);
    for (wrong, name) in [
        (
            Attributes {
                path_mtu: Some(1500),
                ..good
            },
            PATH_MTU,
        ),
        (
            Attributes {
                path_mtu: Some(8192),
                ..good
            },
            PATH_MTU,
        ),
        (
            Attributes {
                rq_psn: Some(1 << 24),
                ..good
            },
            RQ_PSN,
        ),
        (
            Attributes {
                destination_qpn: Some(1 << 24),
                ..good
            },
            DESTINATION_QPN,
        ),
        (
            Attributes {
                min_rnr_timer: Some(32),
                ..good
            },
            MIN_RNR_TIMER,
        ),
        (
            Attributes {
                max_dest_rd_atomic: Some(limits::RD_ATOMIC + 1),
                ..good
            },
            MAX_DEST_RD_ATOMIC,
        ),
        (
            Attributes {
                destination: Some(Ipv4Addr::UNSPECIFIED.into()),
                ..good
            },
            DESTINATION,
        ),
    ] {
        assert_eq!(
            wrong.check(from, to),
            Err(AttributesRefused::OutOfRange(name))
        );
    }
}
