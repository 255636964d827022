"""The page of `onnxforge report`, in a browser, with the synthetic data of an ordinary model. See test_report_limits.py for the rest."""

import re

import pytest

import browser
import reports
from reports import index_of, row, rows, selected

SELF = "encoder.layer.0.attention.self"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    made = {"bert": reports.bert(), "plain": reports.bert(2, optimized=False)}
    return {name: (reports.write(data, folder / f"{name}.html"), data) for name, data in made.items()}


@pytest.fixture
def bert(chromium, files):
    with browser.opened(chromium, files["bert"][0]) as sheet:
        yield sheet.page


# ---------------------------------------------------------------- the page


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
    words = data["modules"][index_of(data, "embeddings.word_embeddings")]
    bars = row(bert, index_of(data, words["path"])).locator(".bar i")
    for position, metric in enumerate(("nodes", "parameters", "bytes", "flops")):
        share = 100 * words[metric]["all"] / data["modules"][0][metric]["all"]
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
        assert page.locator("#selected").inner_text().startswith("intermediate_act_fn")
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


def test_no_number_is_rounded_to_what_it_is_not(chromium, tmp_path):
    data = reports.bert(1)
    data["categories"] = [
        {"category": "math", "nodes": 9999, "exact": 9998, "inferred": 0, "root": 1, "coverage": 9998 / 9999, "threshold": 100, "ok": False},
        {"category": "shape", "nodes": 9999, "exact": 1, "inferred": 0, "root": 9998, "coverage": 1 / 9999, "threshold": 0, "ok": True},
    ]
    data["modules"][0]["before"] = 10**6
    data["modules"][0]["nodes"]["all"] = 10**6 - 1
    data["modules"][1].update(before=0)
    with browser.opened(chromium, reports.write(data, tmp_path / "rounded.html")) as sheet:
        page = sheet.page
        assert [row(page, index).locator("em").text_content() for index in (0, 1)] == ["−1", "+5"]
        page.click("[data-view=coverage]")
        assert page.locator(".coverage td:nth-child(7)").all_text_contents() == ["> 99.9 %", "< 0.1 %"]
        assert page.locator(".coverage td:nth-child(8)").all_text_contents() == ["100 %", "0 %"]


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
        assert sheet.page.locator("[data-view]").count() == 4 and sheet.page.locator("#columns button").count() == 5
