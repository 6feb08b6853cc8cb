//! The sending end.

use crate::end::{End, Happened, PATIENCE, place};
use crate::messages::{MAGIC, Message, fits};
use crate::target::Target;
use crate::{CopyOptions, Failure};
use hostd_client::{Access, Context, Private, RemoteSlice, SendRequest};
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
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
    let address = target.resolve(options.port)?;
    let context = Context::connect(socket)?;
    let mut end = End::new(&context, Access::LOCAL_WRITE)?;
    let hello = Private::new(&MAGIC.to_le_bytes()).unwrap_or_default();
    let connected = end.queue_pair.connect(address, hello, PATIENCE)?;
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
    let (bytes, digest) = stream(&mut end, &file, source, remote, &bar)?;
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

/// Sends the file chunk by chunk; returns its bytes and their digest.
fn stream(
    end: &mut End,
    file: &File,
    source: &Path,
    remote: Remote,
    bar: &ProgressBar,
) -> Result<(u64, [u8; 32]), Failure> {
    let mut digest = Sha256::new();
    let mut scratch = vec![0; usize::try_from(remote.chunk).unwrap_or(0)];
    let (mut bytes, mut sent, mut acknowledged, mut taken) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut ended = false;
    while !ended || acknowledged < sent || taken < sent {
        while !ended && sent - acknowledged.min(taken) < u64::from(remote.slots) {
            let slot = u32::try_from(sent % u64::from(remote.slots)).unwrap_or(0);
            let len = fill(end, file, place(slot), scratch.len()).map_err(|error| match error {
                Failure::Transport(hostd_client::Error::Kernel { reason, .. }) => Failure::File {
                    path: source.to_owned(),
                    reason: reason.into(),
                },
                other => other,
            })?;
            ended = len < scratch.len();
            if len == 0 {
                break;
            }
            end.memory.read(place(slot), &mut scratch[..len])?;
            digest.update(&scratch[..len]);
            let local = end.memory.slice(place(slot), len)?;
            let address = u64::from(slot) * u64::from(remote.chunk);
            let to = RemoteSlice {
                address,
                rkey: remote.rkey,
            };
            end.queue_pair
                .post_send(&SendRequest::write(sent, local, to).with_immediate(slot))?;
            sent += 1;
            bytes += u64::try_from(len).unwrap_or(0);
            bar.set_position(bytes);
        }
        if acknowledged == sent && taken == sent {
            continue;
        }
        match end.next()? {
            Happened::Acknowledged => acknowledged += 1,
            Happened::Message(Message::Credit(count)) if count >= taken && count <= sent => {
                taken = count;
            }
            Happened::Message(Message::Verdict(Some(text))) => return Err(Failure::Receiver(text)),
            other => return Err(Failure::Protocol(format!("{other:?} among the chunks"))),
        }
    }
    Ok((bytes, digest.finalize().into()))
}

/// Reads until the slot is full or the file ends.
fn fill(end: &End, file: &File, offset: usize, len: usize) -> Result<usize, Failure> {
    let mut filled = 0;
    while filled < len {
        match end.memory.fill_from(file, offset + filled, len - filled)? {
            0 => break,
            got => filled += got,
        }
    }
    Ok(filled)
}

fn verdict(end: &mut End) -> Result<(), Failure> {
    match end.message()? {
        Message::Verdict(None) => Ok(()),
        Message::Verdict(Some(text)) => Err(Failure::Receiver(text)),
        other => Err(Failure::Protocol(format!("{other:?} instead of a verdict"))),
    }
}

fn report(bytes: u64, seconds: f64, digest: &[u8; 32], paths: u16) {
    #[expect(clippy::cast_precision_loss, reason = "a display value")]
    let rate = bytes as f64 * 8.0 / seconds / 1e6;
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{bytes} bytes in {seconds:.3} s, {rate:.1} Mbit/s over {paths} path(s)");
    println!("SHA-256 {hex}, the same on both sides");
}
