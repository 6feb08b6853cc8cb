//! Bad input to the daemons' edges: a clear message, or an answer; never a panic, never silence.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use lab::command::run;
use lab::observe::{assert_healthy, fabric};
use lab::topology::Daemons;
use lab::traffic::ping;
use lab::{Lab, Output, node_dir, privileged, shared};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// A laboratory without daemons, to start them by hand.
fn bare(name: &str) -> Lab {
    Lab::builder()
        .name(name)
        .size(1, 1, 1)
        .daemons(Daemons::Nothing)
        .up()
        .unwrap()
}

fn config(lab: &Lab, node: &str, program: &str) -> PathBuf {
    node_dir(lab.name(), node).join(format!("{program}.toml"))
}

/// Starts `program` on `node`; it has to give up by itself.
fn refused(lab: &Lab, node: &str, program: &str) -> String {
    refused_under(lab, node, program, &[])
}

/// The same, run by the command `under`.
fn refused_under(lab: &Lab, node: &str, program: &str, under: &[&str]) -> String {
    let config = config(lab, node, program).display().to_string();
    let limit = ["timeout", "-s", "KILL", "10"];
    let words = [&limit[..], under, &[program, "run", "-c", &config]].concat();
    let Output { status, stderr, .. } = lab.host(node).run(words).unwrap();
    assert!(
        status > 0 && status != 137 && status != 101,
        "status {status}: {stderr}"
    );
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

const DAEMONS: [(&str, &str); 2] = [("leaf1", "switchd"), ("h1", "hostd")];

/// MG-1: a key that does not exist is named, with the file, by `check` and by `run`.
#[test]
fn an_unknown_key_is_named() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = bare("rekey");
    for (node, program) in DAEMONS {
        let path = config(&lab, node, program);
        let good = fs::read_to_string(&path).unwrap();
        let shown = path.display().to_string();
        let check = || {
            lab.host(node)
                .run([program, "check", "-c", &shown])
                .unwrap()
        };
        check().expect_ok();
        fs::write(&path, format!("sped = 3\n{good}")).unwrap();
        let said = check().stderr;
        assert!(said.contains("sped") && said.contains(&shown), "{said}");
        let said = refused(&lab, node, program);
        assert!(said.contains("sped"), "{said}");
        fs::write(&path, "port = [[[").unwrap();
        assert!(!check().ok());
        fs::remove_file(&path).unwrap();
        let said = check().stderr;
        assert!(said.contains(&shown), "{said}");
    }
}

/// MG-1: an interface that does not exist is named.
#[test]
fn a_missing_interface_is_named() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = bare("remiss");
    for (node, program) in DAEMONS {
        let path = config(&lab, node, program);
        let name = if program == "switchd" {
            "\"spine1\""
        } else {
            "\"leaf1\""
        };
        let text = fs::read_to_string(&path)
            .unwrap()
            .replace(name, "\"nosuch0\"");
        fs::write(&path, text).unwrap();
        let said = refused(&lab, node, program);
        assert!(said.contains("nosuch0"), "{said}");
    }
}

/// MG-1: an MTU above what AF_XDP carries is refused with the limit, not accepted to lose packets
/// later.
#[test]
fn a_large_mtu_is_refused() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = bare("remtu");
    for (node, interface, program) in [("leaf1", "h1", "switchd"), ("h1", "leaf1", "hostd")] {
        let link = ["ip", "link", "set", interface, "mtu", "9217"];
        lab.host(node).run(link).unwrap().expect_ok();
        let said = refused(&lab, node, program);
        assert!(
            said.contains("9217") && said.to_lowercase().contains("mtu"),
            "{said}"
        );
    }
}

/// MG-1: too little locked memory is said in numbers: what is needed, and what is allowed.
#[test]
fn too_little_locked_memory_is_named() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = bare("remem");
    let ordinary = "setpriv --bounding-set -ipc_lock,-sys_resource -- prlimit --memlock=1048576";
    let ordinary: Vec<_> = ordinary.split(' ').collect();
    for (node, program) in DAEMONS {
        let said = refused_under(&lab, node, program, &ordinary);
        assert!(
            said.contains("the limit is 1048576") && said.contains("bytes are needed"),
            "{said}"
        );
    }
}

/// MG-1: an interface on which somebody else's XDP program runs is left alone, with a message.
#[test]
fn a_foreign_xdp_program_is_not_replaced() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = bare("rexdp");
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("pass.c"), folder.path().join("pass.o"));
    fs::write(
        &source,
        "__attribute__((section(\"xdp\"), used)) int pass(void *c) { return 2; }\n\
         __attribute__((section(\"license\"), used)) char _license[] = \"GPL\";\n",
    )
    .unwrap();
    let paths = [&source, &object].map(|path| path.display().to_string());
    run(
        "clang",
        &["-O2", "-target", "bpf", "-c", &paths[0], "-o", &paths[1]],
    )
    .unwrap();
    for (node, interface, program) in [("leaf1", "h1", "switchd"), ("h1", "leaf1", "hostd")] {
        let attach = [
            "ip", "link", "set", interface, "xdpdrv", "obj", &paths[1], "sec", "xdp",
        ];
        lab.host(node).run(attach).unwrap().expect_ok();
        let said = refused(&lab, node, program);
        assert!(
            said.contains(interface) && said.to_lowercase().contains("xdp"),
            "{said}"
        );
        let link = lab
            .host(node)
            .run(["ip", "link", "show", interface])
            .unwrap()
            .expect_ok();
        assert!(link.contains("xdp"), "it is still there: {link}");
    }
}

/// MG-1: any bytes on the admin sockets: the daemons answer with an error or close, and go on.
#[test]
fn garbage_on_the_admin_sockets_is_survived() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = fabric("regarb").size(1, 1, 2).up().unwrap();
    const SEED: u64 = 0x5eed;
    println!("seed {SEED}");
    let mut random = Pcg64::seed_from_u64(SEED);
    for (node, _) in DAEMONS {
        let socket = node_dir(lab.name(), node).join("admin.sock");
        for round in 0..40 {
            let mut bytes = vec![0; 1 << (round % 17)];
            random.fill_bytes(&mut bytes);
            if round % 3 == 0 {
                bytes.push(b'\n');
            }
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            // It may close before all is written.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
        }
        // Connections that say nothing do not keep others out.
        let _silent: Vec<_> = (0..8)
            .map(|_| UnixStream::connect(&socket).unwrap())
            .collect();
        let tool = if node == "leaf1" {
            "switchctl"
        } else {
            "hostctl"
        };
        lab.host(node)
            .run([tool, "--json", "show", "ports"])
            .unwrap()
            .expect_ok();
    }
    let pings = ping(
        lab.host("h1"),
        lab.host("h2"),
        false,
        3,
        Duration::from_millis(20),
    )
    .unwrap();
    assert_eq!(pings.lost(), 0);
    assert_healthy(&lab, &[]);
}
