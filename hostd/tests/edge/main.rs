//! The applications' edge of hostd: the real client library and hostile imitations of it against
//! real daemons in this process (see `rig`).

mod addresses;
mod asynchronous;
mod backlog;
mod collective;
mod copy;
mod crowd;
mod doors;
mod ends;
mod examples;
mod hostile;
mod leaf;
mod lists;
mod loopback;
mod memory;
mod modify;
mod options;
mod paths;
mod posting;
mod raw;
mod rig;
mod services;
mod shared_queue;
mod siege;
mod solicited;
mod storm;
#[path = "../leaf/mod.rs"]
mod switch;
mod thousands;
mod versions;
mod windows;
mod work;
