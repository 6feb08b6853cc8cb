//! One worker of two stands still while the real daemon runs.

use crate::support::{Rig, eventually, privileged};
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Stops one thread, says so, and lets it go when its input ends.
const STOP: &str = "
import ctypes, os, sys
thread = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
for request in [0x4206, 0x4207]: # PTRACE_SEIZE, PTRACE_INTERRUPT
    if libc.ptrace(request, thread, None, None) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(thread, 0x40000000) # __WALL
print('stopped', flush=True)
sys.stdin.read()
";

/// A thread that stands still until this is dropped.
struct Stopped(Child);

impl Stopped {
    /// The worker `number` of the rig's daemon.
    fn worker(rig: &Rig, number: usize) -> Self {
        let threads = format!("/proc/{}/task", rig.daemon_id());
        let is_it = |thread: &String| {
            let name = std::fs::read_to_string(format!("{threads}/{thread}/comm")).unwrap();
            name.trim() == format!("worker-{number}")
        };
        let all = std::fs::read_dir(&threads).unwrap();
        let mut all = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let thread = all.find(is_it).expect("the worker has a thread");
        let mut command = Command::new("python3");
        command.args(["-c", STOP, &thread]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 7];
        let output = child.stdout.as_mut().unwrap();
        output.read_exact(&mut said).expect("the thread is stopped");
        assert_eq!(&said, b"stopped");
        Self(child)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// SW-1, MG-5: while one worker stands still, the kernel forwards what arrives at its port, the
/// other worker forwards between its own ports, and the status names the one. Then all is as
/// before.
#[test]
fn one_worker_of_two_stands_still() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("ab");
    rig.on("sw", "sysctl", &["-qw", "net.ipv4.ip_forward=1"]);
    rig.start(&["workers.takeover_milliseconds=200"]);
    // The ports 1 and 3 are of worker 0, and port 2 is of worker 1.
    rig.ip("b", "route replace 10.1.0.0/24 via 10.3.0.1");
    assert_eq!(rig.ping("10.3.0.2", 3, 20), 3);
    let row = |port: &str, column: &str| {
        let rows = rig.ctl(&["ports"]);
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == port).unwrap();
        row[column].as_u64().unwrap()
    };
    let status = || -> serde_json::Value {
        let output = rig.ctl_output(&["--json", "status"]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let stopped = Stopped::worker(&rig, 1);
    // From b by the port of the worker that stands still; a answers by the other. The worker
    // sleeps, so it is not absent before a packet has waited for it.
    rig.ip("b", "route replace 10.1.0.0/24 via 10.2.0.1");
    let words = ["-q", "-c", "1", "-W", "1", "-I", "10.3.0.2", "10.1.0.2"];
    let first = rig.command("b", "ping", &words).output().unwrap();
    assert!(!first.status.success(), "{first:?}");
    let arrived = row("p2", "punted");
    let words = ["-n", "-q", "-c", "20", "-i", "0.02", "-W", "1"];
    let ping = [&words[..], &["-I", "10.3.0.2", "10.1.0.2"]].concat();
    let text = rig.on("b", "ping", &ping);
    assert_eq!(crate::support::received(&text), 20, "{text}");
    assert!(row("p2", "punted") >= arrived + 20);
    assert_eq!(row("p1", "punted") + row("p3", "punted"), 0);
    eventually("problem", || {
        let problems = status()["problems"].to_string();
        problems.contains("worker 1 has not run for")
    });
    drop(stopped);
    eventually("end of the problem", || status()["healthy"] == true);
    assert_eq!(rig.ping("10.2.0.2", 3, 20), 3);
    let events = rig.ctl(&["events"]).to_string();
    assert!(events.contains("a worker takes no packets"), "{events}");
}
