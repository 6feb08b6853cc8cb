//! The programs that everybody tries first, of the guest and of hostd, with each other.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::sync::Once;

use crate::rig::{self, LIMIT, Rig};

/// Where `rping` listens.
const PORT: u16 = 7174;

/// Where an example of the client library lies; builds all of them first.
pub(crate) fn example(name: &str) -> String {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--package",
                "hostd-client",
                "--examples",
            ])
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

fn play(rig: &mut Rig, game: Game, port: usize) {
    let (v6, server, size, mtu, iters) = game;
    // The original's exchange is over IPv4, whatever the GIDs are.
    let [h1, h2] = ["h1", "h2"].map(|name| rig.lab.host(name).address(false));
    let options = format!("-c -s {size} -m {mtu} -n {iters} -r 64 -p {port}");
    let gid = rig.lab.host("h2").address(v6);
    let gid = rig.gid(gid);
    let inside = format!("ulimit -l unlimited; exec ibv_rc_pingpong -d rxe0 -g {gid} {options}");
    let outside = format!("{} -g {} {options}", example("rc_pingpong"), u8::from(v6));
    let said = if server == Side::Guest {
        let script = rig.guest.start(&inside).unwrap();
        rig.await_port(port);
        let words = format!("{outside} {h2}");
        let output = rig.lab.host("h1").run(words.split(' ')).unwrap();
        let ours = output.expect_ok();
        ours + &rig.guest.wait(script, LIMIT).unwrap().expect_ok()
    } else {
        let mut process = rig.lab.host("h1").spawn(outside.split(' ')).unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert!(first.starts_with("listening on port"), "{first}");
        let theirs = rig.guest.run(&format!("{inside} {h1}"), LIMIT).unwrap();
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{game:?}: {output:?} {theirs:?}");
        theirs.expect_ok()
    };
    assert!(
        said.contains(&format!("{iters} iters in")),
        "{game:?}: {said}"
    );
    assert!(!said.contains("invalid data"), "{game:?}: {said}");
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
        for (game, port) in games.into_iter().zip(18_515..) {
            play(rig, game, port);
        }
        let file = capture.stop().unwrap();
        rig.assert_understood(&file);
    });
}

/// HT-10: the guest's `rping` and that of hostd ping each other, each as server and as client, with
/// connections that librdmacm sets up. Each text comes back as it was.
#[test]
fn rping_plays_with_hostd() {
    const COUNT: usize = 5;
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        let [h1, h2] = ["h1", "h2"].map(|name| rig.lab.host(name).address(false));
        // All lines together fit into a pipe, of whose 16 pages each takes two.
        let options = format!("-v -V -S 5000 -p {PORT}");
        let inside = format!("ulimit -l unlimited; exec rping {options}");
        let outside = format!("{} {options}", example("rping"));

        let server = rig.guest.start(&format!("{inside} -s")).unwrap();
        rig.await_listener();
        let words = format!("{outside} -c -C {COUNT} -a {h2}");
        let output = rig.lab.host("h1").run(words.split(' ')).unwrap();
        let ours = output.expect_ok();
        assert_eq!(ours.matches("ping data: rdma-ping-").count(), COUNT);
        let output = rig.guest.wait(server, LIMIT).unwrap();
        let theirs = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(
            theirs.matches("server ping data: rdma-ping-").count(),
            COUNT
        );

        let words = format!("{outside} -s");
        let mut process = rig.lab.host("h1").spawn(words.split(' ')).unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        assert!(first.starts_with("listening on port"), "{first}");
        let client = format!("{inside} -c -C {COUNT} -a {h1}");
        let client = rig.guest.run(&client, LIMIT).unwrap();
        let theirs = client.expect_ok();
        assert_eq!(theirs.matches("ping data: rdma-ping-").count(), COUNT);
        let mut ours = String::new();
        std::io::Read::read_to_string(&mut output, &mut ours).unwrap();
        assert!(process.wait().unwrap().success(), "{ours}");
        assert_eq!(ours.matches("server ping data: rdma-ping-").count(), COUNT);
        rig.assert_understood(&capture.stop().unwrap());
    });
}
