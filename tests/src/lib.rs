//! Labs, simulator and every test that is larger than one module.
