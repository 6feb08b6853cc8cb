//! Two hosts with two planes between them: an endpoint address on `lo`, and a route of two hops
//! (HT-37).

use super::*;

/// The endpoint of the second host.
const PEER: &str = "10.19.0.2";

/// Two hosts with `eth0` and `eth1`, each a link to that of the other, of this speed.
fn planes(speed: &str) -> Link {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let hosts = [1, 2].map(|index| Host {
        namespace: Namespace::new("hostd-test", &format!("p{number}-{index}"))
            .expect("root may make it"),
        address: format!("10.19.0.{index}"),
        folder: tempfile::tempdir().expect("a folder"),
        daemon: None,
    });
    let mut link = Link { hosts };
    let [a, b] = [0, 1].map(|index| link.hosts[index].namespace.name().to_owned());
    for port in ["eth0", "eth1"] {
        ip(&format!(
            "link add {port} netns {a} type veth peer name {port} netns {b}"
        ));
    }
    for (host, (own, other)) in link.hosts.iter_mut().zip([(1, 2), (2, 1)]) {
        let namespace = host.namespace.name().to_owned();
        ip(&format!("-n {namespace} link set lo up"));
        ip(&format!(
            "-n {namespace} addr add {}/32 dev lo",
            host.address
        ));
        let mut interfaces = String::new();
        for (plane, port) in [(1, "eth0"), (2, "eth1")] {
            ip(&format!("-n {namespace} link set {port} mtu 3000 up"));
            ip(&format!(
                "-n {namespace} addr add 10.20.{plane}.{own}/24 dev {port}"
            ));
            // AF_XDP neither computes nor checks what the offloads leave out.
            let ethtool = format!("ethtool -K {port} tx off rx off gso off tso off gro off");
            let _ = host.namespace.run(&ethtool);
            interfaces += &format!("[[interface]]\nname = '{port}'\nspeed = '{speed}'\n");
        }
        both(host, other);
        let config = format!(
            "[admin]\nsocket = '{0}/admin.sock'\n[application]\nsocket = '{0}/hostd.sock'\n\
             groups = []\n{interfaces}",
            host.folder.path().display()
        );
        fs::write(host.folder.path().join("hostd.toml"), config).expect("written");
        host.start();
    }
    link
}

/// Both planes lead to the other host.
fn both(host: &Host, other: u8) {
    ip(&format!(
        "-n {} route replace 10.19.0.{other}/32 src {} nexthop via 10.20.1.{other} dev eth0 \
         nexthop via 10.20.2.{other} dev eth1",
        host.namespace.name(),
        host.address
    ));
}

/// Packets that an interface has sent.
fn sent(host: &Host, port: &str) -> u64 {
    let rows = host.show("ports");
    let of_port = rows.iter().filter(|row| row["name"] == port);
    of_port
        .map(|row| row["tx_packets"].as_u64().expect("a number"))
        .sum()
}

/// Writes for two seconds; Mbit/s. `look` is called meanwhile.
fn throughput(host: &Host, look: impl FnOnce()) -> f64 {
    let words = ["write", PEER, "-s", "65536", "-D", "2", "--json"];
    let mut command = host.command("hostperf");
    let command = command.args(words).stdout(Stdio::piped());
    let client = command.spawn().expect("starts");
    look();
    let output = client.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", host.log());
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    rows[0]["mbit_per_second"].as_f64().expect("a figure")
}

/// HT-37, HT-60: a route of two hops over two planes carries 0.90 of twice what one plane carries,
/// and operators see which ports a connection uses.
#[test]
fn two_planes_carry_their_sum() {
    if !possible() {
        return;
    }
    let link = planes("100Mbps");
    let [a, b] = &link.hosts;
    let _server = serve(b, "hostperf", &["serve"]);
    let mut figures = Vec::new();
    for attempt in 0..3 {
        let name = a.namespace.name();
        ip(&format!(
            "-n {name} route replace 10.19.0.2/32 src 10.19.0.1 via 10.20.1.2 dev eth0"
        ));
        std::thread::sleep(Duration::from_millis(200));
        let alone = throughput(a, || ());
        both(a, 2);
        std::thread::sleep(Duration::from_millis(200));
        let before = ["eth0", "eth1"].map(|port| sent(a, port));
        let together = throughput(a, || {
            let uses_both = || {
                let rows = a.show("qps");
                rows.iter()
                    .any(|row| row["ports"] == serde_json::json!(["eth0", "eth1"]))
            };
            a.wait_for("both ports", uses_both);
        });
        let after = ["eth0", "eth1"].map(|port| sent(a, port));
        let [one, other] = [after[0] - before[0], after[1] - before[1]];
        println!("one plane {alone:.1} Mbit/s, two {together:.1}, packets {one} and {other}");
        assert!(one * 10 > other * 9 && other * 10 > one * 9);
        figures.push(together / alone);
        if together >= 0.90 * 2.0 * alone {
            return;
        }
        println!("attempt {attempt} gave too little");
    }
    panic!("{figures:?} of one plane");
}

/// HT-37, HT-24: a plane is pulled during a copy, and returns: the data is whole, and the plane is
/// used again.
#[test]
fn a_copy_survives_a_plane() {
    if !possible() {
        return;
    }
    let link = planes("100Mbps");
    let [a, b] = &link.hosts;
    fs::create_dir_all(b.folder.path().join("inbox")).expect("a folder");
    let _receiver = serve(b, "hostcp", &["serve", "--root", "inbox"]);
    let content = bytes(30_000_001);
    fs::write(a.folder.path().join("file"), &content).expect("written");
    let mut command = a.command("hostcp");
    let command = command.args(["file", &format!("{PEER}:copy")]);
    let mut copy = command.spawn().expect("starts");
    a.wait_for("the first packets", || sent(a, "eth1") > 2_000);
    let name = a.namespace.name();
    ip(&format!("-n {name} link set eth1 down"));
    let state = || {
        let rows = a.show("ports");
        let row = rows.iter().find(|row| row["name"] == "eth1");
        row.expect("it is shown")["state"].to_string()
    };
    a.wait_for("the link is down", || state().contains("down"));
    // What is in the ring of the device may still be counted.
    std::thread::sleep(Duration::from_millis(100));
    let (before, other) = (sent(a, "eth1"), sent(a, "eth0"));
    std::thread::sleep(Duration::from_millis(300));
    let went = sent(a, "eth1") - before;
    assert!(went < 20, "{went} packets into a link that is down");
    assert!(sent(a, "eth0") > other + 100, "the other one goes on");
    ip(&format!("-n {name} link set eth1 up"));
    both(a, 2);
    a.wait_for("eth1 is used again", || {
        sent(a, "eth1") > before + 500 || copy.try_wait().expect("our child").is_some()
    });
    let used = sent(a, "eth1") - before;
    assert!(copy.wait().expect("it ends").success(), "{}", a.log());
    let got = fs::read(b.folder.path().join("inbox/copy")).expect("a copy");
    assert!(got == content, "the copy is another one");
    assert!(used > 500, "{used} packets by the plane that returned");
}
