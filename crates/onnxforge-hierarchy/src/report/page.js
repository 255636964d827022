// The views of the whole model, what is selected, and the start.

// ---------------------------------------------------------------- the whole model

const overview = document.getElementById("overview");
const VIEWS = {
  modules: { title: "Modules", draw: () => drawDetails() },
  ...(data.graph && data.nodes.op.length && { graph: { title: "Graph", draw: drawGraph } }),
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
        category.threshold !== null && el("i", { class: "tick", style: { left: `${category.threshold}%` } })),
      percent(category.coverage), category.threshold === null ? "–" : percent(category.threshold / 100),
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
    (document.getElementById("graph-search") ?? searchBox).focus();
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
