// The tree of modules, on the left.

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

function metricCell(module, { key, name, format, spell = count, heat }) {
  const value = all(module, key);
  const part = share(value, all(root, key));
  const title = value === null ? `${name}: not known` : `${name}: ${spell(value)}, ${percent(part)} of the model`;
  const sorted = state.sort === key ? "sorted" : "";
  return el("span", { class: `number ${sorted}`, title }, el("span", {}, value === 0 ? "0" : format(value)), bar(part, heat && `heat${Math.ceil(4 * part)}`));
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
