//! A queue pair of hostd, and the verbs program of the guest at its other end.

use hostd_client::{
    Access, AtomicOperation, Completion, CompletionQueue, CompletionStatus, Context, QueuePair,
    QueuePairOptions, Region, SendRequest, Slice,
};

use crate::peer::{Meeting, Peer, layout, pattern};
use crate::rig::{LIMIT, Rig};

pub(crate) struct Talk {
    pub(crate) context: Context,
    pub(crate) peer: Peer,
    pub(crate) pair: QueuePair,
    pub(crate) completions: CompletionQueue,
    pub(crate) region: Region,
    /// Pieces of memory that a message has here, and in the guest.
    pub(crate) pieces: [usize; 2],
    seed: u32,
}

/// Memory that a peer may do everything to.
pub(crate) fn memory(context: &Context, bytes: usize) -> Region {
    let rights = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let rights = rights.with(Access::REMOTE_READ).with(Access::REMOTE_ATOMIC);
    let rights = rights.with(Access::BIND);
    context.allocate(bytes, rights).unwrap()
}

impl Talk {
    pub(crate) fn begin(rig: &mut Rig, meeting: Meeting) -> Self {
        let context = rig.application();
        let completions = context.create_completion_queue(64).unwrap();
        let options = QueuePairOptions::default();
        let pair = context.create_queue_pair(&completions, &completions, options);
        let mut pair = pair.unwrap();
        let region = memory(&context, meeting.buffer_mib << 20);
        let peer = Peer::meet(rig, &mut pair, meeting);
        Self {
            context,
            peer,
            pair,
            completions,
            region,
            pieces: [1, 1],
            seed: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Completion {
        let completion = self.completions.next(LIMIT).unwrap();
        assert_eq!(completion.status, CompletionStatus::Success);
        completion
    }

    /// Where a message of `len` bytes lies here.
    fn slices(&self, len: usize) -> Vec<Slice> {
        let places = layout(self.pieces[0], len).into_iter();
        places
            .map(|(at, len)| self.region.slice(at, len).unwrap())
            .collect()
    }

    /// Writes the bytes of a message.
    pub(crate) fn fill(&self, len: usize, seed: u32) {
        let bytes = pattern(len, seed);
        let mut rest = &bytes[..];
        for (at, len) in layout(self.pieces[0], len) {
            let (piece, more) = rest.split_at(len);
            self.region.write(at, piece).unwrap();
            rest = more;
        }
    }

    /// Fails unless a message lies in `pieces` pieces.
    #[track_caller]
    fn check(&self, pieces: usize, len: usize, seed: u32, what: &str) {
        let expected = pattern(len, seed);
        let mut rest = &expected[..];
        for (at, len) in layout(pieces, len) {
            let (piece, more) = rest.split_at(len);
            let mut found = vec![0; len];
            self.region.read(at, &mut found).unwrap();
            assert!(found == piece, "{what}: {len} bytes at {at}");
            rest = more;
        }
    }

    /// One message from hostd, by a SEND or an RDMA WRITE, with immediate data or without.
    pub(crate) fn hostd_sends(&mut self, write: bool, immediate: Option<u32>, len: usize) {
        let [ours, theirs] = self.pieces;
        let what =
            format!("write {write} {immediate:?} {len} bytes from {ours} to {theirs} pieces");
        self.seed += 1;
        self.fill(len, self.seed);
        let mut request = match write {
            true => SendRequest::write(7, Slice::EMPTY, self.peer.remote),
            false => SendRequest::send(7, Slice::EMPTY),
        };
        request.immediate = immediate;
        let receives = !write || immediate.is_some();
        if receives {
            let room = if write { 0 } else { len };
            self.peer.must(&format!("post {theirs} {room}"));
        }
        let slices = self.slices(len);
        self.pair.post_send_list(&request, &slices).unwrap();
        self.next();
        if receives {
            let opcode = if write { 129 } else { 128 };
            let expected = format!("{opcode} {len} {}", immediate.unwrap_or(0));
            assert_eq!(self.peer.ask("wait"), expected, "{what}");
        }
        // What is written to lies in one piece.
        let pieces = if write { 1 } else { theirs };
        let check = format!("check {pieces} {len} {}", self.seed);
        assert_eq!(self.peer.ask(&check), "ok", "{what}");
    }

    /// One message from the guest; `operation` is the guest's word for it.
    pub(crate) fn guest_sends(&mut self, operation: &str, len: usize) {
        let [ours, theirs] = self.pieces;
        let what = format!("{operation} {len} bytes from the guest's {theirs} to {ours} pieces");
        self.seed += 1;
        let (seed, rkey) = (self.seed, self.region.rkey());
        self.peer.must(&format!("fill {theirs} {len} {seed}"));
        let receives = operation != "write";
        let write = operation.starts_with("write");
        if receives {
            let room = if write { 0 } else { len };
            let slices = self.slices(room);
            self.pair.post_receive_list(8, &slices).unwrap();
        }
        let request = format!("do {operation} {theirs} {len} 77 0 {rkey} 0 0");
        assert_eq!(self.peer.ask(&request), "success", "{what}");
        if receives {
            let Completion {
                byte_len,
                immediate,
                ..
            } = self.next();
            let expected = operation.ends_with("imm").then_some(77);
            let len = u32::try_from(len).unwrap();
            assert_eq!((byte_len, immediate), (len, expected), "{what}");
        }
        self.check(if write { 1 } else { ours }, len, seed, &what);
    }

    /// An RDMA READ of `len` bytes each way.
    pub(crate) fn reads(&mut self, len: usize) {
        let [ours, theirs] = self.pieces;
        let what = format!("{len} bytes are read, {ours} and {theirs} pieces");
        self.seed += 2;
        let (first, second, rkey) = (self.seed - 1, self.seed, self.region.rkey());
        self.peer.must(&format!("fill 1 {len} {first}"));
        let request = SendRequest::read(7, Slice::EMPTY, self.peer.remote);
        let slices = self.slices(len);
        self.pair.post_send_list(&request, &slices).unwrap();
        self.next();
        self.check(ours, len, first, &what);
        self.region.write(0, &pattern(len, second)).unwrap();
        let request = format!("do read {theirs} {len} 0 0 {rkey} 0 0");
        assert_eq!(self.peer.ask(&request), "success", "{what}");
        let check = format!("check {theirs} {len} {second}");
        assert_eq!(self.peer.ask(&check), "ok", "{what}");
    }

    /// Atomic operations each way: what was there comes back, and what becomes of it stays.
    pub(crate) fn atomics(&mut self) {
        let word = |talk: &Self| {
            let mut bytes = [0; 8];
            talk.region.read(0, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        let rkey = self.region.rkey();
        self.region.write(0, &1000_u64.to_le_bytes()).unwrap();
        for (request, before, after) in [
            ("do faa 1 8 0 0 KEY 5 0", 1000, 1005),
            ("do cas 1 8 0 0 KEY 1005 9", 1005, 9),
            ("do cas 1 8 0 0 KEY 1005 7", 9, 9),
        ] {
            let request = request.replace("KEY", &rkey.to_string());
            assert_eq!(self.peer.ask(&request), "success");
            assert_eq!(self.peer.ask("word 0"), before.to_string(), "{request}");
            assert_eq!(word(self), after, "{request}");
        }
        // The guest's word is 9 now, which the last one brought.
        let (compare, swap) = (9, 70);
        let swapped = AtomicOperation::CompareSwap { compare, swap };
        for (operation, before, after) in [
            (swapped, 9, 70),
            (swapped, 70, 70),
            (AtomicOperation::FetchAdd(30), 70, 100),
        ] {
            let local = self.region.slice(0, 8).unwrap();
            let request = SendRequest::atomic(7, local, self.peer.remote, operation);
            self.pair.post_send(&request).unwrap();
            self.next();
            assert_eq!(word(self), before, "{operation:?}");
            assert_eq!(self.peer.ask("word 0"), after.to_string(), "{operation:?}");
        }
    }

    /// Every operation in both directions with a message of `len` bytes.
    pub(crate) fn all(&mut self, len: usize) {
        for write in [false, true] {
            for immediate in [None, Some(0x1234_5678)] {
                self.hostd_sends(write, immediate, len);
            }
        }
        for operation in ["send", "send_imm", "write", "write_imm"] {
            self.guest_sends(operation, len);
        }
        self.reads(len);
        self.atomics();
    }

    /// The program ends, and has not complained.
    pub(crate) fn end(self, rig: &mut Rig) {
        let Self { peer, .. } = self;
        peer.end(rig);
    }
}
