//! Work on the pieces of a buffer, on all cores when it is worth it.

use onnxforge_proto::parallel::for_each;

/// Elements from which on work is spread over the cores, and the least that one core gets.
pub const PARALLEL: usize = 16 * 1024;

/// Calls `work` with the number of each piece of `size` elements and the piece, of which the last may be shorter.
/// `cost` is about how many elements it takes to make one piece.
///
/// The work is a trait object so that what is around it is compiled once for each type of element.
pub fn each_piece<T: Send>(
    data: &mut [T],
    size: usize,
    cost: usize,
    work: &(dyn Fn(usize, &mut [T]) + Sync),
) {
    let (size, cost) = (size.max(1), cost.max(1));
    for_each(data.chunks_mut(size).enumerate(), PARALLEL / cost, |(index, piece)| work(index, piece));
}
