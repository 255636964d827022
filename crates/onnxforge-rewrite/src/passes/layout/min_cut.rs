//! The cheapest way to divide things in two.

use std::collections::VecDeque;

/// More than all costs together.
const NEVER: u32 = u32::MAX / 2;

/// Things that end up on one of two sides, and what it costs when two of them are parted.
pub struct MinCut {
    /// Target, and what is left of the capacity; the reverse of edge 2i is edge 2i + 1.
    edges: Vec<(usize, u32)>,
    leaving: Vec<Vec<usize>>,
}

impl MinCut {
    /// What is always on the first side.
    pub const FIRST: usize = 0;
    /// What is always on the second side.
    pub const SECOND: usize = 1;

    pub fn new() -> Self {
        Self { edges: Vec::new(), leaving: vec![Vec::new(); 2] }
    }

    /// One more thing.
    pub fn thing(&mut self) -> usize {
        self.leaving.push(Vec::new());
        self.leaving.len() - 1
    }

    /// It costs 1 when `from` is on the first side and `to` on the second.
    pub fn costs(&mut self, from: usize, to: usize) {
        self.edge(from, to, 1);
    }

    /// `from` must not be on the first side and `to` on the second. Neither may be a side itself: every way from one side to the other
    /// then has an edge that costs 1, and so a division exists.
    pub fn forbids(&mut self, from: usize, to: usize) {
        self.edge(from, to, NEVER);
    }

    fn edge(&mut self, from: usize, to: usize, capacity: u32) {
        self.leaving[from].push(self.edges.len());
        self.edges.push((to, capacity));
        self.leaving[to].push(self.edges.len());
        self.edges.push((from, 0));
    }

    /// For each thing whether it is on the first side in the cheapest division, the one with the fewest things there.
    pub fn first_side(mut self) -> Vec<bool> {
        loop {
            let reached = self.reached();
            if reached[Self::SECOND].is_none() {
                return reached.iter().map(Option::is_some).collect();
            }
            // Every path takes one unit: each edge to or from a side costs 1 at most.
            let mut at = Self::SECOND;
            while let Some(edge) = reached[at].filter(|_| at != Self::FIRST) {
                self.edges[edge].1 -= 1;
                self.edges[edge ^ 1].1 += 1;
                at = self.edges[edge ^ 1].0;
            }
        }
    }

    /// What can still be reached from the first side, with the edge that led there.
    fn reached(&self) -> Vec<Option<usize>> {
        let mut reached = vec![None; self.leaving.len()];
        reached[Self::FIRST] = Some(0);
        let mut queue = VecDeque::from([Self::FIRST]);
        while let Some(from) = queue.pop_front() {
            for &edge in &self.leaving[from] {
                let (to, capacity) = self.edges[edge];
                if capacity > 0 && reached[to].is_none() {
                    reached[to] = Some(edge);
                    queue.push_back(to);
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_division_is_found() {
        // first → a (2), a → b (1), b → second (3), first → c (1), c → second (1)
        let mut cut = MinCut::new();
        let [a, b, c] = [cut.thing(), cut.thing(), cut.thing()];
        (0..2).for_each(|_| cut.costs(MinCut::FIRST, a));
        cut.costs(a, b);
        (0..3).for_each(|_| cut.costs(b, MinCut::SECOND));
        cut.costs(MinCut::FIRST, c);
        cut.costs(c, MinCut::SECOND);
        let side = cut.first_side();
        assert_eq!((side[a], side[b], side[c]), (true, false, false));
    }

    #[test]
    fn what_must_stay_together_does() {
        let mut cut = MinCut::new();
        let [a, b] = [cut.thing(), cut.thing()];
        cut.costs(MinCut::FIRST, a);
        cut.forbids(a, b);
        assert_eq!(cut.first_side()[a..], [true, true]);
        let mut cut = MinCut::new();
        let [a, b] = [cut.thing(), cut.thing()];
        cut.costs(MinCut::FIRST, a);
        cut.forbids(a, b);
        cut.costs(b, MinCut::SECOND);
        assert_eq!(cut.first_side()[a..], [false, false]);
    }
}
