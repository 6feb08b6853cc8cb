//! Other traffic beside a job.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hostd_client::Context;
use hostd_client::group::Group;
use lab::observe::fabric;
use lab::privileged;
use nix::sys::socket::{setsockopt, sockopt};

use crate::rig::{AtEnd, Rig, check, told_by_root};

/// Datagrams of a turn, and the bytes of each.
const DATAGRAMS: u32 = 2_000;
const LEN: usize = 1_000;

/// From one datagram to the next at least: 8 Mb/s, of links of 100 Mb/s.
const APART: Duration = Duration::from_millis(1);

/// For how long none has come when the last one has.
const SILENCE: Duration = Duration::from_millis(500);

/// What the members of a job do in a turn.
const IDLE: usize = 0;
const BUSY: usize = 1;
const OVER: usize = 2;

/// Best effort from h2 to h4, at its pace; how many of the datagrams came.
fn flow(rig: &Rig) -> u32 {
    let (from, to) = (rig.lab.host("h2"), rig.lab.host("h4"));
    let socket = || UdpSocket::bind("0.0.0.0:0").expect("a port");
    let sink = to.inside(socket).expect("its namespace");
    let source = from.inside(socket).expect("its namespace");
    let port = sink.local_addr().expect("bound").port();
    source.connect((to.address(false), port)).expect("a route");
    setsockopt(&sink, sockopt::RcvBufForce, &(16 << 20)).expect("root may");
    sink.set_read_timeout(Some(SILENCE)).expect("not zero");
    let all_sent = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let came = scope.spawn(move || {
            let mut came = 0;
            loop {
                match sink.recv(&mut [0; LEN]) {
                    Ok(_) => came += 1,
                    Err(_) if all_sent.load(Ordering::Relaxed) => return came,
                    Err(_) => {}
                }
            }
        });
        for _ in 0..DATAGRAMS {
            source.send(&[0; LEN]).expect("sent");
            std::thread::sleep(APART);
        }
        all_sent.store(true, Ordering::Relaxed);
        came.join().expect("no panic")
    })
}

/// SW-40: a flow of best effort that is paced well below the links' rate keeps its datagrams beside
/// a job that takes all that a link has: at least nine of ten of what comes when the job is idle,
/// in turns. The job has a class of its own, and sends more than three times as much as the flow.
#[test]
fn a_flow_keeps_its_rate_beside_a_job() {
    const TURNS: u32 = 3;
    if !privileged() {
        return;
    }
    let lab = fabric("gbeside").speed(100_000_000);
    let rig = Rig::with(lab, [2, 1, 4]);
    let turn = AtomicUsize::new(IDLE);
    let member = |context: Context, mut group: Group| {
        loop {
            let told = |group: &mut Group, wanted| {
                told_by_root(&context, group, turn.load(Ordering::Relaxed) == wanted)
            };
            if told(&mut group, OVER) {
                assert!(group.uses_switches(), "{:?}", group.fallback());
                return;
            }
            match told(&mut group, BUSY) {
                true => check(&context, &mut group, 4 << 20, 1).unwrap(),
                false => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    };
    rig.group(4, member, || {
        let _over = AtEnd(&turn, OVER);
        let (mut alone, mut beside) = (0, 0);
        for number in 0..TURNS {
            alone += flow(&rig);
            let before = rig.sent("leaf1", "spine1");
            turn.store(BUSY, Ordering::Relaxed);
            let came = flow(&rig);
            turn.store(IDLE, Ordering::Relaxed);
            let sent = rig.sent("leaf1", "spine1") - before;
            println!("turn {number}: {came} of {DATAGRAMS} beside {sent} bytes of the job");
            let own = u64::from(DATAGRAMS) * LEN as u64;
            assert!(sent > 3 * own, "the job is busy: {sent}");
            beside += came;
        }
        println!("{alone} without a job, {beside} with it");
        assert!(alone * 10 > DATAGRAMS * TURNS * 9, "{alone}");
        assert!(beside * 10 >= alone * 9, "{beside} of {alone}");
    });
}
