//! The programs that everybody tries first, of the guest and of hostd, with each other.

use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::sync::Once;

use crate::dissection::packets;
use crate::links::{Addresses, begin_losses, directly, end_losses, end_losses_after};
use crate::rig::{self, LIMIT, MAC, Rig};

/// Where `rping` listens.
const PORT: u16 = 7174;

/// Where an example of the client library lies; builds all of the workspace first, as other
/// features of dependencies would build most of it anew.
pub(crate) fn example(name: &str) -> String {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--examples"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.expect("cargo").success());
    });
    // This program is in the folder `deps` beside that of the examples.
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().and_then(Path::parent).unwrap();
    folder.join("examples").join(name).display().to_string()
}

/// One game of ping-pong: the GID's version, where the server is, the message, the MTU, how often.
type Game = (bool, Side, u32, u16, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Guest,
    Hostd,
}

/// Plays with losses in the first part of the game. The last acknowledgement has to come: the
/// programs end without waiting for each other, and nobody answers who repeats a message then.
/// How many packets were lost.
fn play_with_losses(rig: &mut Rig, at: Addresses, game: Game, port: usize) -> u64 {
    let (_, _, size, mtu, iters) = game;
    let before = rig.counters()["rcvd_pkts"].as_u64().unwrap();
    begin_losses(rig);
    let mut lost = 0;
    play(rig, at, game, port, |rig| {
        let packets = size.div_ceil(u32::from(mtu)) * iters;
        lost = end_losses_after(rig, before + u64::from(packets) / 2);
    });
    lost
}

/// Plays one game at these addresses, and does `meanwhile` while it goes on.
fn play(rig: &mut Rig, at: Addresses, game: Game, port: usize, meanwhile: impl FnOnce(&mut Rig)) {
    let (v6, server, size, mtu, iters) = game;
    // The original's exchange is over IPv4, whatever the GIDs are.
    let [[h1, _], [h2, _]] = [at.hostd, at.guest];
    let options = format!("-c -s {size} -m {mtu} -n {iters} -r 64 -p {port}");
    let gid = rig.gid(at.guest[usize::from(v6)]);
    let inside = format!("ulimit -l unlimited; exec ibv_rc_pingpong -d rxe0 -g {gid} {options}");
    let gid = match at.first {
        true => format!("-g {}", u8::from(v6)),
        false => format!("--gid {}", at.hostd[usize::from(v6)]),
    };
    let outside = format!("{} {gid} {options}", example("rc_pingpong"));
    let spawn = |rig: &Rig, words: &str| rig.lab.host("h1").spawn(words.split(' ')).unwrap();
    let (script, mut process, first);
    if server == Side::Guest {
        script = rig.guest.start(&inside).unwrap();
        rig.await_port(port);
        process = spawn(rig, &format!("{outside} {h2}"));
        first = BufReader::new(process.stdout.take().unwrap());
    } else {
        process = spawn(rig, &outside);
        first = listening(&mut process);
        script = rig.guest.start(&format!("{inside} {h1}")).unwrap();
    }
    meanwhile(rig);
    let theirs = rig.guest.wait(script, LIMIT).unwrap();
    let (ours, errors, status) = ended(process, first);
    assert!(status.success(), "{game:?}: {ours}{errors} {theirs:?}");
    for said in [ours, theirs.expect_ok()] {
        let all = format!("{iters} iters in");
        assert!(said.contains(&all), "{game:?}: {said}");
        assert!(!said.contains("invalid data"), "{game:?}: {said}");
    }
}

/// Waits until a server of hostd says that it listens. What it says then.
fn listening(process: &mut Child) -> BufReader<ChildStdout> {
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert!(first.starts_with("listening on port"), "{first}");
    output
}

/// Waits for a program: the rest of what it says, what it complains of, and how it ends.
fn ended(process: Child, mut rest: BufReader<ChildStdout>) -> (String, String, ExitStatus) {
    let mut said = String::new();
    rest.read_to_string(&mut said).unwrap();
    let output = process.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (said, errors, output.status)
}

/// HT-10: the guest's `ibv_rc_pingpong` and that of hostd play with each other, each as server and
/// as client, over IPv4 and IPv6 GIDs, with messages of one packet and of many. What comes is what
/// was sent.
#[test]
fn ibv_rc_pingpong_plays_with_hostd() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let games = [
            (false, Side::Guest, 4096, 1024, 50),
            (false, Side::Hostd, 1, 256, 50),
            (true, Side::Guest, 100_000, 4096, 6),
            (true, Side::Hostd, 20_000, 512, 10),
            (false, Side::Hostd, 1_000_000, 2048, 2),
            (true, Side::Guest, 65_536, 256, 3),
        ];
        let at = Addresses::far(rig);
        for (game, port) in games.into_iter().zip(18_515..) {
            play(rig, at, game, port, |_| {});
        }
        let file = capture.stop().unwrap();
        rig.assert_understood(&file);
    });
}

/// Pings at these addresses, with the server at either side.
fn ping(rig: &mut Rig, at: Addresses, v6: bool, count: usize) {
    let [h1, h2] = [at.hostd, at.guest].map(|side| side[usize::from(v6)]);
    // All lines of a client together fit into a pipe, of whose 16 pages each takes two.
    let options = format!("-V -S 5000 -p {PORT}");
    let inside = format!("ulimit -l unlimited; exec rping -v {options}");
    let outside = format!("{} {options}", example("rping"));

    let server = format!("{inside} -s -a {h2}");
    let server = rig.guest.start(&server).unwrap();
    rig.await_listener();
    let words = format!("{outside} -v -c -C {count} -I {h1} -a {h2}");
    let output = rig.lab.host("h1").run(words.split(' ')).unwrap();
    let ours = output.expect_ok();
    assert_eq!(ours.matches("ping data: rdma-ping-").count(), count);
    let output = rig.guest.wait(server, LIMIT).unwrap();
    let theirs = format!("{}{}", output.stdout, output.stderr);
    let pings = theirs.matches("server ping data: rdma-ping-");
    assert_eq!(pings.count(), count);

    let words = format!("{outside} -v -s -a {h1}");
    let mut process = rig.lab.host("h1").spawn(words.split(' ')).unwrap();
    let output = listening(&mut process);
    // What it says is read meanwhile, or it waits for room in the pipe.
    let server = std::thread::spawn(move || ended(process, output));
    let client = format!("{inside} -c -C {count} -a {h1}");
    let client = rig.guest.run(&client, LIMIT).unwrap();
    let theirs = client.expect_ok();
    assert_eq!(theirs.matches("ping data: rdma-ping-").count(), count);
    let (ours, errors, status) = server.join().unwrap();
    assert!(status.success(), "{ours}{errors}");
    let pings = ours.matches("server ping data: rdma-ping-");
    assert_eq!(pings.count(), count);
}

/// HT-10: the guest's `rping` and that of hostd ping each other, each as server and as client, with
/// connections that librdmacm sets up. Each text comes back as it was.
#[test]
fn rping_plays_with_hostd() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let at = Addresses::far(rig);
        ping(rig, at, false, 5);
        rig.assert_understood(&capture.stop().unwrap());
    });
}

/// Games and pings at these addresses while one packet in a hundred is lost either way.
fn classics_with_losses(rig: &mut Rig, at: Addresses, ports: Range<usize>) {
    let games = [
        (false, Side::Guest, 4096, 1024, 150),
        (true, Side::Hostd, 20_000, 512, 30),
        (true, Side::Guest, 100_000, 4096, 30),
        (false, Side::Hostd, 1, 256, 600),
    ];
    let mut lost = 0;
    for (game, port) in games.into_iter().zip(ports) {
        lost += play_with_losses(rig, at, game, port);
    }
    assert!(lost > 0, "by ping-pong");
    begin_losses(rig);
    ping(rig, at, false, 40);
    ping(rig, at, true, 10);
    assert!(end_losses(rig) > 0, "by pings");
}

/// HT-10, HT-43: the guest's `ibv_rc_pingpong` and `rping` play with those of hostd through two
/// tiers of switches while one in a hundred packets is lost either way, those of connection set-up
/// too. What comes is what was sent, and no request fails.
#[test]
fn the_classics_play_with_losses_through_switches() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let at = Addresses::far(rig);
        classics_with_losses(rig, at, 18_525..18_535);
        rig.assert_recovered(&capture.stop().unwrap());
    });
}

/// HT-10, HT-43: the same on one link without switches, first without losses.
#[test]
fn the_classics_play_on_one_link() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let [v4, v6] = directly(rig, |rig, at| {
            let game = (true, Side::Guest, 65_536, 4096, 3);
            play(rig, at, game, 18_535, |_| {});
            let game = (false, Side::Hostd, 4096, 256, 10);
            play(rig, at, game, 18_536, |_| {});
            ping(rig, at, true, 5);
            classics_with_losses(rig, at, 18_537..18_547);
            at.guest
        });
        let file = capture.stop().unwrap();
        rig.assert_recovered(&file);
        // A switch would have put its own address into the Ethernet header.
        let guests = format!("(ip.src == {v4} || ipv6.src == {v6})");
        let others = packets(&file, &format!("{guests} && eth.src != {MAC}"));
        assert_eq!(others, 0);
        assert!(packets(&file, &guests) > 1000);
    });
}
