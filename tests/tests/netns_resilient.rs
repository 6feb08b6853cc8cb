//! Resilient next hop groups of the kernel (`ip nexthop … type resilient`) on a leaf between two
//! spines, with flows that send all the time.

use std::collections::BTreeMap;
use std::thread::{scope, sleep};
use std::time::Duration;

use lab::observe::{assert_healthy, eventually, gain, received, rows, switches};
use lab::traffic::iperf;
use lab::{Lab, exclusive, privileged};
use serde_json::Value;

const SETTLE: Duration = Duration::from_secs(20);

fn leaf(lab: &Lab, line: &str) -> String {
    lab.host("leaf1").run(line.split(' ')).unwrap().expect_ok()
}

/// What switchd made of object 10, once its next hops have so many buckets.
fn group(lab: &Lab, buckets: [u64; 2]) -> Value {
    eventually(&format!("{buckets:?}"), SETTLE, || {
        let all = rows(lab.switchctl("leaf1", &["ecmp"]).unwrap());
        let row = all.iter().find(|row| row["object"] == 10);
        let row = row.ok_or_else(|| format!("{all:?}"))?;
        let hops = row["next_hops"].as_array().expect("a list");
        let share = |port: &str| {
            let hop = hops.iter().find(|hop| hop["port"] == port);
            let percent = hop.map_or(0.0, |hop| hop["percent"].as_f64().expect("a number"));
            percent * 64.0 / 100.0
        };
        let found = ["spine1", "spine2"].map(share);
        let is_so = found
            .iter()
            .zip(buckets)
            .all(|(a, b)| (a - b as f64).abs() < 0.01);
        if is_so {
            Ok(row.clone())
        } else {
            Err(format!("{row}"))
        }
    })
}

/// SW-3: a resilient group of the kernel has its number of buckets, dealt out as in the kernel. A
/// next hop that leaves loses its buckets at once; when it is back it gets as many again, but none
/// in which flows send.
#[test]
fn flows_that_send_keep_their_next_hop() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let lab = switches("swres").up().unwrap();
    leaf(&lab, "ip nexthop add id 1 via 10.201.1.0 dev spine1");
    leaf(&lab, "ip nexthop add id 2 via 10.202.1.0 dev spine2");
    leaf(
        &lab,
        "ip nexthop add id 10 group 1,3/2 type resilient buckets 64 idle_timer 30",
    );
    leaf(&lab, "ip route replace 10.2.0.0/16 nhid 10");
    let seen = group(&lab, [48, 16]);
    assert_eq!(seen["resilient"]["buckets"], 64);
    assert_eq!(seen["resilient"]["idle_seconds"], 30.0);
    // The kernel's own buckets.
    let mut kernels = BTreeMap::<String, u64>::new();
    for line in leaf(&lab, "ip nexthop bucket show id 10").lines() {
        let owner = line.rsplit("nhid ").next().expect("a last word").trim();
        *kernels.entry(owner.to_owned()).or_default() += 1;
    }
    assert_eq!(kernels, [("1".to_owned(), 48), ("2".to_owned(), 16)].into());

    let with = |members: &str| {
        let group = format!("ip nexthop replace id 10 group {members} type resilient");
        leaf(&lab, &group);
    };
    let by_second = |work: &dyn Fn()| {
        let before = received(&lab).unwrap();
        work();
        let carried = gain(&before, &received(&lab).unwrap());
        let on = |spine: &str| carried[&(spine.to_owned(), "leaf1".to_owned())];
        (on("spine1"), on("spine2"))
    };
    with("1");
    group(&lab, [64, 0]);
    // 16 flows have at most as many buckets, and one is that of what they arrange.
    let udp = ["-u", "-b", "2M", "-l", "500", "-P", "16", "-t"];
    let send = |seconds| {
        let all = [&udp[..], &[seconds]].concat();
        iperf(lab.host("h1"), lab.host("h4"), &all).unwrap();
    };
    scope(|scope| {
        scope.spawn(|| send("8"));
        sleep(Duration::from_secs(2));
        with("1,1/2,1");
        group(&lab, [32, 32]);
        let (one, two) = by_second(&|| sleep(Duration::from_secs(3)));
        // Nothing but what the neighbours say.
        assert!(one > 1000 && two < 50, "spine1 {one}, spine2 {two}");
    });
    // Flows that begin are dealt out to all buckets.
    let (one, two) = by_second(&|| send("1"));
    assert!(one > 100 && two > 100, "spine1 {one}, spine2 {two}");
    assert_healthy(&lab, &[]);
}
