//! What handles stand for.
//!
//! ```text
//!   bits 56–63  what kind of object       32–55  which use of the place       0–31  place, from 1
//! ```
//!
//! A handle is looked up in the table of its kind and never followed, so one that was given back,
//! or never was one, is found out and does no harm. A place is used again only with the next
//! number of its use; after 2²⁴ uses numbers begin anew.

use crate::failure::{BUSY, DEFECT, Failure, HANDLE};
use crate::layout;
use crate::member::Member;
use hostd_client::{
    Access, CompletionQueue, ConnectRequest, Context, Listener, QueuePair, Region, SharedQueue,
};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockWriteGuard, TryLockError};

const _: () = assert!(usize::BITS == 64, "a handle has 64 bits");

const USE_BITS: u32 = 24;

/// The objects of one kind.
pub(crate) struct Table<T> {
    places: RwLock<Places<T>>,
}

struct Places<T> {
    all: Vec<Place<T>>,
    free: Vec<usize>,
}

struct Place<T> {
    /// Counts the uses of the place.
    uses: u32,
    object: Option<Arc<Mutex<T>>>,
}

impl<T> Table<T> {
    const fn new() -> Self {
        Self {
            places: RwLock::new(Places {
                all: Vec::new(),
                free: Vec::new(),
            }),
        }
    }
}

/// A connection request that was not answered yet.
pub(crate) type Asked = Option<ConnectRequest>;

/// A region. It is locked for moments only, and lives on while a collective works on it.
pub(crate) type Memory = Arc<Region>;

/// What has handles.
pub(crate) trait Handled: Sized + 'static {
    /// The structure that the header declares, without members.
    type Opaque;

    /// Its name in the header, and the number of its kind.
    const KIND: (&'static str, u8);

    /// Where its objects are.
    fn table() -> &'static Table<Self>;
}

/// Implements [`Handled`].
macro_rules! handled {
    ($($object:ident as $opaque:ident, $name:literal, $kind:literal;)+) => { $(
        impl Handled for $object {
            type Opaque = layout::$opaque;
            const KIND: (&'static str, u8) = ($name, $kind);

            fn table() -> &'static Table<Self> {
                static TABLE: Table<$object> = Table::new();
                &TABLE
            }
        }
    )+ };
}

handled! {
    Context as HostdContext, "hostd_context", 1;
    Memory as HostdMr, "hostd_mr", 2;
    CompletionQueue as HostdCq, "hostd_cq", 3;
    SharedQueue as HostdSrq, "hostd_srq", 4;
    QueuePair as HostdQp, "hostd_qp", 5;
    Listener as HostdListener, "hostd_listener", 6;
    Asked as HostdRequest, "hostd_request", 7;
    Member as HostdGroup, "hostd_group", 8;
}

/// A new handle for `object`.
///
/// # Errors
/// More objects than handles can name.
pub(crate) fn give<T: Handled>(object: T) -> Result<*mut T::Opaque, Failure> {
    let mut places = write::<T>()?;
    let index = match places.free.pop() {
        Some(index) => index,
        None => {
            let object = None;
            places.all.push(Place { uses: 0, object });
            places.all.len() - 1
        }
    };
    let number = u32::try_from(index + 1);
    let number = number.map_err(|_| Failure::new(DEFECT, "more objects than handles"))?;
    let place = &mut places.all[index];
    place.uses = (place.uses + 1) % (1 << USE_BITS);
    place.object = Some(Arc::new(Mutex::new(object)));
    let (kind, uses) = (usize::from(T::KIND.1), place.uses as usize);
    let value = kind << 56 | uses << 32 | number as usize;
    Ok(std::ptr::without_provenance_mut(value))
}

/// Does `work` with the object that `handle` stands for, and that no other thread works with.
///
/// # Errors
/// There is no such object, another thread is in a call with it, or an earlier call with it
/// panicked; or what `work` says.
pub(crate) fn with<T: Handled, R>(
    handle: *mut T::Opaque,
    work: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let object = find::<T>(handle)?;
    let mut object = lock::<T>(&object)?;
    work(&mut object)
}

/// The context that `handle` stands for. Any number of threads use one.
///
/// # Errors
/// There is no such context.
pub(crate) fn context(handle: *mut layout::HostdContext) -> Result<Context, Failure> {
    let object = find::<Context>(handle)?;
    // Held for as long as a copy takes.
    let context = object.lock().map_err(|_| broken::<Context>())?;
    Ok(context.clone())
}

/// The region that `handle` stands for. Any number of threads use one.
///
/// # Errors
/// There is no such region.
pub(crate) fn region(handle: *mut layout::HostdMr) -> Result<Memory, Failure> {
    let object = find::<Memory>(handle)?;
    // Held for as long as a copy takes.
    let region = object.lock().map_err(|_| broken::<Memory>())?;
    Ok(region.clone())
}

/// The region of `context` in which the `len` bytes from `address` on lie, and where there.
///
/// # Errors
/// An earlier call with a region panicked.
pub(crate) fn region_at(
    context: &Context,
    address: usize,
    len: usize,
) -> Result<Option<(Memory, usize)>, Failure> {
    let table = Memory::table().places.read();
    let places = table.map_err(|_| broken::<Memory>())?;
    for object in places.all.iter().filter_map(|place| place.object.as_ref()) {
        // Held for moments only.
        let region = object.lock().map_err(|_| broken::<Memory>())?;
        let offset = address.checked_sub(region.as_ptr().addr());
        let inside = offset.filter(|offset| region.slice(*offset, len).is_ok());
        if let Some(offset) = inside
            && context.owns(&region)
            // Through switches hostd writes a vector where it lies.
            && region.access().allows(Access::LOCAL_WRITE)
        {
            return Ok(Some((region.clone(), offset)));
        }
    }
    Ok(None)
}

/// Takes the object that `handle` stands for out of its table. It lives on while another thread is
/// in a call with it.
///
/// # Errors
/// There is no such object.
pub(crate) fn take<T: Handled>(handle: *mut T::Opaque) -> Result<Arc<Mutex<T>>, Failure> {
    let mut places = write::<T>()?;
    let index = places.index::<T>(handle.addr())?;
    let object = places.all[index].object.take();
    places.free.push(index);
    object.ok_or_else(|| unknown::<T>(handle.addr()))
}

/// Takes an object that no other thread works with; its handle is one no more.
///
/// # Errors
/// There is no such object, or another thread is in a call with it. Then it is as it was.
pub(crate) fn take_alone<T: Handled>(handle: *mut T::Opaque) -> Result<T, Failure> {
    let mut places = write::<T>()?;
    let index = places.index::<T>(handle.addr())?;
    let place = &mut places.all[index];
    let object = place.object.take();
    let object = object.ok_or_else(|| unknown::<T>(handle.addr()))?;
    // Who works with an object has a share of it.
    match Arc::try_unwrap(object) {
        Ok(object) => {
            places.free.push(index);
            object.into_inner().map_err(|_| broken::<T>())
        }
        Err(shared) => {
            place.object = Some(shared);
            Err(busy::<T>())
        }
    }
}

/// Takes a connection request, which no other thread works with; its handle is one no more.
///
/// # Errors
/// There is no such request, or another thread is in a call with it.
pub(crate) fn take_request(handle: *mut layout::HostdRequest) -> Result<ConnectRequest, Failure> {
    let request = with::<Asked, _>(handle, |asked| {
        let request = asked.take();
        request.ok_or_else(|| unknown::<Asked>(handle.addr()))
    })?;
    take::<Asked>(handle)?;
    Ok(request)
}

fn find<T: Handled>(handle: *mut T::Opaque) -> Result<Arc<Mutex<T>>, Failure> {
    let places = T::table().places.read().map_err(|_| broken::<T>())?;
    let index = places.index::<T>(handle.addr())?;
    let object = places.all[index].object.clone();
    object.ok_or_else(|| unknown::<T>(handle.addr()))
}

fn lock<T: Handled>(object: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    object.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => busy::<T>(),
        TryLockError::Poisoned(_) => broken::<T>(),
    })
}

fn write<T: Handled>() -> Result<RwLockWriteGuard<'static, Places<T>>, Failure> {
    T::table().places.write().map_err(|_| broken::<T>())
}

impl<T> Places<T> {
    /// The place of the object that `handle` stands for.
    fn index<K: Handled>(&self, handle: usize) -> Result<usize, Failure> {
        let (kind, uses) = (handle >> 56, handle >> 32 & ((1 << USE_BITS) - 1));
        let index = (handle & 0xffff_ffff).checked_sub(1);
        let found = index.filter(|index| {
            let place = self.all.get(*index);
            let current = |place: &Place<T>| place.uses as usize == uses && place.object.is_some();
            kind == usize::from(K::KIND.1) && place.is_some_and(current)
        });
        found.ok_or_else(|| unknown::<K>(handle))
    }
}

fn unknown<T: Handled>(handle: usize) -> Failure {
    let name = T::KIND.0;
    Failure::new(
        HANDLE,
        match handle {
            0 => format!("the handle of a struct {name} is NULL"),
            _ => format!("{handle:#x} is no handle of a struct {name}, or was given back"),
        },
    )
}

fn busy<T: Handled>() -> Failure {
    let name = T::KIND.0;
    Failure::new(
        BUSY,
        format!("another thread is in a call with the struct {name}"),
    )
}

fn broken<T: Handled>() -> Failure {
    let name = T::KIND.0;
    Failure::new(
        DEFECT,
        format!("an earlier call with the struct {name} failed by a defect of libhostd"),
    )
}
