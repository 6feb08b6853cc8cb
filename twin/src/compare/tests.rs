use super::*;
use crate::simulation::run;

/// The shipped matrices run with the shipped settings, each on a tree that has its hosts, and
/// the figures beside them are those of their names.
#[test]
fn shipped_matrices_are_compared() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/matrices"));
    let comparison = Comparison::load(folder, None, None, "").expect("a folder of matrices");
    for name in comparison.given.keys() {
        assert!(
            comparison.matrices.iter().any(|file| file.ends_with(name)),
            "a figure of {name}, which is not there"
        );
    }
    for file in &comparison.matrices {
        comparison.scenario(file).expect("a scenario");
    }
    let pair = Comparison::load(folder, None, None, "one").expect("a matrix");
    let scenario = pair.scenario(&pair.matrices[0]).expect("a scenario");
    let row = pair.row(&run(&scenario, 1).expect("a run"));
    let tail = row.tail.expect("it is done");
    // 2 MB take 160 µs at 100 Gb/s without headers.
    assert!((160.0..200.0).contains(&tail), "{tail} µs");
    assert!(table(&[row]).to_string().contains("one.cm"));
}

/// HT-34, HT-42, CC-8: as uet-htsim, the transport needs no time-out in an incast, and sprays a
/// permutation about as well as it can be done: 194 µs for 16 flows of 2 MB, and 2,463 for 15 into
/// one host, in the mean of eight seeds: a packet that is trimmed at the end makes single ones
/// longer by up to two parts in a thousand.
#[test]
fn the_transport_reaches_the_given_figures() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/matrices"));
    for (only, single) in [("permutation-16", 1.0), ("incast-15", 1.002)] {
        let comparison = Comparison::load(folder, None, None, only).expect("a matrix");
        let scenario = comparison.scenario(&comparison.matrices[0]).expect("it");
        let mut sum = 0.0;
        for seed in 1..=8 {
            let row = comparison.row(&run(&scenario, seed).expect("a run"));
            let (tail, given) = (row.tail.expect("done"), row.given.expect("a figure"));
            assert!(tail <= given * single, "{only}, seed {seed}: {tail} µs");
            assert_eq!(row.timeouts, 0, "{only}, seed {seed}");
            sum += tail / given;
        }
        assert!(sum <= 8.0, "{only}: {sum}");
    }
}

/// A link at a tenth of its speed takes ten times as long for a flow, and no longer than that.
#[test]
fn a_slow_link_is_slow() {
    let text = |fault: &str| {
        format!(
            "[topology]\nkind = \"pair\"\n[[workload]]\nkind = \"permutation\"\nsize = \"1MB\"\n{fault}"
        )
    };
    let time = |fault: &str| {
        let read = |_: &str| Err("none".to_owned());
        let scenario = Scenario::parse(&text(fault), "pair", &read).expect("a scenario");
        run(&scenario, 1).expect("a run").duration_ns
    };
    let slow = "[[fault]]\nkind = \"slow-link\"\nlink = \"h1-h2\"\npart = 0.1\n";
    let (whole, tenth) = (time(""), time(slow));
    assert!((9 * whole..11 * whole).contains(&tenth), "{whole} {tenth}");
    // Towards one end alone: only what is sent there is late.
    let towards = |end: &str| {
        let read = |_: &str| Err("none".to_owned());
        let text = text(&format!("{slow}towards = \"{end}\"\n"));
        let scenario = Scenario::parse(&text, "pair", &read).map_err(|it| it.reason)?;
        let outcome = run(&scenario, 1).expect("a run");
        let late = outcome
            .flows
            .iter()
            .filter(|it| it.fct_ns > Some(5 * whole));
        Ok::<_, String>(late.map(|flow| flow.to.clone()).collect::<Vec<_>>())
    };
    assert_eq!(towards("h1"), Ok(vec!["h1".to_owned()]));
    assert_eq!(towards("h2"), Ok(vec!["h2".to_owned()]));
    let refused = towards("h3").expect_err("no such node");
    assert!(refused.contains("no node"), "{refused}");
    let half = format!("{slow}until = \"10us\"\n");
    // What the link was given while it was slow still leaves slowly: ten times 10 µs.
    let half = time(&half);
    assert!(half < 3 * whole, "it ends: {half} {whole}");
    for part in ["0.0", "1.0", "2.5"] {
        let fault = slow.replace("0.1", part);
        let refused = Scenario::parse(&text(&fault), "pair", &|_| Err(String::new()));
        let reason = refused.expect_err("no part").reason;
        assert!(reason.contains("is not from 0.0001"), "{reason}");
    }
}

/// Full packets leave as fast as a link takes them, with Ethernet's framing and without it.
#[test]
fn framing_takes_its_time() {
    let time = |framing: u64| {
        let text = format!(
            "[topology]\nkind = \"pair\"\nframing = {framing}\n[[workload]]\nkind = \"incast\"\nsize = \"4MB\"\n"
        );
        let read = |_: &str| Err("none".to_owned());
        let scenario = Scenario::parse(&text, "pair", &read).expect("a scenario");
        let nanos = run(&scenario, 1).expect("a run").duration_ns;
        u32::try_from(nanos).map(f64::from).expect("short")
    };
    // A packet of 4 KiB has 74 bytes of headers.
    let bytes = |framing: f64| 4096.0 + 74.0 + framing;
    let ratio = time(0) / time(24);
    assert!((ratio - bytes(0.0) / bytes(24.0)).abs() < 0.001, "{ratio}");
    let ratio = time(1000) / time(24);
    assert!(
        (ratio - bytes(1000.0) / bytes(24.0)).abs() < 0.005,
        "{ratio}"
    );
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let load = |only: &str| Comparison::load(folder.path(), None, None, only);
    assert!(load("").expect_err("empty").contains("no matrix"));
    let file = folder.path().join("a.cm");
    std::fs::write(&file, "Nodes 5000\n").expect("written");
    let refused = |file: &Path| load("").expect("a matrix").scenario(file);
    let error = refused(&file).expect_err("too many");
    assert!(error.contains("too many hosts"), "{error}");
    std::fs::write(&file, "0->1 start 0 size 1\n").expect("written");
    let error = refused(&file).expect_err("no nodes");
    assert!(error.contains("Nodes N is missing"), "{error}");
    std::fs::write(&file, "Nodes 4\n0->9 start 0 size 1\n").expect("written");
    let error = refused(&file).expect_err("no such host");
    assert!(error.contains("line 2: host 9 does not exist"), "{error}");
    let beside = folder.path().join("figures.toml");
    for (line, reason) in [
        ("\"a.cm\" = \"x\"", "the figure of \"a.cm\" is no number"),
        ("\"gone.cm\" = 3", "there is no \"gone.cm\" in"),
        ("\"a.cm\" =", ""),
    ] {
        std::fs::write(&beside, format!("# µs\n{line}\n")).expect("written");
        let error = load("").expect_err(line);
        let place = format!("{}:2: {reason}", beside.display());
        assert!(error.starts_with(&place), "{error}");
    }
}
