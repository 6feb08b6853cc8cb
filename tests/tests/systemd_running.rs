//! The daemons as services of a real systemd: what `make install` installs is started, tells how it
//! is, and logs with priorities.
//!
//! The systemd is process 1 of namespaces of its own, over a copy of the root file system that goes
//! with it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lab::observe::eventually;
use lab::settings::binaries;
use lab::{exclusive, privileged};
use netns::{Echo, Echoes, Namespace};

/// Long enough for a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments: a folder, the tree, the programs. What is written goes to a file system in memory.
const BOOT: &str = r#"
mount --make-rprivate /
mkdir -p "$1/disk" "$1/root"
mount -t tmpfs tmpfs "$1/disk"
mkdir "$1/disk/upper" "$1/disk/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/disk/upper,workdir=$1/disk/work" "$1/root"
PREFIX=/usr DESTDIR="$1/root" BUILT="$3" LIBRARY="$3/deps" "$2/scripts/install"
cd "$1/root"
mkdir -p etc/switchd etc/hostd
cp "$1/switchd.toml" etc/switchd/
cp "$1/hostd.toml" etc/hostd/
for unit in switchd hostd; do
    mkdir -p "etc/systemd/system/$unit.service.d"
    cp "$1/limit.conf" "etc/systemd/system/$unit.service.d/"
done
rm -f etc/systemd/system/multi-user.target.wants/* etc/systemd/system/timers.target.wants/*
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
exec chroot . /usr/bin/env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --log-target=journal --unit=multi-user.target
"#;

/// CAP_SYS_RESOURCE in the sets of `/proc/PID/status`.
const SYS_RESOURCE: u64 = 1 << 24;

/// What is added to the units: nothing, unless this is a container whose root may not raise limits,
/// so that `LimitMEMLOCK=` has no effect.
fn limit() -> &'static str {
    let status = fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find(|line| line.starts_with("CapBnd:"));
    let digits = line.and_then(|line| line.split_whitespace().nth(1));
    let bounding = u64::from_str_radix(digits.expect("a set"), 16).expect("hexadecimal");
    if bounding & SYS_RESOURCE != 0 {
        return "";
    }
    "[Service]\nAmbientCapabilities=CAP_IPC_LOCK\nCapabilityBoundingSet=CAP_IPC_LOCK\n"
}

/// A machine that systemd runs, with two links, `swp1` and `eth1`.
struct Machine {
    process: Child,
    init: String,
    namespace: Namespace,
    _folder: tempfile::TempDir,
}

impl Machine {
    fn boot() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let namespace = Namespace::new("systemd", "box").expect("root may make it");
        for line in [
            "ip link set lo up",
            "ip link add swp1 type veth peer name far1",
            "ip link add eth1 type veth peer name far2",
            "ip address add 192.0.2.1/24 dev eth1",
        ] {
            namespace.run(line).expect("it succeeds");
        }
        for device in ["swp1", "far1", "eth1", "far2"] {
            namespace.set_up(device).expect("it succeeds");
        }
        let files = [
            (
                "switchd.toml",
                "ports = [\"swp1\"]\n[scheduling]\nannounce = true\n\
                 [compute]\nenabled = true\nsecret_file = \"/etc/switchd/compute.secret\"\n",
            ),
            (
                "hostd.toml",
                "[application]\ngroups = [\"hostd\"]\n\
                 [[interface]]\nname = \"eth1\"\nspeed = \"1Gbps\"\n\
                 [scheduling]\nannounce = true\n\
                 [collective]\nleaf = \"192.0.2.2\"\nsecret_file = \"/etc/hostd/compute.secret\"\n",
            ),
        ];
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("our folder");
        }
        fs::write(folder.path().join("limit.conf"), limit()).expect("our folder");
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "ip", "netns", "exec"])
            .args([namespace.name(), "unshare", "--mount", "--pid", "--fork"])
            .args(["--cgroup", "--uts", "--ipc", "--kill-child"])
            .args(["bash", "-euc", BOOT, "boot"])
            .args([folder.path(), &tree, &binaries()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("setpriv");
        let mut machine = Self {
            process,
            init: String::new(),
            namespace,
            _folder: folder,
        };
        let unshare = machine.process.id();
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        machine.init = eventually("process 1", PATIENCE, || {
            let text = fs::read_to_string(&children).map_err(|error| error.to_string())?;
            let first = text.split_whitespace().next().ok_or("no child")?.to_owned();
            let name = fs::read_to_string(format!("/proc/{first}/comm"));
            match name.as_deref() {
                Ok("systemd\n") => Ok(first),
                other => Err(format!("{other:?}")),
            }
        });
        eventually("start of the machine", PATIENCE, || {
            let output = machine.output(&["systemctl", "is-system-running"]);
            let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            // Units of the copied system may fail, having no devices.
            if ["running", "degraded"].contains(&state.as_str()) {
                Ok(())
            } else {
                Err(format!(
                    "{state} {}",
                    String::from_utf8_lossy(&output.stderr)
                ))
            }
        });
        machine
    }

    /// Makes the secret of the fabric, and gives it to the daemons as the manual says.
    fn give_secrets(&self) {
        self.run(&["sh", "-c", "umask 077; openssl rand -hex 32 > /tmp/secret"]);
        for unit in ["switchd", "hostd"] {
            let file = format!("/etc/{unit}/compute.secret");
            let words = ["install", "-m", "640", "-o", "root", "-g", unit];
            self.run(&[&words[..], &["/tmp/secret", &file]].concat());
        }
    }

    fn output(&self, words: &[&str]) -> Output {
        Command::new("nsenter")
            .args(["-t", &self.init, "-m", "-n", "-p", "-u", "-i", "-r", "-w"])
            .args(words)
            .output()
            .expect("nsenter")
    }

    /// Runs a command, which has to succeed.
    fn run(&self, words: &[&str]) -> String {
        let output = self.output(words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {text}{errors}");
        text
    }

    /// Waits until the status text of a unit is so.
    fn wait_for_status(&self, unit: &str, wanted: impl Fn(&str) -> bool) {
        eventually(&format!("status of {unit}"), PATIENCE, || {
            let text = self.run(&["systemctl", "show", "-P", "StatusText", unit]);
            if wanted(text.trim()) {
                Ok(())
            } else {
                Err(text)
            }
        });
    }

    /// Messages of a unit, of this priority or worse.
    fn journal(&self, unit: &str, priority: &str) -> String {
        self.run(&[
            "journalctl",
            "-u",
            unit,
            "-p",
            priority,
            "-o",
            "cat",
            "_TRANSPORT=stdout",
        ])
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// MG-5: the installed units start, their status says in a line how the daemons are, and follows;
/// levels of the log are priorities of the journal.
#[test]
fn services_tell_systemd_how_they_are() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let machine = Machine::boot();
    machine.run(&["systemd-sysusers"]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.give_secrets();
    let started = machine.output(&["systemctl", "start", "switchd", "hostd"]);
    assert!(
        started.status.success(),
        "{}",
        machine.run(&["journalctl", "-o", "cat", "-u", "switchd", "-u", "hostd"])
    );
    let well = |text: &str| text.starts_with("1 of 1 ports up, ") && text.ends_with(" routes");
    serves_its_group(&machine);
    machine.wait_for_status("switchd", well);
    machine.wait_for_status("hostd", |text| {
        text == "1 interfaces, 0 applications connected"
    });
    machine
        .namespace
        .run("ip link set far1 down")
        .expect("it succeeds");
    machine.wait_for_status("switchd", |text| {
        text.starts_with("0 of 1 ports up, ") && text.contains("routes; ") && text.contains("swp1")
    });
    machine
        .namespace
        .run("ip link set far1 up")
        .expect("it succeeds");
    machine.wait_for_status("switchd", well);

    // By priority: nothing went wrong yet; a veth takes tags off, and a warning says so.
    assert!(
        machine
            .journal("switchd", "info")
            .contains("forwarding between 1 ports")
    );
    let warnings = machine.journal("switchd", "warning");
    assert!(warnings.contains("rxvlan off"), "{warnings}");
    assert!(!warnings.contains("forwarding between"), "{warnings}");
    for unit in ["switchd", "hostd"] {
        assert_eq!(machine.journal(unit, "err"), "", "{unit}");
    }
    secrets_of_root_are_refused(&machine);
    for unit in ["switchd", "hostd"] {
        // Before the first section: behind it would be a key of that section.
        let line = format!("sed -i '1i nonsense = 1' /etc/{unit}/{unit}.toml");
        machine.run(&["sh", "-c", &line]);
        let restarted = machine.output(&["systemctl", "restart", unit]);
        assert!(!restarted.status.success(), "{unit}");
        let errors = machine.journal(unit, "err");
        assert!(errors.contains("nonsense"), "{unit}: {errors}");
    }
}

/// A secret that only root may read keeps either daemon from starting, and it says so.
fn secrets_of_root_are_refused(machine: &Machine) {
    for unit in ["switchd", "hostd"] {
        let file = format!("/etc/{unit}/compute.secret");
        machine.run(&["chmod", "600", &file]);
        let restarted = machine.output(&["systemctl", "restart", unit]);
        assert!(!restarted.status.success(), "{unit}");
        let why = machine.journal(unit, "err");
        assert!(
            why.contains(&file) && why.contains("Permission denied"),
            "{why}"
        );
        machine.run(&["chmod", "640", &file]);
        // It would be tried again and again, and not without end.
        machine.run(&["systemctl", "stop", unit]);
    }
}

/// A member of the group hostd is served by its hostd, with the shipped settings; others are not.
fn serves_its_group(machine: &Machine) {
    machine.run(&["useradd", "--system", "--groups", "hostd", "member"]);
    machine.run(&["useradd", "--system", "stranger"]);
    let perf = |user: &str, words: &str| {
        let line = format!("timeout 60 runuser -u {user} -- hostperf {words}");
        machine.output(&["sh", "-c", &line])
    };
    let refused = perf("stranger", "send 192.0.2.1 -n 1");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && why.contains("application.groups"),
        "{why}"
    );
    machine.run(&[
        "sh",
        "-c",
        "runuser -u member -- hostperf serve > /tmp/perf 2>&1 &",
    ]);
    eventually("a member of the group", PATIENCE, || {
        let sent = perf("member", "send 192.0.2.1 -n 100");
        let said = String::from_utf8_lossy(&sent.stdout).into_owned();
        match sent.status.success() {
            true => Ok(()),
            false => Err(format!("{said}{}", String::from_utf8_lossy(&sent.stderr))),
        }
    });
}

/// Two links of the machine, with a host at the end of each, between which switchd forwards.
fn hosts_of(machine: &Machine) -> [Namespace; 2] {
    let run = |namespace: &Namespace, line: &str| namespace.run(line).expect("it succeeds");
    run(
        &machine.namespace,
        "ip link add swp2 type veth peer name far3",
    );
    machine.namespace.set_up("swp2").expect("it succeeds");
    for line in ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"] {
        run(&machine.namespace, &format!("sysctl -qw {line}"));
    }
    let ends = [("swp1", "far1", 1), ("swp2", "far3", 2)];
    ends.map(|(port, far, number)| {
        let name = format!("host{number}");
        let host = Namespace::new("systemd", &name).expect("root may make it");
        let network = format!("10.8.{number}");
        run(
            &machine.namespace,
            &format!("ip link set {far} netns {}", host.name()),
        );
        run(
            &machine.namespace,
            &format!("ip address add {network}.1/24 dev {port}"),
        );
        host.set_up(far).expect("it succeeds");
        run(&host, &format!("ip address add {network}.2/24 dev {far}"));
        run(&host, &format!("ip route add default via {network}.1"));
        host
    })
}

/// What comes of so many echo requests of a host while `meanwhile` does something.
fn pinged(host: &Namespace, count: u16, meanwhile: impl FnOnce()) -> Echoes {
    let gap = Duration::from_millis(10);
    let pinging = Echo::new([10, 8, 2, 2].into(), count, gap).start(host.name());
    std::thread::sleep(Duration::from_millis(200));
    meanwhile();
    pinging.finish().expect("echo requests")
}

/// MG-6, SW-1: an upgrade puts another program in the place of the one that runs, which goes on
/// with its own file. The restart of the service runs the new one; neither the stop loses anything,
/// nor the kernel in between, nor the start.
#[test]
fn an_upgrade_replaces_the_program() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let machine = Machine::boot();
    let hosts = hosts_of(&machine);
    let ports = r#"echo 'ports = ["swp1", "swp2"]' > /etc/switchd/switchd.toml"#;
    machine.run(&["sh", "-c", ports]);
    machine.run(&["systemd-sysusers"]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "switchd"]);
    let well = |text: &str| text.starts_with("2 of 2 ports up, ") && text.ends_with(" routes");
    machine.wait_for_status("switchd", well);
    let sh = |line: &str| machine.run(&["sh", "-c", line]).trim().to_owned();
    let running = || {
        let pid = sh("systemctl show -P MainPID switchd");
        (pid.clone(), sh(&format!("sha256sum < /proc/{pid}/exe")))
    };
    eventually("a way", PATIENCE, || match pinged(&hosts[0], 5, || ()) {
        seen if seen.lost() == 0 => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    let before = running();

    // Another program by its contents, which does the same.
    let program = sh("command -v switchd");
    sh(&format!(
        "cp {program} {program}.new && echo upgraded >> {program}.new"
    ));
    let other = sh(&format!("sha256sum < {program}.new"));
    assert_ne!(other, before.1);
    let seen = pinged(&hosts[0], 100, || {
        sh(&format!("mv {program}.new {program} && switchd check"));
    });
    assert_eq!(seen.lost(), 0, "the file is replaced: {seen:?}");
    assert_eq!(running(), before, "it goes on with its own file");

    let seen = pinged(&hosts[0], 300, || {
        sh("systemctl stop switchd");
    });
    assert_eq!(seen.lost(), 0, "a stop, and the kernel: {seen:?}");
    let seen = pinged(&hosts[0], 300, || {
        sh("systemctl start switchd");
    });
    println!("the start lost {} of 300", seen.lost());
    assert_eq!(seen.lost(), 0, "a start: {seen:?}");
    machine.wait_for_status("switchd", well);
    let after = running();
    assert_ne!(after.0, before.0);
    assert_eq!(after.1, other, "the new program runs");

    // And at once, as an operator does it. A busy machine may keep a worker away for longer than
    // the kernel waits, of which an error tells: not each time.
    let is_quiet = (0..3).any(|_| {
        let before = machine.journal("switchd", "err").lines().count();
        let seen = pinged(&hosts[0], 500, || {
            sh("systemctl restart switchd");
        });
        println!("the restart lost {} of 500", seen.lost());
        assert_eq!(seen.lost(), 0, "a restart: {seen:?}");
        machine.journal("switchd", "err").lines().count() == before
    });
    let errors = machine.journal("switchd", "err");
    assert!(is_quiet, "{errors}");
    let mut others = errors.lines();
    assert!(
        others.all(|line| line.contains("kind=\"takeover\"")),
        "{errors}"
    );
}

/// SW-1, MG-5: what the unit leaves a daemon of is enough to know the kernel's settings, filters
/// and policies: what is not forwarded, what is warned of, who takes over.
#[test]
fn the_unit_lets_the_kernel_be_seen() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let machine = Machine::boot();
    let hosts = hosts_of(&machine);
    let run = |line: &str| machine.namespace.run(line).expect("it succeeds");
    for line in [
        "sysctl -qw net.ipv4.ip_forward=0",
        "sysctl -qw net.ipv6.conf.swp1.disable_ipv6=1",
        "sysctl -qw net.ipv4.ip_default_ttl=99",
        "ip xfrm policy add src 10.9.0.0/16 dst 10.10.0.0/16 dir fwd",
    ] {
        run(line);
    }
    let ports = r#"echo 'ports = ["swp1", "swp2"]' > /etc/switchd/switchd.toml"#;
    machine.run(&["sh", "-c", ports]);
    machine.run(&["systemd-sysusers"]);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "switchd"]);
    machine.wait_for_status("switchd", |text| text.starts_with("2 of 2 ports up, "));
    let warnings = machine.journal("switchd", "warning");
    assert!(warnings.contains("ip_forward is 0"), "{warnings}");
    assert!(!warnings.contains("settings cannot be read"), "{warnings}");
    eventually("a policy of IPsec", PATIENCE, || {
        let status = machine.run(&["switchctl", "status"]);
        match status.contains("1 policy of IPsec") {
            true => Ok(()),
            false => Err(status),
        }
    });

    // The kernel forwards nothing, so what waits for a frozen worker is not handed to it.
    let ping = || pinged(&hosts[0], 100, || ());
    eventually("a way", PATIENCE, || match ping() {
        seen if seen.lost() == 0 => Ok(()),
        seen => Err(format!("{seen:?}")),
    });
    let seen = pinged(&hosts[0], 200, || {
        machine.run(&["systemctl", "kill", "-s", "STOP", "switchd"]);
        std::thread::sleep(Duration::from_millis(500));
        machine.run(&["systemctl", "kill", "-s", "CONT", "switchd"]);
    });
    assert_eq!(seen.lost(), 0, "a frozen switchd: {seen:?}");
    let events = machine.run(&["switchctl", "events"]);
    assert!(!events.contains("takeover"), "{events}");

    // The host believes that there is a way by the port which does without IPv6.
    let mac = run("cat /sys/class/net/swp1/address");
    for line in [
        "ip address add fd08::2/64 dev far1 nodad".to_owned(),
        format!("ip neighbour add fd08::1 lladdr {} dev far1", mac.trim()),
        "ip route add default via fd08::1".to_owned(),
    ] {
        hosts[0].run(&line).expect("it succeeds");
    }
    let to = "fd09::1".parse().expect("an address");
    let asked = Echo::new(to, 3, Duration::from_millis(10)).start(hosts[0].name());
    let asked = asked.finish().expect("echo requests");
    assert_eq!((asked.received, asked.refused), (0, 0), "{asked:?}");
    let drops = machine.run(&["switchctl", "drops"]);
    assert!(drops.contains("ipv6_disabled"), "{drops}");
}
