//! The structures of the header, field by field. `hostd.h` says what they mean.

use std::ffi::{c_char, c_int, c_void};

/// Bytes of an address as text (`HOSTD_ADDRESS_MAX`).
pub(crate) const ADDRESS_MAX: usize = 48;

/// Declares structures without members, to which only handles point.
macro_rules! opaque {
    ($($name:ident)+) => { $(
        /// Only ever pointed to by handles.
        #[repr(C)]
        pub(crate) struct $name {
            _none: [u8; 0],
        }
    )+ };
}

opaque! {
    HostdContext HostdMr HostdCq HostdSrq HostdQp HostdListener HostdRequest HostdGroup
}

/// `struct hostd_limits`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdLimits {
    pub(crate) memory: u64,
    pub(crate) message: u64,
    pub(crate) queue_pairs: u32,
    pub(crate) reserved: u32,
}

/// `struct hostd_gid`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdGid {
    pub(crate) address: [c_char; 48],
    pub(crate) index: u32,
    pub(crate) prefix_len: u32,
    pub(crate) active: u32,
    pub(crate) reserved: u32,
}

/// `struct hostd_mr_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdMrAttr {
    pub(crate) memory: *mut c_void,
    pub(crate) length: u64,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct hostd_sge`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdSge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct hostd_wc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdWc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) wc_flags: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_id: u32,
}

/// `struct hostd_qp_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdQpInitAttr {
    pub(crate) send_cq: *mut HostdCq,
    pub(crate) recv_cq: *mut HostdCq,
    pub(crate) srq: *mut HostdSrq,
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
}

/// `struct hostd_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdQpAttr {
    pub(crate) id: u32,
    pub(crate) qp_num: u32,
}

/// `struct hostd_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdSendWr {
    pub(crate) wr_id: u64,
    pub(crate) sg_list: *const HostdSge,
    pub(crate) num_sge: u32,
    pub(crate) opcode: u32,
    pub(crate) send_flags: u32,
    pub(crate) imm_data: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) reserved: u32,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
}

/// `struct hostd_recv_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdRecvWr {
    pub(crate) wr_id: u64,
    pub(crate) sg_list: *const HostdSge,
    pub(crate) num_sge: u32,
    pub(crate) reserved: u32,
}

/// `struct hostd_conn_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdConnOptions {
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
}

/// `struct hostd_traffic`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdTraffic {
    pub(crate) block: u32,
    pub(crate) pattern: u32,
    pub(crate) priority: u32,
}

/// `struct hostd_path_change`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdPathChange {
    pub(crate) add: [u8; 32],
    pub(crate) remove: [u8; 32],
    pub(crate) weight_paths: [u8; 32],
    pub(crate) weights: [u8; 32],
    pub(crate) weight_count: u32,
    pub(crate) mask: u32,
    pub(crate) granularity: u32,
    pub(crate) reorder_packets: u16,
    pub(crate) reorder_time_us: u16,
    pub(crate) flowlet_timeout_us: u16,
    pub(crate) reserved: u16,
}

/// `struct hostd_connected`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdConnected {
    pub(crate) peer: [c_char; 48],
    pub(crate) private_data: [u8; 32],
    pub(crate) private_len: u32,
    pub(crate) mtu: u32,
    pub(crate) paths: u32,
    pub(crate) granularity: u32,
    pub(crate) rej: u32,
}

/// `struct hostd_request_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdRequestAttr {
    pub(crate) peer: [c_char; 48],
    pub(crate) private_data: [u8; 32],
    pub(crate) private_len: u32,
}

/// `struct hostd_group_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostdGroupAttr {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) address: *const c_char,
    pub(crate) listener: *mut HostdListener,
    pub(crate) port: u16,
    pub(crate) reserved: u16,
    pub(crate) flags: u32,
    pub(crate) join_timeout_ms: u32,
    pub(crate) timeout_ms: u32,
    pub(crate) segment: u32,
    pub(crate) again_ms: u32,
    pub(crate) agree: Option<HostdAgree>,
    pub(crate) agree_argument: *mut c_void,
}

/// `hostd_agree`.
pub(crate) type HostdAgree = extern "C" fn(*mut c_void, c_int) -> c_int;

/// Text for a structure, cut to its room, with a zero behind it.
pub(crate) fn text(of: &str) -> [c_char; ADDRESS_MAX] {
    let mut bytes = [0; ADDRESS_MAX];
    for (place, byte) in bytes[..ADDRESS_MAX - 1].iter_mut().zip(of.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    bytes
}
