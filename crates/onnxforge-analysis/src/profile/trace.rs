//! A run in the format of Chrome's traces, which Perfetto and chrome://tracing open: modules as slices around the nodes that run for them.

use serde_json::{Value as Json, json};

use super::Observed;
use onnxforge_hierarchy::{Hierarchy, ModuleId};

/// The events of a typical run. A module that is left and entered again has a slice each time.
pub fn trace(observed: &Observed, hierarchy: &Hierarchy, title: &str) -> Json {
    let table = hierarchy.table();
    let mut events = vec![json!({
        "ph": "M", "pid": 1, "tid": 1, "name": "process_name", "args": { "name": title },
    })];
    let slice = |name: &str, category: &str, start: f64, end: f64, args: Json| json!({ "ph": "X", "pid": 1, "tid": 1, "name": name, "cat": category, "ts": start, "dur": end - start, "args": args });
    // Modules that nodes are running for, the outermost first, each with when that began.
    let mut open: Vec<(ModuleId, f64)> = Vec::new();
    let mut now = 0.0;
    let calls = observed.typical().map(|run| run.calls.as_slice()).unwrap_or_default();
    let close = |open: &mut Vec<(ModuleId, f64)>, keep: usize, end: f64, events: &mut Vec<Json>| {
        while open.len() > keep
            && let Some((module, start)) = open.pop()
        {
            let module = table.get(module);
            let name = match (&*module.path, module.short_class()) {
                ("", class) => class.unwrap_or("model").to_owned(),
                (path, Some(class)) => format!("{path} ({class})"),
                (path, None) => path.to_owned(),
            };
            events.push(slice(
                &name,
                "module",
                start,
                end,
                json!({ "path": &*module.path, "class": module.class.as_deref() }),
            ));
        }
    };
    // The end of the call that others are bodies of: they stay inside of its slice.
    let mut outer = 0.0;
    for call in calls {
        let place = &observed.places[call.node];
        if call.start >= outer {
            let mut chain: Vec<ModuleId> = table.chain(place.module()).collect();
            chain.reverse();
            let same = open.iter().zip(&chain).take_while(|((module, _), wanted)| module == *wanted).count();
            close(&mut open, same, now, &mut events);
            open.extend(chain[same..].iter().map(|&module| (module, call.start)));
            outer = call.start + call.time;
            now = outer;
        }
        let args = json!({ "op": place.op, "module": &*table.get(place.module()).path, "certainty": place.certainty });
        events.push(slice(&place.name, "node", call.start, call.start + call.time, args));
    }
    close(&mut open, 0, now, &mut events);
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}
