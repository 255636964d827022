"""The page of `onnxforge report`: hostile, deep and huge models, windows and themes; then what the command itself writes.

ONNXFORGE_REPORT_MODELS may name more models for the command, separated as in PATH.
"""

import json
import os
import re
from pathlib import Path

import pytest

import browser
import corpus
import reports
from reports import row, selected, sideways


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    made = {"bert": reports.bert(), "huge": reports.huge(), "hostile": reports.hostile()}
    return {name: (reports.write(data, folder / f"{name}.html"), data) for name, data in made.items()}


def test_it_loads_without_messages_and_asks_nobody(chromium, files):
    for path, data in files.values():
        with browser.opened(chromium, path) as sheet:
            assert sheet.page.title() == re.sub(r"\s+", " ", f"{data['title']} · onnxforge")
            assert sheet.page.locator("#title").text_content() == data["title"]


def test_hostile_names_are_only_text(chromium, files):
    path, data = files["hostile"]
    with browser.opened(chromium, path) as sheet:
        page = sheet.page
        markup = "document.querySelectorAll('img, b > *:not(mark), iframe, script:not([id=data]):not([type=module])').length"
        page.click("#expand")
        for view in ("coverage", "without", "optimizer", "modules"):
            page.click(f"[data-view={view}]")
            assert page.evaluate(markup) == 0
        for index in range(1, 2 + len(reports.HOSTILE)):
            row(page, index).click()
            assert page.locator("code.class").text_content() == data["modules"][index]["full_class"]
            assert page.locator("code.command").text_content() == data["modules"][index]["extract"]
            page.click("[data-tab=nodes]")
            assert page.evaluate(markup) == 0
            page.click("[data-tab=overview]")
        for text in reports.HOSTILE:
            page.fill("#search", text)
            assert page.evaluate(markup) == 0
            page.fill("#search", "")
        row(page, 0).click()
        page.click("[data-tab=nodes]")
        assert page.locator("[data-node='0'] > span > span").first.text_content() == reports.HOSTILE[0]
        page.keyboard.press("Home")
    with browser.opened(chromium, path, f"#module={data['modules'][-1]['path'][:40]}") as sheet:
        assert sheet.page.locator("script").count() == 2


def test_a_very_deep_model_is_shown(chromium, tmp_path):
    builder = reports.Builder("deep.onnx")
    deepest = None
    for _ in range(5000):
        deepest = builder.module("m" if deepest is not None else "", "M", deepest)
        builder.modules[deepest].update(path=f"m{deepest}" if deepest else "", tag=f"/M{deepest}")
    builder.node(deepest, "Add", "math")
    with browser.opened(chromium, reports.write(builder.report(), tmp_path / "deep.html"), "#module=m4999") as sheet:
        assert selected(sheet.page) == "m4999" and sheet.page.locator("[data-tab=nodes] small").text_content() == "1"
        assert row(sheet.page, 4999).is_visible()
        assert sheet.page.locator(".crumbs .module").count() <= 6


def test_light_and_dark(chromium, files):
    def look(scheme):
        with browser.opened(chromium, files["bert"][0], f"#module=encoder.layer.0.attention.self", color_scheme=scheme) as sheet:
            return sheet.page.evaluate(
                """() => {
                    const light = (color) => {
                        const [r, g, b] = color.match(/[\\d.]+/g).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
                        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                    };
                    const behind = (el) => {
                        const color = getComputedStyle(el).backgroundColor;
                        return color === "rgba(0, 0, 0, 0)" ? behind(el.parentElement) : color;
                    };
                    const contrast = (el) => {
                        const [a, b] = [light(getComputedStyle(el).color), light(behind(el))].sort((x, y) => y - x);
                        return (a + 0.05) / (b + 0.05);
                    };
                    const texts = [...document.querySelectorAll("body *")].filter((el) => el.checkVisibility() &&
                        [...el.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
                    return { page: light(getComputedStyle(document.body).backgroundColor),
                        faint: texts.filter((el) => contrast(el) < 4.5).map((el) => `${el.className} ${el.textContent}: ${contrast(el)}`) };
                }"""
            )

    light, dark = look("light"), look("dark")
    assert light["page"] > 0.8 and dark["page"] < 0.05
    assert not light["faint"] and not dark["faint"], "text that is hard to read"


def test_a_huge_model_is_drawn_at_once(chromium, files):
    path, data = files["huge"]
    assert len(data["modules"]) >= 1500 and len(data["nodes"]["name"]) >= 10_000
    elements = "document.querySelectorAll('*').length"
    with browser.opened(chromium, path, width=1920, height=1080) as sheet:
        page = sheet.page
        assert page.evaluate("performance.getEntriesByName('ready')[0].startTime") < 2000
        assert page.evaluate(elements) < 2500
        took = page.evaluate(
            """() => {
                const start = performance.now();
                document.getElementById("expand").click();
                document.querySelector("[data-tab=nodes]").click();
                const box = document.getElementById("filter");
                box.value = "add layer.1";
                box.dispatchEvent(new Event("input"));
                const search = document.getElementById("search");
                search.value = "attention";
                search.dispatchEvent(new Event("input"));
                document.body.getBoundingClientRect();
                return performance.now() - start;
            }"""
        )
        assert took < 1500, "ms for expanding, filtering and searching"
        assert page.evaluate(elements) < 2500
        for part in (0.25, 0.5, 1):
            page.evaluate(f"for (const id of ['tree', 'nodes']) {{ const el = document.getElementById(id); el.scrollTop = {part} * el.scrollHeight; }}")
            page.wait_for_timeout(100)
            assert page.evaluate(elements) < 2500
        for list_id, made in (("tree", "#rows .row"), ("nodes", ".node[data-node]")):
            bottom = page.locator(f"#{list_id}").bounding_box()
            assert max(box["y"] for box in (item.bounding_box() for item in page.locator(made).all())) > bottom["y"] + bottom["height"] - 100


def test_nothing_needs_scrolling_sideways(chromium, files):
    for name in ("bert", "hostile"):
        for width, height in [(1280, 800), (1920, 1080), (800, 900)]:
            with browser.opened(chromium, files[name][0], width=width, height=height) as sheet:
                for view in ("modules", "coverage", "without", "optimizer"):
                    sheet.page.click(f"[data-view={view}]")
                    assert not sideways(sheet.page), (name, width, view)
                sheet.page.click("[data-view=modules]")
                sheet.page.click("[data-tab=nodes]")
                assert not sideways(sheet.page), (name, width, "nodes")


# ---------------------------------------------------------------- finding the browser


def test_the_browser_is_found(tmp_path):
    binary = tmp_path / "chromium-browser"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    assert browser.chromium({"PATH": str(tmp_path)}) == str(binary)
    assert browser.chromium({"PATH": str(tmp_path), "ONNXFORGE_CHROMIUM": "/mine"}) == "/mine"
    assert browser.chromium({"PATH": str(tmp_path / "nothing")}) is None
    assert "apt-get install chromium" in browser.HINT


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def report(forge):
    return lambda model, path: forge("report", model, "-o", path).good() and path


def models():
    more = os.environ.get("ONNXFORGE_REPORT_MODELS", "")
    return [*corpus.repository_models(), *(Path(path) for path in more.split(os.pathsep) if path)]


def test_the_reports_of_models(report, chromium, tmp_path):
    for model in models():
        path = report(model, tmp_path / f"{model.stem}.html")
        with browser.opened(chromium, path) as sheet:
            page = sheet.page
            data = json.loads(page.locator("#data").text_content())
            assert data["schema"] == 1 and data["modules"][0]["path"] == ""
            assert all(module["parent"] < index for index, module in enumerate(data["modules"]) if index)
            assert {len(column) for column in data["nodes"].values()} == {data["model"]["nodes"]}
            page.click("#expand")
            for view in ("coverage", "without", "optimizer", "modules"):
                if page.locator(f"[data-view={view}]").count():
                    page.click(f"[data-view={view}]")
                    assert not sideways(page), (model, view)
            page.click("[data-tab=nodes]")
            assert page.locator("#shown").text_content().startswith(f"{data['model']['nodes']:,} node")


def test_the_command_writes_the_page_of_these_files(report, tmp_path):
    written = report(corpus.repository_models()[0], tmp_path / "report.html").read_text(encoding="utf-8")
    opening = '<script type="application/json" id="data">'
    data = json.loads(written.split(opening)[1].split("</script")[0])
    frame = reports.page(data).split(opening)
    assert written.split(opening)[0] == frame[0]
    assert written.split("</script", 1)[1] == frame[1].split("</script", 1)[1]
