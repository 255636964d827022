// The graph: what flows between modules, which open in place, down to the nodes. Layout is dagre's, of one open module at a time.

// ---------------------------------------------------------------- what flows

/** Parts of one drawing beyond which neighbours are put together, so that each layout stays quick and readable. */
const MOST_PARTS = 40;
/** Nodes that nothing leads to or from, beyond which they are put together. */
const MOST_ALONE = 2;
/** Ends of an open module beyond which they are drawn as one. */
const MOST_ENDS = 24;

/** The nodes and tensors of one state of the model, ready to be asked which part of a module holds what. */
function flowOf(nodes, graph) {
  const readers = graph.names.map(() => []);
  const made = nodes.op.map(() => []);
  graph.reads.forEach((read, node) => read.forEach((tensor) => readers[tensor].push(node)));
  graph.makers.forEach((maker, tensor) => maker !== null && made[maker].push(tensor));
  const own = modules.map(() => []);
  nodes.modules.forEach((owners, node) => own[owners[0] ?? 0].push(node));
  const first = new Array(modules.length).fill(Infinity);
  const size = new Array(modules.length).fill(0);
  for (let index = modules.length - 1; index >= 0; index--) {
    if (own[index].length) first[index] = Math.min(first[index], own[index][0]);
    size[index] += own[index].length;
    if (index > 0) {
      const above = hierarchy.parent[index];
      first[above] = Math.min(first[above], first[index]);
      size[above] += size[index];
    }
  }
  return { nodes, graph, readers, made, own, first, size, outputs: new Set(graph.outputs) };
}

const partOfModule = (flow, index) => ({ key: `m${index}`, kind: "module", module: index, size: flow.size[index] });
const partOfNode = (node) => ({ key: `n${node}`, kind: "node", node, size: 1 });

/** The parts right inside of a part, in the order in which they compute. */
function partsOf(flow, part) {
  if (part.parts) return part.parts;
  const inner = hierarchy.children[part.module].filter((child) => flow.size[child]).map((child) => [flow.first[child], partOfModule(flow, child)]);
  const alone = flow.own[part.module].filter((node) => isAlone(flow, node));
  const apart = alone.length > MOST_ALONE ? new Set(alone) : new Set();
  const nodes = flow.own[part.module].filter((node) => !apart.has(node)).map((node) => [node, partOfNode(node)]);
  const parts = groupedParts([...inner, ...nodes].sort((a, b) => a[0] - b[0]).map(([, one]) => one), part.key);
  if (apart.size) parts.push(groupOf(alone.map(partOfNode), 0, `${part.key}:alone`));
  return (part.parts = parts);
}

/** Whether a node neither reads what others make nor is read: exporters leave such nodes behind. */
function isAlone({ graph, made, readers, outputs }, node) {
  return !graph.reads[node].length && made[node].every((tensor) => !readers[tensor].length && !outputs.has(tensor));
}

function groupOf(parts, from, key) {
  return { key, kind: "group", from, alone: key.endsWith(":alone"), size: parts.reduce((sum, { size }) => sum + size, 0), parts: groupedParts(parts, key) };
}

/** Few enough parts: neighbours in groups, where there are many. Modules stay as they are as long as groups of nodes are enough. */
function groupedParts(parts, key) {
  if (parts.length <= MOST_PARTS) return parts;
  const runs = [];
  parts.forEach((part, at) => {
    if (part.kind === "node" && parts[at - 1]?.kind === "node") runs.at(-1).push(part);
    else runs.push([part]);
  });
  if (runs.length > 1 && runs.length < parts.length) {
    let from = 0;
    const grouped = runs.map((run) => {
      from += run.length;
      return run.length > 1 ? groupOf(run, from - run.length, `${key}:${from - run.length}+${run.length}`) : run[0];
    });
    return groupedParts(grouped, key);
  }
  const length = Math.max(Math.ceil(parts.length / MOST_PARTS), Math.min(MOST_PARTS, Math.ceil(Math.sqrt(parts.length))));
  const groups = [];
  for (let from = 0; from < parts.length; from += length) {
    const some = parts.slice(from, from + length);
    groups.push(some.length > 1 ? groupOf(some, from, `${key}:${from}*${some.length}`) : some[0]);
  }
  return groups.length <= MOST_PARTS ? groups : groupedParts(groups, `${key}/`);
}

/** All nodes in a part. */
function nodesIn(flow, part) {
  if (part.kind === "node") return [part.node];
  if (part.nodes) return part.nodes;
  const found = [];
  const open = [part];
  while (open.length) {
    const one = open.pop();
    if (one.kind === "node") found.push(one.node);
    else if (one.kind === "group") open.push(...one.parts);
    else {
      found.push(...flow.own[one.module]);
      open.push(...hierarchy.children[one.module].filter((child) => flow.size[child]).map((child) => partOfModule(flow, child)));
    }
  }
  return (part.nodes = found);
}

/** The edges between the parts of a part, and those that enter and leave it. */
function edgesIn(flow, part) {
  return (part.edges ??= foundEdges(flow, part));
}

function foundEdges(flow, part) {
  const { graph, readers, made, outputs } = flow;
  const home = new Map();
  const parts = partsOf(flow, part);
  parts.forEach((one, at) => nodesIn(flow, one).forEach((node) => home.set(node, at)));
  const edges = new Map();
  const add = (from, to, tensor) => {
    const key = `${from}>${to}`;
    if (!edges.has(key)) edges.set(key, { from, to, tensors: [] });
    const { tensors } = edges.get(key);
    if (!tensors.includes(tensor)) tensors.push(tensor);
  };
  const ends = { in: [], out: [] };
  const known = { in: new Map(), out: new Map() };
  const end = (side, tensor) => {
    if (!known[side].has(tensor)) known[side].set(tensor, ends[side].push([tensor]) - 1);
    return `${side}${known[side].get(tensor)}`;
  };
  const crossing = { in: new Set(), out: new Set() };
  for (const node of home.keys()) {
    for (const tensor of graph.reads[node]) if (!home.has(graph.makers[tensor])) crossing.in.add(tensor);
    for (const tensor of made[node]) if (outputs.has(tensor) || readers[tensor].some((reader) => !home.has(reader))) crossing.out.add(tensor);
  }
  for (const side of ["in", "out"]) {
    if (crossing[side].size <= MOST_ENDS) continue;
    ends[side].push([...crossing[side]]);
    crossing[side].forEach((tensor) => known[side].set(tensor, 0));
  }
  for (const [node, at] of home) {
    for (const tensor of graph.reads[node]) {
      const maker = home.get(graph.makers[tensor]);
      if (maker === undefined) add(end("in", tensor), at, tensor);
      else if (maker !== at) add(maker, at, tensor);
    }
    for (const tensor of made[node]) if (crossing.out.has(tensor)) add(at, end("out", tensor), tensor);
  }
  return { parts, edges: [...edges.values()], ends };
}

// ---------------------------------------------------------------- layout

/** The scale from which on titles can be read. */
const READABLE = 0.8;
const BOX = { head: 24, pad: 14, port: 16, line: 44, node: 26 };
const wide = (text, letter, least, most) => Math.max(least, Math.min(most, Math.ceil(text.length * letter) + 22));

function shownType(text) {
  const brief = text.replace("float32", "f32").replace("float16", "f16").replace("int64", "i64").replace("int32", "i32");
  return brief.length > 26 ? `${brief.slice(0, 25)}…` : brief;
}

function labelOf(flow, part) {
  if (part.kind === "node") return [flow.nodes.op[part.node], flow.nodes.name[part.node]];
  if (part.kind === "group") return [`${count(part.size)} nodes`, part.alone ? "that nothing reads" : mostly(flow, part)];
  return [ownPath(part.module) || fullName(0), `${ownClass(part.module)} · ${count(part.size)}`];
}

/** What a group is made of. */
function mostly(flow, part) {
  if (part.parts.some(({ kind }) => kind !== "node")) return `${count(part.parts.length)} parts`;
  const found = tally(flow.nodes.op, part.parts.map(({ node }) => node));
  const ops = found.slice(0, 2).map(([op, times]) => (times > 1 ? `${op} × ${times}` : op));
  return [...ops, ...(found.length > ops.length ? ["…"] : [])].join(", ");
}

/** Where everything in an open part goes; kept until something in it opens or closes. */
function layoutOf(view, part) {
  const kept = view.layouts.get(part.key);
  if (kept) return kept;
  const { flow } = view;
  const { parts, edges, ends } = edgesIn(flow, part);
  const graph = new dagre.graphlib.Graph({ multigraph: false, compound: false });
  graph.setGraph({ rankdir: "TB", nodesep: 22, edgesep: 14, ranksep: 26, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  const boxes = parts.map((one, at) => {
    const inner = view.open.has(one.key) ? layoutOf(view, one) : null;
    const [title, aside] = labelOf(flow, one);
    const box = inner
      ? { width: Math.max(inner.width + 2 * BOX.pad, wide(title, 7.4, 90, 300) + wide(aside, 6.2, 60, 300)), height: inner.height + BOX.head + 2 * BOX.port }
      : one.kind === "node" ? { width: wide(title, 7, 54, 220), height: BOX.node }
        : { width: Math.max(wide(title, 7.4, 84, 250), wide(aside, 6.2, 84, 250)), height: BOX.line };
    if (!one.alone) graph.setNode(String(at), { ...box });
    return { part: one, inner, ...box };
  });
  const ports = [];
  for (const side of ["in", "out"]) {
    ends[side].forEach((tensors, at) => {
      graph.setNode(`${side}${at}`, { width: part.module === 0 && part.kind === "module" ? 64 : 8, height: 8 });
      // All ends are on one line: each hangs on a node of its own kind that nothing else does.
      if (side === "in") graph.setEdge("top", `in${at}`, { weight: 40 });
      else graph.setEdge(`out${at}`, "bottom", { weight: 40 });
      ports.push({ side, key: `${side}${at}`, tensors });
    });
  }
  for (const [name, side] of [["top", "in"], ["bottom", "out"]]) if (ends[side].length) graph.setNode(name, { width: 1, height: 1 });
  const lines = edges.map(({ from, to, tensors }) => {
    const text = tensors.length > 1 ? `${count(tensors.length)} tensors` : shownType(flow.graph.texts[flow.graph.types[tensors[0]]]);
    const label = { width: Math.ceil(text.length * 5.4) + 8, height: 13, labelpos: "c" };
    graph.setEdge(String(from), String(to), label);
    return { from: String(from), to: String(to), tensors, text };
  });
  dagre.layout(graph);
  const drawn = boxes.filter(({ part: one }) => !one.alone);
  boxes.forEach((box, at) => box.part.alone || Object.assign(box, corner(graph.node(String(at)))));
  const all = boxes;
  for (const port of ports) Object.assign(port, { x: graph.node(port.key).x, y: graph.node(port.key).y });
  const left = Math.min(0, ...drawn.map(({ x }) => x), ...ports.map(({ x }) => x - 32));
  const layout = { part, boxes: all, ports, lines: [] };
  const top = { in: Math.min(...ports.filter(({ side }) => side === "in").map(({ y }) => y)), out: 0 };
  for (const line of lines) {
    const edge = graph.edge(line.from, line.to);
    layout.lines.push({ ...line, points: edge.points, x: edge.x, y: edge.y });
  }
  const inside = [...drawn.map(({ y }) => y), ...layout.lines.flatMap(({ points }) => points.map(({ y }) => y)), ...(ports.length ? [top.in].filter(Number.isFinite) : [])];
  const upper = Math.min(...inside, Infinity);
  const rights = [...drawn.map(({ x, width }) => x + width), ...ports.map(({ x }) => x + 32), ...layout.lines.flatMap(({ points, x, text }) => [...points.map((point) => point.x), x + text.length * 2.7 + 4])];
  // What nothing leads to stands on the right of all else.
  const beside = Math.max(0, ...rights) + (drawn.length ? 2 * BOX.pad : 0);
  for (const box of boxes.filter(({ part: one }) => one.alone)) {
    Object.assign(box, { x: beside, y: Math.min(...drawn.map(({ y }) => y), Infinity) });
    if (!Number.isFinite(box.y)) box.y = 0;
    drawn.push(box);
    rights.push(box.x + box.width);
  }
  const lowers = [...drawn.map(({ y, height }) => y + height), ...ports.map(({ y }) => y), ...layout.lines.flatMap(({ points }) => points.map(({ y }) => y))];
  const lefts = [left, ...layout.lines.flatMap(({ points, x, text }) => [...points.map((point) => point.x), x - text.length * 2.7 - 4])];
  const shift = { x: -Math.min(...lefts), y: -(Number.isFinite(upper) ? upper : 0) };
  const moved = (point) => { point.x += shift.x; point.y += shift.y; };
  all.forEach(moved);
  ports.forEach(moved);
  layout.lines.forEach((line) => { line.points = line.points.map(({ x, y }) => ({ x: x + shift.x, y: y + shift.y })); moved(line); });
  layout.width = Math.max(40, ...rights) + shift.x;
  layout.height = Math.max(20, ...lowers) + shift.y;
  // Lines lead to the ends of what is open, not just to its edge.
  for (const line of layout.lines) {
    line.fans = [];
    line.enters = Boolean(all[Number(line.to)]?.inner);
    for (const [which, side] of [["from", "out"], ["to", "in"]]) {
      const box = all[Number(line[which])];
      if (!box?.inner) continue;
      const point = side === "in" ? line.points.at(-1) : line.points[0];
      for (const port of box.inner.ports) {
        if (port.side !== side || !port.tensors.some((tensor) => line.tensors.includes(tensor))) continue;
        const offset = (box.width - box.inner.width) / 2;
        const y = side === "in" ? box.y + BOX.head + BOX.port : box.y + box.height - BOX.port;
        line.fans.push([point, { x: box.x + offset + port.x, y }]);
      }
    }
  }
  view.layouts.set(part.key, layout);
  return layout;
}

const corner = ({ x, y, width, height }) => ({ x: x - width / 2, y: y - height / 2 });

// ---------------------------------------------------------------- drawing

/** An element of a drawing, like `el`. */
function draw(name, properties, ...content) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(properties ?? {})) if (value !== null && value !== undefined) element.setAttribute(key, value);
  element.append(...content.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A smooth line through points. */
function curve(points) {
  const at = ({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  let path = `M${at(points[0])}`;
  for (let index = 1; index < points.length - 1; index++) {
    const [here, next] = [points[index], points[index + 1]];
    const middle = index === points.length - 2 ? next : { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 };
    path += `Q${at(here)} ${at(middle)}`;
  }
  return points.length === 2 ? `${path}L${at(points[1])}` : path;
}

function cut(text, width, letter) {
  const room = Math.max(1, Math.floor((width - 14) / letter));
  return text.length > room ? `${text.slice(0, room - 1)}…` : text;
}

const COLOURS = { none: "No colour", ...Object.fromEntries(METRICS.filter(({ key }) => key !== "nodes").map(({ key, name }) => [key, name])) };

/** How strong the colour of a part is: its share of the model's time, FLOPs or bytes. */
function heat(view, part) {
  if (view.colour === "none" || part.kind !== "module" || part.module === 0) return null;
  return share(all(modules[part.module], view.colour) ?? 0, all(root, view.colour));
}

function drawPart(view, box) {
  const { part, inner, x, y, width, height } = box;
  const [title, aside] = labelOf(view.flow, part);
  const strength = heat(view, part);
  const fill = strength === null ? null : `fill: color-mix(in srgb, var(--bad-fill) ${(100 * Math.sqrt(strength)).toFixed(0)}%, var(--surface))`;
  const classes = ["box", part.kind, inner && "open", part.key === view.selected && "selected"].filter(Boolean).join(" ");
  const texts = inner
    ? [draw("text", { x: 8, y: 16, class: "title" }, cut(title, width * 0.62, 7.4)), draw("text", { x: width - 8, y: 16, class: "aside", "text-anchor": "end" }, cut(aside, width - Math.min(wide(title, 7.4, 0, 400), width * 0.62), 6.2))]
    : part.kind === "node" ? [draw("text", { x: width / 2, y: 17, class: "op", "text-anchor": "middle" }, cut(title, width, 7))]
      : [draw("text", { x: width / 2, y: 18, class: "title", "text-anchor": "middle" }, cut(title, width, 7.4)), draw("text", { x: width / 2, y: 34, class: "aside", "text-anchor": "middle" }, cut(aside, width, 6.2))];
  const offset = inner ? `translate(${(width - inner.width) / 2} ${BOX.head + BOX.port})` : null;
  return draw("g", { class: classes, "data-key": part.key, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, role: "treeitem", id: `${view.name}-${part.key}`, "aria-label": `${title} ${aside}`, "aria-expanded": part.kind === "node" ? null : String(Boolean(inner)), "aria-selected": String(part.key === view.selected) },
    draw("title", {}, tooltip(view, part)),
    draw("rect", { width: width.toFixed(1), height: height.toFixed(1), rx: part.kind === "node" ? 12 : 7, style: inner ? null : fill }), texts,
    inner && drawLayout(view, inner, offset));
}

function drawLayout(view, layout, transform) {
  const typed = ({ tensors }) => tensors.slice(0, 12).map((tensor) => `${view.flow.graph.names[tensor]}  ${view.flow.graph.texts[view.flow.graph.types[tensor]]}`).join("\n");
  const lines = layout.lines.map((line) => draw("g", { class: "flow" }, draw("title", {}, typed(line)),
    draw("path", { d: curve(line.points), "marker-end": line.enters ? null : "url(#arrow)" }),
    draw("text", { x: line.x.toFixed(1), y: (line.y + 3.5).toFixed(1), "text-anchor": "middle", class: "shape" }, line.text)));
  const outermost = layout.part.key === "m0";
  const ports = layout.ports.map((port) => draw("g", { class: "port" }, draw("title", {}, typed(port)),
    draw("circle", { cx: port.x.toFixed(1), cy: port.y.toFixed(1), r: 3.2 }),
    outermost && draw("text", { x: port.x.toFixed(1), y: (port.y + (port.side === "in" ? -8 : 16)).toFixed(1), "text-anchor": "middle", class: "aside" },
      port.tensors.length > 1 ? `${count(port.tensors.length)} tensors` : cut(view.flow.graph.names[port.tensors[0]], 110, 6.2))));
  // Over the boxes that they lead into.
  const fans = layout.lines.filter((line) => line.fans.length).map((line) => draw("g", { class: "flow fan" }, line.fans.map(([from, to]) => draw("path", { d: curve([from, to]) }))));
  return draw("g", { transform }, lines, ports, layout.boxes.map((box) => drawPart(view, box)), fans);
}

function tooltip(view, part) {
  if (part.kind === "node") {
    const { name, op, evidence } = view.flow.nodes;
    return [name[part.node] || "unnamed", op[part.node], fullName(view.flow.nodes.modules[part.node][0] ?? 0), `${evidence[part.node]}: ${known(view.flow.nodes, part.node)}`].join("\n");
  }
  if (part.kind === "group") return `${count(part.size)} nodes; Enter opens them`;
  const module = modules[part.module];
  const facts = METRICS.filter(({ key }) => all(module, key) !== null).map(({ key, name, format }) => `${name}: ${format(all(module, key))}`);
  return [module.path, module.full_class || module.class, ...facts].filter(Boolean).join("\n");
}

// ---------------------------------------------------------------- a view that pans, zooms and opens

class GraphView {
  constructor(name, title, flow, follow) {
    Object.assign(this, { name, title, flow, follow, open: new Set(["m0"]), layouts: new Map(), colour: "none", selected: null, scale: 1, x: 0, y: 0, fitted: false });
    this.root = partOfModule(flow, 0);
    // What the whole model is wrapped in is open from the start.
    for (let only = partsOf(flow, this.root); only.length === 1 && only[0].kind === "module"; only = partsOf(flow, only[0])) this.open.add(only[0].key);
    this.scene = draw("g", { class: "scene" });
    this.svg = draw("svg", { class: "graph", tabindex: 0, role: "tree", "aria-label": `Graph ${title}`, "data-graph": name },
      draw("defs", {}, draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, draw("path", { d: "M0 0L8 4L0 8z" }))), this.scene);
    this.svg.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.onDown(event));
    this.svg.addEventListener("pointermove", (event) => this.onMove(event));
    this.svg.addEventListener("pointerup", (event) => this.onUp(event));
    this.svg.addEventListener("dblclick", (event) => this.onDouble(event));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.fitted || this.begin()).observe(this.svg);
  }

  /** Everything anew. Nothing on the screen moves that `anchor`, the key of a part, stands for. */
  redraw(anchor) {
    const before = anchor && this.placeOf(anchor);
    this.layout = layoutOf(this, this.root);
    const after = anchor && this.placeOf(anchor);
    if (before && after) {
      this.x += (before.x - after.x) * this.scale;
      this.y += (before.y - after.y) * this.scale;
    }
    this.scene.replaceChildren(drawLayout(this, this.layout, null));
    this.move();
  }

  move() {
    this.scene.setAttribute("transform", `translate(${this.x.toFixed(2)} ${this.y.toFixed(2)}) scale(${this.scale.toFixed(4)})`);
    this.svg.classList.toggle("far", this.scale < 0.45);
  }

  /** Where a part is, in the drawing; nothing for one that is not shown. */
  placeOf(key) {
    const open = [[this.layout, 0, 0]];
    while (this.layout && open.length) {
      const [layout, x, y] = open.pop();
      for (const box of layout.boxes) {
        const here = { x: x + box.x, y: y + box.y, width: box.width, height: box.height, box, around: layout.part };
        if (box.part.key === key) return here;
        if (box.inner) open.push([box.inner, here.x + (box.width - box.inner.width) / 2, here.y + BOX.head + BOX.port]);
      }
    }
    return null;
  }

  /** All boxes that are shown, in the order in which they compute. */
  boxes() {
    const found = [];
    const walk = (layout) => layout.boxes.forEach((box) => {
      found.push(box);
      if (box.inner) walk(box.inner);
    });
    walk(this.layout);
    return found;
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (!width || !height || !this.layout) return;
    this.fitted = true;
    this.scale = Math.max(0.02, Math.min(1.4, (width - 48) / this.layout.width, (height - 64) / this.layout.height));
    this.x = (width - this.layout.width * this.scale) / 2;
    this.y = Math.max(28, (height - this.layout.height * this.scale) / 2);
    this.move();
  }

  /** All of it where that can be read, else where it begins. */
  begin() {
    this.fit();
    if (!this.fitted || this.scale >= READABLE) return;
    this.scale = READABLE;
    const [room, wide] = [this.svg.clientWidth, this.layout.width * READABLE];
    const first = this.layout.ports.find(({ side }) => side === "in") ?? this.layout.boxes[0];
    this.x = wide < room ? (room - wide) / 2 : Math.min(24, Math.max(room - 24 - wide, room / 2 - first.x * READABLE));
    this.y = 28;
    this.move();
  }

  zoom(factor, at = { x: this.svg.clientWidth / 2, y: this.svg.clientHeight / 2 }) {
    const scale = Math.max(0.02, Math.min(4, this.scale * factor));
    this.x = at.x - (at.x - this.x) * scale / this.scale;
    this.y = at.y - (at.y - this.y) * scale / this.scale;
    this.scale = scale;
    this.fitted = true;
    this.move();
  }

  setOpen(part, open) {
    if (!part || part.kind === "node" || this.open.has(part.key) === open) return;
    if (open) this.open.add(part.key);
    else this.open.delete(part.key);
    // What is around it has another size now.
    this.layouts.delete(part.key);
    for (let above = this.placeOf(part.key)?.around; above; above = above.key === "m0" ? null : this.placeOf(above.key)?.around) this.layouts.delete(above.key);
    this.layouts.delete("m0");
    this.redraw(part.key);
  }

  toggle(part) {
    this.setOpen(part, !this.open.has(part.key));
    this.follow?.(this, part, this.open.has(part.key));
  }

  collapse() {
    this.open = new Set(["m0"]);
    this.layouts.clear();
    this.selected = null;
    this.redraw();
    this.begin();
  }

  partAt(event) {
    const element = event.target.closest?.(".box");
    return element ? this.placeOf(element.dataset.key)?.box.part : null;
  }

  choose(part, quietly) {
    this.selected = part?.key ?? null;
    this.scene.querySelectorAll(".box.selected").forEach((box) => box.classList.remove("selected"));
    if (part) this.scene.querySelector(`[data-key="${CSS.escape(part.key)}"]`)?.classList.add("selected");
    if (part) this.svg.setAttribute("aria-activedescendant", `${this.name}-${part.key}`);
    if (!quietly) describePart(this, part);
  }

  /** Scrolls to a part, as little as it takes. */
  reveal(key, centre) {
    const place = this.placeOf(key);
    if (!place) return;
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (centre && this.scale < 0.6) this.scale = 0.9;
    const [left, top] = [this.x + place.x * this.scale, this.y + place.y * this.scale];
    const [right, bottom] = [left + place.width * this.scale, top + place.height * this.scale];
    // The middle of the view, and of what is larger its beginning.
    const shift = (low, high, room, edge) => (high - low > room - edge ? edge - low : (room - low - high) / 2);
    if (centre || left < 0 || right > width) this.x += shift(left, right, width, 24);
    if (centre || top < 0 || bottom > height) this.y += shift(top, bottom, height, 28);
    this.fitted = true;
    this.move();
  }

  /** Opens everything around a module or node, and shows it. */
  lead(target) {
    const index = target.module ?? this.flow.nodes.modules[target.node][0] ?? 0;
    const way = [...ancestors(index), ...(target.node === undefined ? [] : [index])].filter((above) => above > 0);
    const wanted = target.node === undefined ? `m${index}` : `n${target.node}`;
    let around = this.root;
    for (const above of way) around = this.openTo(around, `m${above}`) ?? around;
    const part = this.openTo(around, wanted, true) ?? around;
    this.layouts.clear();
    this.redraw();
    this.choose(part);
    this.reveal(part.key, true);
  }

  /** Opens groups in a part until one with this key is shown, and that one unless it is the target. */
  openTo(part, key, isTarget) {
    const search = (parts) => {
      for (const one of parts) {
        if (one.key === key) return one;
        if (one.kind !== "group") continue;
        const inside = search(one.parts);
        if (inside) {
          this.open.add(one.key);
          return inside;
        }
      }
      return null;
    };
    const found = search(partsOf(this.flow, part));
    if (found && !isTarget) this.open.add(found.key);
    return found;
  }

  onWheel(event) {
    event.preventDefault();
    const { left, top } = this.svg.getBoundingClientRect();
    this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), { x: event.clientX - left, y: event.clientY - top });
  }

  onDown(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.clientX, y: event.clientY, moved: false };
    this.svg.setPointerCapture(event.pointerId);
    this.pressed = this.partAt(event);
  }

  onMove(event) {
    if (!this.drag) return;
    const [x, y] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (!this.drag.moved && Math.hypot(x, y) < 4) return;
    Object.assign(this.drag, { x: event.clientX, y: event.clientY, moved: true });
    this.fitted = true;
    this.x += x;
    this.y += y;
    this.move();
  }

  onUp() {
    if (this.drag && !this.drag.moved) this.choose(this.pressed);
    this.drag = null;
  }

  onDouble() {
    if (this.pressed) this.toggle(this.pressed);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const place = this.selected && this.placeOf(this.selected);
    const part = place?.box.part;
    const siblings = place ? (layoutOf(this, place.around)).boxes : this.layout.boxes;
    const step = (by) => {
      const at = part ? siblings.findIndex((box) => box.part.key === part.key) + by : by > 0 ? 0 : siblings.length - 1;
      const next = siblings[Math.max(0, Math.min(siblings.length - 1, at))]?.part;
      if (next) this.choose(next);
      if (next) this.reveal(next.key);
    };
    const outward = () => {
      if (!place || place.around.key === "m0") return;
      this.choose(place.around);
      this.reveal(place.around.key);
    };
    const inward = () => {
      if (!part || part.kind === "node") return;
      this.setOpen(part, true);
      const first = this.placeOf(part.key).box.inner?.boxes[0]?.part;
      if (first) this.choose(first);
      if (first) this.reveal(first.key);
    };
    const actions = {
      Enter: () => part && this.toggle(part), " ": () => part && this.toggle(part),
      ArrowDown: () => step(1), ArrowRight: () => step(1), ArrowUp: () => step(-1), ArrowLeft: () => step(-1),
      Escape: outward, Backspace: outward, ">": inward, PageDown: inward, PageUp: outward,
      "+": () => this.zoom(1.25), "=": () => this.zoom(1.25), "-": () => this.zoom(0.8), 0: () => this.fit(), Home: () => this.fit(),
    };
    if (!Object.hasOwn(actions, event.key)) return;
    event.preventDefault();
    actions[event.key]();
    if (this.selected) this.choose(this.placeOf(this.selected)?.box.part ?? null);
  }
}

// ---------------------------------------------------------------- the sheet

const graphs = { views: null, pair: false, hits: [], at: -1 };

function graphViews() {
  if (graphs.views) return graphs.views;
  const follow = (from, part, open) => {
    // Modules open on both sides; nodes and groups are not the same ones there.
    if (!graphs.pair || part.kind !== "module") return;
    for (const other of graphs.views.filter((view) => view !== from)) {
      const place = other.placeOf(part.key);
      if (place) other.setOpen(place.box.part, open);
    }
  };
  graphs.views = [new GraphView("after", data.before ? "after optimization" : data.title, flowOf(nodes, data.graph), follow)];
  if (data.before) graphs.views.unshift(new GraphView("before", "before optimization", flowOf(data.before.nodes, data.before.graph), follow));
  return graphs.views;
}

function describePart(view, part) {
  const place = document.getElementById("graph-part");
  if (!place) return;
  const module = part?.kind === "module" ? part.module : part?.kind === "node" ? view.flow.nodes.modules[part.node][0] : null;
  place.replaceChildren(...(part ? [el("b", {}, labelOf(view.flow, part)[0]), el("span", { class: "dim" }, tooltip(view, part).split("\n").slice(0, 3).join(" · ")), module !== null && moduleLink(module)].filter(Boolean)
    : [el("span", { class: "dim" }, "Double click or Enter opens a box; arrows go from box to box, Escape outwards; drag and wheel move the drawing.")]));
}

function searchGraph(text) {
  const query = text.trim().toLowerCase();
  const { flow } = graphViews().at(-1);
  graphs.at = -1;
  graphs.hits = [];
  if (query) {
    modules.forEach((_, index) => flow.size[index] && index > 0 && matches(index, query) && graphs.hits.push({ module: index }));
    flow.nodes.name.forEach((name, node) => (name.toLowerCase().includes(query) || flow.nodes.op[node].toLowerCase() === query) && graphs.hits.push({ node }));
  }
  document.getElementById("graph-matches").textContent = query ? `${count(graphs.hits.length)} found` : "";
}

function nextHit(by) {
  if (!graphs.hits.length) return;
  graphs.at = (graphs.at + by + graphs.hits.length) % graphs.hits.length;
  const target = graphs.hits[graphs.at];
  document.getElementById("graph-matches").textContent = `${count(graphs.at + 1)} of ${count(graphs.hits.length)}`;
  for (const view of shownViews()) if (view === graphs.views.at(-1) || target.module !== undefined && view.flow.size[target.module]) view.lead(target);
}

const shownViews = () => (graphs.pair ? graphViews() : graphViews().slice(-1));

function drawGraph() {
  const views = graphViews();
  const each = (work) => () => shownViews().forEach(work);
  const search = el("input", {
    id: "graph-search", type: "search", placeholder: "Search modules and nodes", "aria-label": "Search the graph", spellcheck: "false", autocomplete: "off",
    oninput: (event) => searchGraph(event.target.value),
    onkeydown: (event) => event.key === "Enter" && nextHit(event.shiftKey ? -1 : 1),
  });
  const colour = el("select", { id: "graph-colour", "aria-label": "Colour", onchange: (event) => views.forEach((view) => { view.colour = event.target.value; if (view.layout) view.redraw(); }) },
    Object.entries(COLOURS).map(([key, title]) => el("option", { value: key, selected: views[0].colour === key }, title)));
  const pair = views.length > 1 && button({ id: "graph-pair", "aria-pressed": String(graphs.pair), onclick: () => { graphs.pair = !graphs.pair; drawGraph(); } }, "Before and after");
  const tools = el("div", { class: "toolbar" }, search, el("span", { id: "graph-matches", class: "dim", "aria-live": "polite" }), el("label", { class: "sort" }, el("span", { class: "dim" }, "Colour"), colour), pair && el("div", { class: "switch" }, pair),
    el("div", { class: "switch", role: "group", "aria-label": "Zoom" }, button({ "aria-label": "Zoom out", onclick: each((view) => view.zoom(0.8)) }, "−"), button({ "aria-label": "Zoom in", onclick: each((view) => view.zoom(1.25)) }, "+"),
      button({ id: "graph-fit", onclick: each((view) => view.fit()) }, "Fit"), button({ id: "graph-collapse", onclick: each((view) => view.collapse()) }, "Collapse")));
  const panes = shownViews().map((view) => el("figure", { class: "pane" }, graphs.pair && el("figcaption", { class: "dim" }, view.title), view.svg));
  overview.replaceChildren(el("div", { class: "graph-sheet" }, tools, el("div", { class: "panes" }, panes), el("p", { id: "graph-part", "aria-live": "polite" })));
  for (const view of shownViews()) {
    if (!view.layout) view.redraw();
    if (!view.fitted || graphs.pair) view.begin();
  }
  describePart(views.at(-1), null);
}
