//! Everything that is larger than one module: the laboratory, and what the tests share.
//!
//! - [`lab`]: fabrics of network namespaces with the real daemons in them; the library behind the
//!   `fabric` command and behind every test in namespaces.
//! - [`wire`]: one frame of every kind that the daemons send.

#[path = "../lab/mod.rs"]
pub mod lab;
#[path = "../wire/mod.rs"]
pub mod wire;
