"""The graph in the page of `onnxforge report`, of real models in Chromium: how long it takes to open and to expand, and whether boxes lie over each other.

    python tests/python/graphs.py ONNXFORGE MODEL.onnx … [--tables FOLDER] [--shots FOLDER]

Modules are opened one after the other, the outermost first, until `--most` are open or none is closed. A row for each model, and an exit code of 1 where a page takes more than 2 s to open, a module more than
300 ms, or boxes overlap. `--shots` gets pictures: closed, one way down to the nodes, and all that was opened.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import browser
from test_report_graph import BOXES, disjoint

SPENT = "(work) => { const start = performance.now(); work(); document.body.getBoundingClientRect(); return performance.now() - start; }"
OPEN = "(key) => { const view = shownViews().at(-1); const part = view.placeOf(key).box.part; return (%s)(() => view.setOpen(part, true)); }" % SPENT
#: What the machine does besides makes some attempts slow: the better of two counts.
TWICE = "(key) => { const first = (%s)(key); const view = shownViews().at(-1); view.setOpen(view.placeOf(key).box.part, false); return Math.min(first, (%s)(key)); }" % (OPEN, OPEN)
CLOSED = """() => shownViews().at(-1).boxes().filter((box) => box.part.kind !== "node" && !box.inner).map((box) => box.part.key)"""


def look(chromium, path, name, most, shots):
    """Milliseconds until the page is there with its graph, milliseconds of each module that was opened, and how many boxes were compared."""
    with browser.opened(chromium, path, width=1600, height=1000) as sheet:
        page = sheet.page
        ready = page.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
        shown = page.evaluate(f'({SPENT})(() => document.querySelector("[data-view=graph]").click())')
        shoot = lambda what: shots and page.screenshot(path=shots / f"{name}.{what}.png")
        shoot("closed")
        times, opened = [], 0
        # One way down: each time the first module in what was opened last.
        inside = None
        while True:
            boxes = [box for box in page.evaluate(BOXES) if box["inside"] == inside] if inside else page.evaluate(BOXES)
            closed = set(page.evaluate(CLOSED))
            key = next((box["key"] for box in boxes if box["key"] in closed), None)
            if key is None:
                break
            times.append(page.evaluate(TWICE, key))
            inside, opened = key, opened + 1
        page.evaluate("shownViews().at(-1).fit()")
        shoot("way")
        disjoint(page)
        page.evaluate("shownViews().at(-1).collapse()")
        while opened < most and (closed := page.evaluate(CLOSED)):
            for key in closed[: most - opened]:
                times.append(page.evaluate(TWICE, key))
                opened += 1
        page.evaluate("shownViews().at(-1).fit()")
        shoot("open")
        page.evaluate("shownViews().at(-1).zoom(1 / shownViews().at(-1).scale)")
        shoot("near")
        return ready + shown, times, len(disjoint(page))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--tables", type=Path, help="a folder with NAME.json for NAME.….onnx of the older exporter")
    parser.add_argument("--shots", type=Path)
    parser.add_argument("--most", type=int, default=60, help="modules to open")
    options = parser.parse_args()
    print("| model | page, MB | opens, ms | opened | median, ms | slowest, ms | boxes without overlap |")
    print("|---|---|---|---|---|---|---|")
    missed = []
    with tempfile.TemporaryDirectory() as folder, browser.started() as chromium:
        for path in options.models:
            made = Path(folder) / f"{path.stem}.html"
            table = options.tables and options.tables / f"{path.name.split('.')[0]}.json"
            words = ["--modules", table] if table and table.exists() and ".torchscript." in path.name else []
            subprocess.run([options.binary, "report", path, "-o", made, *words, "-q"], check=True)
            opens, times, boxes = look(chromium, made, path.stem, options.most, options.shots)
            times.sort()
            print(f"| {path.name} | {made.stat().st_size / 1e6:.1f} | {opens:.0f} | {len(times)} | {times[len(times) // 2]:.0f} | {times[-1]:.0f} | {boxes} |", flush=True)
            if opens > 2000 or times[-1] > 300:
                missed.append(path.name)
    return f"too slow: {', '.join(missed)}" if missed else 0


if __name__ == "__main__":
    sys.exit(main())
