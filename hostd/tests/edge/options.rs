//! What applications choose for their connections.

use crate::ends::End;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{Access, CompletionStatus, ConnectionOptions, Error, ErrorCode, SendRequest};

fn end(daemon: &Daemon) -> End {
    End::new(daemon, 64, (4096, Access::LOCAL_WRITE))
}

/// HT-1, HT-2: the options of both ends are in force: a SEND without a receive ends when its peer's
/// tries are over, instead of waiting for ever, and the attributes say what was chosen.
#[test]
fn a_connection_has_the_options_of_its_ends() {
    let (a, b) = pair(&config());
    let mut ends = [&a, &b].map(end);
    let chosen = ConnectionOptions {
        timeout: 14,
        retry_count: 3,
        rnr_retry: 2,
        min_rnr_timer: 5,
        responder_resources: 4,
        initiator_depth: 8,
    };
    let own = ConnectionOptions {
        timeout: 15,
        retry_count: 5,
        rnr_retry: 6,
        min_rnr_timer: 9,
        ..chosen
    };
    ends[0].queue_pair.set_options(&own).expect("fresh");
    ends[1].queue_pair.set_options(&chosen).expect("fresh");
    let [first, second] = &mut ends;
    first.connect(second, b.address);
    let known = ends.each_ref().map(|end| {
        let (_, attributes) = end.queue_pair.query().expect("known");
        attributes
    });
    // Each side has its own timer, the other one's wish for tries without receives, and the
    // time-out and the tries of the one that connected.
    let of = |n: usize| {
        (
            known[n].timeout,
            known[n].min_rnr_timer,
            known[n].rnr_retry,
            known[n].retry_count,
            known[n].max_rd_atomic,
        )
    };
    assert_eq!(of(0), (Some(15), Some(9), Some(2), Some(5), Some(4)));
    assert_eq!(of(1), (Some(15), Some(5), Some(6), Some(5), Some(4)));

    let local = ends[0].memory.slice(0, 100).expect("inside");
    let send = SendRequest::send(1, local);
    ends[0].queue_pair.post_send(&send).expect("posted");
    let ended = ends[0].queue.next(PATIENCE).expect("a completion");
    assert_eq!(ended.status, CompletionStatus::RnrRetryExceeded);
    let late = ends[0].queue_pair.set_options(&own);
    assert!(
        matches!(
            &late,
            Err(Error::Refused {
                code: ErrorCode::InvalidState,
                ..
            })
        ),
        "{late:?}"
    );
}

/// HT-2: a value out of its range is refused by its name, and nothing has changed.
#[test]
fn options_have_ranges() {
    let (a, _b) = pair(&config());
    let mut end = end(&a);
    let good = ConnectionOptions::default();
    for (name, wrong) in [
        (
            "timeout",
            ConnectionOptions {
                timeout: 32,
                ..good
            },
        ),
        (
            "retry_count",
            ConnectionOptions {
                retry_count: 8,
                ..good
            },
        ),
        (
            "rnr_retry",
            ConnectionOptions {
                rnr_retry: 8,
                ..good
            },
        ),
        (
            "min_rnr_timer",
            ConnectionOptions {
                min_rnr_timer: 32,
                ..good
            },
        ),
        (
            "responder_resources",
            ConnectionOptions {
                responder_resources: 129,
                ..good
            },
        ),
        (
            "initiator_depth",
            ConnectionOptions {
                initiator_depth: 129,
                ..good
            },
        ),
    ] {
        match end.queue_pair.set_options(&wrong) {
            Err(Error::Refused { code, text }) => {
                assert_eq!(code, ErrorCode::InvalidArgument);
                assert!(text.starts_with(name), "{text}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    end.queue_pair.set_options(&good).expect("in range");
}
