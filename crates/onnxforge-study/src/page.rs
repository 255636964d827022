//! The study as one page that needs nothing from elsewhere.

use onnxforge_figures::escaped;

const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }\n\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 0 auto; padding: 1rem; }\n\
nav { position: sticky; top: 0; background: Canvas; border-bottom: 1px solid var(--line); padding: .5rem 0; }\n\
nav a { margin-right: .75rem; white-space: nowrap; }\n\
figure { margin: 1rem 0; } figcaption { font-weight: 600; margin-bottom: .25rem; }\n\
.scroll { overflow: auto; max-height: 70vh; border: 1px solid var(--line); }\n\
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }\n\
th { position: sticky; top: 0; background: Canvas; } th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--soft); text-align: left; }\n\
th button { all: unset; cursor: pointer; font-weight: 600; } th button:focus-visible { outline: 2px solid Highlight; }\n\
th[aria-sort=ascending] button::after { content: ' ▲'; } th[aria-sort=descending] button::after { content: ' ▼'; }\n\
td.number { text-align: right; } img, svg { max-width: 100%; height: auto; }\n\
.yes { color: #1a7f37; } .no { color: #cf222e; } input { padding: .3rem; width: 20rem; max-width: 100%; }\n";

const SCRIPT: &str = "\
'use strict';\n\
for (const table of document.querySelectorAll('table')) {\n\
  const heads = [...table.tHead.rows[0].cells];\n\
  heads.forEach((head, column) => head.querySelector('button').addEventListener('click', () => {\n\
    const falls = head.getAttribute('aria-sort') === 'ascending';\n\
    heads.forEach(other => other.removeAttribute('aria-sort'));\n\
    head.setAttribute('aria-sort', falls ? 'descending' : 'ascending');\n\
    const key = row => { const cell = row.cells[column]; return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value); };\n\
    const less = (a, b) => typeof a === 'number' && typeof b === 'number' ? a - b : typeof a === 'number' ? -1 : typeof b === 'number' ? 1 : a.localeCompare(b);\n\
    const rows = [...table.tBodies[0].rows].sort((a, b) => falls ? less(key(b), key(a)) : less(key(a), key(b)));\n\
    table.tBodies[0].append(...rows);\n\
  }));\n\
}\n\
document.getElementById('filter').addEventListener('input', event => {\n\
  const wanted = event.target.value.toLowerCase();\n\
  for (const row of document.querySelectorAll('tbody tr')) row.hidden = !row.textContent.toLowerCase().includes(wanted);\n\
});\n";

/// A part of the page.
pub struct Part {
    /// The name by which links find it.
    pub id: String,
    pub title: String,
    /// What it holds, as HTML.
    pub body: String,
}

/// The page.
pub fn page(title: &str, head: &str, parts: &[Part]) -> String {
    let links: String = parts
        .iter()
        .map(|part| format!("<a href=\"#{}\">{}</a>", escaped(&part.id), escaped(&part.id)))
        .collect();
    let sections: String = parts
        .iter()
        .map(|part| {
            format!(
                "<section id=\"{}\"><h2>{}</h2>{}</section>",
                escaped(&part.id),
                escaped(&part.title),
                part.body
            )
        })
        .collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>\n{STYLE}</style></head><body><h1>{title}</h1>{head}\
         <nav>{links}</nav><p><label>Show rows with <input id=\"filter\" type=\"search\" placeholder=\"a model, a pass …\"></label></p>\
         {sections}<script>\n{SCRIPT}</script></body></html>\n",
        title = escaped(title)
    )
}
