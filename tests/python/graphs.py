"""The graph in the page of `onnxforge report`, of real models in Chromium: how long it takes to open and to expand, and whether boxes lie over each other.

    python tests/python/graphs.py ONNXFORGE MODEL.onnx … [--tables FOLDER] [--shots FOLDER]

Boxes are opened one after the other by the keyboard, each with what is inside of it, until that was done `--most` times or none is closed. A row for each model, and an exit code of 1 where a page takes more than 2 s to open, a module more than
300 ms, or boxes overlap. `--shots` gets pictures: closed, one way down to the nodes, all that was opened, and both from near.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import browser
from test_report_graph import disjoint

#: Milliseconds of work, with the layout of the page after it.
SPENT = "(work) => { const start = performance.now(); work(); document.body.getBoundingClientRect(); return performance.now() - start; }"


class Keyboard:
    """The keys of a graph: what a user does, without a mouse."""

    def __init__(self, page):
        self.page = page
        self.times = []

    def press(self, key):
        work = f"() => document.querySelector('svg.graph').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }}))"
        return self.page.evaluate(f"({SPENT})({work})")

    def chosen(self):
        """The box that is selected, and whether it is open; nothing for what cannot be opened."""
        return self.page.evaluate('(({ dataset, ariaExpanded }) => [dataset.key, ariaExpanded])(document.querySelector("svg.graph .box.selected"))')

    def open(self):
        """Opens what is selected. What the machine does besides makes some attempts slow: the better of two counts."""
        first = self.press("Enter")
        self.press("Enter")
        self.times.append(min(first, self.press("Enter")))

    def way_down(self):
        """Opens the first box that can be opened, and the first one in that, down to nodes."""
        self.press("ArrowDown")
        while True:
            before = None
            while self.chosen()[1] is None and self.chosen() != before:
                before = self.chosen()
                self.press("ArrowDown")
            if self.chosen()[1] is None:
                return
            self.open()
            self.press("PageDown")

    def everything(self, most):
        """Opens one box after the other, each with what is inside of it, until there are so many."""
        before = None
        while self.chosen() != before and len(self.times) < most:
            key, is_open = before = self.chosen()
            if is_open == "false":
                self.open()
                self.press("PageDown")
                if self.chosen()[0] != key:
                    self.everything(most)
                    self.press("Escape")
                before = self.chosen()
            self.press("ArrowDown")


def look(chromium, path, name, most, shots):
    """Milliseconds until the page is there with its graph, milliseconds of each box that was opened, and how many boxes were compared."""
    with browser.opened(chromium, path, width=1600, height=1000) as sheet:
        page = sheet.page
        ready = page.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
        shown = page.evaluate(f'({SPENT})(() => document.querySelector("[data-view=graph]").click())')
        keys = Keyboard(page)
        shoot = lambda what: shots and page.screenshot(path=shots / f"{name}.{what}.png")
        shoot("closed")
        keys.way_down()
        shoot("near")
        keys.press("Home")
        shoot("way")
        disjoint(page)
        page.click("#graph-collapse")
        keys.press("ArrowDown")
        keys.everything(most)
        shoot("inside")
        keys.press("Home")
        shoot("open")
        return ready + shown, keys.times, len(disjoint(page))


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
