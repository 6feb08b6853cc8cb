//! Opening ports: modes, limits, occupied devices, processes that were killed.

use crate::namespace::{Namespace, enter};
use crate::{RING, open, packet, receive, send, umem};
use common::xdp::frame::{FramePool, leaked};
use common::xdp::netdev::Device;
use common::xdp::{Mode, ModeChoice, PortOptions, Role, Umem, XdpError, open_port};
use netns::privileged;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn an_mtu_that_does_not_fit_is_refused() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    namespace.run("ip link set va mtu 9217");
    let error = open_port(&umem, "va", &PortOptions::new(Role::Switch)).unwrap_err();
    assert!(matches!(error, XdpError::Mtu(_)), "{error}");
    assert!(
        error.to_string().contains("MTU 9217 is above 9216"),
        "{error}"
    );
    namespace.run("ip link set va mtu 9216");
    namespace.run("ip link set vb mtu 9216");
    let mut pool = FramePool::new(umem.region().clone());
    let (mut source, mut sink) = (open(&umem, "va"), open(&umem, "vb"));
    let longest = packet(sink.device.mac, 9216 + 14);
    send(
        &mut source.queues[0],
        &mut pool,
        std::slice::from_ref(&longest),
    );
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [longest]);
}

#[test]
fn modes_are_chosen_shown_and_required() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(4);
    let mut pool = FramePool::new(umem.region().clone());
    let with = |mode| PortOptions {
        mode: ModeChoice::Exactly(mode),
        ..PortOptions::new(Role::Switch)
    };
    let error = open_port(&umem, "va", &with(Mode::NativeZeroCopy)).unwrap_err();
    assert!(error.to_string().contains("native zero-copy"), "{error}");
    let source = open_port(&umem, "va", &with(Mode::GenericCopy)).unwrap();
    assert_eq!(source.mode.to_string(), "generic copy");
    drop(source);

    // A device without native XDP.
    namespace.run("ip link add link vb name vm type macvlan mode private");
    namespace.run("ip link set vm up");
    let error = open_port(&umem, "vm", &with(Mode::NativeCopy)).unwrap_err();
    assert!(matches!(error, XdpError::Steering { .. }), "{error}");
    let mut sink = open(&umem, "vm");
    assert_eq!(sink.mode, Mode::GenericCopy);
    let mut source = open_port(&umem, "va", &with(Mode::GenericCopy)).unwrap();
    let packet = packet(sink.device.mac, 90);
    send(
        &mut source.queues[0],
        &mut pool,
        std::slice::from_ref(&packet),
    );
    assert_eq!(receive(&mut sink.queues[0], &mut pool, 1), [packet]);
}

fn load(object: &std::path::Path) -> libbpf_rs::Object {
    let open = libbpf_rs::ObjectBuilder::default().open_file(object);
    open.unwrap().load().unwrap()
}

fn attach_without_link(object: &libbpf_rs::Object, ifindex: u32) {
    let program = object.progs().next().unwrap();
    libbpf_rs::Xdp::new(program.as_fd())
        .attach(ifindex.cast_signed(), libbpf_rs::XdpFlags::DRV_MODE)
        .unwrap();
}

#[test]
fn a_foreign_program_is_named_and_our_own_leftover_is_replaced() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    namespace.enter();
    let umem = umem(2);
    let ifindex = Device::lookup("va").unwrap().ifindex;

    let folder = tempfile::tempdir().unwrap();
    let (source, foreign) = (folder.path().join("f.c"), folder.path().join("f.o"));
    std::fs::write(
        &source,
        "__attribute__((section(\"xdp\"))) int foreign(void *c) { return 2; }\n\
         char l[] __attribute__((section(\"license\"))) = \"GPL\";\n",
    )
    .unwrap();
    netns::run(&format!(
        "clang -O2 -g -target bpf -c {} -o {}",
        source.display(),
        foreign.display()
    ))
    .expect("clang compiles it");
    let foreign = load(&foreign);
    attach_without_link(&foreign, ifindex);
    let error = open_port(&umem, "va", &PortOptions::new(Role::Switch)).unwrap_err();
    let XdpError::Occupied { id, name, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(name, "foreign");
    assert!(error.to_string().contains(&format!("XDP program {id}")));
    namespace.run("ip link set va xdp off");

    let ours = load(&std::path::Path::new(env!("OUT_DIR")).join("steer.bpf.o"));
    attach_without_link(&ours, ifindex);
    drop(open(&umem, "va"));

    let held = open(&umem, "va");
    let error = open_port(&umem, "va", &PortOptions::new(Role::Host)).unwrap_err();
    assert!(matches!(error, XdpError::InUse { .. }), "{error}");
    drop(held);
}

#[test]
fn a_port_can_be_opened_again_at_once() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "numrxqueues 2 numtxqueues 2");
    namespace.enter();
    let umem = umem(4);
    let mut pool = FramePool::new(umem.region().clone());
    let mut sink = open(&umem, "vb");
    for _ in 0..10 {
        let mut source = open(&umem, "va");
        let packets = vec![packet(sink.device.mac, 80); 40];
        send(&mut source.queues[1], &mut pool, &packets);
        // Half of them are still in its rings when the other end is closed and opened.
        receive(&mut sink.queues[1], &mut pool, 20);
        drop(sink);
        sink = open(&umem, "vb");
        send(&mut source.queues[1], &mut pool, &packets);
        receive(&mut sink.queues[1], &mut pool, 40);
    }
    drop(sink);
    assert_eq!(pool.free_frames(), umem.region().frames() as usize);
    assert_eq!(leaked(), 0);
}

const CHILD_NAMESPACE: &str = "XDP_TEST_CHILD_NAMESPACE";
const CHILD_MEMORY: &str = "XDP_TEST_CHILD_MEMORY";

/// What the process runs that the next test kills; does nothing by itself.
#[test]
fn child_that_holds_a_port() {
    let Ok(name) = std::env::var(CHILD_NAMESPACE) else {
        return;
    };
    enter(&name);
    let umem = umem(1);
    let _port = open(&umem, "va");
    println!("\nholding");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    if !privileged() {
        return;
    }
    let namespace = Namespace::new();
    namespace.veth("va", "vb", "");
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "opening::child_that_holds_a_port", "--nocapture"])
            .env(CHILD_NAMESPACE, namespace.name())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap() == "holding"));
        assert!(namespace.run("ip link show va").contains("xdp"));
        child.kill().unwrap();
        child.wait().unwrap();
        let name = namespace.name().to_owned();
        let opened = std::thread::spawn(move || {
            enter(&name);
            drop(open(&umem(1), "va"));
        });
        opened.join().unwrap();
        assert!(!namespace.run("ip link show va").contains("xdp"));
    }
}

/// What the next test runs in a process that may lock little memory; does nothing by itself.
#[test]
fn child_with_little_memory() {
    if std::env::var_os(CHILD_MEMORY).is_none() {
        return;
    }
    match Umem::new(1024, RING) {
        Ok(_) => println!("\nopened"),
        Err(error) => println!("\n{error}"),
    }
}

#[test]
fn too_little_locked_memory_is_said_in_numbers() {
    if !privileged() {
        return;
    }
    let output = netns::run(&format!(
        "env {CHILD_MEMORY}=1 setpriv --bounding-set -ipc_lock,-sys_resource -- \
         prlimit --memlock=1048576 {} --exact opening::child_with_little_memory --nocapture",
        std::env::current_exe().unwrap().display()
    ))
    .unwrap();
    assert!(
        output.contains("4194304 bytes are needed, the limit is 1048576"),
        "{output}"
    );
}

const CHILD_SIDE_BY_SIDE: &str = "XDP_TEST_CHILD_SIDE_BY_SIDE";

/// What the next test runs with the rights of a unit; does nothing by itself.
#[test]
fn child_with_three_memories() {
    if std::env::var_os(CHILD_SIDE_BY_SIDE).is_none() {
        return;
    }
    let memories = [umem(1), umem(1), umem(1)];
    for (memory, device) in memories.iter().zip(["va", "vb"]) {
        // Closed and opened again: no memory depends on the port that it opened first.
        drop(open(memory, device));
        drop(open(memory, device));
    }
    println!("\nopened");
}

/// MG-1: daemons run side by side in a network namespace, each with packet memory of its own: with
/// the rights of root unseen, with those of a unit at the price of a device for each further one,
/// which is used again after they have gone.
#[test]
fn several_memories_fit_in_one_namespace() {
    if !privileged() {
        return;
    }
    for (dropped, devices) in [("sys_time", 0), ("sys_admin", 2)] {
        let namespace = Namespace::new();
        namespace.veth("va", "vb", "");
        let run = || {
            let output = netns::run(&format!(
                "ip netns exec {} setpriv --bounding-set -{dropped} -- \
                 env {CHILD_SIDE_BY_SIDE}=1 {} --exact opening::child_with_three_memories --nocapture",
                namespace.name(),
                std::env::current_exe().unwrap().display()
            ))
            .unwrap();
            assert!(output.contains("\nopened"), "{output}");
            let links = namespace.run("ip -o link show type veth");
            links.matches(": xsk-anchor").count()
        };
        let mut made = run();
        assert_eq!(made, devices, "the first run, -{dropped}");
        // The kernel frees what a process had bound a moment after its end: a run that follows at
        // once may find a device taken. One of the next finds all of them free.
        let reused = (0..5).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            std::mem::replace(&mut made, run()) == made
        });
        assert!(reused, "{made} devices, and each run adds more");
    }
}
