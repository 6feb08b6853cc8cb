//! Mappings of memory that another process maps too.
//!
//! The other process may change any byte at any time, and may be hostile. So a [`Mapping`] never
//! gives out a reference: bytes are copied in and out, words that both sides use are atomics, and
//! every offset is checked against the length. Memory that could shrink under the mapping (an
//! access would then raise SIGBUS) or whose pages come from elsewhere than plain memory (a file, a
//! FUSE mount, huge pages, which can stall or fail on access) is refused: see
//! [`Mapping::of_region`].

#![allow(
    unsafe_code,
    reason = "memory shared with another process; see each SAFETY"
)]

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Why memory of a peer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Not a memfd of ordinary pages.
    #[error("the descriptor is not a memfd of ordinary pages")]
    NotMemfd,
    /// It could shrink while it is in use.
    #[error("the memfd is not sealed against shrinking (F_SEAL_SHRINK)")]
    NotSealed,
    /// It is sealed so that the daemon can neither write to it nor seal it further.
    #[error("the memfd is sealed against the daemon's mapping or its seals")]
    Closed,
    /// Some of it is not allocated, so that whoever writes there first has to pay for it.
    #[error("only {allocated} of the memfd's {has} bytes are allocated (see fallocate(2))")]
    Sparse {
        /// Bytes that it has.
        has: u64,
        /// Bytes with memory behind them.
        allocated: u64,
    },
    /// Nothing of it is to be mapped.
    #[error("a region has at least one byte, and none was named")]
    Empty,
    /// It is smaller than announced.
    #[error("the memfd has {has} bytes and not the {wanted} that were named")]
    TooShort {
        /// Bytes that it has.
        has: u64,
        /// Bytes that were named.
        wanted: u64,
    },
    /// It has another size than the ring.
    #[error("the memfd has {has} bytes, and exactly {wanted} are needed")]
    WrongSize {
        /// Bytes that it has.
        has: u64,
        /// Bytes that are needed.
        wanted: u64,
    },
    /// It does not begin as a ring or doorbell page of this version does.
    #[error("the memfd does not begin with the words of this ring (magic, version, sizes)")]
    WrongHeader,
    /// The kernel cannot seal memory.
    #[error("this kernel cannot seal memory against holes (F_SEAL_FUTURE_WRITE): Linux 5.1 can")]
    OldKernel,
    /// The kernel refused.
    #[error("the kernel refused the mapping: {0}")]
    Kernel(#[from] Errno),
}

/// Not even the owner may make holes, or another mapping to write, from then on.
const FUTURE_WRITE: SealFlag = SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);

/// Shared memory, mapped readable and writable.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory, reached by copies and atomics only; races on its
// bytes are with another process anyway, and yield some bytes, never a reference to changing data.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Creates a memfd of `len` zero bytes for the daemon, all of them allocated, and maps it. Its size
/// can never change again; the daemon seals it further.
///
/// # Errors
/// What the kernel says: no memory, no descriptors.
pub fn create_shared(name: &CStr, len: usize) -> Result<(OwnedFd, Mapping), MemoryError> {
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    let size = i64::try_from(len).map_err(|_| Errno::EFBIG)?;
    nix::unistd::ftruncate(&fd, size)?;
    if size > 0 {
        nix::fcntl::posix_fallocate(&fd, 0, size)?;
    }
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    let mapping = Mapping::map(fd.as_fd(), len)?;
    Ok((fd, mapping))
}

/// Whether this is a memfd at all. Never waits, whatever the descriptor is.
///
/// # Errors
/// [`MemoryError::NotMemfd`].
pub fn has_seals(fd: BorrowedFd<'_>) -> Result<(), MemoryError> {
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS);
    seals.map(drop).map_err(|_| MemoryError::NotMemfd)
}

/// Whether this kernel can seal memory against holes (`F_SEAL_FUTURE_WRITE`, Linux 5.1).
///
/// # Errors
/// [`MemoryError::OldKernel`], or what the kernel says: no descriptors.
pub fn require_seals() -> Result<(), MemoryError> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let probe = memfd_create(c"hostd-probe", flags)?;
    match fcntl(&probe, FcntlArg::F_ADD_SEALS(FUTURE_WRITE)) {
        Ok(_) => Ok(()),
        Err(error) => Err(cannot_seal(error)),
    }
}

fn cannot_seal(error: Errno) -> MemoryError {
    match error {
        // A seal that it does not know.
        Errno::EINVAL => MemoryError::OldKernel,
        Errno::EPERM => MemoryError::Closed,
        other => MemoryError::Kernel(other),
    }
}

/// How large a memfd has to be.
#[derive(Clone, Copy, Debug)]
enum Size {
    AtLeast(u64),
    Exactly(u64),
}

/// Whether a memfd is that large, and all of it allocated.
fn require_memory(fd: BorrowedFd<'_>, size: Size) -> Result<(), MemoryError> {
    let stat = nix::sys::stat::fstat(fd)?;
    let has = u64::try_from(stat.st_size).unwrap_or(0);
    match size {
        Size::AtLeast(0) => return Err(MemoryError::Empty),
        Size::AtLeast(wanted) if wanted > has => {
            return Err(MemoryError::TooShort { has, wanted });
        }
        Size::Exactly(wanted) if wanted != has => {
            return Err(MemoryError::WrongSize { has, wanted });
        }
        _ => {}
    }
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    if allocated < has {
        return Err(MemoryError::Sparse { has, allocated });
    }
    Ok(())
}

impl Mapping {
    /// Maps the first `len` bytes of a region that a peer made: a memfd of ordinary pages, sealed
    /// against shrinking, that has as many bytes or more, all of them allocated. No access to it
    /// ever waits for its maker or for memory, or takes this process's own.
    ///
    /// A page that is missing at an access is allocated by the kernel, and charged to the memory
    /// cgroup of whoever touches it, for as long as it exists; and an access to a page that is just
    /// being punched out waits for who does that. So a memfd with holes is refused, and the others
    /// are sealed with `F_SEAL_FUTURE_WRITE`, which forbids their owner to punch holes
    /// (`fallocate`, `MADV_REMOVE`) and every further mapping to write; mappings that exist stay.
    /// Nothing of it is touched before that. Then all pages are mapped, and locked if the limits of
    /// this process permit, so that an access takes no page fault.
    ///
    /// This takes as long as there are pages, or as a hole takes that is just being punched.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub fn of_region(fd: BorrowedFd<'_>, len: u64) -> Result<Self, MemoryError> {
        Self::of_peer(fd, len, Size::AtLeast(len))
    }

    /// As [`Self::of_region`], but the memfd has exactly `len` bytes: for rings and doorbells.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub fn of_ring(fd: BorrowedFd<'_>, len: usize) -> Result<Self, MemoryError> {
        let len = u64::try_from(len).map_err(|_| Errno::EFBIG)?;
        Self::of_peer(fd, len, Size::Exactly(len))
    }

    fn of_peer(fd: BorrowedFd<'_>, len: u64, size: Size) -> Result<Self, MemoryError> {
        // The seal first: after it the size that `fstat` tells can only grow.
        let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map_err(|_| MemoryError::NotMemfd)?;
        // Files of huge pages (hugetlbfs) can be sealed too, but may raise SIGBUS on first access.
        let system = fstatfs(fd).map_err(|_| MemoryError::NotMemfd)?;
        if system.filesystem_type() != TMPFS_MAGIC {
            return Err(MemoryError::NotMemfd);
        }
        if !SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK) {
            return Err(MemoryError::NotSealed);
        }
        // Refused before anything of it is changed, and looked at again when it cannot change.
        require_memory(fd, size)?;
        let len = usize::try_from(len).map_err(|_| Errno::EFBIG)?;
        let mapping = Self::map(fd, len).map_err(|error| match error {
            MemoryError::Kernel(Errno::EPERM) => MemoryError::Closed,
            other => other,
        })?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | FUTURE_WRITE;
        fcntl(fd, FcntlArg::F_ADD_SEALS(seals)).map_err(cannot_seal)?;
        // Blocks beyond the end count as those of holes would. This frees them, and there can be no
        // others now.
        nix::unistd::ftruncate(fd, nix::sys::stat::fstat(fd)?.st_size)?;
        require_memory(fd, size)?;
        mapping.populate()?;
        Ok(mapping)
    }

    /// Maps every page now, and keeps it in memory as far as this process may.
    fn populate(&self) -> Result<(), Errno> {
        let base = self.base.cast();
        // SAFETY: the range is that of the mapping; locking changes no contents.
        if unsafe { nix::sys::mman::mlock(base, self.len) }.is_ok() {
            return Ok(());
        }
        // SAFETY: as above; pages are made present as by a write that writes nothing.
        let result = unsafe { libc::madvise(base.as_ptr(), self.len, libc::MADV_POPULATE_WRITE) };
        match Errno::result(result) {
            // Before Linux 5.14 the pages are mapped as they are used.
            Ok(_) | Err(Errno::EINVAL) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn map(fd: BorrowedFd<'_>, len: usize) -> Result<Self, MemoryError> {
        let size = NonZeroUsize::new(len).ok_or(MemoryError::Empty)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        let base = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, fd, 0)? };
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// Maps `len` zero bytes that no other process sees, for rings within one process.
    ///
    /// # Errors
    /// What the kernel says: no memory.
    pub fn private(len: usize) -> Result<Self, MemoryError> {
        let size = NonZeroUsize::new(len).ok_or(MemoryError::Empty)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: as in `map`.
        let base = unsafe { mmap_anonymous(None, size, access, MapFlags::MAP_PRIVATE)? };
        Ok(Self {
            base: base.cast(),
            len,
        })
    }

    /// The first byte of the mapping, which ends when this is dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Bytes of the mapping.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: an empty mapping is refused.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether `offset .. offset + len` is inside.
    pub fn contains(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Copies bytes out, beginning at `offset`.
    ///
    /// # Panics
    /// If the range is not inside: callers check outside input with [`Self::contains`].
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        assert!(self.contains(offset, to.len()), "read outside of a mapping");
        // SAFETY: the source is inside the mapping, which lives as long as `self`; the target is
        // exclusively ours, so they do not overlap. Another process may write the source meanwhile:
        // the copy then holds a mixture, which every caller validates or treats as opaque.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.base.as_ptr().add(offset),
                to.as_mut_ptr(),
                to.len(),
            );
        }
    }

    /// Copies bytes in, beginning at `offset`.
    ///
    /// # Panics
    /// If the range is not inside.
    #[inline]
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        assert!(
            self.contains(offset, from.len()),
            "write outside of a mapping"
        );
        // SAFETY: the target is inside the mapping; no reference to its bytes exists in this
        // process.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.as_ptr(),
                self.base.as_ptr().add(offset),
                from.len(),
            );
        }
    }

    /// The word at `offset`, for both sides.
    ///
    /// # Panics
    /// If the word is not inside or not aligned.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(self.contains(offset, 4) && offset.is_multiple_of(4));
        // SAFETY: aligned (mappings begin at a page), inside, alive as long as `self`; all accesses
        // of this process to words go through atomics, as copies never cover them.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The double word at `offset`, for both sides.
    ///
    /// # Panics
    /// If the double word is not inside or not aligned.
    #[inline]
    pub fn double_word(&self, offset: usize) -> &AtomicU64 {
        assert!(self.contains(offset, 8) && offset.is_multiple_of(8));
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Reads from a file into `offset .. offset + len`, in one system call and without another
    /// copy.
    ///
    /// # Errors
    /// What `read` says.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn read_from(
        &self,
        file: BorrowedFd<'_>,
        offset: usize,
        len: usize,
    ) -> Result<usize, Errno> {
        use std::os::fd::AsRawFd;
        assert!(self.contains(offset, len), "write outside of a mapping");
        // SAFETY: the kernel writes at most `len` bytes, all inside the mapping; see `copy_in`.
        let got =
            unsafe { libc::read(file.as_raw_fd(), self.base.as_ptr().add(offset).cast(), len) };
        Errno::result(got).map(|got| usize::try_from(got).expect("not negative"))
    }

    /// Writes `offset .. offset + len` to a file, in one system call and without another copy.
    ///
    /// # Errors
    /// What `write` says.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn write_to(
        &self,
        file: BorrowedFd<'_>,
        offset: usize,
        len: usize,
    ) -> Result<usize, Errno> {
        use std::os::fd::AsRawFd;
        assert!(self.contains(offset, len), "read outside of a mapping");
        // SAFETY: the kernel reads at most `len` bytes, all inside the mapping.
        let put =
            unsafe { libc::write(file.as_raw_fd(), self.base.as_ptr().add(offset).cast(), len) };
        Errno::result(put).map(|put| usize::try_from(put).expect("not negative"))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: base and length are those of the mapping that was made with `self`, and nothing
        // refers to it.
        let result = unsafe { munmap(self.base.cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap of our own mapping");
    }
}

/// Full fence between a store and a later load: the half of a "no lost wake-up" protocol that
/// acquire and release do not give.
#[inline]
pub fn full_fence() {
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_shared_and_bounded() {
        let (fd, ours) = create_shared(c"test", 4096).expect("memory");
        let theirs = Mapping::of_region(fd.as_fd(), 4096).expect("memory of ours");
        ours.copy_in(100, b"hello");
        let mut back = [0; 5];
        theirs.copy_out(100, &mut back);
        assert_eq!(&back, b"hello");
        assert!(!ours.contains(4092, 5));
        assert!(!ours.contains(usize::MAX, 2));
        assert!(nix::unistd::ftruncate(&fd, 0).is_err(), "sealed");
    }

    #[test]
    fn private_memory_is_zero() {
        let mapping = Mapping::private(5000).expect("memory");
        let mut bytes = vec![1; 5000];
        mapping.copy_out(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert!(!mapping.contains(4999, 2));
        assert!(Mapping::private(0).is_err());
    }

    fn memfd(len: i64) -> OwnedFd {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(c"region", flags).expect("memfd");
        nix::unistd::ftruncate(&fd, len).expect("size");
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("sealed");
        fd
    }

    fn punch(fd: &OwnedFd, len: i64) -> Result<(), Errno> {
        use nix::fcntl::{FallocateFlags, fallocate};
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(fd, flags, 0, len)
    }

    /// HT-3: memory that would be the daemon's to find is refused; once it is taken no hole can be
    /// made, and both sides have what the other writes.
    #[test]
    fn all_memory_is_there_and_stays() {
        const LEN: i64 = 1 << 20;
        let fd = memfd(LEN);
        let map = |len| Mapping::of_region(fd.as_fd(), len);
        let (has, allocated) = (1 << 20, 0);
        let sparse = MemoryError::Sparse { has, allocated };
        assert_eq!(map(4096).unwrap_err(), sparse);
        nix::fcntl::posix_fallocate(&fd, 0, LEN).expect("memory");
        punch(&fd, 4096).expect("not sealed");
        let allocated = has - 4096;
        let sparse = MemoryError::Sparse { has, allocated };
        assert_eq!(map(1 << 20).unwrap_err(), sparse);
        // As much beyond the end as is missing before it.
        let beyond = memfd(LEN);
        let keep = nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE;
        nix::fcntl::fallocate(&beyond, keep, LEN, LEN).expect("memory");
        let (has, allocated) = (1 << 20, 0);
        let sparse = MemoryError::Sparse { has, allocated };
        let mapped = Mapping::of_region(beyond.as_fd(), 1 << 20);
        assert_eq!(
            mapped.unwrap_err(),
            sparse,
            "of which none is where it counts"
        );
        nix::fcntl::posix_fallocate(&fd, 0, LEN).expect("memory");

        let theirs = Mapping::map(fd.as_fd(), 1 << 20).expect("the application's own mapping");
        let ours = map(1 << 20).expect("whole");
        assert_eq!(punch(&fd, 4096).unwrap_err(), Errno::EPERM);
        // SAFETY: the range is that of the mapping, which holds plain bytes.
        let removed =
            unsafe { libc::madvise(theirs.base.as_ptr().cast(), 4096, libc::MADV_REMOVE) };
        assert_eq!(Errno::result(removed).unwrap_err(), Errno::EPERM);
        theirs.copy_in(77, b"both");
        let mut back = [0; 4];
        ours.copy_out(77, &mut back);
        assert_eq!(&back, b"both");
        assert_eq!(map(1 << 20).unwrap_err(), MemoryError::Closed, "twice");
        let (closed, _theirs) = create_shared(c"closed", 4096).expect("memory");
        fcntl(&closed, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SEAL)).expect("sealed");
        let error = Mapping::of_ring(closed.as_fd(), 4096).unwrap_err();
        assert_eq!(error, MemoryError::Closed, "sealed against seals");
        require_seals().expect("Linux 5.1 or later");
        assert_eq!(cannot_seal(Errno::EINVAL), MemoryError::OldKernel);
    }

    /// HT-3: memory that could vanish under the daemon is refused.
    #[test]
    fn doubtful_memory_is_refused() {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let open = memfd_create(c"open", flags).expect("memfd");
        nix::unistd::ftruncate(&open, 4096).expect("size");
        nix::fcntl::posix_fallocate(&open, 0, 4096).expect("memory");
        let map = |len| Mapping::of_region(open.as_fd(), len);
        assert_eq!(map(4096).unwrap_err(), MemoryError::NotSealed);

        fcntl(&open, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("seal");
        let (has, wanted) = (4096, 4097);
        let error = map(wanted).unwrap_err();
        assert_eq!(error, MemoryError::TooShort { has, wanted });
        assert!(map(0).is_err());
        assert!(map(u64::MAX).is_err());
        let error = Mapping::of_ring(open.as_fd(), 4095).unwrap_err();
        let wanted = 4095;
        assert_eq!(error, MemoryError::WrongSize { has, wanted });
        assert!(Mapping::of_ring(open.as_fd(), 4096).is_ok());

        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("size");
        let error = Mapping::of_region(file.as_fd(), 4096).unwrap_err();
        assert!(matches!(
            error,
            MemoryError::NotMemfd | MemoryError::NotSealed
        ));
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let error = Mapping::of_region(null.as_fd(), 4096).unwrap_err();
        assert_eq!(error, MemoryError::NotMemfd);
    }
}
