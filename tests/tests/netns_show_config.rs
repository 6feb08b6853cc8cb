//! What the daemons say of a configuration without running: `check` and `show-config`, with the
//! devices and settings of a network namespace.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lab::privileged;
use lab::settings::binary;
use netns::Namespace;
use tempfile::TempDir;

/// A namespace with a pair of devices, and a folder for configurations.
struct Rig {
    namespace: Namespace,
    folder: TempDir,
}

impl Rig {
    fn new(name: &str) -> Self {
        let namespace = Namespace::new("showconfig", name).unwrap();
        let rig = Self {
            namespace,
            folder: tempfile::tempdir().unwrap(),
        };
        let run = |line: &str| rig.namespace.run(line).unwrap();
        run("ip link add p1 type veth peer name e1");
        run("ip link set p1 mtu 3000 up");
        run("ip link set e1 mtu 3000 up");
        rig
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("daemon.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// `daemon verb -c FILE` with more words and an environment variable.
    fn say(
        &self,
        daemon: &str,
        verb: &str,
        file: &Path,
        more: &[&str],
        set: (&str, &str),
    ) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace.name()]);
        command.arg(binary(daemon).unwrap()).args([verb, "-c"]);
        command.arg(file).args(more).env(set.0, set.1);
        command.output().unwrap()
    }
}

const NOTHING_SET: (&str, &str) = ("SHOWCONFIG_UNUSED", "1");

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Every line is there, and the whole is TOML that has all keys.
fn assert_shown(text: &str, lines: &[&str]) -> toml::Table {
    for line in lines {
        assert!(
            text.lines().any(|it| it == *line),
            "{line} is not in {text}"
        );
    }
    text.parse()
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// MG-1: `switchd show-config` prints every key with the place that set it, and what follows for
/// the ports that are there.
#[test]
fn a_switch_shows_what_is_in_force() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("switch");
    let file = rig.write(
        "ports = ['p*']\n[ecmp.dlb]\nmode = 'flowlet'\n[qos.flow_control]\nmode = 'pfc'\n\
         [[qos.group]]\ngroups = [3]\nxoff_bytes = 65536\nxon_bytes = 32768\nheadroom = 'auto'\n\
         [[qos.queue]]\nqueues = [3]\nlossless = true\n",
    );
    let more = [
        "--set",
        "port_defaults.speed=100Mbps",
        "--set",
        "port_defaults.link_speed=1Gbps",
    ];
    let set = ("SWITCHD_ECMP__SEED", "5");
    let output = rig.say("switchd", "show-config", &file, &more, set);
    let (text, errors) = texts(&output);
    assert!(output.status.success(), "{errors}");
    let place = file.display();
    let table = assert_shown(
        &text,
        &[
            &format!("ports = [\"p*\"]  # {place}:1:9"),
            &format!("mode = \"flowlet\"  # {place}:3:8"),
            "seed = 5  # environment variable SWITCHD_ECMP__SEED",
            "speed = \"100Mbps\"  # --set port_defaults.speed=100Mbps",
            "cable_metres = 5  # default",
            "# p1: speed = 100Mbps  # derived from speed and the device",
            "# p1: link_speed = 1Gbps  # derived from link_speed and the device",
            // Four frames of 1538 bytes at 100 Mb/s.
            "# p1: sampling_interval_microseconds = 493  # derived from \
             ecmp.dlb.sampling_interval_microseconds and speed",
            "# p1: peer_response_nanoseconds = 100000  # derived from \
             qos.headroom.poll_gap_microseconds: what it announces to its peer",
        ],
    );
    for key in ["burst_bytes", "headroom_bytes", "peer_backlog_bytes"] {
        assert!(text.contains(&format!("\n# p1: {key} = ")), "{text}");
    }
    assert!(!text.contains("# e1: "), "it is no port: {text}");
    // What is printed is read again, and is the same.
    let again = rig.write(&text);
    let (later, errors) = texts(&rig.say("switchd", "show-config", &again, &[], NOTHING_SET));
    assert_eq!(errors, "");
    assert_eq!(later.parse::<toml::Table>().unwrap(), table);

    // Without a port there is still all that does not depend on one.
    let none = ["--set", "ports=[\"q1\"]"];
    let (text, _) = texts(&rig.say("switchd", "show-config", &file, &none, NOTHING_SET));
    assert!(
        text.contains("\n# nothing is derived for ports: "),
        "{text}"
    );
    assert!(text.contains("q1"), "{text}");
}

/// MG-1, HT-45: the same for hostd, with what a switch has to know of it.
#[test]
fn a_host_shows_what_is_in_force() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("host");
    let file = rig.write("[[interface]]\nname = 'p1'\nspeed = '2Gbps'\n");
    let more = ["--set", "transport.pacer_burst=70000"];
    let set = ("HOSTD_LOG__LEVEL", "debug");
    let output = rig.say("hostd", "show-config", &file, &more, set);
    let (text, errors) = texts(&output);
    assert!(output.status.success(), "{errors}");
    let place = file.display();
    let table = assert_shown(
        &text,
        &[
            &format!("name = \"p1\"  # {place}:2:8"),
            &format!("speed = \"2Gbps\"  # {place}:3:9"),
            "level = \"debug\"  # environment variable HOSTD_LOG__LEVEL",
            "pacer_burst = 70000  # --set transport.pacer_burst=70000",
            "listen = \"127.0.0.1:9102\"  # default",
            "# p1: speed = 2Gbps  # derived from interface.speed and the device",
            "# p1: link_speed = 10Gbps  # derived from interface.link_speed and the device",
            "# p1: peer_backlog_bytes = 70000  # derived from transport.pacer_burst: what it announces to \
             its switch",
        ],
    );
    let again = rig.write(&text);
    let (later, errors) = texts(&rig.say("hostd", "show-config", &again, &[], NOTHING_SET));
    assert_eq!(errors, "");
    assert_eq!(later.parse::<toml::Table>().unwrap(), table);
    let none = rig.write("[[interface]]\nname = 'q1'\n");
    let (text, _) = texts(&rig.say("hostd", "show-config", &none, &[], NOTHING_SET));
    assert!(text.contains("\n# q1: nothing is derived: "), "{text}");
}

/// MG-1: a CPU that the machine does not have is refused where it is written; so it is where this
/// process may not use it.
#[test]
fn a_cpu_that_is_not_there_is_named() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("cpu");
    let file = rig.write("ports = ['p1']\n[workers]\ncount = 1\ncpus = [1023]\n");
    for verb in ["check", "run"] {
        let output = rig.say("switchd", verb, &file, &[], NOTHING_SET);
        let (_, errors) = texts(&output);
        let place = file.display();
        let told = format!("{place}:4:9: workers.cpus[0]: CPU 1023 is not there");
        assert!(
            !output.status.success() && errors.contains(&told),
            "{verb}: {errors}"
        );
    }
    // Of the CPUs that are there, one that is forbidden.
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(binary("switchd").unwrap());
    let file = rig.write("ports = ['p1']\n[workers]\ncount = 1\ncpus = [1]\n");
    let output = command.args(["check", "-c"]).arg(&file).output().unwrap();
    let (_, errors) = texts(&output);
    assert!(
        errors.contains("CPU 1 is not there, or not for this process: [0] are"),
        "{errors}"
    );
}

/// MG-1: `check` warns while the kernel does not forward what is handed to it during a takeover, of
/// each family, and not where it does or where takeover is off.
#[test]
fn forwarding_that_is_off_is_warned_of() {
    if !privileged() {
        return;
    }
    let rig = Rig::new("forwarding");
    let file = rig.write("ports = ['p1']\n");
    let settings = [
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward is 0"),
        (
            "net.ipv6.conf.all.forwarding",
            "/proc/sys/net/ipv6/conf/all/forwarding is 0",
        ),
    ];
    for forwards in [[0, 0], [1, 0], [0, 1], [1, 1]] {
        for ((key, _), value) in settings.iter().zip(forwards) {
            rig.namespace
                .run(&format!("sysctl -qw {key}={value}"))
                .unwrap();
        }
        for (more, takes_over) in [
            (&[][..], true),
            (&["--set", "workers.takeover_milliseconds=0"], false),
        ] {
            let output = rig.say("switchd", "check", &file, more, NOTHING_SET);
            let (text, errors) = texts(&output);
            assert!(output.status.success() && text.contains("valid"), "{text}");
            for ((_, warning), value) in settings.iter().zip(forwards) {
                let expected = takes_over && value == 0;
                assert_eq!(errors.contains(warning), expected, "{forwards:?}: {errors}");
            }
        }
    }
}
