//! What several passes recognise or compute: recognisers of subgraphs and arithmetic with constants.

pub mod activations;
pub mod bounds;
pub mod channels;
pub mod constant_math;
pub mod heads;
pub mod masks;
pub mod norms;
pub mod orders;
pub mod reductions;
pub mod reshape_target;
pub mod rotary;
pub mod rotary_angles;
pub mod slice_cuts;
pub mod sums;
pub mod windows;

/// Operators that move the elements of their first input.
pub const MOVES: [&str; 5] = ["Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten"];
