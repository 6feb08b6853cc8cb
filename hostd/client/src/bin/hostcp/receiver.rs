//! The receiving end.

use crate::disk::{Digest, Writer};
use crate::end::{CHUNK, End, Happened, PATIENCE, SLOTS};
use crate::failure::Failure;
use crate::messages::{MAGIC, Message};
use crate::options::ServeOptions;
use crate::places::{Full, Places};
use crate::target::{Arrival, Root};
use crate::text::shown;
use hostd_client::{Access, CompletionStatus, ConnectRequest, Context, Error, Private};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Receives files until something is wrong with hostd, or one.
pub(crate) fn serve(socket: &Path, options: &ServeOptions) -> Result<(), Failure> {
    let root = Arc::new(Root::open(&options.root)?);
    let context = Context::connect(socket)?;
    let any = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let listener = context.listen(any, options.port, 16)?;
    println!("receiving on port {}", listener.port());
    let places = Arc::new(Places::default());
    loop {
        let request = match listener.get_request(Duration::from_secs(3600)) {
            Ok(request) => request,
            Err(Error::TimedOut) => continue,
            Err(error) => return Err(error.into()),
        };
        if request.private().as_slice().first_chunk() != Some(&MAGIC.to_le_bytes()) {
            request.reject(Private::EMPTY);
            continue;
        }
        if options.once {
            return receive(&context, request, &root);
        }
        let peer = request.peer();
        let place = match places.take(peer) {
            Ok(place) => place,
            Err(full) => {
                if full.is_worth_saying() {
                    let Full { held, refused } = full;
                    eprintln!(
                        "hostcp: from {peer}: refused, it sends {held} files now; {refused} \
                         refused so far"
                    );
                }
                request.reject(Private::EMPTY);
                continue;
            }
        };
        let (context, root) = (context.clone(), root.clone());
        std::thread::spawn(move || {
            if let Err(failure) = receive(&context, request, &root) {
                eprintln!("hostcp: from {peer}: {failure}");
            }
            drop(place);
        });
    }
}

/// Receives one file, and tells the sender how it went.
fn receive(context: &Context, request: ConnectRequest, root: &Root) -> Result<(), Failure> {
    let peer = request.peer();
    let mut end = End::new(context, Access::LOCAL_WRITE.with(Access::REMOTE_WRITE))?;
    request.accept(&mut end.queue_pair, Private::EMPTY, PATIENCE)?;
    let fault = match take(&mut end, root)? {
        Ok((name, bytes)) => {
            println!("{}: {bytes} bytes from {peer}", shown(&name));
            None
        }
        // Who called prints it, once.
        Err(text) => Some(text),
    };
    end.send(&Message::Verdict(fault.clone()))?;
    match end.settle() {
        // The sender closes when it has the verdict: that may arrive here before the verdict's
        // acknowledgement.
        Ok(()) | Err(Failure::Work(CompletionStatus::Flushed)) => {}
        // A sender that does not listen is not waited for; what it did wrong says more.
        Err(failure) => return Err(fault.map_or(failure, Failure::Here)),
    }
    // The sender closes, and if it does not, the end of this process does.
    let _ = end.queue_pair.wait_disconnected(PATIENCE);
    match fault {
        None => Ok(()),
        Some(text) => Err(Failure::Here(text)),
    }
}

/// A fault of this side's files is told to the sender; a fault of the connection ends everything.
type Taken = Result<Result<(String, u64), String>, Failure>;

fn take(end: &mut End, root: &Root) -> Taken {
    let Message::Header {
        size,
        mode,
        target,
        name,
    } = end.message()?
    else {
        return Err(Failure::Protocol("no header".to_owned()));
    };
    let arrival = match root.begin(&target, &name, mode) {
        Ok(arrival) => arrival,
        Err(text) => return Ok(Err(text)),
    };
    let rkey = end.memory.rkey();
    end.send(&Message::Welcome {
        rkey,
        slots: SLOTS,
        chunk: CHUNK,
    })?;
    let (bytes, ours, theirs) = match chunks(end, &arrival, size)? {
        Ok(whole) => whole,
        Err(text) => return Ok(Err(text)),
    };
    if bytes != size {
        return Ok(Err(format!(
            "{bytes} bytes came, and {size} were announced"
        )));
    }
    if ours != theirs {
        return Ok(Err(
            "the BLAKE3 digest of what came is another one".to_owned()
        ));
    }
    let name = arrival.path().to_owned();
    Ok(arrival.keep().map(|()| (name, bytes)))
}

type Digests = (u64, Digest, Digest);

/// Receives chunks until the trailer arrives. A slot returns to the sender when the disk has its
/// chunk. More bytes than the `size` that was announced are not taken.
fn chunks(end: &mut End, arrival: &Arrival, size: u64) -> Result<Result<Digests, String>, Failure> {
    let failed = |reason: Errno| format!("{:?}: {}", arrival.path(), reason.desc());
    let file = match arrival.file.try_clone() {
        Ok(file) => file,
        Err(error) => return Ok(Err(format!("{:?}: {error}", arrival.path()))),
    };
    let writer = Writer::start(end.memory.clone(), file, SLOTS, CHUNK);
    let (mut bytes, mut came, mut written) = (0_u64, 0_u64, 0_u64);
    loop {
        // A sender with free slots sends something. One without waits for this disk.
        match writer.written(came - written == u64::from(SLOTS)) {
            Ok(0) => {}
            Ok(count) => {
                written += count;
                end.send(&Message::Credit(written))?;
            }
            Err(reason) => return Ok(Err(failed(reason))),
        }
        match end.next()? {
            Happened::Chunk(len) if len <= CHUNK && came - written < u64::from(SLOTS) => {
                bytes += u64::from(len);
                if bytes > size {
                    return Ok(Err(format!("more came than the {size} bytes announced")));
                }
                // The sender fills the slots in turn, and chunks complete in the order of sending.
                writer.write(usize::try_from(len).unwrap_or(0));
                came += 1;
            }
            Happened::Message(Message::Trailer(theirs)) => {
                let ours = writer.finish();
                return Ok(ours.map(|ours| (bytes, ours, theirs)).map_err(failed));
            }
            other => return Err(Failure::Protocol(format!("{other:?} among the chunks"))),
        }
    }
}
