//! A table as large as a tenth of the Internet's, by BGP from one end of the network to the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use lab::observe::{eventually, rows};
use lab::{exclusive, privileged};
use serde_json::Value;

use super::probe::{Echo, Seen, unreached};
use super::rig::{PATIENCE, Rig, SWITCHES};
use super::table::{self, ROUTES, WITHIN};
use super::{echo, probe};

/// How often tables are counted while they fill.
const COUNT: Duration = Duration::from_millis(250);

/// How the leaf reaches what it has no other route to.
const DEFAULT: [&str; 2] = [
    "ip route add default via 198.51.100.2",
    "ip route add default via 2001:db8:51::2",
];

/// Routes of a machine: the kernel's, and switchd's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    kernel: usize,
    programmed: usize,
}

impl Counts {
    fn of(rig: &Rig, name: &str) -> Self {
        let node = rig.node(name);
        let tries = node.run("cat /proc/net/fib_triestat");
        // The tables `main` and `local` are one, shown twice.
        let v4 = tries
            .lines()
            .find_map(|line| line.trim().strip_prefix("Prefixes:"));
        let v4: usize = v4.expect("a count").trim().parse().expect("a count");
        let v6 = node.run("cat /proc/net/rt6_stats");
        let v6 = v6
            .split_whitespace()
            .nth(1)
            .expect("prefixes are the second");
        let status = rig.switchctl(name, &["status"]);
        let count = |field: &str| status[field].as_u64().expect("a count");
        let programmed = count("routes_v4") + count("routes_v6");
        Self {
            kernel: v4 + usize::from_str_radix(v6, 16).expect("a hexadecimal count"),
            programmed: usize::try_from(programmed).expect("a count"),
        }
    }
}

/// Neighbours come and go while routes are counted.
const NEIGHBOURS: usize = 16;

/// Waits until every machine, and every switchd, has this many routes more than `before`, or not
/// any more than that. Fails when nothing has moved for a while. Returns for each machine how long
/// after `begun` the kernel had them, and how long after it switchd.
fn follow(
    rig: &Rig,
    begun: Instant,
    before: &BTreeMap<&str, Counts>,
    more: usize,
) -> BTreeMap<&'static str, [Duration; 2]> {
    let mut took: BTreeMap<&'static str, [Option<Duration>; 2]> = BTreeMap::new();
    let (mut last, mut moved) = (Vec::new(), begun);
    loop {
        let now: Vec<Counts> = SWITCHES.iter().map(|name| Counts::of(rig, name)).collect();
        for (name, counts) in SWITCHES.into_iter().zip(&now) {
            let before = before[name];
            let pairs = [
                (before.kernel, counts.kernel),
                (before.programmed, counts.programmed),
            ];
            let took = took.entry(name).or_default();
            for (took, (before, now)) in took.iter_mut().zip(pairs) {
                if took.is_none() && (before + more).abs_diff(now) <= NEIGHBOURS {
                    *took = Some(begun.elapsed());
                }
            }
        }
        if took.values().flatten().all(Option::is_some) {
            let all = took.into_iter();
            return all
                .map(|(name, took)| (name, took.map(|it| it.expect("all are"))))
                .collect();
        }
        if last != now {
            (last, moved) = (now, Instant::now());
        }
        assert!(
            moved.elapsed() < PATIENCE,
            "no progress: {before:?} {more} {last:?}"
        );
        sleep(COUNT);
    }
}

/// The kernel's prefixes inside of those of the table.
fn kernel(rig: &Rig, name: &str) -> [BTreeSet<IpNet>; 2] {
    [("-4", WITHIN[0]), ("-6", WITHIN[1])].map(|(family, within)| {
        let text = rig
            .node(name)
            .run(&format!("ip {family} route show root {within}"));
        let lines = text
            .lines()
            .filter(|line| !line.starts_with(char::is_whitespace));
        let prefix = |line: &str| {
            let word = line.split(' ').next().expect("a prefix");
            let host = || word.parse().map(|address: std::net::IpAddr| address.into());
            word.parse().or_else(|_| host()).expect("a prefix")
        };
        lines.map(prefix).collect()
    })
}

/// What switchd has of these, as shown to operators.
fn shown(rig: &Rig, name: &str) -> [Vec<Value>; 2] {
    let rows = |within| rows(rig.switchctl(name, &["routes", within, "--limit", "100000"]));
    WITHIN.map(rows)
}

fn programmed(rig: &Rig, name: &str) -> [BTreeSet<IpNet>; 2] {
    shown(rig, name).map(|rows| {
        let prefix = |row: &Value| row["prefix"].as_str().expect("a prefix").parse();
        rows.iter()
            .map(|row| prefix(row).expect("a prefix"))
            .collect()
    })
}

/// Both the kernel and switchd come to have these, and no other.
fn assert_has(rig: &Rig, name: &str, prefixes: &[BTreeSet<IpNet>; 2]) {
    eventually(&format!("agreement on {name}"), PATIENCE, || {
        let (kernel, programmed) = (kernel(rig, name), programmed(rig, name));
        if kernel == *prefixes && programmed == *prefixes {
            return Ok(());
        }
        let counts = |all: &[BTreeSet<IpNet>; 2]| all.each_ref().map(BTreeSet::len);
        let (kernel, programmed) = (counts(&kernel), counts(&programmed));
        Err(format!("the kernel has {kernel:?}, switchd {programmed:?}"))
    });
}

/// Resident memory of a switchd in bytes.
fn memory(rig: &Rig, name: &'static str) -> usize {
    let id = rig.running[&(name, "switchd")].id();
    let text = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    kilobytes.expect("the kernel tells") << 10
}

fn counts(rig: &Rig) -> BTreeMap<&'static str, Counts> {
    SWITCHES.map(|name| (name, Counts::of(rig, name))).into()
}

/// Few enough: next to nothing.
fn assert_forwarded(what: &str, seen: &Seen) {
    println!("{what}; {seen}");
    assert!(seen.lost() * 1000 <= seen.sent(), "{what}: {seen}");
}

/// BIRD announces, or withdraws, the table.
fn announce(rig: &Rig, verb: &str) {
    for full in ["full4", "full6"] {
        rig.birdc(&format!("{verb} {full}"));
    }
}

/// The table with what it is to be, and what sends through it.
struct Full {
    rig: Rig,
    prefixes: [BTreeSet<IpNet>; 2],
    before: BTreeMap<&'static str, Counts>,
    _echo: Echo,
}

impl Full {
    fn new() -> Self {
        let prefixes = table::prefixes();
        let more = table::for_bird(&prefixes, ["10.2.0.2", "2001:db8:2::2"]);
        let rig = Rig::with(&more, |text| text);
        for within in WITHIN {
            let h2 = rig.node("h2");
            h2.run(&format!("ip route add local {within} dev lo"));
        }
        // Inside of it all that the leaf forwards is an exception, of which its XDP programs are
        // told: as on a switch with a management network.
        rig.node("leaf").run(DEFAULT[0]);
        rig.node("leaf").run(DEFAULT[1]);
        Self {
            _echo: echo(&rig),
            before: counts(&rig),
            rig,
            prefixes,
        }
    }

    /// A packet to one address in each of 1000 prefixes arrives.
    fn assert_reached(&self) {
        let samples = table::samples(&self.prefixes, 1000);
        let [h1, h2] = ["h1", "h2"].map(|host| self.rig.node(host).namespace());
        let lost = unreached(h1, h2, &samples);
        assert!(
            lost.is_empty(),
            "{} of {}: {lost:?}",
            lost.len(),
            samples.len()
        );
    }

    /// Fills the tables. Returns how long that took.
    fn fill(&self) -> Duration {
        let total: usize = ROUTES.iter().sum();
        let memory_before = SWITCHES.map(|name| memory(&self.rig, name));
        let running = probe(&self.rig);
        let begun = Instant::now();
        announce(&self.rig, "enable");
        let took = follow(&self.rig, begun, &self.before, total);
        let all = begun.elapsed();
        let what = format!("{total} routes, in (kernel, switchd) after {took:.1?}");
        assert_forwarded(&what, &running.finish());
        for (name, before) in SWITCHES.into_iter().zip(memory_before) {
            let gain = memory(&self.rig, name).saturating_sub(before) / total;
            let status = self.rig.switchctl(name, &["status"]);
            let overruns = &status["netlink_overruns"];
            println!("{name}: {gain} bytes of memory a route, {overruns} overruns of netlink");
            // What a route takes in the mirror, in the program and in the table, several times.
            assert!(gain < 4096, "{name}: {gain} bytes of memory a route");
            assert_has(&self.rig, name, &self.prefixes);
        }
        all
    }

    /// All routes of the spine lose one of their two next hops.
    fn replace(&self) {
        let running = probe(&self.rig);
        let begun = Instant::now();
        let shut = [
            "configure",
            "router bgp 65100",
            "neighbor border2 shutdown",
            "end",
        ];
        self.rig.vtysh("spine", &shut);
        eventually("every route by one next hop", 2 * PATIENCE, || {
            let all = shown(&self.rig, "spine");
            let by = |row: &Value| {
                let hops = row["next_hops"].as_array().map_or(0, Vec::len);
                hops == 1 && row["next_hops"][0]["port"] == "border1"
            };
            match all.iter().flatten().filter(|row| !by(row)).count() {
                0 => Ok(()),
                left => Err(format!("{left} are not")),
            }
        });
        let what = format!("all routes replaced after {:.1?}", begun.elapsed());
        assert_forwarded(&what, &running.finish());
    }

    /// The leaf's default route goes and comes: all other routes cease to be exceptions, and are
    /// exceptions again. That takes less time than it took to fill the table.
    fn punt(&self, filled: Duration) {
        let rig = &self.rig;
        let running = probe(rig);
        let mut took = Vec::new();
        for (change, rows) in [("delete", 0), ("add", 2)] {
            let begun = Instant::now();
            for line in DEFAULT {
                rig.node("leaf").run(&line.replace("add", change));
            }
            eventually("punted default routes", 2 * PATIENCE, || {
                let punted = lab::observe::rows(rig.switchctl("leaf", &["routes", "--punted"]));
                let is_default = |row: &&Value| {
                    let prefix = row["prefix"].as_str().unwrap_or_default();
                    ["0.0.0.0/0", "::/0"].contains(&prefix)
                };
                let found = punted.iter().filter(is_default).count();
                if found == rows {
                    Ok(())
                } else {
                    Err(format!("{punted:?}"))
                }
            });
            took.push(begun.elapsed());
        }
        let what = format!("default routes punted (not, again) after {took:.1?}");
        assert_forwarded(&what, &running.finish());
        assert!(took.iter().all(|took| *took < filled), "{what}, {filled:?}");
    }

    /// BIRD withdraws all.
    fn withdraw(&self) {
        let running = probe(&self.rig);
        let begun = Instant::now();
        announce(&self.rig, "disable");
        let took = follow(&self.rig, begun, &self.before, 0);
        let what = format!("withdrawn from (kernel, switchd) after {took:.1?}");
        assert_forwarded(&what, &running.finish());
        for name in SWITCHES {
            assert_has(&self.rig, name, &Default::default());
            assert_eq!(self.rig.punted(name), 0, "{name}");
        }
    }
}

/// SW-2: 100,000 routes that BIRD announces are, by way of two FRR, in the tables of three
/// switches, as the kernels have them; sampled ones forward; traffic loses nothing meanwhile, nor
/// when all of them change their next hops at once, are exceptions to what is punted, or go.
#[test]
fn a_full_table_is_followed_under_traffic() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let full = Full::new();
    let filled = full.fill();
    full.assert_reached();
    full.replace();
    full.assert_reached();
    full.punt(filled);
    full.assert_reached();
    full.withdraw();
}
