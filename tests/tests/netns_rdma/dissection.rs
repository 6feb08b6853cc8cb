//! What tshark and scapy say of a capture.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::capture::dissect;

/// Values of a field in the frames that a filter selects, as numbers.
pub(crate) fn numbers(file: &Path, filter: &str, field: &str) -> BTreeSet<u32> {
    let number = |text: &String| match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let lines = dissect(file, filter, &[field]).unwrap();
    lines.iter().map(number).collect()
}

/// How many frames a filter selects.
pub(crate) fn packets(file: &Path, filter: &str) -> usize {
    dissect(file, filter, &["frame.number"]).unwrap().len()
}

/// Fails when a capture has a frame of RoCEv2 that is malformed. tshark takes random payload for
/// that of many protocols; what it finds wrong there does not count.
pub(crate) fn assert_well_formed(file: &Path) {
    let malformed = dissect(file, "_ws.malformed", &["frame.protocols"]).unwrap();
    let ends_here = |protocols: &&String| {
        let below = protocols.split_once(":infiniband").map_or("", |it| it.1);
        below.replace(":_ws.malformed", "").is_empty()
    };
    let malformed: Vec<_> = malformed.iter().filter(ends_here).collect();
    assert!(malformed.is_empty(), "{malformed:?}");
}

/// Fails unless scapy computes the same ICRC for packets of the guest and of hostd. It has none for
/// IPv6.
pub(crate) fn assert_checksums(file: &Path) {
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(
        bytes[..4],
        0xa1b2_c3d4_u32.to_le_bytes(),
        "a capture of tcpdump"
    );
    let mut rest = &bytes[24..];
    let mut frames = Vec::new();
    while let Some(header) = rest.first_chunk::<16>() {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        let Some(frame) = rest.get(16..16 + len) else {
            break;
        };
        rest = &rest[16 + len..];
        if frame[12..14] == [8, 0] && frames.len() < 400 {
            frames.push(frame);
        }
    }
    let sources: BTreeSet<_> = frames.iter().map(|frame| &frame[26..30]).collect();
    assert_eq!(sources.len(), 2, "both sides");
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let input: String = frames.iter().map(|frame| hex(frame) + "\n").collect();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scapy/oracle.py");
    let mut child = Command::new("/usr/bin/python3")
        .args(["-B", script, "icrc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    let found = frames.iter().map(|frame| hex(&frame[frame.len() - 4..]));
    assert!(theirs.lines().eq(found), "ICRCs");
}
