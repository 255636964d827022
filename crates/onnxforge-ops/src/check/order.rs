//! Cycles in a directed graph, in linear time and without recursion.

/// A directed graph over `0..count`.
pub(super) struct Edges {
    /// Where the targets of each vertex start, and where the last ones end.
    starts: Vec<usize>,
    targets: Vec<usize>,
}

impl Edges {
    /// Edges that name vertices from `count` on are left out.
    pub(super) fn new(count: usize, edges: &[(usize, usize)]) -> Self {
        let inside = || edges.iter().filter(|edge| edge.0 < count && edge.1 < count);
        let mut starts = vec![0; count + 1];
        for &(from, _) in inside() {
            if let Some(start) = starts.get_mut(from + 1) {
                *start += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut targets = vec![0; sum];
        for &(from, to) in inside() {
            if let Some(slot) = next.get_mut(from) {
                if let Some(target) = targets.get_mut(*slot) {
                    *target = to;
                }
                *slot += 1;
            }
        }
        Self { starts, targets }
    }

    fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn targets(&self, vertex: usize) -> &[usize] {
        let range = self.starts.get(vertex).zip(self.starts.get(vertex + 1));
        range.and_then(|(&start, &end)| self.targets.get(start..end)).unwrap_or_default()
    }

    /// A number for each vertex; two vertices have the same one when each can be reached from the other (Tarjan).
    pub(super) fn components(&self) -> Vec<usize> {
        const UNSEEN: usize = usize::MAX;
        let count = self.count();
        let mut component = vec![UNSEEN; count];
        let mut order = vec![UNSEEN; count];
        let mut low = vec![UNSEEN; count];
        let (mut seen, mut found) = (0, 0);
        let mut open = Vec::new();
        let mut path: Vec<(usize, usize)> = Vec::new();
        for root in 0..count {
            if get(&order, root) != UNSEEN {
                continue;
            }
            path.push((root, 0));
            while let Some(&(vertex, step)) = path.last() {
                if step == 0 && get(&order, vertex) == UNSEEN {
                    set(&mut order, vertex, seen);
                    set(&mut low, vertex, seen);
                    seen += 1;
                    open.push(vertex);
                }
                if let Some(&target) = self.targets(vertex).get(step) {
                    if let Some(top) = path.last_mut() {
                        top.1 += 1;
                    }
                    if get(&order, target) == UNSEEN {
                        path.push((target, 0));
                    } else if get(&component, target) == UNSEEN {
                        let least = get(&low, vertex).min(get(&order, target));
                        set(&mut low, vertex, least);
                    }
                    continue;
                }
                path.pop();
                if let Some(&(caller, _)) = path.last() {
                    let least = get(&low, caller).min(get(&low, vertex));
                    set(&mut low, caller, least);
                }
                if get(&low, vertex) == get(&order, vertex) {
                    while let Some(member) = open.pop() {
                        set(&mut component, member, found);
                        if member == vertex {
                            break;
                        }
                    }
                    found += 1;
                }
            }
        }
        component
    }

    /// One cycle for each component that has any: its vertices in the order of the edges, the least vertex first.
    pub(super) fn cycles(&self, component: &[usize]) -> Vec<Vec<usize>> {
        let mut done = vec![false; self.count()];
        let mut came_from = vec![usize::MAX; self.count()];
        let mut cycles = Vec::new();
        for start in 0..self.count() {
            let home = get(component, start);
            if done.get(home).copied().unwrap_or(true) {
                continue;
            }
            // Breadth first inside the component, until an edge leads back to the start.
            let mut queue = vec![start];
            let mut next = 0;
            let mut last = None;
            'search: while let Some(&vertex) = queue.get(next) {
                next += 1;
                for &target in self.targets(vertex) {
                    if target == start {
                        last = Some(vertex);
                        break 'search;
                    }
                    if get(component, target) == home && get(&came_from, target) == usize::MAX {
                        set(&mut came_from, target, vertex);
                        queue.push(target);
                    }
                }
            }
            if let Some(last) = last {
                let mut cycle = vec![last];
                let mut vertex = last;
                while vertex != start {
                    vertex = get(&came_from, vertex);
                    cycle.push(vertex);
                }
                cycle.reverse();
                cycles.push(cycle);
            }
            if let Some(done) = done.get_mut(home) {
                *done = true;
            }
        }
        cycles
    }
}

fn get(list: &[usize], index: usize) -> usize {
    list.get(index).copied().unwrap_or(usize::MAX)
}

fn set(list: &mut [usize], index: usize, value: usize) {
    if let Some(slot) = list.get_mut(index) {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(count: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let edges = Edges::new(count, edges);
        edges.cycles(&edges.components())
    }

    #[test]
    fn an_acyclic_graph_has_none() {
        assert!(cycles(0, &[]).is_empty());
        assert!(cycles(4, &[(3, 2), (3, 1), (2, 0), (1, 0)]).is_empty());
        assert!(cycles(2, &[(0, 7), (7, 0)]).is_empty());
    }

    #[test]
    fn each_component_gives_one() {
        let edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 4), (6, 6), (0, 6)];
        assert_eq!(cycles(7, &edges), [vec![0, 1, 2], vec![4, 5], vec![6]]);
    }

    #[test]
    fn vertices_that_only_lead_into_a_cycle_are_not_on_it() {
        let edges = Edges::new(4, &[(0, 1), (1, 2), (2, 1), (2, 3)]);
        let component = edges.components();
        assert_eq!(component[1], component[2]);
        assert_ne!(component[0], component[1]);
        assert_ne!(component[3], component[1]);
    }

    #[test]
    fn a_long_chain_does_not_recurse() {
        let count = 200_000;
        let chain: Vec<_> = (1..count).map(|i| (i - 1, i)).chain([(count - 1, 0)]).collect();
        assert_eq!(cycles(count, &chain)[0].len(), count);
    }
}
