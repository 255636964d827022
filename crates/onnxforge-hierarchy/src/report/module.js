// The selected module, on the right: overview and nodes.

// ---------------------------------------------------------------- the selected module

const details = document.getElementById("details");
const TABS = { overview: drawOverview, nodes: drawNodes };

function drawDetails() {
  const body = el("div", { class: "body", id: "tab", role: "tabpanel" });
  details.replaceChildren(moduleHead(state.module), body);
  TABS[state.tab](state.module, body);
}

function moduleHead(index) {
  const module = modules[index];
  const above = ancestors(index);
  const crumbs = above.slice(-6).map((ancestor) => moduleLink(ancestor, ancestor === 0 ? fullName(0) : ownPath(ancestor)));
  if (above.length > 6) crumbs.unshift(el("span", { class: "dim" }, "…"));
  const tab = (name, title, number) => button({
    role: "tab", "aria-selected": String(state.tab === name), "data-tab": name, onclick: () => openTab(name),
  }, title, number !== null && el("small", {}, count(number)));
  return el("div", { class: "module-head" },
    el("div", { class: "crumbs" }, crumbs.length ? crumbs : el("span", { class: "dim" }, "The whole model")),
    el("h2", { id: "selected" }, el("span", {}, ownPath(index) || fullName(index)),
      module.path && module.class && el("span", { class: "class" }, module.class)),
    el("div", { class: "tabs", role: "tablist" },
      tab("overview", "Overview", null), tab("nodes", "Nodes", nodesOf(index).length)));
}

function drawOverview(index, body) {
  const module = modules[index];
  const cards = METRICS.map((metric) => metricCard(module, metric));
  if (module.before !== null) cards.push(beforeCard(module));
  body.append(el("div", { class: "cards" }, cards),
    ...notices(module), identity(module));
  if (!nodesOf(index).length && !module.weights.length) return;
  const inputs = connections("Inputs", module.inputs, "from", "model input");
  const outputs = connections("Outputs", module.outputs, "to", "model output");
  body.append(el("div", { class: "pair" }, el("div", {}, inputs, outputs, weights(module)), operators(index)));
}

function metricCard(module, { key, name, format, spell = count }) {
  const value = all(module, key);
  const part = share(value, all(root, key));
  const own = module[key]?.own;
  const lines = [];
  if (value !== null && module !== root) lines.push(`${percent(part)} of all`);
  if (own && own !== value) lines.push(`${format(own)} own`);
  const note = key === "flops" && model.flops_note;
  if (module === root && note) lines.push(note);
  return el("div", { class: "card", title: [`${name}: ${spell(value)}`, note].filter(Boolean).join("\n"), "data-metric": key },
    el("h3", {}, name), el("strong", {}, format(value)), bar(part), lines.map((line) => el("p", {}, line)));
}

function beforeCard({ before, nodes: { all: after } }) {
  const title = `${plural(before, "node")} before the optimizer, ${count(after)} after`;
  return el("div", { class: "card", "data-metric": "before", title },
    el("h3", {}, "Optimizer"), el("strong", {}, before === after ? "0 %" : change(before, after)),
    bar(share(after, before), kindOfChange(before, after)),
    el("p", {}, `${count(before)} before`), el("p", {}, `${count(after)} after`));
}

function notices(module) {
  const some = [];
  if (module.without) some.push(el("p", { class: "notice" }, el("b", {}, "No nodes: "), module.without));
  if (module.shared) {
    const belong = module.shared === 1 ? "belongs" : "belong";
    some.push(el("p", { class: "notice" }, el("b", {}, plural(module.shared, "node")), ` also ${belong} to modules outside of this one.`));
  }
  return some;
}

function identity(module) {
  const line = (title, text, what) =>
    text && [el("dt", {}, title), el("dd", {}, tail("code", { class: what }, text), copyButton(text, what))];
  return el("dl", { class: "identity" }, line("Tag", module.tag, "tag"), line("Path", module.path, "path"),
    line("Class", module.full_class || module.class, "class"), line("Extract", module.extract, "command"));
}

function panel(title, number, ...content) {
  return el("section", { class: "panel" }, el("h3", {}, title, number !== null && el("small", {}, count(number))), ...content);
}

const nothing = (text) => el("p", { class: "dim nothing" }, text);

/** A panel with a list of values, each with its name and type and what `more` makes of it. */
function valuePanel(title, values, otherwise, more) {
  const item = (value) => el("li", {},
    el("div", {}, tail("code", {}, value.name), el("span", { class: "type", title: value.type }, value.type)), more(value));
  return panel(title, values.length, values.length ? limited(el("ul", { class: "values" }), values, 12, item) : nothing(otherwise));
}

function connections(title, values, direction, outside) {
  return valuePanel(title, values, "None", (value) => {
    const chips = el("div", { class: "chips" }, el("span", { class: "dim" }, value[direction].length ? direction : outside));
    return limited(chips, value[direction], 4, (index) => moduleLink(index));
  });
}

function weights(module) {
  const below = module.parameters.all;
  const otherwise = below ? `None of its own, ${short(below)} parameters below` : "None";
  return valuePanel("Weights", module.weights, otherwise, (weight) => el("div", { class: "dim" }, bytes(weight.bytes)));
}

function operators(index) {
  const some = nodesOf(index);
  if (!some.length) return panel("Operators", 0, nothing("None"));
  const ops = tally(nodes.op, some);
  const evidence = Object.fromEntries(tally(nodes.evidence, some));
  const kinds = ["exact", "inferred", "root"].map((kind) => [kind, evidence[kind] ?? 0]);
  const open = (op) => () => openTab("nodes", `op:${op}`);
  const line = ([op, number]) => button({ class: "op", title: `Show the nodes that are ${op}`, onclick: open(op) },
    el("span", {}, op), bar(number / ops[0][1]), el("span", { class: "amount" }, count(number)));
  const legend = kinds.map(([kind, number]) => number > 0 && el("span", { class: "legend" }, badge(kind), count(number)));
  return panel("Operators", ops.length, limited(el("div", { class: "ops" }), ops, 12, line),
    el("div", { class: "evidence" }, stacked(kinds), legend));
}

function badge(kind, why) {
  return el("span", { class: `badge ${["exact", "inferred", "root"].includes(kind) ? kind : ""}`, title: why }, kind);
}

// ---------------------------------------------------------------- nodes

/** Whether a node has every term of the filter: `column:value` is that value, anything else occurs somewhere. */
function nodeFilter(text) {
  const terms = text.toLowerCase().split(/\s+/).filter(Boolean).map((term) => {
    const [column, value] = [term.slice(0, term.indexOf(":")), term.slice(term.indexOf(":") + 1)];
    if (["op", "category", "evidence"].includes(column)) return (node) => String(nodes[column][node]).toLowerCase() === value;
    return (node) => haystack(node).includes(term);
  });
  return (node) => terms.every((term) => term(node));
}

function haystack(node) {
  haystack.texts ??= [];
  return (haystack.texts[node] ??= [
    nodes.name[node], nodes.op[node], nodes.category[node], nodes.evidence[node], nodes.output[node],
    ...nodes.modules[node].map((owner) => modules[owner].path),
  ].join("\n").toLowerCase());
}

function drawNodes(index, body) {
  const some = nodesOf(index);
  let shown = [];
  const size = el("span", { class: "dim", id: "shown" });
  const box = el("input", {
    id: "filter", type: "search", placeholder: "Filter nodes, or op:Conv evidence:root", "aria-label": "Filter nodes",
    spellcheck: "false", autocomplete: "off",
  });
  const rows = el("div", { class: "node-rows" });
  const scroller = el("div", { class: "scroller", id: "nodes", tabindex: 0, "aria-label": "Nodes" },
    el("div", { class: "node head" }, ["Node", "Operator", "Module", "Evidence"].map((title) => el("span", {}, title))), rows);
  body.classList.add("filled");
  body.append(el("div", { class: "toolbar" }, box, size), scroller);
  const list = virtualList(scroller, rows, 48, (row) => nodeRow(shown[row]));
  const filter = () => {
    state.filter = box.value;
    shown = some.filter(nodeFilter(box.value));
    const whole = plural(some.length, "node");
    size.textContent = shown.length === some.length ? whole : `${count(shown.length)} of ${whole}`;
    scroller.scrollTop = 0;
    list.show(shown.length);
  };
  box.value = state.filter;
  box.addEventListener("input", filter);
  filter();
}

function nodeRow(node) {
  const [owner, ...others] = nodes.modules[node];
  const cell = (top, below) => el("span", {}, tail("span", {}, top), tail("small", {}, below));
  return el("div", { class: "node", "data-node": node },
    cell(nodes.name[node] || "unnamed", nodes.output[node]), cell(nodes.op[node], nodes.category[node]),
    el("span", {}, owner !== undefined && moduleLink(owner), others.length ? alsoIn(others) : el("small", {}, modules[owner]?.class)),
    el("span", {}, badge(nodes.evidence[node], known(nodes, node)), el("small", { title: known(nodes, node) }, known(nodes, node))));
}

function alsoIn(others) {
  const title = others.slice(0, 30).map(fullName).join("\n");
  return el("span", { class: "also", title }, "also in ", others.length === 1 ? moduleLink(others[0]) : `${count(others.length)} others`);
}
