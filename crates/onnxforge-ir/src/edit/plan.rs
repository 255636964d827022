//! The checks before an edit: everything that could go wrong is found here, before anything is touched.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::staged::Staged;
use super::{EditError, NewNode, Operand, Rewrite, ordered};
use crate::id::{Id, NodeId, ScopeId, ValueId};
use crate::model::Model;
use crate::node::Attr;
use crate::value::{Def, Use};

/// What the checks found out, for the application that cannot fail any more.
pub(super) struct Plan {
    pub scope: ScopeId,
    /// The consumed nodes and everything in bodies that do not move.
    pub consumed: Vec<NodeId>,
    /// For each new node the one that it comes right after, behind earlier ones of the same place; `None`: at the start.
    pub places: Vec<Option<NodeId>>,
    pub removed_scopes: Vec<ScopeId>,
    /// The redefined values by what defines them.
    pub groups: Vec<Group>,
}

/// What defines a value anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// An output of a new node.
    Output(usize, usize),
    /// A new constant.
    Constant(usize),
    /// What already defines this value.
    Value(ValueId),
}

/// Values that share one definition from now on.
pub(super) struct Group {
    pub source: Source,
    /// The value that gets the definition; `None`: the one that has it keeps it.
    pub keeper: Option<ValueId>,
    /// Values whose readers read the keeper instead.
    pub others: Vec<ValueId>,
}

impl Model {
    pub(super) fn plan(&self, rewrite: &Rewrite) -> Result<Plan, EditError> {
        let planner = Planner::new(self, rewrite)?;
        self.check_splices(rewrite)?;
        self.check_functions(rewrite, &planner.gone)?;
        planner.check_operands()?;
        planner.check_removed()?;
        planner.check_lineage()?;
        let groups = planner.groups()?;
        let places = planner.places(&groups)?;
        let Planner { scope, consumed, removed_scopes, .. } = planner;
        Ok(Plan { scope, consumed, places, removed_scopes, groups })
    }
}

struct Planner<'a> {
    model: &'a Model,
    rewrite: &'a Rewrite,
    scope: ScopeId,
    consumed: Vec<NodeId>,
    gone: BTreeSet<NodeId>,
    removed_scopes: Vec<ScopeId>,
    /// Bodies that move, and the new node that each moves to.
    moved: HashMap<ScopeId, usize>,
    redefined: HashMap<ValueId, Operand>,
}

impl<'a> Planner<'a> {
    /// What new nodes serve, and what others take the place of, is consumed; what takes its place stays.
    fn check_lineage(&self) -> Result<(), EditError> {
        let served = self.rewrite.nodes.iter().filter_map(|staged| staged.serves);
        let replaced = self.rewrite.substitutes.iter().map(|&(_, gone)| gone);
        let kept = served.chain(replaced).find(|node| !self.gone.contains(node));
        let stays = |node: NodeId| {
            node.index() < self.model.nodes.len() && self.model.nodes[node].live && !self.gone.contains(&node)
        };
        let lost = self.rewrite.substitutes.iter().map(|&(stays, _)| stays).find(|&node| !stays(node));
        match kept.or(lost) {
            Some(node) => Err(EditError::Gone(format!("node {node:?}"))),
            None => Ok(()),
        }
    }

    fn new(model: &'a Model, rewrite: &'a Rewrite) -> Result<Self, EditError> {
        let scope = scope_of_rewrite(model, rewrite)?;
        let mut moved = HashMap::new();
        let made = |staged: &&Staged| staged.copied.is_none();
        for (index, staged) in rewrite.nodes.iter().enumerate().filter(|(_, staged)| made(staged)) {
            for &body in staged.attrs.iter().flat_map(Attr::scopes) {
                if moved.insert(body, index).is_some() {
                    return Err(EditError::Body);
                }
            }
        }
        // Bodies that new nodes take over stay; everything else in the bodies goes with its node.
        let mut consumed: Vec<NodeId> = ordered(rewrite.consumed.iter().copied());
        let mut removed_scopes = ordered(rewrite.functions.iter().copied());
        consumed
            .extend(removed_scopes.iter().flat_map(|&scope| model.nodes_in(scope).map(|(inner, _)| inner)));
        let mut next = 0;
        while let Some(&node) = consumed.get(next) {
            for body in model.nodes[node].bodies().filter(|body| !moved.contains_key(body)) {
                removed_scopes.push(body);
                consumed.extend(model.nodes_in(body).map(|(inner, _)| inner));
            }
            next += 1;
        }
        let gone: BTreeSet<NodeId> = consumed.iter().copied().collect();
        let held_by_gone =
            |body: &ScopeId| model.scopes[*body].holder().is_some_and(|node| gone.contains(&node));
        if !moved.keys().all(held_by_gone) {
            return Err(EditError::Body);
        }
        let mut redefined = HashMap::new();
        for &(value, by) in &rewrite.redefined {
            if redefined.insert(value, by).is_some() || rewrite.dropped.contains(&value) {
                return Err(EditError::Twice(model.values[value].name.clone()));
            }
        }
        Ok(Self { model, rewrite, scope, consumed, gone, removed_scopes, moved, redefined })
    }

    fn name(&self, value: ValueId) -> onnxforge_proto::Str {
        self.model.values[value].name.clone()
    }

    /// The uses of a value that are still there afterwards.
    fn remaining(&self, value: ValueId) -> impl Iterator<Item = Use> {
        self.model.values[value].uses.iter().copied().filter(|used| match used {
            Use::Input { node, .. } => !self.gone.contains(node),
            Use::Output { scope, .. } => !self.removed_scopes.contains(scope),
        })
    }

    fn is_read(&self, value: ValueId) -> bool {
        self.model.values[value].pinned || self.remaining(value).next().is_some()
    }

    /// Every operand exists, is not about to go, and comes before what reads it.
    fn check_operands(&self) -> Result<(), EditError> {
        let nodes = self.rewrite.nodes.iter().enumerate();
        let inputs = nodes.flat_map(|(index, staged)| staged.reads().map(move |operand| (index, operand)));
        let definitions = self.rewrite.redefined.iter().map(|&(_, by)| (usize::MAX, by));
        for (reader, operand) in inputs.chain(definitions) {
            match operand {
                Operand::Value(value) => {
                    let entry = &self.model.values[value];
                    let going = entry.node().is_some_and(|node| self.gone.contains(&node));
                    if going || !entry.is_live() {
                        return Err(EditError::Gone(format!("value {:?}", entry.name)));
                    }
                    if self.rewrite.dropped.contains(&value) {
                        return Err(EditError::StillRead(entry.name.clone()));
                    }
                }
                Operand::Output(NewNode(node), index) => {
                    let exists = self.rewrite.nodes.get(node).is_some_and(|staged| staged.has_output(index));
                    if !exists || node >= reader {
                        return Err(EditError::Operand);
                    }
                }
                Operand::Constant(index) if index >= self.rewrite.constants.len() => {
                    return Err(EditError::Operand);
                }
                Operand::Absent if reader == usize::MAX => return Err(EditError::Operand),
                Operand::Constant(_) | Operand::Absent => {}
            }
        }
        Ok(())
    }

    /// Nothing that goes away is still read.
    fn check_removed(&self) -> Result<(), EditError> {
        let model = self.model;
        let results =
            self.consumed.iter().flat_map(|&node| model.nodes[node].outputs.iter().flatten().copied());
        let in_bodies = self.removed_scopes.iter().flat_map(|&scope| {
            let inputs = model.scopes[scope].inputs.iter().map(|port| port.value);
            inputs.chain(model.constants_in(scope).map(|(value, _)| value))
        });
        for value in results.chain(in_bodies) {
            if !self.redefined.contains_key(&value) && self.is_read(value) {
                return Err(EditError::StillRead(self.name(value)));
            }
        }
        for &value in &self.rewrite.dropped {
            if model.values[value].constant().is_none() {
                return Err(EditError::NotRedefinable(self.name(value)));
            }
            if self.is_read(value) {
                return Err(EditError::StillRead(self.name(value)));
            }
        }
        Ok(())
    }

    /// Sorts the redefined values by what defines them, names for names followed to the end.
    fn groups(&self) -> Result<Vec<Group>, EditError> {
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<Source, usize> = HashMap::new();
        for &(value, by) in &self.rewrite.redefined {
            let redefinable = match self.model.values[value].def {
                Def::Node { node, .. } => self.gone.contains(&node),
                Def::Constant { scope, .. } => {
                    self.removed_scopes.contains(&scope) || !matches!(by, Operand::Output(..))
                }
                Def::Input { scope, .. } => self.removed_scopes.contains(&scope),
                Def::Removed => false,
            };
            if !redefinable {
                return Err(EditError::NotRedefinable(self.name(value)));
            }
            let source = self.resolve(value, by)?;
            let index = *known.entry(source).or_insert_with(|| {
                groups.push(Group { source, keeper: None, others: Vec::new() });
                groups.len() - 1
            });
            groups[index].others.push(value);
        }
        for group in &mut groups {
            self.choose_keeper(group)?;
        }
        Ok(groups)
    }

    fn resolve(&self, value: ValueId, by: Operand) -> Result<Source, EditError> {
        let mut by = by;
        for _ in 0..=self.redefined.len() {
            match by {
                Operand::Output(NewNode(node), index) => return Ok(Source::Output(node, index)),
                Operand::Constant(index) => return Ok(Source::Constant(index)),
                Operand::Absent => return Err(EditError::Operand),
                Operand::Value(target) => match self.redefined.get(&target) {
                    Some(&next) => by = next,
                    None => return Ok(Source::Value(target)),
                },
            }
        }
        // Names that lead round in a circle.
        Err(EditError::Twice(self.name(value)))
    }

    /// An output keeps its name: it takes the definition over. Two outputs cannot share one definition.
    fn choose_keeper(&self, group: &mut Group) -> Result<(), EditError> {
        let model = self.model;
        let mut exposed = group.others.iter().copied().filter(|&value| model.values[value].is_exposed());
        let keeper = match (exposed.next(), exposed.next()) {
            (Some(first), Some(second)) => {
                return Err(EditError::Exposed(self.name(second), self.name(first)));
            }
            (first, _) => first,
        };
        match (group.source, keeper) {
            (Source::Value(target), Some(value)) => {
                if !model.can_take_over(value, target) {
                    return Err(EditError::Exposed(self.name(value), self.name(target)));
                }
                group.keeper = keeper;
            }
            (Source::Value(_), None) => {}
            (_, keeper) => group.keeper = keeper.or(group.others.first().copied()),
        }
        group.others.retain(|&value| Some(value) != group.keeper);
        Ok(())
    }

    /// New nodes fit between the last definition that they read and the first reader of what they define. Where that is no one place
    /// for all of them, each comes right after what it reads.
    fn places(&self, groups: &[Group]) -> Result<Vec<Option<NodeId>>, EditError> {
        let mut latest: Option<NodeId> = None;
        let mut read = |value: ValueId| -> Result<(), EditError> {
            if let Some(node) = self.visible(value)?
                && latest.is_none_or(|latest| self.order(node) > self.order(latest))
            {
                latest = Some(node);
            }
            Ok(())
        };
        for (reader, staged) in self.rewrite.nodes.iter().enumerate() {
            for operand in staged.reads() {
                let Operand::Value(value) = operand else { continue };
                match self.resolve(value, operand)? {
                    Source::Value(target) => read(target)?,
                    Source::Output(node, _) if node >= reader => {
                        return Err(EditError::Order(self.name(value)));
                    }
                    Source::Output(..) | Source::Constant(_) => {}
                }
            }
        }
        for value in self.captured_by_moved() {
            read(value)?;
        }
        let mut earliest = u64::MAX;
        let mut first_reader = None;
        for group in groups {
            if let Source::Value(target) = group.source {
                read(target)?;
            }
            let lasting = group.keeper.or(match group.source {
                Source::Value(target) => Some(target),
                _ => None,
            });
            // What read the old value reads the keeper from now on, under the keeper's name.
            if let (Source::Value(target), Some(keeper)) = (group.source, group.keeper) {
                for used in self.remaining(target) {
                    self.check_name(keeper, used, group.source)?;
                }
            }
            for &value in group.keeper.iter().chain(&group.others) {
                for used in self.remaining(value) {
                    let order = self.position(used, group.source, value)?;
                    if order < earliest {
                        (earliest, first_reader) = (order, Some(value));
                    }
                    self.check_name(lasting.unwrap_or(value), used, group.source)?;
                }
            }
        }
        let latest_order = latest.map_or(0, |node| self.order(node));
        if latest_order >= earliest {
            let culprit = first_reader.map(|value| self.name(value)).unwrap_or_default();
            return self.scattered(groups)?.ok_or(EditError::Order(culprit));
        }
        let last_consumed = self.rewrite.consumed.iter().copied().max_by_key(|&node| self.order(node));
        let mut after = match last_consumed {
            Some(node) if (latest_order..earliest).contains(&self.order(node)) => Some(node),
            _ => latest,
        };
        // The anchor itself may be going away; its place is after the next one before it that stays.
        while let Some(node) = after.filter(|node| self.gone.contains(node)) {
            after = self.model.nodes[node].previous;
        }
        Ok(vec![after; self.rewrite.nodes.len()])
    }

    /// A place for each new node by itself, as early as what it reads allows; nodes stand in the rewrite behind what they read. `None`:
    /// something would read it too early.
    fn scattered(&self, groups: &[Group]) -> Result<Option<Vec<Option<NodeId>>>, EditError> {
        // What moves with a body is not taken apart.
        if !self.moved.is_empty() || self.rewrite.nodes.iter().any(|staged| staged.copied.is_some()) {
            return Ok(None);
        }
        let order = |place: Option<NodeId>| place.map_or(0, |node| self.order(node));
        let mut places: Vec<Option<NodeId>> = Vec::new();
        let place_of = |places: &[Option<NodeId>], source: Source| match source {
            Source::Output(node, _) => Ok(places.get(node).copied().flatten()),
            Source::Constant(_) => Ok(None),
            Source::Value(target) => self.visible(target),
        };
        for staged in &self.rewrite.nodes {
            let mut latest = None;
            for operand in staged.reads() {
                let source = match operand {
                    Operand::Value(value) => self.resolve(value, operand)?,
                    Operand::Output(NewNode(node), index) => Source::Output(node, index),
                    Operand::Constant(_) | Operand::Absent => continue,
                };
                let place = place_of(&places, source)?;
                if order(place) > order(latest) {
                    latest = place;
                }
            }
            places.push(latest);
        }
        for group in groups {
            let defined = order(place_of(&places, group.source)?);
            for &value in group.keeper.iter().chain(&group.others) {
                for used in self.remaining(value) {
                    if self.position(used, group.source, value)? <= defined {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(places))
    }

    fn order(&self, node: NodeId) -> u64 {
        self.model.nodes[node].order
    }

    /// What moving bodies read from outside, redefined values not counted.
    fn captured_by_moved(&self) -> Vec<ValueId> {
        let mut found = Vec::new();
        let mut inside: HashSet<ScopeId> = HashSet::new();
        let mut open: Vec<ScopeId> = self.moved.keys().copied().collect();
        open.sort_unstable();
        while let Some(scope) = open.pop() {
            inside.insert(scope);
            found.extend(self.model.scopes[scope].outputs.iter().map(|port| port.value));
            for (_, node) in self.model.nodes_in(scope) {
                found.extend(node.inputs.iter().flatten());
                open.extend(node.bodies());
            }
        }
        found.retain(|&value| {
            !self.redefined.contains_key(&value)
                && self.model.scope_of(value).is_some_and(|scope| !inside.contains(&scope))
        });
        found
    }

    /// The node that must come before a reader of `value` in the scope of the edit; an error where it cannot be seen.
    fn visible(&self, value: ValueId) -> Result<Option<NodeId>, EditError> {
        let model = self.model;
        let order_error = || EditError::Order(self.name(value));
        let defined = model.scope_of(value).ok_or_else(order_error)?;
        let holder = model.holder_within(defined, self.scope).map_err(|_| order_error())?;
        if holder.is_some() && model.names.is_repeated(&model.values[value].name) {
            return Err(EditError::Hidden(self.name(value)));
        }
        match (model.values[value].node(), holder) {
            (Some(node), None) => Ok(Some(node)),
            (Some(node), Some(holder)) if self.order(node) >= self.order(holder) => Err(order_error()),
            _ => Ok(None),
        }
    }

    /// The order number in the scope of the edit at which a use of `value` happens.
    fn position(&self, used: Use, source: Source, value: ValueId) -> Result<u64, EditError> {
        let model = self.model;
        let (inner, node) = match used {
            Use::Input { node, .. } => (model.nodes[node].scope, Some(node)),
            Use::Output { scope, .. } => (scope, None),
        };
        let mut at = Some(inner);
        while let Some(scope) = at {
            if let Some(&holder) = self.moved.get(&scope) {
                // It moves with its body to a new node, which comes after the ones before it.
                return match source {
                    Source::Output(node, _) if node >= holder => Err(EditError::Order(self.name(value))),
                    _ => Ok(u64::MAX),
                };
            }
            at = model.scopes[scope].parent;
        }
        let holder = model.holder_within(self.scope, inner).map_err(|_| EditError::Scopes)?;
        Ok(holder.or(node).map_or(u64::MAX, |node| self.order(node)))
    }

    /// From another scope, a value can be read only under a name that no other value has.
    fn check_name(&self, lasting: ValueId, used: Use, source: Source) -> Result<(), EditError> {
        let reader = match used {
            Use::Input { node, .. } => self.model.nodes[node].scope,
            Use::Output { scope, .. } => scope,
        };
        let defined = match source {
            Source::Value(target) => self.model.scope_of(target),
            _ => Some(self.scope),
        };
        let name = &self.model.values[lasting].name;
        if defined != Some(reader) && self.model.names.is_repeated(name) {
            return Err(EditError::Hidden(name.clone()));
        }
        Ok(())
    }
}

fn scope_of_rewrite(model: &Model, rewrite: &Rewrite) -> Result<ScopeId, EditError> {
    for &node in &rewrite.consumed {
        if !model.nodes[node].live {
            return Err(EditError::Gone(format!("node {node:?}")));
        }
    }
    match rewrite.consumed.split_first() {
        Some((&first, others)) => {
            let scope = model.nodes[first].scope;
            if others.iter().any(|&node| model.nodes[node].scope != scope) {
                return Err(EditError::Scopes);
            }
            Ok(scope)
        }
        None if !rewrite.nodes.is_empty() => Err(EditError::FromNothing),
        None => {
            let value =
                rewrite.redefined.first().map(|&(value, _)| value).or(rewrite.dropped.first().copied());
            Ok(value.and_then(|value| model.scope_of(value)).unwrap_or(model.main))
        }
    }
}
