//! FlatBuffers: tables of optional fields, found through offsets.
//!
//! [`build`] writes them back to front, so that what a table refers to is there before it, and large vectors enter as references to where their bytes already
//! are. [`view`] reads them where they lie and believes no offset.

pub mod build;
pub mod view;
