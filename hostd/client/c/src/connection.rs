//! Connections: set-up and end.

use crate::context::timeout;
use crate::failure::{Failure, Outcome, answer};
use crate::handle::{self, Asked};
use crate::layout::{
    self, HostdConnected, HostdContext, HostdListener, HostdQp, HostdRequest, HostdRequestAttr,
};
use crate::pointer::{Input, Output, Text};
use hostd_client::{Connected, Error, Listener, Private, QueuePair};
use std::ffi::{c_char, c_int, c_void};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The address that a caller names.
pub(crate) fn address(text: Text<'_>) -> Result<IpAddr, Failure> {
    let text = text.given();
    let text = text.ok_or_else(|| Failure::argument("address is NULL"))?;
    let text = text.to_string_lossy();
    let address = text.parse();
    address.map_err(|_| Failure::argument(format!("'{text}' is no IP address")))
}

/// The private data that a caller gives.
fn private(data: Input<'_, u8>) -> Result<Private, Failure> {
    let data = data.all("private_data")?;
    Private::new(data).ok_or_else(|| {
        let text = format!("private_len: {} is above HOSTD_PRIVATE_MAX", data.len());
        Failure::argument(text)
    })
}

/// Private data for a structure, and its length.
fn room(private: &Private) -> ([u8; 32], u32) {
    let mut bytes = [0; 32];
    let data = private.as_slice();
    bytes[..data.len()].copy_from_slice(data);
    (bytes, u32::try_from(data.len()).expect("32 at most"))
}

/// Tells the caller, who may not want to know, what came of a connection.
fn tell(result: Result<Connected, Error>, mut to: Output<'_, HostdConnected>) -> Outcome {
    let mut tell = |told| {
        if to.is_given() {
            to.put(0, told);
        }
    };
    match result {
        Ok(connected) => {
            let (private_data, private_len) = room(&connected.private);
            tell(HostdConnected {
                peer: layout::text(&connected.peer.to_string()),
                private_data,
                private_len,
                mtu: connected.mtu.into(),
                paths: connected.paths.into(),
                granularity: u32::from(connected.granularity as u8),
                rej: 0,
            });
            Ok(0)
        }
        Err(error) => {
            if let Error::ConnectFailed { rej, private, .. } = &error {
                let (private_data, private_len) = room(private);
                tell(HostdConnected {
                    peer: layout::text(""),
                    private_data,
                    private_len,
                    mtu: 0,
                    paths: 0,
                    granularity: 0,
                    rej: (*rej).into(),
                });
            }
            Err(error.into())
        }
    }
}

/// Fails where [`tell`] cannot tell.
fn check(connected: &Output<'_, HostdConnected>) -> Result<(), Failure> {
    match connected.is_given() {
        true => connected.check("connected"),
        false => Ok(()),
    }
}

/// Connects to a listener.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_connect(
    qp: *mut HostdQp,
    address: *const c_char,
    port: u16,
    private_data: *const c_void,
    private_len: u32,
    timeout_ms: c_int,
    connected: *mut HostdConnected,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let (address, data, connected) = unsafe {
        let address = Text::new(address);
        let data = Input::bytes(private_data, private_len);
        (address, data, Output::new(connected, 1))
    };
    answer(|| {
        check(&connected)?;
        let peer = SocketAddr::new(self::address(address)?, port);
        let private = private(data)?;
        handle::with(qp, |pair: &mut QueuePair| {
            tell(pair.connect(peer, private, timeout(timeout_ms)), connected)
        })
    })
}

/// Waits for connections.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_listen(
    context: *mut HostdContext,
    address: *const c_char,
    port: u16,
    backlog: u16,
    listener: *mut *mut HostdListener,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let (address, mut listener) = unsafe { (Text::new(address), Output::new(listener, 1)) };
    answer(|| {
        listener.check("listener")?;
        let address = match address.given() {
            Some(_) => self::address(address)?,
            None => Ipv6Addr::UNSPECIFIED.into(),
        };
        let made = handle::context(context)?.listen(address, port, backlog)?;
        listener.put(0, handle::give(made)?);
        Ok(0)
    })
}

/// The port.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_listener_port(listener: *mut HostdListener) -> c_int {
    answer(|| {
        handle::with(listener, |listener: &mut Listener| {
            Ok(listener.port().into())
        })
    })
}

/// Gives the listener back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_destroy_listener(listener: *mut HostdListener) -> c_int {
    answer(|| handle::take::<Listener>(listener).map(|_| 0))
}

/// Waits for a connection request.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_get_request(
    listener: *mut HostdListener,
    timeout_ms: c_int,
    request: *mut *mut HostdRequest,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut request = unsafe { Output::new(request, 1) };
    answer(|| {
        request.check("request")?;
        let asked = handle::with(listener, |listener: &mut Listener| {
            Ok(listener.get_request(timeout(timeout_ms))?)
        })?;
        request.put(0, handle::give(Some(asked))?);
        Ok(0)
    })
}

/// Who asks, and with what.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_query_request(
    request: *mut HostdRequest,
    attr: *mut HostdRequestAttr,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut attr = unsafe { Output::new(attr, 1) };
    answer(|| {
        attr.check("attr")?;
        let told = handle::with(request, |asked: &mut Asked| {
            let asked = asked.as_ref();
            let asked = asked.ok_or_else(|| Failure::argument("the request was answered"))?;
            let (private_data, private_len) = room(&asked.private());
            Ok(HostdRequestAttr {
                peer: layout::text(&asked.peer().to_string()),
                private_data,
                private_len,
            })
        })?;
        attr.put(0, told);
        Ok(0)
    })
}

/// Accepts.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_accept(
    request: *mut HostdRequest,
    qp: *mut HostdQp,
    private_data: *const c_void,
    private_len: u32,
    timeout_ms: c_int,
    connected: *mut HostdConnected,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let (data, connected) = unsafe {
        let data = Input::bytes(private_data, private_len);
        (data, Output::new(connected, 1))
    };
    answer(|| {
        check(&connected)?;
        let private = private(data)?;
        handle::with(qp, |pair: &mut QueuePair| {
            // Last, when nothing of what the caller gave can be wrong.
            let request = handle::take_request(request)?;
            tell(
                request.accept(pair, private, timeout(timeout_ms)),
                connected,
            )
        })
    })
}

/// Turns a peer down.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_reject(
    request: *mut HostdRequest,
    private_data: *const c_void,
    private_len: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let data = unsafe { Input::bytes(private_data, private_len) };
    answer(|| {
        let private = private(data)?;
        handle::take_request(request)?.reject(private);
        Ok(0)
    })
}

/// Closes a connection.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_disconnect(qp: *mut HostdQp, timeout_ms: c_int) -> c_int {
    answer(|| {
        handle::with(qp, |pair: &mut QueuePair| {
            pair.disconnect(timeout(timeout_ms))?;
            Ok(0)
        })
    })
}

/// Waits for the end of a connection.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_wait_disconnected(qp: *mut HostdQp, timeout_ms: c_int) -> c_int {
    answer(|| {
        handle::with(qp, |pair: &mut QueuePair| {
            let reason = pair.wait_disconnected(timeout(timeout_ms))?;
            crate::failure::count(reason as usize)
        })
    })
}
