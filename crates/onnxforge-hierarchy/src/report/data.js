// What the report knows: modules as a tree, nodes, and how numbers are written.
// These files are one module: dagre.min.js, data.js, elements.js, tree.js, module.js, graph.js, page.js, in this order.

// ---------------------------------------------------------------- data

const data = JSON.parse(document.getElementById("data").textContent);
const { model, modules, nodes } = data;
const root = modules[0];
const hierarchy = arrange(modules);
const keys = modules.map(keyOf);
const byKey = new Map(keys.map((key, index) => [key, index]));

const METRICS = [
  { key: "nodes", title: "Nodes", name: "Nodes", format: count },
  { key: "parameters", title: "Params", name: "Parameters", format: short },
  { key: "bytes", title: "Size", name: "Size", format: bytes },
  { key: "flops", title: "FLOPs", name: "FLOPs", format: short },
  { key: "time", title: "Time", name: "Time of a run", format: milliseconds, spell: milliseconds, heat: true },
].filter(({ key }) => modules.some((module) => module[key]));
const hasBefore = modules.some((module) => module.before !== null);
const withoutNodes = modules.map((_, index) => index).filter((index) => modules[index].without);

/** What is shown now. Module, view and tab are also in the URL's hash. */
const state = { module: 0, view: "modules", tab: "overview", sort: "order", label: "path", query: "", filter: "" };

/** Children, depths and subtrees. Parents come before their children, so one walk each way is enough, however deep. */
function arrange(modules) {
  const parent = modules.map((module) => module.parent ?? 0);
  const children = modules.map(() => []);
  const depth = new Int32Array(modules.length);
  const size = new Int32Array(modules.length).fill(1);
  const start = new Int32Array(modules.length);
  const free = new Int32Array(modules.length).fill(1);
  for (let index = modules.length - 1; index > 0; index--) size[parent[index]] += size[index];
  for (let index = 1; index < modules.length; index++) {
    children[parent[index]].push(index);
    depth[index] = depth[parent[index]] + 1;
    start[index] = free[parent[index]];
    free[parent[index]] += size[index];
    free[index] = start[index] + 1;
  }
  const inside = (index, top) => start[index] >= start[top] && start[index] < start[top] + size[top];
  return { parent, children, depth, inside };
}

/** The name of a module in the URL: its path, with its index where the path is not its alone. */
function keyOf(module, index) {
  keyOf.seen ??= new Set();
  const key = keyOf.seen.has(module.path) ? `${module.path}#${index}` : module.path;
  keyOf.seen.add(key);
  return key;
}

/** A module's ancestors, the root first. */
function ancestors(index) {
  const found = [];
  while (index !== 0) found.push((index = hierarchy.parent[index]));
  return found.reverse();
}

/** The nodes of a module and of all below it. */
function nodesOf(top) {
  if (nodesOf.top !== top) {
    nodesOf.top = top;
    nodesOf.found = [];
    nodes.modules.forEach((owners, node) => {
      if (owners.some((owner) => hierarchy.inside(owner, top))) nodesOf.found.push(node);
    });
  }
  return nodesOf.found;
}

/** How often each value of a column occurs among some nodes, the most frequent first. */
function tally(column, some) {
  const counts = new Map();
  for (const node of some) counts.set(column[node], (counts.get(column[node]) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

const all = (module, key) => module[key]?.all ?? null;
const share = (part, whole) => (whole > 0 ? Math.min(1, part / whole) : 0);

/** What the parent's text does not say: `layer.0` of `encoder.layer.0`. */
function ownPart(text, above, separator) {
  return above && text.startsWith(above + separator) ? text.slice(above.length + separator.length) : text;
}

function ownPath(index) {
  return index === 0 ? "" : ownPart(modules[index].path, modules[hierarchy.parent[index]].path, ".");
}

/** The class with its instance number, as the tag ends: `BertLayer.0`. */
function ownClass(index) {
  const { tag, class: name } = modules[index];
  const last = (tag ?? "").slice((tag ?? "").lastIndexOf("/") + 1);
  return name && last.startsWith(name) ? last : name || last;
}

const fullName = (index) => modules[index].path || root.class || data.title;

// ---------------------------------------------------------------- numbers

const grouped = new Intl.NumberFormat("en-US");

function count(value) {
  return value === null ? "–" : grouped.format(value);
}

function scaled(value, units) {
  if (value === null) return "–";
  let unit = 0;
  let rest = Math.abs(value);
  while (rest >= 999.5 && unit < units.length - 1) {
    rest /= 1000;
    unit++;
  }
  const digits = unit === 0 || rest >= 99.95 ? 0 : 1;
  return `${value < 0 ? "−" : ""}${rest.toFixed(digits)}${units[unit] && ` ${units[unit]}`}`;
}

function short(value) {
  return scaled(value, ["", "K", "M", "G", "T", "P"]);
}

function bytes(value) {
  return scaled(value, ["B", "kB", "MB", "GB", "TB"]);
}

function milliseconds(value) {
  if (value === null) return "–";
  const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 ? 2 : 3;
  return `${value.toFixed(digits)} ms`;
}

function percent(fraction) {
  if (fraction > 0 && fraction < 0.001) return "< 0.1 %";
  if (fraction > 0.999 && fraction < 1) return "> 99.9 %";
  return `${(100 * fraction).toFixed(fraction === 0 || fraction === 1 ? 0 : 1)} %`;
}

function signed(value) {
  return value < 0 ? `−${count(-value)}` : value > 0 ? `+${count(value)}` : "0";
}

/** How much more or less: in percent, or in nodes where that would say nothing. */
function change(before, after) {
  const part = Math.abs(before - after) / before;
  return part >= 0.001 && part < Infinity ? `${after <= before ? "−" : "+"}${percent(part)}` : signed(after - before);
}

const kindOfChange = (before, after) => (after < before ? "good" : after > before ? "bad" : "same");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
