//! One worker of two stands still while the real daemon runs.

use crate::support::{Rig, eventually, privileged};
use netns::Echo;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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
    let gap = Duration::from_millis(20);
    let mut echo = Echo::new([10, 1, 0, 2].into(), 1, gap);
    echo.from = Some([10, 3, 0, 2].into());
    let first = rig.echo("b", echo).finish().unwrap();
    assert_eq!(first.received, 0, "{first:?}");
    let arrived = row("p2", "punted");
    echo.count = 20;
    let seen = rig.echo("b", echo).finish().unwrap();
    assert_eq!(seen.received, 20, "{seen:?}");
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

/// SW-1, SW-51: what goes from one worker to ports of another that stands still is lost, by name,
/// when the ring between them is full. It costs the ports of the first worker nothing: their
/// packets neither wait nor find the buffer taken. When the other one runs again, so do its ports.
#[test]
fn a_worker_that_stands_still_costs_others_nothing() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new("st");
    // Nobody takes over: everything is left to the workers.
    rig.start(&["workers.takeover_milliseconds=0"]);
    rig.ip("b", "route replace 10.1.0.0/24 via 10.3.0.1");
    assert_eq!(rig.ping("10.3.0.2", 3, 20), 3);
    assert_eq!(rig.ping("10.2.0.2", 3, 20), 3);
    let lost = |reason: &str| {
        let drops = rig.ctl(&["drops"]);
        let rows = drops.as_array().unwrap().iter();
        let packets = rows
            .filter(|row| row["reason"] == reason)
            .map(|row| row["packets"].as_u64().unwrap());
        packets.sum::<u64>()
    };
    let stopped = Stopped::worker(&rig, 1);
    // Two a millisecond, until nobody listens: what comes while the other worker is late fits into
    // its device's ring.
    let flood = "import select,socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
        while not select.select([sys.stdin],[],[],0.001)[0]:\n \
        for n in range(2): s.sendto(b'x'*1000,('10.2.0.2',9))\n";
    let mut flood = rig
        .command("a", "python3", &["-c", flood])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // The ring to the worker that stands still is full, and stays full.
    eventually("a full ring", || lost("ring_full") > 1000);
    let before = lost("ring_full");
    assert_eq!(rig.ping("10.3.0.2", 300, 3), 300, "{}", rig.ctl(&["drops"]));
    assert!(lost("ring_full") > before, "the flood went on meanwhile");
    drop(flood.stdin.take());
    assert!(flood.wait().unwrap().success());
    for reason in ["buffer_full", "queue_full", "ingress_full"] {
        assert_eq!(lost(reason), 0, "{reason}");
    }
    drop(stopped);
    eventually("the way by the other worker", || {
        rig.ping("10.2.0.2", 1, 20) == 1
    });
    let before = lost("ring_full");
    assert_eq!(rig.ping("10.2.0.2", 20, 10), 20);
    assert_eq!(lost("ring_full"), before);
}
