//! The sending end.

use crate::disk::{Digest, Read, Reader};
use crate::end::{End, Happened, PATIENCE, place};
use crate::failure::Failure;
use crate::messages::{MAGIC, Message, fits};
use crate::options::CopyOptions;
use crate::target::Target;
use hostd_client::{Access, Context, Private, RemoteSlice, SendRequest};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// Where the chunks go.
#[derive(Clone, Copy, Debug)]
struct Remote {
    rkey: u32,
    slots: u32,
    chunk: u32,
}

/// Copies a file.
pub(crate) fn copy(socket: &Path, options: &CopyOptions) -> Result<(), Failure> {
    let (Some(source), Some(target)) = (&options.source, &options.target) else {
        return Err(Failure::Target(
            "a source and a target are needed".to_owned(),
        ));
    };
    let target = Target::parse(target)?;
    let failed = |reason| Failure::File {
        path: source.clone(),
        reason,
    };
    let file = File::open(source).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        let text = format!("{} is not a regular file", source.display());
        return Err(Failure::Target(text));
    }
    let name = source
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if !fits(name) || !fits(&target.path) {
        return Err(Failure::Target("the name is too long".to_owned()));
    }
    let peer = target.resolve(options.port)?;
    let context = Context::connect(socket)?;
    let mut end = End::new(&context, Access::LOCAL_WRITE)?;
    let hello = Private::new(&MAGIC.to_le_bytes()).unwrap_or_default();
    let connected = end
        .queue_pair
        .connect(peer, hello, PATIENCE)
        .map_err(|reason| Failure::Connect { peer, reason })?;
    end.send(&Message::Header {
        size: metadata.len(),
        mode: metadata.mode() & 0o777,
        target: target.path.clone(),
        name: name.to_owned(),
    })?;
    let remote = match end.message()? {
        Message::Welcome { rkey, slots, chunk } if slots > 0 && chunk > 0 => {
            let (slots, chunk) = (slots.min(crate::end::SLOTS), chunk.min(crate::end::CHUNK));
            Remote { rkey, slots, chunk }
        }
        Message::Verdict(Some(text)) => return Err(Failure::Receiver(text)),
        other => return Err(Failure::Protocol(format!("{other:?} instead of a welcome"))),
    };
    let bar = progress(metadata.len(), options.quiet);
    let started = Instant::now();
    let reader = Reader::start(
        end.memory.clone(),
        (file, source.clone()),
        remote.slots,
        remote.chunk,
    );
    let (bytes, digest) = stream(&mut end, &reader, remote, &bar)?;
    end.send(&Message::Trailer(digest))?;
    verdict(&mut end)?;
    let seconds = started.elapsed().as_secs_f64();
    bar.finish_and_clear();
    if !options.quiet {
        report(bytes, seconds, &digest, connected.paths);
    }
    // The receiver may be quicker in closing.
    match end.queue_pair.disconnect(PATIENCE) {
        Ok(()) | Err(hostd_client::Error::Refused { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn progress(bytes: u64, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    let template = "{wide_bar} {percent:>3} % {decimal_bytes_per_sec:>12} {eta:>4}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Chunks on their way.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    sent: u64,
    acknowledged: u64,
    taken: u64,
    bytes: u64,
}

impl Progress {
    /// Chunks whose slots are free again on both sides.
    fn done(&self) -> u64 {
        self.acknowledged.min(self.taken)
    }

    /// Chunks that occupy slots.
    fn on_their_way(&self) -> u64 {
        self.sent - self.done()
    }
}

/// Sends the file chunk by chunk, until all of it is acknowledged. Returns its length and digest.
fn stream(
    end: &mut End,
    reader: &Reader,
    remote: Remote,
    bar: &ProgressBar,
) -> Result<(u64, Digest), Failure> {
    let mut progress = Progress::default();
    let mut digest = None;
    loop {
        while digest.is_none() && progress.on_their_way() < u64::from(remote.slots) {
            // With everything acknowledged only the disk can make progress: the receiver returns
            // slots when the next chunk arrives, or when all of them are in use.
            let read = if progress.acknowledged == progress.sent {
                Some(reader.wait()?)
            } else {
                reader.ready()?
            };
            match read {
                Some(Read::Chunk(len)) => {
                    post(end, &mut progress, len, remote)?;
                    bar.set_position(progress.bytes);
                }
                Some(Read::End(whole)) => digest = Some(whole),
                None => break,
            }
        }
        if let Some(digest) = digest
            && progress.acknowledged == progress.sent
        {
            return Ok((progress.bytes, digest));
        }
        let done = progress.done();
        match end.next()? {
            Happened::Acknowledged => progress.acknowledged += 1,
            Happened::Message(Message::Credit(count))
                if (progress.taken..=progress.sent).contains(&count) =>
            {
                progress.taken = count;
            }
            Happened::Message(Message::Verdict(Some(text))) => return Err(Failure::Receiver(text)),
            other => return Err(Failure::Protocol(format!("{other:?} among the chunks"))),
        }
        (done..progress.done()).for_each(|_| reader.release());
    }
}

/// Posts the chunk of `len` bytes that is in the next slot.
fn post(end: &mut End, progress: &mut Progress, len: usize, remote: Remote) -> Result<(), Failure> {
    let slot = u32::try_from(progress.sent % u64::from(remote.slots)).expect("below `slots`");
    let local = end.memory.slice(place(slot), len)?;
    let to = RemoteSlice {
        address: u64::from(slot) * u64::from(remote.chunk),
        rkey: remote.rkey,
    };
    let request = SendRequest::write(progress.sent, local, to).with_immediate(slot);
    end.queue_pair.post_send(&request)?;
    progress.sent += 1;
    progress.bytes += u64::try_from(len).unwrap_or(0);
    Ok(())
}

fn verdict(end: &mut End) -> Result<(), Failure> {
    loop {
        match end.message()? {
            // The last chunks are written while the trailer is on its way.
            Message::Credit(_) => {}
            Message::Verdict(None) => return Ok(()),
            Message::Verdict(Some(text)) => return Err(Failure::Receiver(text)),
            other => return Err(Failure::Protocol(format!("{other:?} instead of a verdict"))),
        }
    }
}

fn report(bytes: u64, seconds: f64, digest: &Digest, paths: u16) {
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    let rate = bytes as f64 * 8.0 / seconds / 1e6;
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{bytes} bytes in {seconds:.3} s, {rate:.1} Mbit/s over {paths} path(s)");
    println!("BLAKE3 {hex}, the same on both sides");
}
