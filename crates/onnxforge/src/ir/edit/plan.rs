//! The checks before an edit: everything that could go wrong is found here, before anything is touched.

use std::collections::{BTreeSet, HashSet};

use super::{EditError, NewNode, Operand, Rewrite, ordered};
use crate::ir::id::{NodeId, ScopeId, ValueId};
use crate::ir::model::Model;
use crate::ir::value::{Def, Use};

/// What the checks found out, for the application that cannot fail any more.
pub(super) struct Plan {
    pub scope: ScopeId,
    /// The consumed nodes and everything in bodies that do not move.
    pub consumed: Vec<NodeId>,
    /// New nodes come right after this one; `None`: at the start.
    pub after: Option<NodeId>,
    pub removed_scopes: Vec<ScopeId>,
}

impl Model {
    pub(super) fn plan(&self, rewrite: &Rewrite) -> Result<Plan, EditError> {
        let scope = self.scope_of_rewrite(rewrite)?;
        for operand in self.operands(rewrite) {
            self.check_operand(rewrite, operand)?;
        }

        // Bodies that new nodes take over stay; everything else in the bodies goes with its node.
        let moved: HashSet<ScopeId> =
            rewrite.nodes.iter().flat_map(|n| &n.attrs).flat_map(|a| a.scopes()).copied().collect();
        let mut consumed: Vec<NodeId> = ordered(rewrite.consumed.iter().copied());
        let mut removed_scopes = Vec::new();
        let mut next = 0;
        while let Some(&node) = consumed.get(next) {
            for body in self.nodes[node].bodies().filter(|body| !moved.contains(body)) {
                removed_scopes.push(body);
                consumed.extend(self.nodes_in(body).map(|(inner, _)| inner));
            }
            next += 1;
        }
        let gone: BTreeSet<NodeId> = consumed.iter().copied().collect();
        let gone_scopes: HashSet<ScopeId> = removed_scopes.iter().copied().collect();
        let remaining = |value: ValueId| {
            self.values[value].uses.iter().copied().filter(|used| match used {
                Use::Input { node, .. } => !gone.contains(node),
                Use::Output { scope, .. } => !gone_scopes.contains(scope),
                Use::Pinned => true,
            })
        };

        let redefined: HashSet<ValueId> = rewrite.redefined.iter().map(|&(value, _)| value).collect();
        for &node in &consumed {
            for value in self.nodes[node].outputs.iter().flatten() {
                if !redefined.contains(value) && remaining(*value).next().is_some() {
                    return Err(EditError::StillRead(self.values[*value].name.clone()));
                }
            }
        }
        for &value in &rewrite.dropped {
            let entry = &self.values[value];
            if entry.constant().is_none() {
                return Err(EditError::NotRedefinable(entry.name.clone()));
            }
            if remaining(value).next().is_some() {
                return Err(EditError::StillRead(entry.name.clone()));
            }
        }

        // New nodes fit between the last definition that they read and the first reader of what they define.
        let mut latest: Option<NodeId> = None;
        let mut earliest = u64::MAX;
        for operand in self.operands(rewrite) {
            let Operand::Value(value) = operand else {
                continue;
            };
            if self.values[value].node().is_some_and(|node| gone.contains(&node)) {
                return Err(EditError::Gone(format!("value {:?}", self.values[value].name)));
            }
            if let Some(node) = self.visible_from(value, scope)?
                && latest.is_none_or(|latest| self.nodes[node].order > self.nodes[latest].order)
            {
                latest = Some(node);
            }
        }
        for &(value, by) in &rewrite.redefined {
            let entry = &self.values[value];
            match entry.def {
                Def::Node { node, .. } if gone.contains(&node) => {}
                Def::Constant { .. } if matches!(by, Operand::Value(_) | Operand::Constant(_)) => {}
                _ => return Err(EditError::NotRedefinable(entry.name.clone())),
            }
            for used in remaining(value) {
                if let Some(order) = self.position(used, scope)? {
                    earliest = earliest.min(order);
                }
            }
            if let Operand::Value(target) = by {
                self.check_alias(value, target)?;
            }
        }
        let latest_order = latest.map_or(0, |node| self.nodes[node].order);
        if latest_order >= earliest {
            let name = rewrite.redefined.first().map(|&(value, _)| self.values[value].name.clone());
            return Err(EditError::Order(name.unwrap_or_default()));
        }
        let last_consumed = rewrite.consumed.iter().copied().max_by_key(|&node| self.nodes[node].order);
        let after = match last_consumed {
            Some(node) if (latest_order..earliest).contains(&self.nodes[node].order) => Some(node),
            _ => latest,
        };
        // The anchor itself may be going away; its place is after the next one before it that stays.
        let mut after = after;
        while let Some(node) = after.filter(|node| gone.contains(node)) {
            after = self.nodes[node].previous;
        }
        Ok(Plan { scope, consumed, after, removed_scopes })
    }

    fn scope_of_rewrite(&self, rewrite: &Rewrite) -> Result<ScopeId, EditError> {
        for &node in &rewrite.consumed {
            if !self.nodes[node].live {
                return Err(EditError::Gone(format!("node {node:?}")));
            }
        }
        match rewrite.consumed.split_first() {
            Some((&first, others)) => {
                let scope = self.nodes[first].scope;
                if others.iter().any(|&node| self.nodes[node].scope != scope) {
                    return Err(EditError::Scopes);
                }
                Ok(scope)
            }
            None if !rewrite.nodes.is_empty() => Err(EditError::FromNothing),
            None => {
                let value =
                    rewrite.redefined.first().map(|&(value, _)| value).or(rewrite.dropped.first().copied());
                Ok(value.and_then(|value| self.scope_of(value)).unwrap_or(self.main))
            }
        }
    }

    fn operands<'a>(&self, rewrite: &'a Rewrite) -> impl Iterator<Item = Operand> + use<'a> {
        let inputs = rewrite.nodes.iter().flat_map(|node| node.inputs.iter().copied());
        inputs.chain(rewrite.redefined.iter().map(|&(_, by)| by))
    }

    fn check_operand(&self, rewrite: &Rewrite, operand: Operand) -> Result<(), EditError> {
        match operand {
            Operand::Value(value) if !self.values[value].is_live() => {
                Err(EditError::Gone(format!("value {:?}", self.values[value].name)))
            }
            Operand::Output(NewNode(node), index) => match rewrite.nodes.get(node) {
                Some(staged) if index < staged.outputs => Ok(()),
                _ => Err(EditError::Operand),
            },
            Operand::Constant(index) if index >= rewrite.constants.len() => Err(EditError::Operand),
            _ => Ok(()),
        }
    }

    /// The node of `scope` that must come before a reader of `value` in `scope`; an error where it cannot be seen.
    fn visible_from(&self, value: ValueId, scope: ScopeId) -> Result<Option<NodeId>, EditError> {
        let entry = &self.values[value];
        let order_error = || EditError::Order(entry.name.clone());
        let defined = self.scope_of(value).ok_or_else(order_error)?;
        let holder = self.holder_within(defined, scope).map_err(|_| order_error())?;
        match (entry.node(), holder) {
            (Some(node), None) => Ok(Some(node)),
            (Some(node), Some(holder)) if self.nodes[node].order >= self.nodes[holder].order => {
                Err(order_error())
            }
            _ => Ok(None),
        }
    }

    /// The order number in `scope` at which a use happens; `None` at the end of the scope.
    fn position(&self, used: Use, scope: ScopeId) -> Result<Option<u64>, EditError> {
        let (inner, node) = match used {
            Use::Input { node, .. } => (self.nodes[node].scope, Some(node)),
            Use::Output { scope, .. } => (scope, None),
            Use::Pinned => return Ok(None),
        };
        let holder = self.holder_within(scope, inner).map_err(|_| EditError::Scopes)?;
        Ok(holder.or(node).map(|node| self.nodes[node].order))
    }

    /// An output keeps its name: it can take over a definition, but not become another name for an input or output.
    fn check_alias(&self, value: ValueId, target: ValueId) -> Result<(), EditError> {
        let (from, to) = (&self.values[value], &self.values[target]);
        let takes_over = !matches!(to.def, Def::Input { .. })
            && !to.is_exposed()
            && self.scope_of(value) == self.scope_of(target);
        if from.is_exposed() && !takes_over {
            return Err(EditError::Exposed(from.name.clone(), to.name.clone()));
        }
        Ok(())
    }
}
