//! The invariants of the IR, checked. Edits keep them; tests ask whether they really do, and debug builds after
//! each edit of a small model.

use std::collections::HashMap;

use super::id::{NodeId, ScopeId, ValueId};
use super::model::Model;
use super::origin::Origin;
use super::value::{Def, Use};
use onnxforge_proto::Str;

impl Model {
    /// Checks every invariant; the text says which one does not hold and where.
    pub fn validate(&self) -> Result<(), String> {
        self.validate_uses()?;
        for (scope, entry) in self.scopes() {
            self.validate_order(scope)?;
            for port in entry.inputs.iter().chain(&entry.outputs) {
                self.expect(self.values[port.value].is_live(), || {
                    format!("port {:?} of {scope:?} is gone", port.value)
                })?;
            }
        }
        for (id, node) in self.nodes() {
            self.expect(node.live, || format!("{id:?} is listed but not live"))?;
            for source in self.origins.sources(node.origin) {
                self.expect(super::id::Id::index(source) < self.source_nodes, || {
                    format!("{id:?} goes back to {source:?}, which was not in the file")
                })?;
            }
            if let Origin::Source(source) = self.origins.get(node.origin) {
                self.expect(*source == id, || format!("{id:?} claims the origin of {source:?}"))?;
            }
        }
        if let Some(node) = self.unaccounted() {
            return Err(format!("{node:?} comes from nowhere"));
        }
        self.validate_names()
    }

    fn expect(&self, holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
        if holds { Ok(()) } else { Err(message()) }
    }

    /// Uses are exactly the inputs of live nodes and the outputs of live scopes.
    fn validate_uses(&self) -> Result<(), String> {
        let mut expected: HashMap<ValueId, Vec<Use>> = HashMap::new();
        for (id, node) in self.nodes() {
            for (index, value) in node.inputs.iter().enumerate() {
                if let Some(value) = value {
                    expected.entry(*value).or_default().push(Use::Input { node: id, index: index as u32 });
                }
            }
            for (index, value) in node.outputs.iter().enumerate() {
                let Some(value) = *value else { continue };
                let right = matches!(self.values[value].def, Def::Node { node, index: i } if node == id && i as usize == index);
                self.expect(right, || format!("output {index} of {id:?} is not what defines {value:?}"))?;
            }
        }
        for (id, scope) in self.scopes() {
            for (index, port) in scope.outputs.iter().enumerate() {
                expected.entry(port.value).or_default().push(Use::Output { scope: id, index: index as u32 });
            }
        }
        for (id, value) in self.values.iter() {
            let mut wanted = expected.remove(&id).unwrap_or_default();
            self.expect(value.is_live() || wanted.is_empty(), || {
                format!("{:?} is read but removed", value.name)
            })?;
            if !value.is_live() {
                continue;
            }
            let mut found: Vec<Use> = value.uses.clone();
            wanted.sort_unstable();
            found.sort_unstable();
            self.expect(wanted == found, || {
                format!("uses of {:?} are {found:?}, should be {wanted:?}", value.name)
            })?;
            if let Def::Node { node, .. } = value.def {
                self.expect(self.nodes[node].live, || {
                    format!("{:?} is defined by a removed node", value.name)
                })?;
            }
        }
        Ok(())
    }

    /// Links, order numbers and counts agree, and everything is defined before it is read.
    fn validate_order(&self, scope: ScopeId) -> Result<(), String> {
        let mut previous: Option<NodeId> = None;
        let mut count = 0;
        for (id, node) in self.nodes_in(scope) {
            count += 1;
            self.expect(node.scope == scope, || {
                format!("{id:?} is listed in {scope:?} but stands elsewhere")
            })?;
            self.expect(node.previous == previous, || format!("{id:?} has the wrong neighbour"))?;
            self.expect(previous.is_none_or(|p| self.nodes[p].order < node.order), || {
                format!("{id:?} is out of order")
            })?;
            for value in node.inputs.iter().flatten() {
                self.validate_visible(*value, scope, node.order)?;
            }
            for body in node.bodies() {
                self.expect(self.scopes[body].holder() == Some(id), || {
                    format!("{body:?} has another holder")
                })?;
                self.expect(self.scopes[body].parent == Some(scope), || {
                    format!("{body:?} has another parent")
                })?;
            }
            previous = Some(id);
        }
        self.expect(self.scopes[scope].last == previous, || format!("{scope:?} ends elsewhere"))?;
        self.expect(self.scopes[scope].node_count == count, || format!("{scope:?} miscounts its nodes"))?;
        for port in &self.scopes[scope].outputs {
            self.validate_visible(port.value, scope, u64::MAX)?;
        }
        Ok(())
    }

    fn validate_visible(&self, value: ValueId, scope: ScopeId, order: u64) -> Result<(), String> {
        let name = &self.values[value].name;
        let defined =
            self.scope_of(value).ok_or_else(|| format!("{name:?} is read but has no definition"))?;
        let holder = self
            .holder_within(defined, scope)
            .map_err(|_| format!("{name:?} is read where it is not visible"))?;
        let limit = holder.map_or(order, |holder| self.nodes[holder].order);
        match self.values[value].node() {
            Some(node) => self
                .expect(self.nodes[node].order < limit, || format!("{name:?} is read before it is computed")),
            None => Ok(()),
        }
    }

    /// Wherever a value is read, its name means that value and no other: a file can be written.
    fn validate_names(&self) -> Result<(), String> {
        let mut visible: HashMap<ScopeId, HashMap<&Str, ValueId>> = HashMap::new();
        for (id, value) in self.values() {
            if let Some(scope) = self.scope_of(id)
                && let Some(other) = visible.entry(scope).or_default().insert(&value.name, id)
            {
                return Err(format!("{other:?} and {id:?} are both called {:?}", value.name));
            }
        }
        let resolve = |name: &Str, scope: ScopeId| {
            let mut at = Some(scope);
            while let Some(scope) = at {
                if let Some(&found) = visible.get(&scope).and_then(|names| names.get(name)) {
                    return Some(found);
                }
                at = self.scopes[scope].parent;
            }
            None
        };
        for (id, node) in self.nodes() {
            for value in node.inputs.iter().flatten() {
                let name = &self.values[*value].name;
                self.expect(resolve(name, node.scope) == Some(*value), || {
                    format!("{name:?} means another value at {id:?}")
                })?;
            }
        }
        Ok(())
    }
}
