//! Client library of hostd.
