//! What stands beside the graphs: metadata, devices, training.

use std::collections::HashSet;

use super::Checker;
use super::graph::Role;
use super::problem::{Here, Quoted, Rule, Step};
use super::suggest::{closest, question};
use onnxforge_proto::schema::{
    GraphProto, NodeProto, ShardingSpecProto, StringStringEntryProto, TrainingInfoProto,
};

impl<'m> Checker<'m> {
    /// Metadata below the model, where a key that occurs twice is only odd.
    pub(super) fn metadata(&mut self, entries: &[StringStringEntryProto], here: &Here<'_>) {
        if entries.is_empty() {
            return;
        }
        self.needs_ir(10, "metadata below the model", here);
        if let Some(key) = repeated(entries) {
            self.warning(
                Rule::DuplicateMetadata,
                here,
                format!("two metadata entries have the key {}", Quoted(key)),
            );
        }
    }

    /// The metadata of the model.
    pub(super) fn model_metadata(&mut self, here: &Here<'_>) {
        if let Some(key) = repeated(&self.model.metadata_props) {
            let message = format!("two metadata entries have the key {}; remove one of them", Quoted(key));
            self.error(Rule::DuplicateMetadata, here, message);
        }
    }

    /// The sets of devices that a model describes.
    pub(super) fn devices(&mut self, here: &Here<'_>) {
        for (index, configuration) in self.model.configuration.iter().enumerate() {
            let at = here.at(Step::listed("device configuration", index, configuration.name.as_ref()));
            self.needs_ir(11, "device configurations", &at);
            match configuration.name.as_deref().unwrap_or_default() {
                "" => self.error(Rule::DeviceConfiguration, &at, "the configuration has no name"),
                name if !self.configurations.insert(name) => {
                    let message = "another configuration has the same name; rename one of them";
                    self.warning(Rule::DeviceConfiguration, &at, message);
                }
                _ => {}
            }
            let names = configuration.device.len();
            match configuration.num_devices {
                None => self.error(Rule::DeviceConfiguration, &at, "the number of devices is missing"),
                Some(count) if names > 0 && usize::try_from(count) != Ok(names) => {
                    let message = format!("{names} devices are named, there are {count}");
                    self.error(Rule::DeviceConfiguration, &at, message);
                }
                Some(_) => {}
            }
        }
    }

    /// How a node is spread over devices.
    pub(super) fn node_devices(&mut self, node: &'m NodeProto, here: &Here<'_>) {
        if node.device_configurations.is_empty() {
            return;
        }
        let values: HashSet<&str> = node.input.iter().chain(&node.output).map(|value| &**value).collect();
        for (index, device) in node.device_configurations.iter().enumerate() {
            let at = here.at(Step::listed("device configuration", index, device.configuration_id.as_ref()));
            self.needs_ir(11, "device configurations", &at);
            let id = device.configuration_id.as_deref().unwrap_or_default();
            if id.is_empty() {
                self.error(Rule::DeviceConfiguration, &at, "the id of the configuration is missing");
            } else if !self.configurations.contains(id) {
                let names =
                    self.model.configuration.iter().filter_map(|configuration| configuration.name.as_deref());
                let hint = question(closest(&mut self.budget, id, names));
                let message = format!("the model has no device configuration {}{hint}", Quoted(id));
                self.error(Rule::DeviceConfiguration, &at, message);
            }
            for (index, spec) in device.sharding_spec.iter().enumerate() {
                let at = at.at(Step::listed("sharding", index, spec.tensor_name.as_ref()));
                let name = spec.tensor_name.as_deref().unwrap_or_default();
                if name.is_empty() || !values.contains(name) {
                    let names = node.input.iter().chain(&node.output).map(|value| &**value);
                    let hint = question(closest(&mut self.budget, name, names));
                    let message =
                        format!("{} is neither an input nor an output of the node{hint}", Quoted(name));
                    self.error(Rule::DeviceConfiguration, &at, message);
                }
                self.sharding(spec, &at);
            }
        }
    }

    fn sharding(&mut self, spec: &ShardingSpecProto, here: &Here<'_>) {
        for dim in &spec.sharded_dim {
            if dim.axis.is_none() {
                self.error(Rule::DeviceConfiguration, here, "a sharded dimension has no axis");
            }
            if dim.simple_sharding.iter().any(|piece| piece.num_shards.is_none_or(|shards| shards < 1)) {
                let message = "a sharded dimension has no number of shards, or one below 1";
                self.error(Rule::DeviceConfiguration, here, message);
            }
        }
    }

    /// How the model is trained. The scope of the main graph is the current one.
    pub(super) fn training(&mut self, here: &Here<'_>) {
        if self.model.training_info.is_empty() {
            return;
        }
        let main = Bindable::new(self.model.graph.as_deref());
        let mut updated = HashSet::new();
        for (index, training) in self.model.training_info.iter().enumerate() {
            let at = here.at(Step::listed("training", index, None));
            self.needs_ir(7, "training", &at);
            self.training_graphs(training, &at);
            let algorithm = Bindable::new(training.algorithm.as_deref());
            let initialization = Bindable::new(training.initialization.as_deref());
            let variables = [&main.initializers, &algorithm.initializers];
            let step = at.at(Step::named("initialization_binding", None));
            let entries = &training.initialization_binding;
            self.binding(entries, variables, &[&initialization.outputs], &mut HashSet::new(), &step);
            let step = at.at(Step::named("update_binding", None));
            let outputs = [&algorithm.outputs, &main.outputs];
            self.binding(&training.update_binding, variables, &outputs, &mut updated, &step);
        }
    }

    fn training_graphs(&mut self, training: &'m TrainingInfoProto, here: &Here<'_>) {
        if let Some(graph) = used(training.initialization.as_deref()) {
            let at = here.at(Step::named("initialization", None));
            if !graph.input.is_empty() {
                let message = "the graph has inputs; nothing is handed to an initialization";
                self.error(Rule::Training, &at, message);
            }
            // It sees nothing of the main graph.
            let main = std::mem::take(&mut self.scope);
            self.graph(graph, Role::Initialization, &at);
            self.leave();
            self.scope = main;
        }
        if let Some(graph) = used(training.algorithm.as_deref()) {
            self.graph(graph, Role::Algorithm, &here.at(Step::named("algorithm", None)));
            self.leave();
        }
    }

    fn binding(
        &mut self,
        entries: &'m [StringStringEntryProto],
        variables: [&HashSet<&str>; 2],
        outputs: &[&HashSet<&str>],
        seen: &mut HashSet<&'m str>,
        here: &Here<'_>,
    ) {
        for entry in entries {
            let key = entry.key.as_deref().unwrap_or_default();
            let value = entry.value.as_deref().unwrap_or_default();
            if !variables.iter().any(|names| names.contains(key)) {
                let message = format!(
                    "{} is set, but is no initializer of the main graph or the algorithm",
                    Quoted(key)
                );
                self.error(Rule::Training, here, message);
            }
            if !outputs.iter().any(|names| names.contains(value)) {
                let message =
                    format!("{} is set to {}, which is no output of the step", Quoted(key), Quoted(value));
                self.error(Rule::Training, here, message);
            }
            if !seen.insert(key) {
                self.error(Rule::Training, here, format!("{} is set twice; remove one of them", Quoted(key)));
            }
        }
    }
}

/// The names in a graph that bindings can speak of.
struct Bindable<'m> {
    initializers: HashSet<&'m str>,
    outputs: HashSet<&'m str>,
}

impl<'m> Bindable<'m> {
    fn new(graph: Option<&'m GraphProto>) -> Self {
        let sparse = graph.into_iter().flat_map(|graph| &graph.sparse_initializer);
        let sparse = sparse.filter_map(|tensor| tensor.values.as_deref());
        let tensors = graph.into_iter().flat_map(|graph| &graph.initializer).chain(sparse);
        let outputs = graph.into_iter().flat_map(|graph| &graph.output);
        Self {
            initializers: tensors.filter_map(|tensor| tensor.name.as_deref()).collect(),
            outputs: outputs.filter_map(|output| output.name.as_deref()).collect(),
        }
    }
}

/// The key that occurs a second time, if one does.
fn repeated(entries: &[StringStringEntryProto]) -> Option<&str> {
    let mut seen = HashSet::new();
    entries.iter().map(|entry| entry.key.as_deref().unwrap_or_default()).find(|key| !seen.insert(*key))
}

/// A graph that is there but empty counts as absent.
fn used(graph: Option<&GraphProto>) -> Option<&GraphProto> {
    graph.filter(|graph| **graph != GraphProto::default())
}
