//! Sub-paths and their use change while a file is copied (HT-22, HT-32): `hostctl set` on either
//! side, and what both sides show afterwards.

use super::vanished::connected;
use super::*;

/// How fast hosts send in a copy, and how many bytes that is.
const SPEED: &str = "50Mbps";
const PER_MILLISECOND: usize = 50_000 / 8;

/// Data packets that a path which is in force has got before it is believed.
const MANY: u64 = 100;

/// One side of a connection.
struct Side<'a> {
    host: &'a Host,
    qpn: u64,
}

/// A sub-path, as `hostctl paths` shows it.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    standing: String,
    weight: u64,
    entropy: u64,
    rtt: Option<u64>,
    tx_packets: u64,
}

impl Side<'_> {
    /// `hostctl set`: what it says when it is refused.
    fn set(&self, words: &[&str]) -> Result<(), String> {
        let qpn = self.qpn.to_string();
        let mut command = self.host.command("hostctl");
        let output = command.args(["set", &qpn]).args(words).output();
        let output = output.expect("starts");
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn paths(&self) -> Vec<Row> {
        let all = self.host.show("paths").into_iter();
        let own = all.filter(|row| row["qpn"] == self.qpn);
        own.map(|row| Row {
            standing: row["standing"].as_str().expect("a word").to_owned(),
            weight: row["weight"].as_u64().expect("a number"),
            entropy: row["entropy"].as_u64().expect("a number"),
            rtt: row["rtt_us"].as_u64(),
            tx_packets: row["tx_packets"].as_u64().expect("a number"),
        })
        .collect()
    }

    /// The queue pair itself.
    fn pair(&self) -> Value {
        let mut all = self.host.show("qps").into_iter();
        all.find(|row| row["qpn"] == self.qpn).expect("it is there")
    }

    /// Sub-paths in force.
    fn in_force(&self) -> Vec<usize> {
        let rows = self.paths().into_iter().enumerate();
        let used = rows.filter(|(_, row)| ["carrying", "unmeasured"].contains(&&*row.standing));
        used.map(|(path, _)| path).collect()
    }

    /// What changes, as this side holds it: sub-paths and weights; the agreement.
    fn holds(&self) -> (Vec<(bool, u64)>, Vec<Value>) {
        let row = |row: Row| (row.standing == "unused", row.weight);
        let pair = self.pair();
        let keys = [
            "granularity",
            "reorder_packets",
            "reorder_time_us",
            "flowlet_timeout_us",
            "changes",
        ];
        let paths = self.paths().into_iter().map(row).collect();
        (paths, keys.map(|key| pair[key].clone()).to_vec())
    }

    /// Waits until these sub-paths have carried many packets more; how many each of all did.
    fn carried(&self, by: &[usize]) -> Vec<u64> {
        let before = self.paths();
        let mut gains = Vec::new();
        self.host.wait_for("packets on sub-paths", || {
            let now = self.paths();
            let pairs = now.iter().zip(&before);
            gains = pairs
                .map(|(now, old)| now.tx_packets - old.tx_packets)
                .collect();
            by.iter().all(|path| gains[*path] >= MANY)
        });
        gains
    }

    /// Waits until a sub-path stands so.
    fn stands(&self, path: usize, standing: &str) {
        let what = format!("path {path} is {standing}");
        self.host
            .wait_for(&what, || self.paths()[path].standing == standing);
    }
}

/// Sub-paths are taken out by one side and put in force by the other.
fn paths_come_and_go(a: &Side<'_>, b: &Side<'_>) {
    a.carried(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let first = a.paths();
    a.set(&["--remove", "1,2,3"]).expect("possible");
    for side in [a, b] {
        assert_eq!(side.in_force(), [0, 4, 5, 6, 7]);
    }
    for path in [1, 2, 3] {
        a.stands(path, "unused");
    }
    let gains = a.carried(&[0, 4, 5, 6, 7]);
    assert_eq!(gains[1..4], [0, 0, 0], "taken out: {gains:?}");
    b.set(&["--add", "2"]).expect("possible");
    for side in [a, b] {
        assert_eq!(side.in_force(), [0, 2, 4, 5, 6, 7]);
    }
    a.stands(2, "carrying");
    let again = a.paths().remove(2);
    assert!(again.rtt.is_some(), "a probe has measured it: {again:?}");
    assert_ne!(again.entropy, first[2].entropy, "another way");
    let gains = a.carried(&[0, 2, 4, 5, 6, 7]);
    assert_eq!([gains[1], gains[3]], [0, 0], "{gains:?}");
}

/// Weights of one side share its packets out; granularity and tolerance are those of both.
fn use_changes(a: &Side<'_>, b: &Side<'_>) {
    a.set(&["--weight", "0=10,2=1,4=5,5=1,6=1,7=1"])
        .expect("possible");
    let weights = |side: &Side<'_>| -> Vec<u64> {
        let rows = side.paths().into_iter();
        rows.map(|row| row.weight).collect()
    };
    assert_eq!(weights(a), [10, 1, 1, 1, 5, 1, 1, 1]);
    assert_eq!(weights(b), [1; 8], "a sender's own");
    let gains = a.carried(&[2, 5, 6, 7]);
    assert!(gains[0] > 5 * gains[2], "{gains:?}");
    assert!(gains[4] > 2 * gains[2], "{gains:?}");

    let words = ["--granularity", "flow", "--reorder-packets", "300"];
    b.set(&words).expect("possible");
    let times = ["--reorder-time-us", "2500", "--flowlet-timeout-us", "70"];
    a.set(&times).expect("possible");
    for side in [a, b] {
        let pair = side.pair();
        assert_eq!(pair["granularity"], "flow");
        assert_eq!(pair["reorder_packets"], 300);
        assert_eq!(pair["reorder_time_us"], 2500);
        assert_eq!(pair["flowlet_timeout_us"], 70);
    }
    // What is sent again, because a host was late, takes another path, and so does a flow whose
    // path is slow for that.
    let changes = |side: &Side<'_>| -> u64 {
        let pair = side.pair();
        let number = |key: &str| pair[key].as_u64().expect("a number");
        number("retransmits") + number("path_moves")
    };
    let (again, before) = (changes(a), a.paths());
    let sent = |rows: &[Row]| -> u64 { rows.iter().map(|row| row.tx_packets).sum() };
    a.host
        .wait_for("a flow", || sent(&a.paths()) >= sent(&before) + 5 * MANY);
    let after = a.paths();
    let pairs = after.iter().zip(&before);
    let used = pairs.filter(|(now, old)| now.tx_packets > old.tx_packets);
    let most = 1 + changes(a) - again;
    assert!(used.count() as u64 <= most, "{before:?} {after:?} {most}");

    let words = ["--granularity", "packet", "--add", "1,3", "--remove", "0,7"];
    a.set(&words).expect("possible");
    for side in [a, b] {
        assert_eq!(side.in_force(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(side.pair()["granularity"], "packet");
    }
    a.stands(0, "unused");
    let gains = a.carried(&[1, 2, 3, 4, 5, 6]);
    assert_eq!([gains[0], gains[7]], [0, 0], "{gains:?}");
}

/// Each of these requests is refused on this side, and says why.
fn refused(side: &Side<'_>, requests: &[(&[&str], &str)]) {
    for (words, why) in requests {
        let said = side.set(words).expect_err("impossible");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

/// Waits until a metric has this value.
fn counts(host: &Host, name: &str, value: u64) {
    let line = format!("{name} {value}");
    host.wait_for(&line, || scrape(host).lines().any(|other| other == line));
}

/// Changes that both sides made, those that `asked` for them themselves among them.
fn counted(sides: [(&Side<'_>, u64); 2]) {
    let made = sides.iter().map(|(_, asked)| asked).sum();
    for (side, asked) in sides {
        let pair = side.pair();
        assert_eq!([&pair["changes"], &pair["changes_refused"]], [made, 0]);
        counts(side.host, "hostd_changes_asked_total", asked);
        counts(side.host, "hostd_changes_made_total", made);
        counts(side.host, "hostd_changes_refused_total", 0);
        let probes = pair["path_probes"].as_u64().expect("a number");
        assert!(probes >= 3, "of paths 1, 2 and 3: {probes}");
    }
}

/// The bytes of a copy that takes some seconds longer than `calls` of `hostctl` do here at present.
fn length(host: &Host, calls: u32) -> usize {
    let began = Instant::now();
    let samples = 5;
    for _ in 0..samples {
        host.show("paths");
    }
    let lasts = Duration::from_millis(4_500) + began.elapsed() / samples * calls;
    let millis = usize::try_from(lasts.as_millis()).expect("short");
    millis * PER_MILLISECOND
}

/// HT-32, HT-22: while a file is copied, sub-paths are taken out, put in force and weighed, and
/// granularity and tolerance change, asked for on either side by `hostctl set`. `hostctl paths` and
/// `hostctl qps` show on both sides what holds, packets follow, the metrics count, and the file
/// arrives as it was.
#[test]
fn sub_paths_change_during_a_copy() {
    if !possible() {
        return;
    }
    let mut link = Link::over(None, SPEED);
    // Other ways of spraying heed what comes back, so weights are no exact shares.
    for host in &mut link.hosts {
        configure(host, "[multipath]\nspraying = 'oblivious'\n");
    }
    let [a, b] = &link.hosts;
    let content = bytes(length(a, 400));
    fs::write(a.folder.path().join("file"), &content).expect("written");
    fs::create_dir(b.folder.path().join("inbox")).expect("a folder");
    let _receiver = serve(b, "hostcp", &["serve", "--root", "inbox"]);
    let mut command = a.command("hostcp");
    command
        .args(["file", "10.9.0.2:arrived"])
        .stdout(Stdio::null());
    let mut sender = Process(command.spawn().expect("starts"));
    let mut pair = Value::Null;
    a.wait_for("data flows", || {
        pair = a.show("qps").pop().unwrap_or_default();
        pair["tx_packets"].as_u64().is_some_and(|sent| sent > MANY)
    });
    let side = |host, key: &str| Side {
        host,
        qpn: pair[key].as_u64().expect("a number"),
    };
    let (from, to) = (side(a, "qpn"), side(b, "remote_qpn"));
    paths_come_and_go(&from, &to);
    use_changes(&from, &to);
    let before = [from.holds(), to.holds()];
    for side in [&from, &to] {
        refused(
            side,
            &[
                (&["--remove", "1,2,3,4,5,6"], "no sub-path would be left"),
                (&["--add", "0", "--weight", "1=0"], "weight 0 of sub-path 1"),
            ],
        );
    }
    from.carried(&[1, 2, 3, 4, 5, 6]);
    assert_eq!([from.holds(), to.holds()], before, "refused");
    counted([(&from, 3), (&to, 2)]);
    let running = sender.0.try_wait().expect("our child").is_none();
    assert!(running, "the copy was over before all was changed");
    println!("{} bytes; the sender: {}", content.len(), from.pair());
    assert!(sender.0.wait().expect("it ends").success());
    let arrived = fs::read(b.folder.path().join("inbox/arrived")).expect("a file");
    assert!(arrived == content, "the same bytes");
    for host in [a, b] {
        let mut lossy = host.show("drops");
        // The answer to a probe that was given up, because a host was late for 50 ms.
        let late = STRAGGLERS.iter().chain(&["unexpected_change"]);
        lossy.retain(|row| row["packets"] != 0 && late.clone().all(|it| row["reason"] != *it));
        assert!(lossy.is_empty(), "{lossy:?}");
    }
}

/// Requests that no multipath connection with all of eight sub-paths in force can meet. The first
/// ones are refused by hostd's engine.
const IMPOSSIBLE: &[(&[&str], &str)] = &[
    (&["--add", "8"], "there is no sub-path 8: 8 were agreed on"),
    (&["--remove", "255"], "there is no sub-path 255"),
    (&["--weight", "9=5"], "there is no sub-path 9"),
    (&["--add", "1"], "sub-path 1 is in force already"),
    (&["--remove", "0"], "sub-path 0 is not in force"),
    (&["--weight", "0=5"], "sub-path 0 is not in force"),
    (&["--add", "0", "--remove", "0"], "sub-path 0 is both"),
    (&["--remove", "1,2,3,4,5,6,7"], "no sub-path would be left"),
    (&["--weight", "1=0"], "weight 0 of sub-path 1 is not from 1"),
    (&["--weight", "1=101"], "weight 101 of sub-path 1 is not"),
    (&["--remove", "1", "--weight", "2=0"], "weight 0 of"),
    (&["--reorder-time-us", "99"], "the reorder time is out of"),
    (&["--flowlet-timeout-us", "65536"], "the flowlet time-out"),
    (&[], "nothing is to be changed"),
];

/// Requests that are not understood.
const WRONG: &[(&[&str], &str)] = &[
    (&["--granularity", "message"], "\"message\" is not flow"),
    (&["--add", "256"], "256 is not in 0..=255"),
    (&["--weight", "1"], "\"1\" is not PATH=WEIGHT"),
    (&["--weight", "1=256"], "\"1=256\" is not PATH=WEIGHT"),
];

/// The only connection of a host.
fn only(host: &Host) -> Side<'_> {
    let qpn = host.show("qps")[0]["qpn"].as_u64();
    Side {
        host,
        qpn: qpn.expect("a number"),
    }
}

/// HT-32: requests that cannot be met, on either side, say why and name the queue pair; a metric
/// counts them, and nothing changes. So it is for queue pairs that do not exist and for plain
/// connections.
#[test]
fn impossible_changes_are_refused() {
    if !possible() {
        return;
    }
    let mut link = Link::new();
    let ends = connected(&link.hosts, 1);
    let [a, b] = &link.hosts;
    let sides = [only(a), only(b)];
    sides[0].set(&["--remove", "0"]).expect("possible");
    sides[0].stands(0, "unused");
    sides[1].stands(0, "unused");
    let before = sides.each_ref().map(Side::holds);
    for side in &sides {
        refused(side, IMPOSSIBLE);
        refused(side, WRONG);
        let other = Side {
            host: side.host,
            qpn: side.qpn ^ 1,
        };
        let named = format!("queue pair {}: no such queue pair", other.qpn);
        refused(&other, &[(&["--remove", "1"], &named)]);
        let many = IMPOSSIBLE.len() as u64 + 1;
        counts(side.host, "hostd_changes_impossible_total", many);
    }
    assert_eq!(sides.each_ref().map(Side::holds), before);
    drop(ends);

    // One side without multipath makes the connection a plain one.
    configure(&mut link.hosts[1], "[multipath]\nenabled = false\n");
    let _ends = connected(&link.hosts, 1);
    for host in &link.hosts {
        let plain = only(host);
        assert_eq!(plain.pair()["multipath"], false);
        let why = "the connection is plain RoCEv2: it has one path";
        refused(
            &plain,
            &[(&["--weight", "0=5"], why), (&["--add", "1"], why)],
        );
    }
}
