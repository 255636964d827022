"""The page of `onnxforge report`, in a browser: made-up data of ordinary, huge and hostile models, then the command's own.

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

SELF = "encoder.layer.0.attention.self"


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as running:
        yield running


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    made = {"bert": reports.bert(), "plain": reports.bert(2, optimized=False), "huge": reports.huge(), "hostile": reports.hostile()}
    return {name: (reports.write(data, folder / f"{name}.html"), data) for name, data in made.items()}


@pytest.fixture
def bert(chromium, files):
    with browser.opened(chromium, files["bert"][0]) as sheet:
        yield sheet.page


def rows(page):
    """The names in the tree, from top to bottom, as far as they are drawn."""
    return page.evaluate(
        """[...document.querySelectorAll("#rows .row")].sort((a, b) => a.dataset.row - b.dataset.row)
        .map((row) => row.querySelector(".name b").textContent)"""
    )


def row(page, index):
    return page.locator(f"#row-{index}")


def index_of(data, path):
    return [module["path"] for module in data["modules"]].index(path)


def selected(page):
    """The path of the selected module: as the page shows it, the tree marks it, and the URL says."""
    path = page.locator("code.path bdi")
    return path.text_content() if path.count() else ""


def sideways(page):
    """Elements that can be scrolled sideways, or that stick out of the window."""
    return page.evaluate(
        """[...document.querySelectorAll("body, body *")].filter((el) => {
            const box = el.getBoundingClientRect();
            const scrolls = el.scrollWidth > el.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(el).overflowX);
            return scrolls || (el.id && box.width > 0 && (box.right > innerWidth + 1 || box.left < -1));
        }).map((el) => el.tagName + "#" + el.id + "." + el.className)"""
    )


# ---------------------------------------------------------------- the page


def test_it_loads_without_messages_and_asks_nobody(chromium, files):
    for path, data in files.values():
        with browser.opened(chromium, path) as sheet:
            assert sheet.page.title() == re.sub(r"\s+", " ", f"{data['title']} · onnxforge")
            assert sheet.page.locator("#title").text_content() == data["title"]


def test_the_guard_sees_messages_and_requests(chromium, files, tmp_path):
    text = files["plain"][0].read_text(encoding="utf-8")
    broken = {
        "console": text.replace("listen();\n", "listen(); console.log('said');\n"),
        "error": text.replace("listen();\n", "listen(); setTimeout(() => { throw new Error('thrown'); });\n"),
        "request": re.sub("<meta http-equiv.*", "", text).replace("</body>", "<img src='http://127.0.0.1:9/x.png'></body>"),
        "policy": text.replace("</body>", "<img src='http://127.0.0.1:9/x.png'></body>"),
    }
    for name, changed in broken.items():
        assert changed != text, name
        path = tmp_path / f"{name}.html"
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(AssertionError, match=r"said|thrown|x\.png"):
            with browser.opened(chromium, path) as sheet:
                sheet.page.wait_for_timeout(300)


def test_markup_cannot_be_made_from_text_even_by_mistake(chromium, files):
    with pytest.raises(AssertionError, match="TrustedHTML"):
        with browser.opened(chromium, files["plain"][0]) as sheet:
            attempt = "() => { try { document.body.innerHTML = '<b>'; } catch (error) { return error.name; } }"
            assert sheet.page.evaluate(attempt) == "TypeError"


def test_the_header_says_what_the_model_is(bert, files):
    model = files["bert"][1]["model"]
    facts = bert.locator("#facts").inner_text()
    assert f"{model['nodes']:,}" in facts and "353 MB" in facts and "88.2 M" in facts
    assert bert.locator("#origin").text_content() == "pytorch 2.15.0 · opset 20"


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


def test_unknown_numbers_have_no_column(chromium, files, tmp_path):
    data = reports.bert(2, optimized=False)
    data["model"].update(flops=None, flops_note=None, producer=None)
    for module in data["modules"]:
        module["flops"] = None
        module["full_class"] = None
    with browser.opened(chromium, reports.write(data, tmp_path / "unknown.html")) as sheet:
        assert sheet.page.locator("#columns button").all_text_contents() == ["Module", "Nodes", "Params", "Size"]
        assert "FLOPs" not in sheet.page.locator("#facts").inner_text()
        assert sheet.page.locator("#origin").text_content() == "opset 20"
        assert sheet.page.locator("[data-view=optimizer]").count() == 0
        assert sheet.page.locator("[data-metric]").count() == 3


def test_a_model_without_nodes_and_modules_is_shown(chromium, tmp_path):
    builder = reports.Builder("empty.onnx")
    builder.module("", "", None)
    with browser.opened(chromium, reports.write(builder.report(optimized=False), tmp_path / "empty.html")) as sheet:
        assert rows(sheet.page) == ["empty.onnx"]
        sheet.page.click("[data-tab=nodes]")
        assert sheet.page.locator("#shown").text_content() == "0 nodes"
        sheet.page.click("[data-view=coverage]")
        assert sheet.page.locator("#overview tbody tr").count() == 0


# ---------------------------------------------------------------- the tree


def test_expand_and_collapse(bert, files):
    data = files["bert"][1]
    layer = index_of(data, "encoder.layer.0")
    assert row(bert, layer).get_attribute("aria-expanded") == "false"
    assert "attention" not in rows(bert)
    row(bert, layer).locator(".twisty").click()
    assert row(bert, layer).get_attribute("aria-expanded") == "true"
    assert rows(bert)[rows(bert).index("layer.0") :][:4] == ["layer.0", "attention", "intermediate", "output"]
    assert selected(bert) == "", "the twisty does not select"
    row(bert, layer).locator(".twisty").click()
    assert "attention" not in rows(bert)
    row(bert, layer).dblclick()
    assert "attention" in rows(bert)
    bert.click("#collapse")
    assert rows(bert) == ["BertModel", "embeddings", "encoder", "pooler"]
    bert.click("#expand")
    assert bert.evaluate("document.getElementById('rows').offsetHeight") == 34 * len(data["modules"])


def test_modules_without_children_have_nothing_to_expand(bert, files):
    leaf = row(bert, index_of(files["bert"][1], "embeddings.dropout"))
    assert leaf.get_attribute("aria-expanded") is None
    before = rows(bert)
    leaf.dblclick()
    assert rows(bert) == before


def test_search_shows_matches_with_their_ancestors(bert):
    bert.fill("#search", "pooler")
    assert rows(bert) == ["BertModel", "pooler"], "what is below a match only repeats its path"
    assert bert.locator("#rows mark").all_text_contents() == ["pooler", "Pooler"]
    assert bert.locator("#rows .row.match").count() == 1
    assert bert.locator("#matches").text_content() == "1 found"
    row(bert, bert.locator(".row.match").get_attribute("id").removeprefix("row-")).locator(".twisty").click()
    assert rows(bert) == ["BertModel", "pooler", "dense", "activation"], "but can be opened"
    bert.fill("#search", "")
    assert "layer.3" in rows(bert) and bert.locator("mark").count() == 0


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("encoder.layer.7.attention.self", "self"),
        ("GELU", "intermediate_act_fn"),
        ("/BertModel/BertEncoder/BertLayer.3", "layer.3"),
        ("BERTLAYER.11/bertattention", "attention"),
        (" word_emb ", "word_embeddings"),
    ],
)
def test_search_by_path_class_or_tag(bert, query, found):
    bert.fill("#search", query)
    assert set(bert.locator(".row.match .name b").all_text_contents()) == {found}
    assert rows(bert)[0] == "BertModel"


def test_a_search_that_finds_nothing(bert):
    bert.fill("#search", "convolution")
    assert rows(bert) == [] and bert.locator("#matches").text_content() == "0 found"
    bert.locator("#search").press("Enter")
    bert.locator("#search").press("Escape")
    assert rows(bert)[0] == "BertModel" and bert.input_value("#search") == ""


def test_enter_goes_from_match_to_match_and_selecting_elsewhere_ends_the_search(bert):
    bert.fill("#search", "BertPooler")
    bert.locator("#search").press("Enter")
    assert selected(bert) == "pooler" and bert.locator(".row.match").count() == 1
    bert.fill("#search", "word_embeddings")
    bert.click(".crumbs .module >> nth=0")
    assert selected(bert) == "" and bert.input_value("#search") == "word_embeddings", "the root is in sight"
    bert.goto(bert.url.split("#")[0] + "#module=encoder.layer.4.output")
    assert selected(bert) == "encoder.layer.4.output" and bert.input_value("#search") == ""


def test_sorting(bert, files):
    data = files["bert"][1]

    def children(key):
        some = [module for module in data["modules"] if module["parent"] == 0]
        return [module["path"] for module in sorted(some, key=key)]

    bert.click("#collapse")
    assert rows(bert)[1:] == ["embeddings", "encoder", "pooler"]
    for choice in ("nodes", "parameters", "bytes", "flops"):
        bert.select_option("#sort", choice)
        assert rows(bert)[1:] == children(lambda module: -module[choice]["all"]), choice
        assert bert.locator(f"[data-sort={choice}]").get_attribute("class") == "sorted"
    bert.select_option("#sort", "before")
    assert rows(bert)[1:] == children(lambda module: module["nodes"]["all"] - module["before"])
    assert rows(bert)[1:] != ["embeddings", "encoder", "pooler"]
    bert.click("[data-sort=before]")
    assert bert.input_value("#sort") == "order" and rows(bert)[1:] == ["embeddings", "encoder", "pooler"]


def test_shares_are_of_the_model(bert, files):
    data = files["bert"][1]
    encoder = data["modules"][index_of(data, "encoder")]
    bars = row(bert, index_of(data, "encoder")).locator(".bar i")
    for position, metric in enumerate(("nodes", "parameters", "bytes", "flops")):
        share = 100 * encoder[metric]["all"] / data["modules"][0][metric]["all"]
        assert float(bars.nth(position).evaluate("el => el.style.width").rstrip("%")) == pytest.approx(share, abs=0.01)


def test_class_and_path_names(bert):
    bert.click("[data-label=class]")
    assert rows(bert)[:2] == ["BertModel", "BertEmbeddings"] and "BertLayer.3" in rows(bert)
    bert.click("[data-label=path]")
    assert rows(bert)[:2] == ["BertModel", "embeddings"] and "layer.3" in rows(bert)


def test_keyboard(bert):
    bert.locator("#tree").focus()
    press = bert.keyboard.press
    press("ArrowDown")
    assert selected(bert) == "embeddings"
    press("ArrowLeft")
    assert "word_embeddings" not in rows(bert) and selected(bert) == "embeddings"
    press("ArrowLeft")
    assert selected(bert) == ""
    press("ArrowRight")
    assert selected(bert) == "embeddings"
    press("ArrowRight")
    assert selected(bert) == "embeddings" and "word_embeddings" in rows(bert)
    press("ArrowRight")
    assert selected(bert) == "embeddings.word_embeddings"
    press("ArrowRight")
    assert selected(bert) == "embeddings.word_embeddings", "there is nothing further right"
    press("ArrowUp")
    assert selected(bert) == "embeddings"
    press("Enter")
    assert "word_embeddings" not in rows(bert)
    press("End")
    end = selected(bert)
    assert end.startswith("pooler")
    press("ArrowDown")
    assert selected(bert) == end
    press("*")
    press("End")
    active = bert.locator("#tree").get_attribute("aria-activedescendant")
    box, tree = bert.locator(f"#{active}").bounding_box(), bert.locator("#tree").bounding_box()
    assert tree["y"] <= box["y"] and box["y"] + box["height"] <= tree["y"] + tree["height"] + 1, "the selection stays in sight"
    press("PageUp")
    assert selected(bert).startswith("encoder.layer.11")
    press("Home")
    assert selected(bert) == ""
    press("/")
    assert bert.evaluate("document.activeElement.id") == "search"
    bert.keyboard.type("self")
    press("ArrowDown")
    assert bert.evaluate("document.activeElement.id") == "tree" and bert.input_value("#search") == "self"


# ---------------------------------------------------------------- the selected module


def test_select_shows_the_module(bert, files):
    data = files["bert"][1]
    index = index_of(data, "encoder")
    row(bert, index).click()
    assert selected(bert) == "encoder"
    assert row(bert, index).get_attribute("aria-selected") == "true" and bert.locator(".row.selected").count() == 1
    assert bert.locator("code.tag").text_content() == data["modules"][index]["tag"]
    assert bert.locator("code.class").text_content() == data["modules"][index]["full_class"]
    assert bert.locator("[data-metric=nodes] strong").text_content() == f"{data['modules'][index]['nodes']['all']:,}"
    assert f"{data['modules'][index]['before']:,} before" in bert.locator("[data-metric=before]").inner_text()


def test_inputs_and_outputs_lead_to_other_modules(chromium, files):
    path, data = files["bert"]
    module = data["modules"][index_of(data, SELF)]
    with browser.opened(chromium, path, f"#module={SELF}") as sheet:
        page = sheet.page
        inputs = page.locator(".panel", has_text="Inputs")
        assert inputs.locator("code").all_text_contents() == [value["name"] for value in module["inputs"]]
        assert inputs.locator(".module").nth(1).text_content() == data["modules"][module["inputs"][0]["from"][1]]["path"]
        inputs.locator(".module").nth(1).click()
        assert selected(page) == "encoder.layer.0"
        page.go_back()
        assert selected(page) == SELF
        assert page.locator(".notice").text_content() == "4 nodes also belong to modules outside of this one."


def test_the_histogram_counts_the_subtree_and_filters_the_nodes(chromium, files):
    path, data = files["bert"]
    with browser.opened(chromium, path) as sheet:
        page = sheet.page
        first = page.locator(".op").first
        op, number = first.locator("span").first.text_content(), first.locator(".amount").text_content()
        assert data["nodes"]["op"].count(op) == int(number) == max(map(data["nodes"]["op"].count, data["nodes"]["op"]))
        first.click()
        assert page.locator("#shown").text_content() == f"{number} of {len(data['nodes']['op']):,} nodes"
        assert set(page.locator(".node[data-node] > span:nth-child(2) > span").all_text_contents()) == {op}


def test_the_node_table_filters_and_scrolls(chromium, files):
    path, data = files["bert"]
    evidence = data["nodes"]["evidence"]
    with browser.opened(chromium, path, "#module=&tab=nodes") as sheet:
        page = sheet.page
        shown = page.locator("#shown")
        assert shown.text_content() == f"{len(evidence):,} nodes"
        assert 5 < page.locator(".node[data-node]").count() < 60
        page.evaluate("document.getElementById('nodes').scrollTop = 1e9")
        page.wait_for_selector(f"[data-node='{len(evidence) - 1}']")
        assert 5 < page.locator(".node[data-node]").count() < 60
        page.fill("#filter", "evidence:root")
        assert shown.text_content() == f"{evidence.count('root')} of {len(evidence):,} nodes"
        assert set(page.locator(".node[data-node] .badge").all_text_contents()) == {"root"}
        page.fill("#filter", "LAYER.3 erf")
        assert shown.text_content().startswith("1 of")
        page.click(".node[data-node] .module")
        assert selected(page) == "" and page.locator("#selected").inner_text().startswith("intermediate_act_fn")
        assert shown.text_content() == "4 nodes", "the filter was the other module's"
        page.fill("#filter", "no such node")
        assert shown.text_content() == "0 of 4 nodes" and page.locator(".node[data-node]").count() == 0


def test_nodes_of_several_modules_say_so(chromium, files):
    path, data = files["bert"]
    several = [node for node, owners in enumerate(data["nodes"]["modules"]) if len(owners) == 2]
    name = data["nodes"]["name"][several[0]]
    with browser.opened(chromium, path, "#module=&tab=nodes") as sheet:
        sheet.page.fill("#filter", name)
        other = sheet.page.locator(f"[data-node='{several[0]}'] .also .module")
        assert other.text_content() == data["modules"][data["nodes"]["modules"][several[0]][1]]["path"]


def test_copy(chromium, files):
    path, data = files["bert"]
    module = data["modules"][index_of(data, SELF)]
    wanted = {"tag": module["tag"], "path": SELF, "class": module["full_class"], "command": module["extract"]}
    with browser.opened(chromium, path, f"#module={SELF}", permissions=["clipboard-read", "clipboard-write"]) as sheet:
        for what, text in wanted.items():
            button = sheet.page.locator(f"[aria-label='Copy {what}']")
            button.click()
            sheet.page.wait_for_selector(f"[aria-label='Copy {what}'].done")
            assert sheet.page.evaluate("navigator.clipboard.readText()") == text
            assert button.text_content() == "Copied"


def test_copy_where_the_clipboard_is_refused(chromium, files):
    with browser.opened(chromium, files["bert"][0], f"#module={SELF}", permissions=["clipboard-read"]) as sheet:
        sheet.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
        sheet.page.click("[aria-label='Copy path']")
        sheet.page.wait_for_selector("[aria-label='Copy path'].done")
        assert sheet.page.evaluate("navigator.clipboard.readText()") == SELF


def test_the_hash_keeps_the_selection(chromium, files):
    path, _ = files["bert"]
    with browser.opened(chromium, path) as sheet:
        page = sheet.page
        page.fill("#search", "BertPooler")
        page.click(".row.match")
        page.click("[data-tab=nodes]")
        url = page.url
        assert url.endswith("#module=pooler&tab=nodes")
        page.click("[data-view=coverage]")
        page.go_back()
        assert page.url == url and page.locator("#selected").inner_text().startswith("pooler")
        page.go_back()
        assert selected(page) == "pooler"
        page.go_forward()
    with browser.opened(chromium, path, "#" + url.split("#")[1]) as sheet:
        assert sheet.page.locator("#selected").inner_text().startswith("pooler")
        assert sheet.page.locator("#nodes").count() == 1
    for unknown in ("#module=nothing", "#view=__proto__&tab=constructor", "#module=%00%ff&tab=", "#&&==", "#%"):
        with browser.opened(chromium, path, unknown) as sheet:
            assert selected(sheet.page) == "" and sheet.page.locator("[data-view=modules][aria-selected=true]").count() == 1


def test_modules_with_the_same_path_are_told_apart(chromium, tmp_path):
    data = reports.bert(1)
    for module in data["modules"][1:]:
        module["path"] = "same"
    with browser.opened(chromium, reports.write(data, tmp_path / "same.html")) as sheet:
        for index in (3, 1, 2):
            row(sheet.page, index).click()
            assert sheet.page.locator("code.tag").text_content() == data["modules"][index]["tag"]
            sheet.page.reload()
            assert sheet.page.locator("code.tag").text_content() == data["modules"][index]["tag"]


# ---------------------------------------------------------------- the whole model


def test_coverage(chromium, files):
    path, data = files["bert"]
    with browser.opened(chromium, path, "#view=coverage") as sheet:
        page = sheet.page
        lines = page.locator(".coverage tbody tr")
        assert lines.count() == len(data["categories"])
        for position, category in enumerate(data["categories"]):
            cells = lines.nth(position).locator("td").all_inner_texts()
            numbers = [f"{category[key]:,}" for key in ("nodes", "exact", "inferred", "root")]
            assert cells[:5] == [category["category"], *numbers]
            assert cells[-1] == ("ok" if category["ok"] else "below")
        below = [category for category in data["categories"] if not category["ok"]]
        assert below and page.locator(".verdict.bad").count() == len(below)
        page.locator("tr", has=page.locator(".verdict.bad")).locator("td:nth-child(5) button").click()
        assert page.locator("#shown").text_content().startswith(f"{below[0]['root']} of")


def test_modules_without_nodes_have_their_reason(chromium, files):
    path, data = files["bert"]
    without = [module for module in data["modules"] if module["without"]]
    with browser.opened(chromium, path, "#view=without") as sheet:
        page = sheet.page
        assert page.locator(".reasons h3").text_content() == f"{without[0]['without']}{len(without)}"
        page.locator(".reasons .more").click()
        assert page.locator(".reasons .module").all_text_contents() == [module["path"] for module in without]
        page.locator(".reasons .module").last.click()
        assert selected(page) == without[-1]["path"]
        assert page.locator(".notice").text_content() == f"No nodes: {without[-1]['without']}"
        assert page.locator("code.command").count() == 0


def test_the_optimizer(chromium, files):
    path, data = files["bert"]
    with browser.opened(chromium, path, "#view=optimizer") as sheet:
        page = sheet.page
        assert page.locator("#overview h2").text_content() == f"{data['optimization']['before']:,} → {data['optimization']['after']:,} nodes"
        names = [change["pass"] for change in data["optimization"]["passes"]]
        assert page.locator(".passes td:first-child").all_text_contents() == names
        assert page.locator(".passes td:nth-child(3)").all_text_contents() == ["−301", "−96", "−48", "−31", "0", "+8"]
        page.locator(".savers .module").first.click()
        assert selected(page) == "encoder"
    with browser.opened(chromium, files["plain"][0], "#view=optimizer") as sheet:
        assert sheet.page.locator("[data-view]").count() == 3 and sheet.page.locator("#columns button").count() == 5


# ---------------------------------------------------------------- hostile, dark, huge


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
        with browser.opened(chromium, files["bert"][0], f"#module={SELF}", color_scheme=scheme) as sheet:
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


# ---------------------------------------------------------------- finding the browser


def test_the_browser_is_found_or_its_lack_explained(tmp_path):
    binary = tmp_path / "chromium-browser"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    assert browser.chromium({"PATH": str(tmp_path)}) == str(binary)
    assert browser.chromium({"PATH": str(tmp_path), "ONNXFORGE_CHROMIUM": "/mine"}) == "/mine"
    assert browser.chromium({"PATH": str(tmp_path / "nothing")}) is None
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        browser.missing({})
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        browser.missing({"CI": "true"})


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def report(forge):
    if forge("report", "--help").code != 0:
        pytest.skip("`onnxforge report` is not there yet")
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
