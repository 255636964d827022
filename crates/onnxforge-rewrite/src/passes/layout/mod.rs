//! Nodes that compute with their axes in another order.
//!
//! An operator that treats axes alike gives the same numbers at other places when its operands have their axes in another order.
//! [`operators`] says which do, and how the axes of their operands and results belong together; [`spelling`] works out the orders of
//! all from that of one, [`moved`] what the node becomes. [`region`] decides where it saves [Transposes](views), by a
//! [`min_cut`], and [`rebuilt`] makes the change.

pub mod cancel_transposes;
pub mod merge_transposes;
mod min_cut;
mod moved;
mod operators;
mod rebuilt;
mod region;
mod reshaped;
mod spelling;
mod views;
