//! Memory that is shared with another process, and how much of it may be locked.

#![allow(unsafe_code, reason = "mmap and what it returns; see each SAFETY")]

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use std::ffi::CString;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// A memory file of `len` zero bytes that can neither grow nor shrink, so that a mapping of it
/// stays valid.
///
/// # Errors
/// As of memfd_create(2) and ftruncate(2); `name` with a zero byte in it is invalid input.
pub fn create_memfd(name: &str, len: usize) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let fd = memfd_create(name.as_c_str(), flags)?;
    let size = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    ftruncate(&fd, size)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(fd)
}

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only; a write faults.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// Why a memory file of another process is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// Its owner could cut it while we use it, which would kill us.
    #[error("memory file is not sealed against shrinking (F_SEAL_SHRINK)")]
    Unsealed,
    /// It is shorter than the part that is to be mapped.
    #[error("memory file has {size} bytes, {wanted} were announced")]
    TooShort {
        /// Bytes that the file has.
        size: u64,
        /// Bytes that were to be mapped.
        wanted: usize,
    },
    /// Nothing to map.
    #[error("memory file mapping of no bytes")]
    Empty,
    /// The kernel refused.
    #[error("cannot map memory file: {0}")]
    System(#[from] Errno),
}

/// Memory shared with another process, mapped from the beginning of a memory file. Unmapped when
/// dropped.
///
/// The other side may write at any time: what is read here is to be copied out once and checked
/// then, never read twice.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    access: Access,
}

// SAFETY: the mapping belongs to the process, not to a thread; access goes through raw pointers
// whose users answer for the order of their accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a sealed memory file.
    ///
    /// # Errors
    /// When the file is not sealed against shrinking, or shorter than `len`, or `len` is zero, or
    /// the kernel refuses.
    pub fn new(fd: impl AsFd, len: usize, access: Access) -> Result<Self, MappingError> {
        let length = NonZeroUsize::new(len).ok_or(MappingError::Empty)?;
        // Files that cannot be sealed at all answer EINVAL: to us the same as unsealed.
        let seals = match fcntl(&fd, FcntlArg::F_GET_SEALS) {
            Ok(bits) => SealFlag::from_bits_retain(bits),
            Err(Errno::EINVAL) => SealFlag::empty(),
            Err(error) => return Err(error.into()),
        };
        if !seals.contains(SealFlag::F_SEAL_SHRINK) {
            return Err(MappingError::Unsealed);
        }
        let size = u64::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        if usize::try_from(size).is_ok_and(|size| size < len) {
            return Err(MappingError::TooShort { size, wanted: len });
        }
        let protection = match access {
            Access::Read => ProtFlags::PROT_READ,
            Access::ReadWrite => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, fd, 0) }?;
        Ok(Self {
            base: base.cast(),
            len,
            access,
        })
    }

    /// First byte. Valid for [`Self::len`] bytes while the mapping lives; page-aligned.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What it may be used for.
    pub fn access(&self) -> Access {
        self.access
    }

    fn range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: offset ≤ end ≤ len, inside the mapping.
        (end <= self.len).then(|| unsafe { self.base.add(offset) })
    }

    /// Copies `data` to `offset`. Returns whether that is inside the mapping and writing is
    /// allowed; does nothing if not.
    #[must_use = "nothing was copied when this is false"]
    pub fn write(&self, offset: usize, data: &[u8]) -> bool {
        if self.access == Access::Read {
            return false;
        }
        let Some(target) = self.range(offset, data.len()) else {
            return false;
        };
        // SAFETY: the range was checked; `data` cannot overlap it, because no reference into the
        // mapping is ever made. The other side may write too; bytes have no invalid values.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), target.as_ptr(), data.len()) };
        true
    }

    /// Copies from `offset` to fill `data`. Returns whether that is inside the mapping; does
    /// nothing if not.
    #[must_use = "nothing was copied when this is false"]
    pub fn read(&self, offset: usize, data: &mut [u8]) -> bool {
        let Some(source) = self.range(offset, data.len()) else {
            return false;
        };
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), data.as_mut_ptr(), data.len()) };
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped, and nobody may use pointers past the mapping's life.
        let unmapped = unsafe { munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

/// The limit on locked memory is below what is needed and cannot be raised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "locked memory: {needed} bytes are needed, the limit is {limit}; \
     raise it (ulimit -l {}, LimitMEMLOCK= in a unit) or give the process CAP_IPC_LOCK", needed.div_ceil(1024)
)]
pub struct MemlockError {
    /// Bytes needed.
    pub needed: u64,
    /// The hard limit in bytes.
    pub limit: u64,
}

/// The soft limit on locked memory (RLIMIT_MEMLOCK) in bytes; `u64::MAX` if there is none.
pub fn memlock_limit() -> u64 {
    getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft)
}

/// Sees to it that `needed` bytes may be locked, raising the soft limit, and the hard one where the
/// process may do that.
///
/// # Errors
/// When the limit stays below `needed`.
pub fn raise_memlock(needed: u64) -> Result<(), MemlockError> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap_or((0, 0));
    if soft == RLIM_INFINITY {
        return Ok(());
    }
    if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok() {
        return Ok(());
    }
    if soft < hard && setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard).is_ok() && hard >= needed {
        return Ok(());
    }
    let limit = memlock_limit();
    if limit >= needed {
        return Ok(());
    }
    Err(MemlockError { needed, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_a_file_share_bytes() {
        let fd = create_memfd("test", 8192).unwrap();
        let ours = Mapping::new(&fd, 8192, Access::ReadWrite).unwrap();
        let theirs = Mapping::new(&fd, 4096, Access::Read).unwrap();
        assert!(ours.write(4090, b"hello"));
        let mut got = [0; 5];
        assert!(theirs.read(4090, &mut got));
        assert_eq!(&got, b"hello");
        assert!(!theirs.read(4092, &mut got), "past the end");
        assert!(!theirs.write(0, b"x"), "read-only");
        assert!(!ours.write(usize::MAX, b"xx"), "offset wraps");
        assert!(ours.write(8192, b""));
    }

    #[test]
    fn files_that_could_be_cut_are_refused() {
        let loose = memfd_create(c"loose", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&loose, 4096).unwrap();
        let error = Mapping::new(&loose, 4096, Access::Read).unwrap_err();
        assert!(matches!(error, MappingError::Unsealed), "{error}");
        let short = create_memfd("short", 4096).unwrap();
        let error = Mapping::new(&short, 4097, Access::Read).unwrap_err();
        assert!(matches!(error, MappingError::TooShort { .. }), "{error}");
        assert!(ftruncate(&short, 0).is_err(), "sealed");
        let pipe = nix::unistd::pipe().unwrap().0;
        assert!(Mapping::new(&pipe, 1, Access::Read).is_err());
        assert!(matches!(
            Mapping::new(&short, 0, Access::Read),
            Err(MappingError::Empty)
        ));
    }

    #[test]
    fn the_error_names_the_number() {
        let error = MemlockError {
            needed: 64 << 20,
            limit: 8 << 20,
        };
        assert!(error.to_string().contains("67108864 bytes"), "{error}");
        assert!(error.to_string().contains("ulimit -l 65536"), "{error}");
    }
}
