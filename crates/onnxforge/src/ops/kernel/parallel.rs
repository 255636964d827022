//! Work on the pieces of a buffer, on all cores when it is worth it.

use rayon::prelude::*;

use super::map::PARALLEL;

/// Calls `work` with the number of each piece of `size` elements and the piece, of which the last may be shorter.
/// `cost` is about how many elements it takes to make one piece.
///
/// The work is a trait object so that the machinery behind it is compiled once for each type of element.
pub fn each_piece<T: Send>(
    data: &mut [T],
    size: usize,
    cost: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let (size, cost) = (size.max(1), cost.max(1));
    if data.len().div_ceil(size).saturating_mul(cost) < PARALLEL {
        data.chunks_mut(size).enumerate().for_each(|(index, piece)| work(index, piece));
    } else {
        let least = (PARALLEL / cost).max(1);
        let pieces = data.par_chunks_mut(size).enumerate().with_min_len(least);
        pieces.for_each(|(index, piece)| work(index, piece));
    }
}

/// Does both, on two cores if one is free.
pub fn both(a: &mut (dyn FnMut() + Send), b: &mut (dyn FnMut() + Send)) {
    rayon::join(a, b);
}
