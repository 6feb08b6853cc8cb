//! What the kernel says: not an enemy, but newer than this program, and in large pieces.

use super::program::Program;
use common::netlink::{Follower, Settings, decode as messages};
use common::time::{Span, Time};

/// One datagram.
pub(super) fn decode(input: &[u8]) {
    // Each message takes at least a header of 16 bytes, or ends the walk.
    let most = input.len() / 16 + 2;
    assert!(messages(input).count() <= most, "messages from nothing");
}

/// The number that the follower gives its socket.
const PORT: u32 = 7;

/// A series of datagrams, overruns and pauses.
pub(super) fn follow(input: &[u8]) {
    let mut program = Program::new(input);
    let mut follower = Follower::new(Settings::default(), PORT);
    let mut changes = Vec::new();
    let mut request = Vec::new();
    let mut now = Time::ZERO;
    while !program.is_over() {
        match program.u8() {
            0 => follower.handle_overrun(now),
            1 => now += Span::from_millis(u64::from(program.u16())),
            2 => request = follower.poll_request(now).unwrap_or(request),
            3..128 => follower.handle(&answer(program.block(), &request), now),
            _ => follower.handle(program.block(), now),
        }
        follower.take_changes(&mut changes);
        changes.clear();
        let _ = (follower.deadline(), follower.is_synced());
    }
}

/// `datagram` as the answer to `request`: with its sequence number, and this socket's port.
fn answer(datagram: &[u8], request: &[u8]) -> Vec<u8> {
    let mut bytes = datagram.to_vec();
    let mut rest = &mut bytes[..];
    while let (Some(header), Some(sequence)) = (rest.get_mut(..16), request.get(8..12)) {
        header[8..12].copy_from_slice(sequence);
        header[12..16].copy_from_slice(&PORT.to_ne_bytes());
        let len = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
        let len = usize::try_from(len)
            .expect("64 bits")
            .next_multiple_of(4)
            .max(16);
        let Some(after) = rest.get_mut(len..) else {
            break;
        };
        rest = after;
    }
    bytes
}
