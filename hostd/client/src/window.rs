//! Memory windows: keys for peers that a send request gives to a part of a region, and takes back.

use crate::abi::answer::Reply;
use crate::abi::descriptor::{Local, Opcode, SendWork, Sge, SgeList, WORK_LEN};
use crate::abi::message::Request;
use crate::abi::types::{Access, ObjectKind};
use crate::session::{Object, Session, unexpected};
use crate::{Error, QueuePair, Region};
use std::sync::Arc;

/// A memory window of type 2 (`ibv_mw`), which [`QueuePair::post_bind`] binds to a part of a region
/// with [`Access::BIND`]. Peers of that queue pair may do there what the bind says. The key counts
/// until this side ([`QueuePair::post_local_invalidate`]) or the peer
/// ([`crate::SendRequest::with_invalidate`]) takes it back.
#[derive(Debug)]
pub struct MemoryWindow {
    // Given back before the regions: one to which a window is bound cannot be.
    _object: Arc<Object>,
    /// Those of the last two binds, of which the older one may be posted and not carried out; and
    /// of older ones what the application holds, or the daemon has not taken back: a bind that
    /// failed leaves the window bound to what it was.
    regions: Vec<Arc<Object>>,
    handle: u32,
    rkey: u32,
}

/// What a window is bound to (`ibv_mw_bind_info`).
#[derive(Clone, Copy, Debug)]
pub struct Bind<'a> {
    /// The region; it has to have [`Access::BIND`], and [`Access::LOCAL_WRITE`] if peers may write.
    pub region: &'a Region,
    /// The first byte.
    pub offset: usize,
    /// Bytes, at least one.
    pub len: usize,
    /// What peers may do, and [`Access::ZERO_BASED`] if they call the first byte zero; otherwise
    /// they call it `offset`.
    pub access: Access,
}

impl MemoryWindow {
    pub(crate) fn create(context: &Arc<Session>) -> Result<Self, Error> {
        let (reply, _) = context.channel.call(&Request::CreateWindow, None)?;
        let Reply::Window { handle, rkey } = reply else {
            return Err(unexpected(&reply));
        };
        Ok(Self {
            _object: Object::new(context, ObjectKind::Window, handle),
            regions: Vec::new(),
            handle,
            rkey,
        })
    }

    /// Keeps the region of the latest bind, and gives back what no bind is about any more.
    fn keep(&mut self, latest: Arc<Object>) {
        self.regions.retain(|it| !Arc::ptr_eq(it, &latest));
        self.regions.insert(0, latest);
        let older = self.regions.split_off(self.regions.len().min(2));
        let used = older.into_iter().filter_map(Object::release_unused);
        self.regions.extend(used);
    }

    /// The key of the last bind that was posted. Before the first one it opens nothing.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }
}

impl QueuePair {
    /// Posts a request that binds `window` to a part of a region, for peers of this queue pair
    /// (`IBV_WR_BIND_MW`), and returns the key for them: another one than before. It counts when
    /// the request is carried out, which is before all requests that are posted later. The region
    /// is kept until the window is dropped or bound to another one.
    ///
    /// ```no_run
    /// # use hostd_client::{Access, Bind, Context, Error, QueuePair, Region};
    /// # type Done = Result<(), Error>;
    /// # fn example(context: &Context, queue_pair: &mut QueuePair, region: &Region) -> Done {
    /// let mut window = context.create_window()?;
    /// let bind = Bind {
    ///     region,
    ///     offset: 4096,
    ///     len: 8192,
    ///     access: Access::REMOTE_WRITE,
    /// };
    /// let rkey = queue_pair.post_bind(4, &mut window, bind)?;
    /// // The peer is told `rkey` and the address 4096. When it has written:
    /// queue_pair.post_local_invalidate(5, rkey)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the bytes are not inside the region. [`Error::QueueFull`] until the
    /// daemon has taken older requests. What else is wrong the completion says: the window is still
    /// bound, or the region does not allow it.
    pub fn post_bind(
        &mut self,
        wr_id: u64,
        window: &mut MemoryWindow,
        bind: Bind<'_>,
    ) -> Result<u32, Error> {
        let part = bind.region.slice(bind.offset, bind.len)?;
        let Sge {
            address,
            length,
            lkey,
        } = part.sge();
        let list = SgeList::new(&[Sge {
            address,
            length: 0,
            lkey,
        }]);
        // `ibv_inc_rkey`: the low 8 bits count.
        let [low, high @ ..] = window.rkey.to_le_bytes();
        let [a, b, c] = high;
        let rkey = u32::from_le_bytes([low.wrapping_add(1), a, b, c]);
        let work = SendWork {
            local: Local::Pieces(list.expect("one is always allowed")),
            immediate: window.handle,
            rkey,
            compare_add: bind.access.bits().into(),
            swap: length.into(),
            ..local(wr_id, Opcode::BindWindow)
        };
        self.post_local(wr_id, &work.to_bytes())?;
        window.rkey = rkey;
        window.keep(bind.region.object());
        Ok(rkey)
    }

    /// Posts a request that takes the key of a bound window back (`IBV_WR_LOCAL_INV`). Peers that
    /// use it afterwards get a remote access error.
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older requests.
    pub fn post_local_invalidate(&mut self, wr_id: u64, rkey: u32) -> Result<(), Error> {
        let work = SendWork {
            immediate: rkey,
            ..local(wr_id, Opcode::LocalInvalidate)
        };
        self.post_local(wr_id, &work.to_bytes())
    }

    fn post_local(&mut self, wr_id: u64, work: &[u8; WORK_LEN]) -> Result<(), Error> {
        self.may_send()?;
        let mut outstanding = self.sends.lock();
        if !self.send.push(work)? {
            return Err(Error::QueueFull);
        }
        self.send.publish();
        outstanding.note(wr_id, true);
        drop(outstanding);
        self.ring(&self.sends, 1)
    }
}

fn local(wr_id: u64, opcode: Opcode) -> SendWork {
    SendWork {
        wr_id,
        opcode,
        signaled: true,
        solicited: false,
        fence: false,
        immediate: 0,
        remote_address: 0,
        rkey: 0,
        local: Local::Pieces(SgeList::default()),
        compare_add: 0,
        swap: 0,
    }
}
