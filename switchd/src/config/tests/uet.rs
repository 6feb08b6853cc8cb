//! The classes of Ultra Ethernet.

use super::*;
use crate::tables::policy::PortPolicy;

/// SW-16, SW-22, SW-23: what UET recommends, for 100 Gb/s and a base round trip of 12 µs: Plane_BDP
/// = 150,000 bytes.
#[test]
fn uet_classes_follow_the_plane_bdp() {
    let qos = |low: &str| {
        let text = format!(
            r#"
[trim.trimmable]
8 = 16
[[queue]]
queues = [1]
uet = "low"
{low}
[[queue]]
queues = [2]
uet = "med"
[[queue]]
queues = [3]
uet = "high"
"#
        );
        let qos: Qos = toml::from_str(&text).unwrap();
        qos.compile(&facts()).unwrap().policy.ports[0].clone()
    };
    use crate::tables::policy::{Limit, Schedule};
    use crate::tables::wred::Curve;
    let port = qos("");
    let [low, med, high] = [1, 2, 3].map(|queue: usize| &port.queues[queue]);
    let cells = |bytes: u32| Some(Limit::Static(bytes / 256));
    let (marks, trims) = (low.wred.unwrap(), low.trim.unwrap());
    assert_eq!(
        marks.profile.curve,
        Curve::Linear {
            kmin: 30_000,
            kmax: 120_000,
            pmax: 1 << 16
        }
    );
    assert!(marks.profile.ecn && !marks.profile.drop && marks.at_dequeue);
    assert_eq!((trims.bytes, trims.rtx_bytes), (150_000, 225_000));
    assert_eq!(
        (low.limit, low.schedule),
        (cells(750_000), Schedule::Dwrr(25))
    );
    assert_eq!(
        (med.limit, med.schedule),
        (cells(150_000), Schedule::Dwrr(75))
    );
    assert_eq!(
        (high.limit, high.schedule),
        (cells(150_000), Schedule::Strict)
    );
    assert!(med.wred.is_none() && high.wred.is_none() && med.trim.is_none());
    // What is said itself counts.
    let port = qos("weight = 40\ntrim_bytes = 100000\nuet_marks = \"threshold\"");
    let threshold = 75_000;
    assert_eq!(
        port.queues[1].wred.unwrap().profile.curve,
        Curve::Deterministic { threshold }
    );
    assert_eq!(port.queues[1].schedule, Schedule::Dwrr(40));
    assert_eq!(port.queues[1].trim.unwrap().bytes, 100_000);
}

/// SW-11: where to mark is for the class that marks.
#[test]
fn only_low_marks() {
    let qos: Qos =
        toml::from_str("[[queue]]\nqueues = [2]\nuet = \"med\"\nuet_marks = \"line\"").unwrap();
    let error = qos.compile(&facts()).expect_err("it does not mark");
    assert_eq!(
        error.iter().next().map(|it| it.key.as_str()),
        Some("qos.queue[0].uet_marks")
    );
}

/// SW-16, SW-22, SW-23: Plane_BDP is of the slower of the port and the hosts' links; without
/// trimming control drops at 2 × Plane_BDP; TC_med gets three quarters against all of TC_low.
#[test]
fn planes_are_as_fast_as_their_hosts() {
    use crate::tables::policy::{Limit, Schedule};
    use crate::tables::wred::Curve;
    let compiled = |more: &str, low: &str| {
        let text = format!(
            "{more}\n[[queue]]\nqueues = {low}\nuet = \"low\"\n[[queue]]\nqueues = [6]\nuet = \"med\"\n\
             [[queue]]\nqueues = [7]\nuet = \"high\"\n"
        );
        let qos: Qos = toml::from_str(&text).unwrap();
        qos.compile(&facts()).unwrap().policy.ports[0].clone()
    };
    let limits = |port: &PortPolicy| {
        [1, 6, 7].map(|queue| match port.queues[queue].limit {
            Some(Limit::Static(cells)) => cells,
            other => panic!("{other:?}"),
        })
    };
    let wanted = |bdp: u32| [5 * bdp / 256, 2 * bdp / 256, 2 * bdp / 256];
    let marks = |port: &PortPolicy| match port.queues[1].wred.unwrap().profile.curve {
        Curve::Linear { kmin, kmax, .. } => (kmin, kmax),
        other => panic!("{other:?}"),
    };
    for (more, bdp) in [
        ("", 150_000),
        ("plane_speed = \"25Gbps\"", 37_500),
        ("plane_speed = \"400Gbps\"", 150_000),
    ] {
        let port = compiled(more, "[1]");
        assert_eq!(limits(&port), wanted(bdp), "{more}");
        assert_eq!(marks(&port), (bdp / 5, bdp * 4 / 5), "{more}");
    }
    for low in ["[1]", "[0, 1]", "[0, 1, 2]", "[0, 1, 2, 3, 4, 5]"] {
        let port = compiled("", low);
        let weight = |queue: usize| match port.queues[queue].schedule {
            Schedule::Dwrr(weight) => u32::from(weight),
            Schedule::Strict => 0,
        };
        let all: u32 = (0..6).map(weight).sum();
        assert_eq!(weight(6), 3 * all, "{low}");
    }
}

/// SW-10, SW-11: no threshold of a queue lies below its guarantee, and no port holds less than the
/// guarantees of its queues: refused, with the numbers.
#[test]
fn no_threshold_lies_below_a_guarantee() {
    let refused = |text: &str| {
        let qos: Qos = toml::from_str(text).unwrap();
        let all = qos.compile(&facts()).expect_err(text);
        let all: Vec<_> = all
            .iter()
            .map(|it| format!("{}: {}", it.key, it.reason))
            .collect();
        all.join("; ")
    };
    let queue = "[[queue]]\nqueues = [1]\nguaranteed_bytes = 30000\n";
    for (more, wanted) in [
        (
            "[queue.wred]\nmin_bytes = 29999\nmax_bytes = 90000",
            "qos.queue[0].wred.min_bytes: 29999 lies below the guarantee of 30000 bytes",
        ),
        (
            "trim_bytes = 20000",
            "qos.queue[0].trim_bytes: 20000 lies below the guarantee of 30000 bytes",
        ),
        (
            "trim_bytes = 40000\ntrim_rtx_bytes = 29999",
            "qos.queue[0].trim_rtx_bytes: 29999 lies below the guarantee of 30000 bytes",
        ),
        // What follows from the role of the queue counts as what is said: Plane_BDP is 15,000.
        (
            "uet = \"low\"",
            "qos.queue[0].wred.min_bytes: 3000 lies below the guarantee of 30000 bytes; \
             qos.queue[0].trim_bytes: 15000 lies below the guarantee of 30000 bytes",
        ),
        (
            "uet = \"low\"\n[queue.wred]\nmin_bytes = 30000\nmax_bytes = 90000",
            "qos.queue[0].trim_bytes: 15000 lies below the guarantee of 30000 bytes",
        ),
        (
            "[buffer]\negress_limit_bytes = 20000",
            "qos.buffer.egress_limit_bytes: 19968 is less than the guarantees of the queues of a, 29952 bytes in all",
        ),
    ] {
        let trim = "[trim]\ntrimmable = {\"10\" = 42}\n";
        let plane = "plane_speed = \"10Gbps\"\n";
        assert_eq!(refused(&format!("{plane}{trim}{queue}{more}")), wanted);
    }
}
