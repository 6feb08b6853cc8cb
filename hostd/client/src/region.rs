//! Registered memory.

use crate::Error;
use crate::abi::answer::Reply;
use crate::abi::descriptor::Sge;
use crate::abi::message::Request;
use crate::abi::types::Access;
use crate::session::{Object, Reserved, Session, unexpected};
use crate::shm::{self, Mapping};
use nix::errno::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Memory that this application and the daemon share (`ibv_mr`). Its addresses are offsets: the
/// first byte is at zero, for work requests and for peers.
///
/// Bytes are copied in and out and never borrowed: the daemon may be reading them to send, and the
/// daemon or a peer may be writing. What is written to a range that is being sent, or read from
/// one that is being received into, is whatever the race yields, but never undefined behaviour.
///
/// The daemon gives the memory back when the region and the windows bound to it are dropped.
#[derive(Debug)]
pub struct Region {
    object: Arc<Object>,
    map: Mapping,
    access: Access,
    lkey: u32,
    rkey: u32,
}

/// Bytes of a region, for a work request (`ibv_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    pub(crate) lkey: u32,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Slice {
    /// No bytes at all: for messages without payload.
    pub const EMPTY: Self = Self {
        lkey: 0,
        offset: 0,
        len: 0,
    };

    /// `len` bytes from `offset` on of the region with this local key. Whether there are as many is
    /// looked at when a request with them is carried out, and its completion says what was wrong.
    pub const fn of_key(lkey: u32, offset: u64, len: u32) -> Self {
        Self { lkey, offset, len }
    }

    /// The local key of its region.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Its first byte, counted from the beginning of the region.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the slice.
    pub fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn sge(&self) -> Sge {
        Sge {
            address: self.offset,
            length: self.len,
            lkey: self.lkey,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Region {
    pub(crate) fn allocate(
        context: &Arc<Session>,
        len: usize,
        access: Access,
    ) -> Result<Self, Error> {
        if len == 0 {
            return Err(Error::argument("a region has at least one byte"));
        }
        if let Some(fault) = access.fault_of_region() {
            return Err(Error::argument(fault));
        }
        let length = u64::try_from(len).map_err(|_| Error::kernel("memfd")(Errno::EFBIG))?;
        // Before the memory is there: the kernel would look for it however much it is.
        let reserved = Reserved::take(context, length)?;
        let (fd, map) = shm::create_shared(c"hostd-region", len)?;
        let request = Request::RegisterRegion {
            length,
            iova: 0,
            access,
        };
        let (reply, _) = context.channel.call(&request, Some(fd.as_fd()))?;
        let Reply::Region { handle, lkey, rkey } = reply else {
            return Err(unexpected(&reply));
        };
        Ok(Self {
            object: Object::region(reserved, handle),
            map,
            access,
            lkey,
            rkey,
        })
    }

    /// Bytes of the region.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Never: an empty region cannot be registered.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What it may be used for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The key that a peer needs to write here (`ibv_mr::rkey`).
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The key for work requests (`ibv_mr::lkey`).
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Where this process sees the memory, for bindings to languages that work on it in place: at
    /// a page, for [`Self::len`] bytes, until the region is dropped. Other processes may change
    /// them at any time, so no reference to them may exist.
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_ptr()
    }

    /// The bytes `offset .. offset + len`, for a work request.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not inside.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Slice, Error> {
        self.check(offset, len)?;
        let outside = || self.out_of_range(offset, len);
        Ok(Slice {
            lkey: self.lkey,
            offset: u64::try_from(offset).map_err(|_| outside())?,
            len: u32::try_from(len).map_err(|_| outside())?,
        })
    }

    /// Copies bytes in at `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        self.map.copy_in(offset, bytes);
        Ok(())
    }

    /// Copies bytes out from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there are not as many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.check(offset, bytes.len())?;
        self.map.copy_out(offset, bytes);
        Ok(())
    }

    /// Reads from a file or socket straight into `offset .. offset + len`, in one system call.
    /// Returns the bytes read, zero at the end of the file.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], or what the kernel says.
    pub fn fill_from(&self, file: impl AsFd, offset: usize, len: usize) -> Result<usize, Error> {
        self.check(offset, len)?;
        loop {
            match self.map.read_from(file.as_fd(), offset, len) {
                Err(Errno::EINTR) => {}
                other => return other.map_err(Error::kernel("read")),
            }
        }
    }

    /// Writes all of `offset .. offset + len` straight to a file or socket.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], or what the kernel says.
    pub fn drain_to(&self, file: impl AsFd, offset: usize, len: usize) -> Result<(), Error> {
        self.check(offset, len)?;
        let mut done = 0;
        while done < len {
            match self.map.write_to(file.as_fd(), offset + done, len - done) {
                Ok(0) => return Err(Error::kernel("write")(Errno::ENOSPC)),
                Ok(put) => done += put,
                Err(Errno::EINTR) => {}
                Err(reason) => return Err(Error::kernel("write")(reason)),
            }
        }
        Ok(())
    }

    /// What keeps the region registered.
    pub(crate) fn object(&self) -> Arc<Object> {
        self.object.clone()
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), Error> {
        if self.map.contains(offset, len) {
            Ok(())
        } else {
            Err(self.out_of_range(offset, len))
        }
    }

    fn out_of_range(&self, offset: usize, len: usize) -> Error {
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Error::OutOfRange {
            offset: number(offset),
            len: number(len),
            region: number(self.map.len()),
        }
    }
}
