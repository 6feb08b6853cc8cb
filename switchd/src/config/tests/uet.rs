//! The classes of Ultra Ethernet.

use super::*;

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
