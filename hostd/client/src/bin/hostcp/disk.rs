//! The disk's side of a copy, on a thread of its own: files are read, written and hashed while
//! packets travel.
//!
//! ```text
//!   sender     permits ──▶ reader: file ─▶ slot, BLAKE3 ──▶ chunks, then the digest
//!   receiver   chunks  ──▶ writer: slot ─▶ BLAKE3, file ──▶ acknowledgements, then the digest
//! ```
//!
//! Both use the slots of the memory in turn: chunk n is in slot n mod slots. The connection's
//! thread owns a slot while the network uses it, this one while the disk does. The channels pass
//! that ownership.

use crate::end::place;
use crate::failure::Failure;
use hostd_client::{Error, Region};
use nix::errno::Errno;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;

/// BLAKE3 of a file.
pub(crate) type Digest = [u8; 32];

/// What the reader has for the sender.
#[derive(Debug)]
pub(crate) enum Read {
    /// The next slot holds so many bytes of the file.
    Chunk(usize),
    /// The file has ended.
    End(Digest),
}

/// Reads a file into slots, ahead of the network.
#[derive(Debug)]
pub(crate) struct Reader {
    /// One for each slot that may be filled.
    permits: Sender<()>,
    chunks: Receiver<Result<Read, Failure>>,
}

impl Reader {
    /// Starts to read `file`, called `path` in errors, into `slots` slots of at most `chunk` bytes
    /// each.
    pub(crate) fn start(
        memory: Arc<Region>,
        (file, path): (File, PathBuf),
        slots: u32,
        chunk: u32,
    ) -> Self {
        let (permits, permitted) = channel();
        // The end of the file is one more than the chunks.
        let (ready, chunks) = sync_channel(slots as usize + 1);
        for _ in 0..slots {
            permits.send(()).expect("the other end is in this function");
        }
        std::thread::spawn(move || {
            let source = Source {
                memory,
                file,
                path,
                slots,
                chunk: chunk as usize,
            };
            // The sender has given up if nobody listens.
            if let Err(failure) = source.read(&permitted, &ready) {
                let _ = ready.send(Err(failure));
            }
        });
        Self { permits, chunks }
    }

    /// The next chunk, if it is in its slot already.
    pub(crate) fn ready(&self) -> Result<Option<Read>, Failure> {
        match self.chunks.try_recv() {
            Ok(read) => read.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone("reads")),
        }
    }

    /// Waits for the next chunk.
    pub(crate) fn wait(&self) -> Result<Read, Failure> {
        self.chunks.recv().map_err(|_| gone("reads"))?
    }

    /// The network has done with the oldest slot.
    pub(crate) fn release(&self) {
        // The reader needs no more once the file has ended.
        let _ = self.permits.send(());
    }
}

/// What a [`Reader`]'s thread owns.
struct Source {
    memory: Arc<Region>,
    file: File,
    path: PathBuf,
    slots: u32,
    chunk: usize,
}

impl Source {
    fn read(
        &self,
        permitted: &Receiver<()>,
        ready: &SyncSender<Result<Read, Failure>>,
    ) -> Result<(), Failure> {
        let mut hasher = Hasher::new(self.chunk);
        let mut slot = 0;
        while permitted.recv().is_ok() {
            let len = self.fill(place(slot))?;
            if len > 0 {
                hasher.update(&self.memory, place(slot), len)?;
                if ready.send(Ok(Read::Chunk(len))).is_err() {
                    return Ok(());
                }
                slot = (slot + 1) % self.slots;
            }
            if len < self.chunk {
                let _ = ready.send(Ok(Read::End(hasher.digest())));
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads until the slot is full or the file ends.
    fn fill(&self, offset: usize) -> Result<usize, Failure> {
        let mut filled = 0;
        while filled < self.chunk {
            let (to, len) = (offset + filled, self.chunk - filled);
            match self.memory.fill_from(&self.file, to, len) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(Error::Kernel { reason, .. }) => {
                    return Err(Failure::File {
                        path: self.path.clone(),
                        reason: reason.into(),
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }
}

/// Writes slots to a file, behind the network.
#[derive(Debug)]
pub(crate) struct Writer {
    chunks: Sender<usize>,
    written: Receiver<Result<(), Errno>>,
    thread: JoinHandle<Digest>,
}

impl Writer {
    /// Starts to write the slots of `memory` to `file`; a chunk has at most `chunk` bytes.
    pub(crate) fn start(memory: Arc<Region>, file: File, slots: u32, chunk: u32) -> Self {
        let (chunks, came) = channel();
        let (done, written) = channel();
        let thread = std::thread::spawn(move || {
            let mut hasher = Hasher::new(chunk as usize);
            let mut slot = 0;
            for len in came {
                let result = hasher
                    .update(&memory, place(slot), len)
                    .and_then(|()| memory.drain_to(&file, place(slot), len));
                let result = result.map_err(|error| match error {
                    Error::Kernel { reason, .. } => reason,
                    // A chunk that is no part of the memory: its sender is not to be believed.
                    _ => Errno::EINVAL,
                });
                // Nobody listens if the copy is given up.
                if done.send(result).is_err() || result.is_err() {
                    break;
                }
                slot = (slot + 1) % slots;
            }
            hasher.digest()
        });
        Self {
            chunks,
            written,
            thread,
        }
    }

    /// The next slot holds so many bytes.
    pub(crate) fn write(&self, len: usize) {
        // A writer that has failed says why in `written`.
        let _ = self.chunks.send(len);
    }

    /// Chunks that were written since this was asked last; waits for one if `wait`.
    pub(crate) fn written(&self, wait: bool) -> Result<u64, Errno> {
        let mut count = 0;
        if wait {
            self.written.recv().unwrap_or(Err(Errno::EPIPE))?;
            count += 1;
        }
        for result in self.written.try_iter() {
            result?;
            count += 1;
        }
        Ok(count)
    }

    /// Waits until everything is written; the digest of all of it.
    pub(crate) fn finish(self) -> Result<Digest, Errno> {
        drop(self.chunks);
        let digest = self.thread.join().map_err(|_| Errno::EPIPE)?;
        self.written.try_iter().collect::<Result<(), _>>()?;
        Ok(digest)
    }
}

/// BLAKE3 over slots.
struct Hasher {
    state: blake3::Hasher,
    /// Memory that is shared with the daemon is not borrowed.
    scratch: Vec<u8>,
}

impl Hasher {
    fn new(chunk: usize) -> Self {
        Self {
            state: blake3::Hasher::new(),
            scratch: vec![0; chunk],
        }
    }

    fn update(&mut self, memory: &Region, offset: usize, len: usize) -> Result<(), Error> {
        let bytes = &mut self.scratch[..len];
        memory.read(offset, bytes)?;
        self.state.update(bytes);
        Ok(())
    }

    fn digest(&self) -> Digest {
        self.state.finalize().into()
    }
}

fn gone(what: &str) -> Failure {
    Failure::Protocol(format!("the thread that {what} the file has ended"))
}
