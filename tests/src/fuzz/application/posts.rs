//! What the hostile application posts.

use super::client::{Client, pick};
use crate::fuzz::program::Program;
use hostd_client::abi::descriptor::{
    INLINE_FIRST, Local, Opcode, ReceiveWork, SGE_FIRST, SGE_MORE, SendWork, Sge, SgeList,
    WORK_LEN, inline_slot,
};
use hostd_client::abi::{INLINE_MAX, SGE_MAX};

/// A request of one piece.
pub(super) fn send(client: &mut Client, which: u8, stranger: u32, program: &mut Program<'_>) {
    const OPCODES: [Opcode; 7] = [
        Opcode::Write,
        Opcode::WriteWithImmediate,
        Opcode::Send,
        Opcode::SendWithImmediate,
        Opcode::Read,
        Opcode::CompareSwap,
        Opcode::FetchAdd,
    ];
    let (how, address, len) = (program.u8(), program.u16(), program.u16());
    let opcode = OPCODES[usize::from(how & 7) % OPCODES.len()];
    let region = pick(&mut client.regions, how >> 3).map(|it| (it.handle, it.rkey));
    let (lkey, rkey) = region.unwrap_or((1, 1));
    let rkey = if how >= 0xc0 { stranger } else { rkey };
    let sge = Sge {
        address: u64::from(address) & 0x1ff8,
        length: if opcode.is_atomic() {
            8
        } else {
            u32::from(len & 0xfff)
        },
        lkey: if how & 0xe0 == 0xa0 { stranger } else { lkey },
    };
    let work = SendWork {
        wr_id: u64::from(len),
        opcode,
        signaled: which & 0x80 != 0,
        solicited: which & 0x40 != 0,
        fence: which & 0x20 != 0,
        immediate: if opcode.has_immediate() { 7 } else { 0 },
        remote_address: match opcode {
            Opcode::Send | Opcode::SendWithImmediate => 0,
            _ => u64::from(len) & 0x1ff8,
        },
        rkey,
        local: Local::Pieces(SgeList::new(&[sge]).expect("one")),
        compare_add: if opcode.is_atomic() { 1 } else { 0 },
        swap: 0,
    };
    if let Some(pair) = pick(&mut client.pairs, which & 3) {
        pair.send.push(&work.to_bytes());
        let slot = pair.slot;
        client.ring(slot);
    }
}

pub(super) fn receive(client: &mut Client, which: u8, program: &mut Program<'_>) {
    let (address, len) = (program.u16(), program.u16());
    let lkey = pick(&mut client.regions, which >> 2).map_or(1, |it| it.handle);
    let sge = Sge {
        address: address.into(),
        length: len.into(),
        lkey,
    };
    let work = ReceiveWork {
        wr_id: 3,
        buffers: SgeList::new(&[sge]).expect("one"),
    };
    if let Some(pair) = pick(&mut client.pairs, which & 3) {
        pair.receive.push(&work.to_bytes());
        let slot = pair.slot;
        client.ring(slot);
    }
}

/// A request of any kind, with any flags, of many pieces or with its bytes in the ring.
pub(super) fn of_any_kind(
    client: &mut Client,
    which: u8,
    stranger: u32,
    program: &mut Program<'_>,
) {
    const OPCODES: [Opcode; 10] = [
        Opcode::Write,
        Opcode::WriteWithImmediate,
        Opcode::Send,
        Opcode::SendWithImmediate,
        Opcode::Read,
        Opcode::CompareSwap,
        Opcode::FetchAdd,
        Opcode::LocalInvalidate,
        Opcode::BindWindow,
        Opcode::SendWithInvalidate,
    ];
    let (how, key) = (program.u8(), program.u8());
    let opcode = OPCODES[usize::from(how) % OPCODES.len()];
    let region = pick(&mut client.regions, key).map(|it| (it.handle, it.rkey));
    let (lkey, rkey) = region.unwrap_or((1, 1));
    let window = pick(&mut client.windows, key >> 2).copied();
    let (window, window_key) = window.unwrap_or((1, 1));
    let rkey = match key >> 6 {
        0 | 1 => rkey,
        2 => window_key.wrapping_add(u32::from(how >> 4)),
        _ => stranger,
    };
    let (local, more) = if how & 0x80 != 0 && opcode.can_be_inline() {
        in_the_ring(program)
    } else {
        let (list, more) = pieces(lkey, opcode, program);
        (Local::Pieces(list), more)
    };
    let work = SendWork {
        wr_id: 4,
        opcode,
        signaled: which & 0x80 != 0,
        solicited: which & 0x40 != 0,
        fence: which & 0x20 != 0,
        immediate: match opcode {
            Opcode::LocalInvalidate | Opcode::SendWithInvalidate => rkey,
            Opcode::BindWindow => window,
            _ => u32::from(opcode.has_immediate()),
        },
        remote_address: u64::from(program.u16()) & 0x1ff8,
        rkey,
        local,
        compare_add: u64::from(program.u8()),
        swap: match opcode {
            Opcode::BindWindow => u64::from(program.u16()),
            Opcode::CompareSwap => 5,
            _ => 0,
        },
    };
    if let Some(pair) = pick(&mut client.pairs, which & 3) {
        pair.send.push_all(&work.to_bytes(), &more);
        let slot = pair.slot;
        client.ring(slot);
    }
}

/// A receive of many pieces, of a queue pair or of a shared queue.
pub(super) fn list(client: &mut Client, which: u8, is_shared: bool, program: &mut Program<'_>) {
    let lkey = pick(&mut client.regions, which >> 2).map_or(1, |it| it.handle);
    // The opcode says how long pieces are: as of a SEND.
    let (buffers, more) = pieces(lkey, Opcode::Send, program);
    let work = ReceiveWork { wr_id: 5, buffers };
    let queue = if is_shared {
        pick(&mut client.shared, which & 3).map(|it| (&mut it.ring, it.slot))
    } else {
        pick(&mut client.pairs, which & 3).map(|it| (&mut it.receive, it.slot))
    };
    if let Some((ring, slot)) = queue {
        ring.push_all(&work.to_bytes(), &more);
        client.ring(slot);
    }
}

/// So many pieces of a region as the input says, and the slots of those that are not in the first.
fn pieces(lkey: u32, opcode: Opcode, program: &mut Program<'_>) -> (SgeList, Vec<[u8; WORK_LEN]>) {
    let count = match opcode {
        Opcode::BindWindow => 1,
        _ if opcode.is_atomic() => 1,
        _ => usize::from(program.u8()) % (SGE_MAX + 1),
    };
    let pieces: Vec<_> = (0..count)
        .map(|_| Sge {
            address: u64::from(program.u16()) & 0x1fff,
            length: match opcode.is_atomic() {
                true => 8,
                false => u32::from(program.u8()) << (program.u8() % 12),
            },
            lkey,
        })
        .collect();
    let list = SgeList::new(&pieces).expect("not more than there can be");
    let more = pieces.get(SGE_FIRST..).unwrap_or_default();
    let more = more.chunks(SGE_MORE).map(Sge::slot).collect();
    (list, more)
}

/// Bytes in the ring, and the slots of those that are not in the first.
fn in_the_ring(program: &mut Program<'_>) -> (Local, Vec<[u8; WORK_LEN]>) {
    let bytes = vec![program.u8(); usize::from(program.u16()) % (INLINE_MAX + 1)];
    let local = Local::inline(&bytes).expect("not more than there can be");
    let more = bytes.get(INLINE_FIRST..).unwrap_or_default();
    let more = more.chunks(WORK_LEN).map(inline_slot).collect();
    (local, more)
}
