//! Everything that is larger than one module: the laboratory, and what the tests share.
//!
//! - [`lab`]: fabrics of network namespaces with the real daemons in them; the library behind the
//!   `fabric` command and behind every test in namespaces.
//! - [`twin`]: whole fabrics in virtual time, running the daemons' own engines.
//! - [`plot`]: pictures of what either has measured.
//! - [`fuzz`]: every reader of outside bytes, and what looks for inputs that it cannot take.
//! - [`wire`]: one frame of every kind that the daemons send.

#[path = "../fuzz/mod.rs"]
pub mod fuzz;
#[path = "../lab/mod.rs"]
pub mod lab;
#[path = "../plot/mod.rs"]
pub mod plot;
#[path = "../twin/mod.rs"]
pub mod twin;
#[path = "../wire/mod.rs"]
pub mod wire;
