// Pieces of the page. Every text of the model is hostile: it enters the document as text nodes and attributes that `el` sets,
// never as markup.

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

/** What the module of a node is known from, and how sure that is. */
function known({ why, confidence }, node) {
  return `${why[node]}, confidence ${confidence[node].toFixed(2)}`;
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
