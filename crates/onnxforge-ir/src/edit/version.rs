//! Changes to the versions that a model declares. They are no rewrites: nothing is consumed, and the journal does not list them.

use crate::id::ScopeId;
use crate::model::Model;
use crate::node::normal_domain;
use crate::scope::ScopeKind;
use crate::value::Def;
use onnxforge_proto::schema::OperatorSetIdProto;

/// The first IR version in which a constant need not be listed as an input, and an input's default may be overridden.
pub(super) const FREE_CONSTANTS: i64 = 4;

impl Model {
    /// Declares that another version of a domain, which must be imported already, holds in a scope and wherever else its
    /// imports do: in the whole function, or in the whole graph. What its nodes mean there is the caller's business.
    pub fn set_opset(&mut self, scope: ScopeId, domain: &str, version: i64) {
        for import in self.imports_of(scope) {
            if normal_domain(import.domain.as_deref().unwrap_or_default()) == normal_domain(domain) {
                import.version = Some(version);
            }
        }
    }

    /// Declares that a version of a domain holds in a scope, unless it imports one.
    pub(super) fn import(&mut self, scope: ScopeId, domain: &str, version: i64) {
        if self.opset(scope, domain).is_none() {
            let import = OperatorSetIdProto {
                domain: Some(domain.into()),
                version: Some(version),
                ..OperatorSetIdProto::default()
            };
            self.imports_of(scope).push(import);
        }
    }

    fn imports_of(&mut self, scope: ScopeId) -> &mut Vec<OperatorSetIdProto> {
        let root = self.root_of(scope);
        match &mut self.scopes[root].kind {
            ScopeKind::Function(rest) => &mut rest.opset_import,
            _ => &mut self.header.opset_import,
        }
    }

    /// Declares `version` of the format, unless the model declares it or a later one.
    ///
    /// Before IR version 4 every constant is listed as an input too, and nobody can override it. Where the model leaves
    /// that behind, its constants are inputs no more, and so stay constants.
    pub fn raise_ir_version(&mut self, version: i64) {
        let declared = self.header.ir_version.unwrap_or(0);
        if declared >= version {
            return;
        }
        self.header.ir_version = Some(version);
        if declared >= FREE_CONSTANTS || version < FREE_CONSTANTS {
            return;
        }
        let (main, values) = (self.main, &mut self.values);
        self.scopes[main].inputs.retain(|port| match &mut values[port.value].def {
            Def::Input { default, .. } => match default.take() {
                Some(constant) => {
                    values[port.value].def = Def::Constant { scope: main, constant, origin: None };
                    false
                }
                None => true,
            },
            _ => true,
        });
    }
}
