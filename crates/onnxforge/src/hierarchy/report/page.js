// The report of one model: its module tree on the left, the selected module on the right.
// Every text of the model is hostile: it enters the document as text nodes and attributes that `el` sets, never as markup.

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

function percent(fraction) {
  if (fraction > 0 && fraction < 0.001) return "< 0.1 %";
  return `${(100 * fraction).toFixed(fraction === 0 || fraction === 1 ? 0 : 1)} %`;
}

function signed(value) {
  return value < 0 ? `−${count(-value)}` : value > 0 ? `+${count(value)}` : "0";
}

function change(before, after) {
  return before > 0 ? `${after <= before ? "−" : "+"}${percent(Math.abs(before - after) / before)}` : "–";
}

const kindOfChange = (before, after) => (after < before ? "good" : after > before ? "bad" : "same");
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

// ---------------------------------------------------------------- elements

/** An element. Properties: `class`, `style` (an object), `on…` (a listener), else an attribute. Strings become text. */
function el(name, properties, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") for (const [rule, text] of Object.entries(value)) element.style.setProperty(rule, text);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...content.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const button = (properties, ...content) => el("button", { type: "button", ...properties }, ...content);

function bar(fraction, kind) {
  return el("span", { class: `bar ${kind ?? ""}` }, el("i", { style: { width: `${(100 * fraction).toFixed(2)}%` } }));
}

/** A bar of several parts of a whole: `[kind, amount]` each. */
function stacked(parts) {
  const whole = parts.reduce((sum, [, amount]) => sum + amount, 0);
  return el("span", { class: "bar stacked" }, parts.map(([kind, amount]) => amount > 0 &&
    el("i", { class: kind, style: { width: `${(100 * share(amount, whole)).toFixed(2)}%` } })));
}

/** The text with every occurrence of the search marked. */
function marked(text) {
  const query = state.query;
  const found = query ? text.toLowerCase().indexOf(query) : -1;
  if (found < 0) return [text];
  return [text.slice(0, found), el("mark", {}, text.slice(found, found + query.length)), text.slice(found + query.length)];
}

/** A text of which, where room is short, the end stays: names of nodes and modules differ there. */
function tail(name, properties, text) {
  return el(name, { title: text, ...properties, class: `tail ${properties?.class ?? ""}` }, el("bdi", {}, text));
}

function moduleLink(index, text) {
  const { tag, class: name, path } = modules[index];
  const title = [path, name, tag].filter(Boolean).join("\n");
  return tail("button", { type: "button", class: "module", title, onclick: () => select(index, "modules") }, text ?? fullName(index));
}

function copyButton(text, what) {
  const copied = async () => {
    await copy(text);
    self.textContent = "Copied";
    self.classList.add("done");
    setTimeout(() => {
      self.textContent = "Copy";
      self.classList.remove("done");
    }, 1500);
  };
  const self = button({ class: "copy", "aria-label": `Copy ${what}`, onclick: copied }, "Copy");
  return self;
}

/** To the clipboard, also where the browser keeps its newer interface from pages that come from a file. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "offscreen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** The first of many things, and a button for more of them. */
function limited(container, list, limit, make) {
  let shown = 0;
  const more = button({ class: "more", onclick: () => grow(10 * limit) });
  const grow = (amount) => {
    more.remove();
    container.append(...list.slice(shown, shown + amount).map(make));
    shown = Math.min(list.length, shown + amount);
    more.textContent = `${count(list.length - shown)} more`;
    if (shown < list.length) container.append(more);
  };
  grow(limit);
  return container;
}

/** Rows of equal height in `body`, of which only those in sight of `scroller` exist. */
function virtualList(scroller, body, height, make) {
  const present = new Map();
  let length = 0;
  const draw = () => {
    const top = scroller.scrollTop - body.offsetTop;
    const first = Math.max(0, Math.floor(top / height) - 4);
    const last = Math.min(length, Math.ceil((top + scroller.clientHeight) / height) + 4);
    for (const [row, element] of present) {
      if (row >= first && row < last) continue;
      element.remove();
      present.delete(row);
    }
    for (let row = first; row < last; row++) {
      if (present.has(row)) continue;
      const element = make(row);
      element.style.top = `${row * height}px`;
      present.set(row, element);
      body.append(element);
    }
  };
  scroller.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(scroller);
  return {
    /** Draws anew, with so many rows. */
    show(rows) {
      length = rows;
      present.clear();
      body.replaceChildren();
      body.style.height = `${rows * height}px`;
      draw();
    },
    /** Scrolls as little as it takes to see a row. */
    reveal(row) {
      const room = scroller.clientHeight - body.offsetTop - height;
      if (room <= 0) return;
      const above = row * height;
      scroller.scrollTop = Math.min(above, Math.max(scroller.scrollTop, above - room));
      draw();
    },
    page: () => Math.max(1, Math.floor((scroller.clientHeight - body.offsetTop) / height) - 1),
  };
}

// ---------------------------------------------------------------- tree

const treeElement = document.getElementById("tree");
const sortChoice = document.getElementById("sort");
const labelChoices = document.querySelectorAll("[data-label]");
const searchBox = document.getElementById("search");
const tree = virtualList(treeElement, document.getElementById("rows"), 34, (row) => treeRow(visible[row], row));
let visible = [];
let expanded = firstLevels(24);
/** While a search is on: what matches, what has a match below, and what the user opened or closed by hand. */
let found = null;

/** As many levels, from the top, as fit into so many rows. */
function firstLevels(rows) {
  const open = new Set();
  let level = [0];
  let total = 1;
  while (level.length && (total += level.reduce((sum, index) => sum + hierarchy.children[index].length, 0)) <= rows) {
    level.forEach((index) => open.add(index));
    level = level.flatMap((index) => hierarchy.children[index]);
  }
  return open.add(0);
}

/** Whether the search is in the class, or in the path or tag and not only in what they say of the module above. */
function matches(index, query) {
  const module = modules[index];
  const above = index === 0 ? { path: "", tag: "" } : modules[hierarchy.parent[index]];
  const reaches = (text, prefix) => {
    const position = (text ?? "").toLowerCase().lastIndexOf(query);
    return position >= 0 && position + query.length > (text.startsWith(prefix) ? prefix.length : 0);
  };
  const named = (module.class ?? "").toLowerCase().includes(query);
  return named || reaches(module.path, above.path) || reaches(module.tag, above.tag ?? "");
}

function search(text) {
  state.query = text.trim().toLowerCase();
  found = null;
  if (state.query) {
    found = { matching: new Set(), above: new Set(), toggled: new Set() };
    for (let index = modules.length - 1; index >= 0; index--) {
      const matching = matches(index, state.query);
      if (matching) found.matching.add(index);
      if (index > 0 && (matching || found.above.has(index))) found.above.add(hierarchy.parent[index]);
    }
  }
  treeElement.classList.toggle("searching", found !== null);
  document.getElementById("matches").textContent = found ? `${count(found.matching.size)} found` : "";
  treeElement.scrollTop = 0;
  drawTree();
}

/** The children that a module shows when it is open: in a search those on the way to matches, below a match all. */
function shownChildren(index) {
  const children = hierarchy.children[index];
  if (!found?.above.has(index)) return children;
  return children.filter((child) => found.above.has(child) || found.matching.has(child));
}

function isOpen(index) {
  return found ? found.above.has(index) !== found.toggled.has(index) : expanded.has(index);
}

function setOpen(index, open) {
  if (isOpen(index) === open || !hierarchy.children[index].length) return;
  const set = found ? found.toggled : expanded;
  if (set.has(index)) set.delete(index);
  else set.add(index);
  drawTree();
}

function setAll(open) {
  const parents = modules.map((_, index) => index).filter((index) => hierarchy.children[index].length);
  if (found) found.toggled = new Set(parents.filter((index) => found.above.has(index) !== (open || index === 0)));
  else expanded = new Set(open ? parents : [0]);
  drawTree();
}

const SORTS = {
  order: { title: "Model order" },
  name: { title: "Name", compare: (a, b) => ownPath(a).localeCompare(ownPath(b), "en", { numeric: true }) },
  ...Object.fromEntries(METRICS.map(({ key, name }) => [key, { title: name, compare: (a, b) => amount(b, key) - amount(a, key) }])),
  ...(hasBefore && { before: { title: "Nodes saved", compare: (a, b) => saved(b) - saved(a) } }),
};

const amount = (index, key) => all(modules[index], key) ?? 0;
const saved = (index) => (modules[index].before === null ? 0 : modules[index].before - modules[index].nodes.all);

function drawTree() {
  const { compare } = SORTS[state.sort];
  visible = [];
  const waiting = [0];
  while (waiting.length) {
    const index = waiting.pop();
    visible.push(index);
    if (!isOpen(index)) continue;
    const children = [...shownChildren(index)];
    if (compare) children.sort(compare);
    for (const child of children.reverse()) waiting.push(child);
  }
  if (found && !found.matching.size) visible = [];
  tree.show(visible.length);
  markActive();
}

function treeRow(index, row) {
  const module = modules[index];
  const branches = hierarchy.children[index].length > 0;
  const labels = [ownPath(index) || fullName(0), ownClass(index)];
  if (state.label === "class" && labels[1]) labels.reverse();
  const [name, aside] = labels;
  const classes = ["row", index === state.module && "selected", !module.nodes.all && "empty", found?.matching.has(index) && "match"];
  const title = [module.path, module.tag].filter(Boolean).join("\n");
  return el("div", {
    class: classes.filter(Boolean).join(" "), id: `row-${index}`, role: "treeitem", "data-row": row,
    "aria-level": hierarchy.depth[index] + 1, "aria-selected": String(index === state.module),
    "aria-expanded": branches ? String(isOpen(index)) : null,
  },
  el("span", { class: "name", style: { "--depth": Math.min(hierarchy.depth[index], 12) }, title },
    el("span", { class: branches ? `twisty ${isOpen(index) ? "open" : ""}` : "twisty none" }),
    el("span", { class: "labels" }, el("b", {}, marked(name)), name !== aside && el("span", { class: "aside" }, marked(aside)))),
  METRICS.map((metric) => metricCell(module, metric)),
  hasBefore && beforeCell(index));
}

function metricCell(module, { key, name, format }) {
  const value = all(module, key);
  const part = share(value, all(root, key));
  const title = value === null ? `${name}: not known` : `${name}: ${count(value)}, ${percent(part)} of the model`;
  const sorted = state.sort === key ? "sorted" : "";
  return el("span", { class: `number ${sorted}`, title }, el("span", {}, value === 0 ? "0" : format(value)), bar(part));
}

function beforeCell(index) {
  const { before, nodes: { all: after } } = modules[index];
  if (before === null) return el("span", { class: "number before" }, el("span", {}, "–"), bar(0));
  const kind = kindOfChange(before, after);
  return el("span", { class: "number before", title: `${plural(before, "node")} before the optimizer, ${count(after)} after` },
    el("span", {}, count(before), el("em", { class: kind }, before === after ? "" : change(before, after))),
    bar(share(after, before), kind));
}

function drawColumns() {
  const sortable = (key, title) => button({
    class: state.sort === key ? "sorted" : "", "data-sort": key, tabindex: -1,
    onclick: () => sortBy(state.sort === key ? "order" : key),
  }, title);
  document.getElementById("columns").replaceChildren(sortable("name", "Module"),
    ...METRICS.map(({ key, title }) => sortable(key, title)), ...(hasBefore ? [sortable("before", "Before")] : []));
}

function sortBy(key) {
  state.sort = key;
  sortChoice.value = key;
  drawColumns();
  drawTree();
}

function labelBy(label) {
  state.label = label;
  for (const choice of labelChoices) choice.setAttribute("aria-pressed", String(choice.dataset.label === label));
  drawTree();
}

function markActive() {
  const row = visible.indexOf(state.module);
  if (row >= 0) treeElement.setAttribute("aria-activedescendant", `row-${state.module}`);
  else treeElement.removeAttribute("aria-activedescendant");
  return row;
}

/** Makes sure that the tree shows the selected module. */
function revealSelected() {
  if (found && !visible.includes(state.module)) {
    searchBox.value = "";
    search("");
  }
  if (!found) ancestors(state.module).forEach((index) => expanded.add(index));
  drawTree();
  tree.reveal(markActive());
}

function onTreeKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !visible.length) return;
  const row = visible.indexOf(state.module);
  const step = (to) => select(visible[Math.max(0, Math.min(visible.length - 1, to))], "modules", true);
  const open = isOpen(state.module) && shownChildren(state.module).length > 0;
  const actions = {
    ArrowDown: () => step(row + 1),
    ArrowUp: () => step(row - 1),
    PageDown: () => step(row + tree.page()),
    PageUp: () => step(row - tree.page()),
    Home: () => step(0),
    End: () => step(visible.length - 1),
    ArrowRight: () => (open ? step(row + 1) : setOpen(state.module, true)),
    ArrowLeft: () => (open ? setOpen(state.module, false) : select(hierarchy.parent[state.module], "modules", true)),
    Enter: () => setOpen(state.module, !open),
    " ": () => setOpen(state.module, !open),
    "*": () => setAll(true),
  };
  if (!Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
}

function onTreeClick(event) {
  const element = event.target.closest(".row[data-row]");
  if (!element) return;
  const index = visible[Number(element.dataset.row)];
  if (event.target.closest(".twisty:not(.none)")) setOpen(index, !isOpen(index));
  else if (event.detail === 2) setOpen(index, !isOpen(index));
  else select(index, "modules");
}

/** In the search box: Enter goes from match to match, the arrow down into the tree, Escape ends the search. */
function onSearchKey(event) {
  if (event.key === "Escape") {
    searchBox.value = "";
    search("");
  } else if (event.key === "ArrowDown") {
    event.preventDefault();
    treeElement.focus();
  } else if (event.key === "Enter" && found?.matching.size) {
    const rows = visible.filter((index) => found.matching.has(index));
    if (rows.length) select(rows[(rows.indexOf(state.module) + 1) % rows.length], "modules");
  }
}

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

function metricCard(module, { key, name, format }) {
  const value = all(module, key);
  const part = share(value, all(root, key));
  const own = module[key]?.own;
  const lines = [];
  if (value !== null && module !== root) lines.push(`${percent(part)} of all`);
  if (own && own !== value) lines.push(`${format(own)} own`);
  const note = key === "flops" && model.flops_note;
  if (module === root && note) lines.push(note);
  return el("div", { class: "card", title: [`${name}: ${count(value)}`, note].filter(Boolean).join("\n"), "data-metric": key },
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
    el("span", {}, badge(nodes.evidence[node], nodes.why[node]), el("small", { title: nodes.why[node] }, nodes.why[node])));
}

function alsoIn(others) {
  const title = others.slice(0, 30).map(fullName).join("\n");
  return el("span", { class: "also", title }, "also in ", others.length === 1 ? moduleLink(others[0]) : `${count(others.length)} others`);
}

// ---------------------------------------------------------------- the whole model

const overview = document.getElementById("overview");
const VIEWS = {
  modules: { title: "Modules", draw: () => drawDetails() },
  coverage: { title: "Coverage", number: () => data.categories.filter(({ ok }) => !ok).length, draw: drawCoverage },
  without: { title: "Without nodes", number: () => withoutNodes.length, draw: drawWithout },
  ...(data.optimization && { optimizer: { title: "Optimizer", draw: drawOptimizer } }),
};

function sheet(title, text, ...content) {
  overview.replaceChildren(el("div", { class: "sheet" }, el("h2", {}, title), el("p", { class: "lead" }, text), ...content));
}

function table(classes, columns, rows) {
  return el("table", { class: classes }, el("thead", {}, el("tr", {}, columns.map((title) => el("th", {}, title)))),
    limited(el("tbody", {}), rows, 100, (cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))));
}

function drawCoverage() {
  const below = data.categories.filter(({ ok }) => !ok);
  const sum = (key) => data.categories.reduce((total, category) => total + category[key], 0);
  const open = (filter) => () => select(0, "modules", false, "nodes", filter);
  const nodesWith = (number, filter) => (number ? button({ class: "link", onclick: open(filter) }, count(number)) : "0");
  const kinds = ["exact", "inferred", "root"];
  const columns = ["Category", "Nodes", "Exact", "Inferred", "Root", "Coverage", "", "Threshold", ""];
  const some = `${count(below.length)} of ${count(data.categories.length)} categories below the threshold`;
  sheet(below.length ? some : "Every category is covered",
    `Of ${plural(sum("nodes"), "node")}, ${count(sum("exact"))} name their module, ${count(sum("inferred"))} were inferred ` +
      `from their neighbours, and ${count(sum("root"))} are left to the model as a whole.`,
    table("coverage", columns, data.categories.map((category) => [
      el("b", {}, category.category), nodesWith(category.nodes, `category:${category.category}`),
      ...kinds.map((kind) => nodesWith(category[kind], `category:${category.category} evidence:${kind}`)),
      el("span", { class: "meter" }, bar(category.coverage, category.ok ? "good" : "bad"),
        category.threshold !== null && el("i", { class: "tick", style: { left: `${100 * category.threshold}%` } })),
      percent(category.coverage), category.threshold === null ? "–" : percent(category.threshold),
      el("span", { class: `verdict ${category.ok ? "good" : "bad"}` }, category.ok ? "ok" : "below"),
    ])));
}

function drawWithout() {
  const reasons = new Map();
  for (const index of withoutNodes) {
    const why = modules[index].without;
    if (!reasons.has(why)) reasons.set(why, []);
    reasons.get(why).push(index);
  }
  const groups = [...reasons].sort((a, b) => b[1].length - a[1].length);
  sheet(`${plural(withoutNodes.length, "module")} without nodes`,
    "Modules of the original program that left no node in this model, and why.",
    limited(el("div", { class: "reasons" }), groups, 30, ([why, some]) => panel(why, some.length,
      limited(el("div", { class: "chips" }), some, 24, (index) => moduleLink(index)))));
}

function drawOptimizer() {
  const { before, after, passes } = data.optimization;
  const most = Math.max(1, ...passes.map((pass) => Math.abs(pass.nodes)));
  const savers = modules.map((_, index) => index).filter((index) => index && saved(index) > 0);
  savers.sort((a, b) => saved(b) - saved(a)).splice(12);
  const saver = (index) => {
    const { before: had, nodes: { all: has } } = modules[index];
    return [moduleLink(index), count(had), count(has), el("em", { class: "good" }, change(had, has))];
  };
  const difference = `${percent(share(Math.abs(before - after), before))} ${after < before ? "fewer" : "more"} nodes.`;
  sheet(`${count(before)} → ${plural(after, "node")}`, before === after ? "As many nodes as before." : difference,
    el("div", { class: "pair" },
      panel("Passes", passes.length, table("passes", ["Pass", "Edits", "Nodes", ""], passes.map((pass) => [
        el("code", {}, pass.pass), count(pass.edits), signed(pass.nodes), bar(Math.abs(pass.nodes) / most)]))),
      savers.length > 0 && panel("Where most nodes went", null,
        table("savers", ["Module", "Before", "After", "Change"], savers.map(saver)))));
}

function drawHeader() {
  document.title = `${data.title} · onnxforge`;
  document.getElementById("title").textContent = data.title;
  document.getElementById("origin").textContent = [model.producer, `opset ${model.opset}`].filter(Boolean).join(" · ");
  document.getElementById("origin").title = model.file;
  const fact = (name, value, title) => el("div", { title }, el("dt", {}, name), el("dd", {}, value));
  const facts = [
    fact("Modules", count(modules.length)), fact("Nodes", count(model.nodes)),
    fact("Parameters", short(model.parameters), count(model.parameters)), fact("Size", bytes(model.bytes), `${count(model.bytes)} bytes`),
  ];
  const note = [count(model.flops), model.flops_note].filter(Boolean).join("\n");
  if (model.flops !== null) facts.push(fact("FLOPs", short(model.flops), note));
  document.getElementById("facts").replaceChildren(...facts);
}

function drawViews() {
  document.getElementById("views").replaceChildren(...Object.entries(VIEWS).map(([name, { title, number }]) => {
    const many = number?.() ?? 0;
    const selected = String(state.view === name);
    return button({ role: "tab", "data-view": name, "aria-selected": selected, onclick: () => select(state.module, name) }, title,
      many > 0 && el("small", { class: name === "coverage" ? "bad" : "" }, count(many)));
  }));
}

// ---------------------------------------------------------------- selection

/** Shows a module or a view of the model, and notes it in the URL; `quietly` makes no entry in the browser's history. */
function select(index, view, quietly = false, tab = state.tab, filter = "") {
  const hash = new URLSearchParams({ module: keys[index], ...(view !== "modules" && { view }), ...(tab !== "overview" && { tab }) });
  const changed = index !== state.module || view !== state.view || tab !== state.tab;
  if (changed) history[quietly ? "replaceState" : "pushState"](null, "", `#${hash}`);
  show(index, view, tab, filter);
}

function openTab(tab, filter = "") {
  select(state.module, "modules", false, tab, filter);
}

function show(index, view, tab, filter = "") {
  Object.assign(state, { module: index, view, tab, filter });
  overview.hidden = view === "modules";
  details.hidden = document.getElementById("browser").hidden = view !== "modules";
  drawViews();
  VIEWS[view].draw();
  if (view === "modules") revealSelected();
}

function showHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const known = (table, name, otherwise) => (Object.hasOwn(table, name ?? "") ? name : otherwise);
  const index = byKey.get(hash.get("module") ?? "") ?? 0;
  show(index, known(VIEWS, hash.get("view"), "modules"), known(TABS, hash.get("tab"), "overview"));
}

function listen() {
  treeElement.addEventListener("keydown", onTreeKey);
  treeElement.addEventListener("click", onTreeClick);
  searchBox.addEventListener("input", () => search(searchBox.value));
  searchBox.addEventListener("keydown", onSearchKey);
  sortChoice.append(...Object.entries(SORTS).map(([key, { title }]) => el("option", { value: key }, title)));
  sortChoice.addEventListener("change", () => sortBy(sortChoice.value));
  document.getElementById("expand").addEventListener("click", () => setAll(true));
  document.getElementById("collapse").addEventListener("click", () => setAll(false));
  for (const choice of labelChoices) choice.addEventListener("click", () => labelBy(choice.dataset.label));
  addEventListener("popstate", showHash);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.closest("input, select")) return;
    event.preventDefault();
    searchBox.focus();
  });
}

document.documentElement.style.setProperty("--metrics", METRICS.length);
document.documentElement.classList.toggle("has-before", hasBefore);
listen();
drawHeader();
drawColumns();
labelBy("path");
showHash();
document.body.dataset.ready = "1";
performance.mark("ready");
