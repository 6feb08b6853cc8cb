//! A link that changes while hostd runs: its speed, its MTU.

use super::*;

/// The row of the interface.
fn port(host: &Host) -> Value {
    host.show("ports").remove(0)
}

/// A host whose device tells a speed: one that can be set.
fn with_tap(name: &str, settings: &str) -> Host {
    let namespace = Namespace::new("hostd-test", name).expect("root may make it");
    for line in [
        "ip link set lo up",
        "ip tuntap add dev eth0 mode tap",
        "ethtool -s eth0 speed 1000 duplex full autoneg off",
        "ip link set eth0 up",
    ] {
        namespace.run(line).expect("it succeeds");
    }
    let mut host = Host {
        namespace,
        address: String::new(),
        folder: tempfile::tempdir().expect("a folder"),
        daemon: None,
    };
    let config = format!(
        "[admin]\nsocket = '{0}/admin.sock'\n[application]\nsocket = '{0}/hostd.sock'\n\
         groups = []\n[[interface]]\nname = 'eth0'\n{settings}",
        host.folder.path().display()
    );
    fs::write(host.folder.path().join("hostd.toml"), config).expect("written");
    host.start();
    host
}

/// What `hostctl config` derives for a switch.
fn derived(host: &Host, key: &str) -> String {
    let output = run(host.command("hostctl").arg("config"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let begin = format!("# eth0: {key} = ");
    let value = text.lines().find_map(|line| line.strip_prefix(&begin));
    let value = value.unwrap_or_else(|| panic!("{key}: {text}"));
    value.split_whitespace().next().expect("a value").to_owned()
}

/// HT-45, MG-1: another speed of the link is followed without a restart, where the configuration
/// leaves it to the device; `hostctl` shows what holds.
#[test]
fn the_speed_of_the_link_is_followed() {
    if !possible() {
        return;
    }
    for (name, settings, paced, links) in [
        ("tap", "", None, None),
        ("tap-speed", "speed = '2Gbps'\n", Some("2Gbps"), None),
        (
            "tap-both",
            "speed = '2Gbps'\nlink_speed = '5Gbps'\n",
            Some("2Gbps"),
            Some("5Gbps"),
        ),
    ] {
        let mut host = with_tap(name, settings);
        for (mbps, device) in [(1000, "1Gbps"), (25_000, "25Gbps"), (100, "100Mbps")] {
            let set = format!("ethtool -s eth0 speed {mbps} duplex full autoneg off");
            host.namespace.run(&set).expect("it succeeds");
            // As when a link is negotiated: the kernel says nothing of the speed itself.
            for line in ["ip link set eth0 down", "ip link set eth0 up"] {
                host.namespace.run(line).expect("it succeeds");
            }
            let expected = [paced.unwrap_or(device), links.unwrap_or(device)];
            host.wait_for(device, || {
                let row = port(&host);
                [&row["speed"], &row["link_speed"]].map(|it| it.as_str().expect("text")) == expected
            });
            assert_eq!(
                ["speed", "link_speed"].map(|it| derived(&host, it)),
                expected
            );
        }
        let said = host.log().matches("the link is another one now").count();
        assert_eq!(said, if links.is_some() { 0 } else { 2 }, "{}", host.log());
        assert!(host.end("-TERM"), "{}", host.log());
    }
}

/// The RoCE MTU of queue pairs there are.
fn mtus(host: &Host) -> Vec<u64> {
    let rows = host.show("qps");
    rows.iter().filter_map(|row| row["mtu"].as_u64()).collect()
}

/// Starts to write to the other host for so long.
fn writer(host: &Host, seconds: &str) -> Process {
    let mut command = host.command("hostperf");
    command
        .args(["write", "10.9.0.2", "-s", "65536", "-D", seconds])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process(command.spawn().expect("starts"))
}

/// HT-1, HT-10: new connections take packets that the link carries now. One whose packets have
/// become too long for it ends with an error, and nothing hangs; where the link is as it was, those
/// that are made later have long packets again.
#[test]
fn the_mtu_of_the_link_is_followed() {
    if !possible() {
        return;
    }
    let link = Link::new();
    let [a, b] = &link.hosts;
    let _server = serve(b, "hostperf", &["serve"]);
    let set = |mtu: u32| {
        for host in [a, b] {
            let line = format!("ip link set eth0 mtu {mtu}");
            host.namespace.run(&line).expect("it succeeds");
            host.wait_for("the MTU", || port(host)["mtu"] == mtu);
        }
    };
    let mut long = writer(a, "60");
    a.wait_for("long packets", || mtus(a) == [2048]);
    set(1500);
    a.wait_for("a word", || {
        a.log().contains("connections keep the packets")
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = long.0.try_wait().expect("our child") {
            break status;
        }
        // It was to go on for a minute.
        assert!(began.elapsed() < Duration::from_secs(50), "it hangs");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(!status.success(), "its connection has ended");
    println!("an error after {:?}", began.elapsed());
    a.wait_for("nothing is left", || a.show("qps").is_empty());
    for (mtu, roce) in [(1500, 1024), (700, 512), (3000, 2048)] {
        set(mtu);
        let mut short = writer(a, "5");
        a.wait_for("packets that fit", || mtus(a) == [roce]);
        assert!(short.0.wait().expect("our child").success(), "{mtu}");
        a.wait_for("its end", || a.show("qps").is_empty());
    }
}

/// What `hostctl status` says is wrong, and its exit status.
fn problems(host: &Host) -> (Option<i32>, Vec<String>) {
    let mut command = host.command("hostctl");
    let output = command.args(["--json", "status"]).output();
    let output = output.expect("it starts");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("rows");
    let wrong = rows.iter().filter(|row| row["name"] == "problem");
    let text = |row: &Value| row["value"].as_str().expect("text").to_owned();
    (output.status.code(), wrong.map(text).collect())
}

/// MG-1, MG-4: operators are told when an interface is set down, loses its carrier or is deleted.
/// One that is deleted and made again ends the daemon, which serves the new one when it is started
/// again. SIGHUP ends nothing.
#[test]
fn the_state_of_the_link_is_followed() {
    if !possible() {
        return;
    }
    let mut link = Link::new();
    let [a, b] = &mut link.hosts;
    let check = |host: &Host, state: &str, words: &str| {
        host.wait_for(state, || port(host)["state"] == state);
        host.wait_for("problems", || {
            let (code, wrong) = problems(host);
            let told = wrong.first().is_some_and(|it| it.contains(words));
            told != words.is_empty() && code == Some(if told { 4 } else { 0 })
        });
        let words = words.trim_start_matches("eth0 ");
        host.wait_for("a word", || host.log().contains(words));
    };
    check(a, "up", "");
    check(b, "up", "");
    a.namespace.run("ip link set eth0 down").expect("down");
    check(a, "down", "eth0 is set down");
    check(b, "no carrier", "eth0 has no carrier");
    a.namespace.run("ip link set eth0 up").expect("up");
    check(a, "up", "");
    check(b, "up", "");

    let pid = a.daemon.as_ref().expect("it runs").id().to_string();
    run(Command::new("kill").args(["-HUP", &pid]));
    a.wait_for("a word", || a.log().contains("SIGHUP"));

    a.namespace.run("ip link del eth0").expect("deleted");
    check(a, "gone", "eth0 is gone");
    check(b, "gone", "eth0 is gone");
    let (first, second) = (a.namespace.name(), b.namespace.name());
    ip(&format!(
        "link add eth0 netns {first} type veth peer name eth0 netns {second}"
    ));
    for (host, address) in [(first, &a.address), (second, &b.address)] {
        ip(&format!("-n {host} addr add {address}/24 dev eth0"));
        ip(&format!("-n {host} link set eth0 mtu 3000 up"));
    }
    for host in [&mut *a, &mut *b] {
        host.wait_for("its end", || host.log().contains("there is a new one"));
        let mut daemon = host.daemon.take().expect("it ran");
        assert_eq!(daemon.wait().expect("our child").code(), Some(1));
        // As systemd does.
        host.start();
        check(host, "up", "");
    }
    let _server = serve(b, "hostperf", &["serve"]);
    let _ = a
        .namespace
        .run("ethtool -K eth0 tx off rx off gso off tso off gro off");
    let _ = b
        .namespace
        .run("ethtool -K eth0 tx off rx off gso off tso off gro off");
    run(a
        .command("hostperf")
        .args(["write", &b.address, "-n", "10"]));
}
