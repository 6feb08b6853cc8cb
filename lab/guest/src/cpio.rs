//! Archives that the kernel unpacks as its initramfs: the format `newc` of cpio(5), as described in
//! the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`.

/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// Type and mode of a folder.
const FOLDER: u32 = 0o040_755;

/// Type and mode of a file that can be executed.
const PROGRAM: u32 = 0o100_755;

/// An archive in the making. All files can be executed; all belong to root.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder. Its parent has to be there.
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// Adds a file. Its folder has to be there.
    ///
    /// # Panics
    /// When it has 4 GiB or more, which the format has no field for.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// The archive with its end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("less than 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a short name");
        // inode, mode, uid, gid, links, mtime, size, device, device of a node, name, checksum
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    /// Header with name, and content, each end at a multiple of four bytes.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_end_with_the_trailer() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/a", b"12345");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).expect("ASCII");
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        // A header has 110 bytes; names end with a zero.
        let second = (110 + "bin".len() + 1_usize).next_multiple_of(4);
        let content = second + (110 + "bin/a".len() + 1_usize).next_multiple_of(4);
        let third = content + 5_usize.next_multiple_of(4);
        assert_eq!(starts, [0, second, third]);
        assert_eq!(&text[second + 14..second + 22], "000081ed");
        assert_eq!(&text[second + 54..second + 62], "00000005");
        assert_eq!(&text[content..content + 5], "12345");
        assert!(text[third..].contains(TRAILER));
        assert_eq!(text.len() % 4, 0);
    }
}
