//! Memory windows of type 2 on either side, and SEND with invalidate in both directions.

use hostd_client::{
    Access, Bind, CompletionOpcode, CompletionStatus, ReceiveRequest, RemoteSlice, SendRequest,
};

use crate::peer::{Meeting, pattern};
use crate::rig;
use crate::talk::Talk;

/// Where windows begin, and their bytes: more than one packet.
const AT: usize = 8192;
const LEN: usize = 20_000;

/// Bytes of the SEND that takes a key back.
const SENT: usize = 3000;

/// Binds a window in the guest; the key, and where it is for peers.
fn bound(talk: &mut Talk) -> RemoteSlice {
    let answer = talk.peer.ask(&format!("bind {AT} {LEN}"));
    let rkey = answer.strip_prefix("success ");
    let rkey = rkey.unwrap_or_else(|| panic!("{answer}"));
    RemoteSlice {
        address: talk.peer.remote.address + AT as u64,
        rkey: rkey.parse().unwrap(),
    }
}

/// hostd writes into the guest's window and reads it.
fn uses(talk: &mut Talk, window: RemoteSlice, seed: u32) {
    talk.peer.must(&format!("at {AT}"));
    talk.fill(LEN, seed);
    let local = talk.region.slice(0, LEN).unwrap();
    let write = SendRequest::write(7, local, window);
    talk.pair.post_send(&write).unwrap();
    talk.next();
    assert_eq!(talk.peer.ask(&format!("check 1 {LEN} {seed}")), "ok");
    talk.region.write(0, &vec![0; LEN]).unwrap();
    let read = SendRequest::read(7, local, window);
    talk.pair.post_send(&read).unwrap();
    talk.next();
    let mut found = vec![0; LEN];
    talk.region.read(0, &mut found).unwrap();
    assert!(found == pattern(LEN, seed), "what was written is read");
    talk.peer.must("at 0");
}

/// A WRITE of one byte to a window that is not there any more.
fn fails(talk: &mut Talk, window: RemoteSlice) {
    let local = talk.region.slice(0, 1).unwrap();
    let write = SendRequest::write(9, local, window);
    talk.pair.post_send(&write).unwrap();
    let completion = talk.completions.next(rig::LIMIT).unwrap();
    assert_eq!(completion.status, CompletionStatus::RemoteAccess);
}

/// HT-1, HT-10: hostd writes and reads in a window that Soft-RoCE has bound, and takes its key back
/// by a SEND with invalidate, of which the guest's completion tells. What is done with the key
/// afterwards is refused, also when the guest took it back itself. A window that is bound anew has
/// another key, which counts.
#[test]
fn hostd_uses_windows_of_the_guest_and_takes_their_keys() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        for (v6, mtu, own, port) in [(false, 1024, true, 7030), (true, 4096, false, 7031)] {
            let mut talk = Talk::begin(rig, Meeting::new(port, v6, mtu));
            for seed in [5, 6] {
                let window = bound(&mut talk);
                uses(&mut talk, window, seed);
                talk.peer.must(&format!("post 1 {SENT}"));
                talk.fill(SENT, seed + 10);
                let local = talk.region.slice(0, SENT).unwrap();
                let send = SendRequest::send(7, local).with_invalidate(window.rkey);
                talk.pair.post_send(&send).unwrap();
                talk.next();
                let expected = format!("128 {SENT} {}", window.rkey);
                assert_eq!(talk.peer.ask("wait"), expected);
                talk.peer.must(&format!("check 1 {SENT} {}", seed + 10));
                if seed == 6 && !own {
                    fails(&mut talk, window);
                }
            }
            if own {
                let window = bound(&mut talk);
                uses(&mut talk, window, 7);
                let answer = talk.peer.ask(&format!("revoke {}", window.rkey));
                assert_eq!(answer, "success");
                fails(&mut talk, window);
            }
            talk.end(rig);
        }
        rig.assert_understood(&capture.stop().unwrap());
    });
}

/// HT-1, HT-10: Soft-RoCE writes and reads in a window that hostd has bound, not beside it, and
/// takes its key back by a SEND with invalidate, of which hostd's completion tells. What it does
/// with the key afterwards is refused.
#[test]
fn the_guest_uses_windows_of_hostd_and_takes_their_keys() {
    rig::with(|rig| {
        let capture = rig.lab.capture("leaf1", "h1", "udp port 4791").unwrap();
        for (v6, mtu, port) in [(false, 4096, 7032), (true, 256, 7033)] {
            let mut talk = Talk::begin(rig, Meeting::new(port, v6, mtu));
            let mut window = talk.context.create_window().unwrap();
            let mut last = 0;
            for seed in [5, 6] {
                let bind = Bind {
                    region: &talk.region,
                    offset: AT,
                    len: LEN,
                    access: Access::REMOTE_WRITE.with(Access::REMOTE_READ),
                };
                let rkey = talk.pair.post_bind(3, &mut window, bind).unwrap();
                assert_eq!(talk.next().opcode, CompletionOpcode::BindWindow);
                assert_ne!(rkey, last);
                last = rkey;
                talk.peer.must(&format!("fill 2 {LEN} {seed}"));
                let write = format!("do write 2 {LEN} 0 {AT} {rkey} 0 0");
                assert_eq!(talk.peer.ask(&write), "success");
                let mut found = vec![0; LEN];
                talk.region.read(AT, &mut found).unwrap();
                assert!(found == pattern(LEN, seed), "the guest's bytes");
                talk.region.write(AT, &pattern(LEN, seed + 20)).unwrap();
                let read = format!("do read 3 {LEN} 0 {AT} {rkey} 0 0");
                assert_eq!(talk.peer.ask(&read), "success");
                talk.peer.must(&format!("check 3 {LEN} {}", seed + 20));

                let local = talk.region.slice(0, SENT).unwrap();
                let receive = ReceiveRequest { wr_id: 8, local };
                talk.pair.post_receive(&receive).unwrap();
                talk.peer.must(&format!("fill 1 {SENT} {seed}"));
                let send = format!("do send_inv 1 {SENT} {rkey} 0 0 0 0");
                assert_eq!(talk.peer.ask(&send), "success");
                let taken = talk.next();
                assert_eq!(
                    (taken.invalidated, taken.immediate, taken.byte_len),
                    (Some(rkey), None, u32::try_from(SENT).unwrap())
                );
                let mut found = vec![0; SENT];
                talk.region.read(0, &mut found).unwrap();
                assert!(found == pattern(SENT, seed), "the guest's message");
            }
            let write = format!("do write 1 1 0 {AT} {last} 0 0");
            assert_eq!(talk.peer.ask(&write), "remote access error");
            talk.end(rig);
        }
        rig.assert_understood(&capture.stop().unwrap());
    });
}
