//! The guest itself: that it comes up with the kernel that it is there for, runs what this machine
//! has, leaves this machine alone, and goes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use guest::{Guest, Nic, Options};

const LIMIT: Duration = Duration::from_secs(120);

fn boot() -> Guest {
    let start = Instant::now();
    let guest = Guest::boot(&Options::default()).unwrap_or_else(|error| panic!("{error}"));
    eprintln!("up after {:.1?}", start.elapsed());
    guest
}

/// What the kernel of a test machine may lack, each shown by a command that needs it.
const KINDS: &str = r"
set -e
ip link add name left type veth peer name right
ip link add name bridge type bridge vlan_filtering 1 vlan_default_pvid 0
ip link set left master bridge
bridge vlan add dev left vid 10 pvid untagged
bridge -j vlan show dev left | grep -q '\[10\|:10'
ip link add link right name right.5 type vlan id 5
ip link add name blue type vrf table 10
ip link add name nothing type dummy
ip link add name tunnel type gre local 192.0.2.1 remote 192.0.2.2
ip link add name bond type bond
ip link add name over type vxlan id 7 dstport 4789 local 192.0.2.1
tc qdisc add dev right root netem delay 1ms loss 1%
modprobe rdma_rxe
";

/// The guest runs Debian's kernel with all that tests may need of one, runs scripts side by side
/// over the files of this machine, and changes none of them.
#[test]
fn a_guest_runs_what_this_machine_has() {
    if !guest::available() {
        return;
    }
    let mut guest = boot();
    let version = guest.run("uname -r", LIMIT).unwrap().expect_ok();
    assert!(version.trim().ends_with("-amd64"), "{version}");
    let _ = guest.run(KINDS, LIMIT).unwrap().expect_ok();

    // This program is where it is on the host, and runs.
    let own = std::env::current_exe().unwrap();
    let list = format!("{} --list", own.display());
    let tests = guest.run(&list, LIMIT).unwrap().expect_ok();
    assert!(tests.contains("a_guest_runs_what_this_machine_has: test"));

    let folder = tempfile::Builder::new().tempdir_in("/var").unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "host").unwrap();
    let path = file.display();
    let script = format!("cat {path}; echo guest >{path}; cat {path}; echo bad >&2; exit 3");
    let output = guest.run(&script, LIMIT).unwrap();
    assert_eq!((output.status, output.stdout.as_str()), (3, "hostguest\n"));
    assert_eq!(output.stderr, "bad\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "host");

    // The first one waits for what the second one does.
    let first = guest
        .start("until [ -e /tmp/go ]; do sleep 0.1; done; echo gone")
        .unwrap();
    let _ = guest.run("touch /tmp/go", LIMIT).unwrap().expect_ok();
    assert_eq!(guest.wait(first, LIMIT).unwrap().expect_ok(), "gone\n");

    let limit = Duration::from_millis(300);
    let error = guest.run("sleep 100", limit).unwrap_err().to_string();
    assert!(error.contains("takes longer than 300ms"), "{error}");
    // What ends the guest ends the wait for it.
    let error = guest.run("echo b >/proc/sysrq-trigger", LIMIT);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("it is gone"), "{error}");
}

/// Processes of the guests that process `owner` has booted.
fn emulators(owner: u32) -> Vec<String> {
    let mark = format!("fabric-guest-{owner}-");
    let found = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&mark)
    });
    found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < deadline, "{what} not after {LIMIT:?}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "started by a_guest_goes_with_its_test"]
fn child_with_a_guest() {
    let _guest = boot();
    sleep(LIMIT);
}

/// A test that is killed takes its guest with it, and the next guest clears away its folder.
#[test]
fn a_guest_goes_with_its_test() {
    if !guest::available() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_a_guest", "--ignored"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let owner = child.id();
    eventually("an emulator runs", || !emulators(owner).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("no emulator runs", || emulators(owner).is_empty());
    let left = || {
        let entries = fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|name| name.starts_with(&format!("fabric-guest-{owner}-")))
    };
    assert!(left());
    let options = Options {
        nic: Some(Nic {
            namespace: "guest-none".to_owned(),
            tap: "tap".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
        }),
        ..Options::default()
    };
    // What cannot start is a failure at once, which says why.
    let error = Guest::boot(&options).unwrap_err().to_string();
    assert!(error.contains("\"guest-none\""), "{error}");
    assert!(!left());
    assert!(!Path::new("/proc").join(owner.to_string()).exists());
}
