//! The systemd units, without a running systemd: what it says of them, and that the daemons need no
//! more than the units grant.

use std::ffi::OsStr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use lab::privileged;
use lab::settings::binary;
use netns::Namespace;
use tempfile::TempDir;

const DAEMONS: [&str; 2] = ["switchd", "hostd"];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn unit_text(daemon: &str) -> String {
    let path = root().join(format!("systemd/{daemon}.service"));
    std::fs::read_to_string(path).expect("the unit is readable")
}

/// What `key` is set to, every time, in the order of the lines.
fn values(unit: &str, key: &str) -> Vec<String> {
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
    unit.lines().filter_map(value).collect()
}

/// The unit in `directory`, with commands that are there on every machine.
fn unit_in(directory: &TempDir, daemon: &str) -> PathBuf {
    let path = directory.path().join(format!("{daemon}.service"));
    let text = unit_text(daemon)
        .replace(&format!("=/usr/bin/{daemon}"), "=/bin/true")
        .replace("=/usr/bin/switchctl", "=/bin/true");
    std::fs::write(&path, text).expect("the copy is written");
    path
}

fn output<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; run `make setup`"))
}

fn succeed<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> String {
    let output = output(program, arguments);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{program}: {text}");
    text
}

/// systemd understands every line.
#[test]
fn systemd_understands_the_units() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for daemon in DAEMONS {
        let unit = unit_in(&directory, daemon);
        let path = unit.to_str().expect("UTF-8");
        let said = succeed("systemd-analyze", ["verify", "--man=no", path]);
        assert_eq!(said, "", "complaints about {daemon}.service");
    }
}

/// The exposure that systemd computes is at most 3.0 of 10: what is left is the network and the
/// three capabilities.
#[test]
fn the_daemons_are_confined() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for daemon in DAEMONS {
        let unit = unit_in(&directory, daemon);
        let path = unit.to_str().expect("UTF-8");
        let arguments = [
            "security",
            "--offline=true",
            "--threshold=30",
            "--no-pager",
            path,
        ];
        println!("{}", succeed("systemd-analyze", arguments));
        let unit = unit_text(daemon);
        let [ambient, bounding] =
            ["AmbientCapabilities", "CapabilityBoundingSet"].map(|key| values(&unit, key));
        assert_eq!(ambient, ["CAP_NET_ADMIN CAP_NET_RAW CAP_BPF"], "{daemon}");
        assert_eq!(ambient, bounding, "{daemon}");
    }
}

/// Users and configuration of a fresh system.
#[test]
fn a_fresh_system_gets_users_and_configuration() {
    let system = tempfile::tempdir().expect("a temporary directory");
    let place = |path: &str| {
        let path = system.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        path
    };
    let copy = |from: &str, to: &str| {
        std::fs::copy(root().join(from), place(to)).expect("a copy");
    };
    for daemon in DAEMONS {
        copy(
            &format!("systemd/{daemon}.sysusers"),
            &format!("usr/lib/sysusers.d/{daemon}.conf"),
        );
        copy(
            &format!("systemd/{daemon}.tmpfiles"),
            &format!("usr/lib/tmpfiles.d/{daemon}.conf"),
        );
        copy(
            &format!("etc/{daemon}.toml"),
            &format!("usr/share/{daemon}/{daemon}.toml"),
        );
    }
    let root_option = format!("--root={}", system.path().display());
    let users = succeed("systemd-sysusers", ["--dry-run", &root_option]);
    for daemon in DAEMONS {
        let unit = unit_text(daemon);
        assert_eq!(values(&unit, "User"), [daemon]);
        assert_eq!(values(&unit, "Group"), [daemon]);
        assert!(
            users.contains(&format!("Creating user '{daemon}'")),
            "{users}"
        );
    }
    // Owners are named by number or not found outside of the new system.
    std::fs::write(place("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("written");
    std::fs::write(place("etc/group"), "root:x:0:\n").expect("written");
    succeed("systemd-tmpfiles", ["--create", &root_option]);
    for daemon in DAEMONS {
        let shipped = std::fs::read(root().join(format!("etc/{daemon}.toml"))).expect("shipped");
        let created = place(&format!("etc/{daemon}/{daemon}.toml"));
        assert_eq!(std::fs::read(created).expect("created"), shipped);
    }
}

/// The shipped configuration puts sockets where the unit lets the daemon write.
#[test]
fn sockets_are_in_the_runtime_directory() {
    for daemon in DAEMONS {
        let directory = values(&unit_text(daemon), "RuntimeDirectory");
        assert_eq!(directory, [daemon]);
        let path = root().join(format!("etc/{daemon}.toml"));
        let text = std::fs::read_to_string(path).expect("shipped");
        let sockets: Vec<_> = values(&text.replace(" = ", "="), "socket");
        assert!(!sockets.is_empty(), "{daemon}");
        for socket in sockets {
            assert!(socket.starts_with(&format!("\"/run/{daemon}/")), "{socket}");
        }
    }
}

/// A network namespace with one port.
fn namespace_with_port() -> Namespace {
    let namespace = Namespace::new("unit-caps", "daemons").expect("root may make it");
    let add = "link add swp1 numrxqueues 1 numtxqueues 1 type veth \
               peer name far numrxqueues 1 numtxqueues 1";
    for command in [
        add,
        "addr add 192.0.2.1/24 dev swp1",
        "link set lo up",
        "link set swp1 up",
        "link set far up",
    ] {
        netns::run(&format!("ip -n {} {command}", namespace.name())).expect("it succeeds");
    }
    namespace
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts `daemon` as nobody with the capabilities `granted`, and waits until it says that it is
/// ready.
fn starts_with(daemon: &str, granted: &str, namespace: &Namespace, directory: &Path) {
    let path = directory.join(format!("{daemon}.toml"));
    let socket = |name: &str| directory.join(format!("{daemon}-{name}.sock"));
    let mut text = format!("[admin]\nsocket = {:?}\n", socket("admin"));
    match daemon {
        "switchd" => text = format!("ports = [\"swp1\"]\n{text}"),
        _ => {
            text += &format!("[application]\nsocket = {:?}\n", socket("app"));
            text += "[[interface]]\nname = \"swp1\"\nspeed = \"1Gbps\"\n";
        }
    }
    std::fs::write(&path, text).expect("the configuration is written");
    let notify = directory.join(format!("{daemon}-notify"));
    let ready = UnixDatagram::bind(&notify).expect("a socket");
    ready
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a time-out");
    make_public(&notify, 0o666);

    // Nobody may look into the folder of who builds.
    let program = directory.join(daemon);
    std::fs::copy(binary(daemon).expect("built"), &program).expect("a copy");
    let sets = ["--inh-caps", "--ambient-caps", "--bounding-set"];
    let sets = sets.map(|set| format!("{set}=-all,{granted}"));
    let mut child = Command::new("ip")
        .args(["netns", "exec", namespace.name(), "setpriv"])
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(sets)
        .arg(&program)
        .arg("run")
        .arg("-c")
        .arg(&path)
        .env("NOTIFY_SOCKET", &notify)
        .spawn()
        .map(Process)
        .expect("ip starts");
    let end = Instant::now() + Duration::from_secs(20);
    let mut said = [0; 256];
    loop {
        if let Ok(len) = ready.recv(&mut said)
            && said[..len].starts_with(b"READY=1")
        {
            return;
        }
        let status = child.0.try_wait().expect("a child");
        assert!(status.is_none(), "{daemon} with {granted}: {status:?}");
        assert!(Instant::now() < end, "{daemon} with {granted}: not ready");
    }
}

fn make_public(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions).expect("permissions");
}

/// Each daemon gets ready as an ordinary user with the capabilities of its unit and no other.
/// (Where the kernel lets nobody lock memory, IPC_LOCK stands for `LimitMEMLOCK=infinity`.)
#[test]
fn the_capabilities_suffice() {
    if !privileged() {
        return;
    }
    let directory = tempfile::tempdir_in("/tmp").expect("a temporary directory");
    make_public(directory.path(), 0o777);
    let namespace = namespace_with_port();
    for daemon in DAEMONS {
        let granted = values(&unit_text(daemon), "AmbientCapabilities").remove(0);
        let granted = granted
            .to_lowercase()
            .replace("cap_", "+")
            .replace(' ', ",");
        starts_with(
            daemon,
            &format!("{granted},+ipc_lock"),
            &namespace,
            directory.path(),
        );
    }
}
