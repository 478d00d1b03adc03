"""The page in a real browser: what it shows is what a replay says, whoever looks at it, on whatever screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paredown import AdaptiveModel, Plan
from paredown.answers import Encoded, Row
from paredown.evaluation import Record, record
from paredown.evaluation.cost import Bill, Cost
from paredown.evaluation.metrics import accuracy
from paredown.evaluation.replay import point, replay
from paredown.registry import exits
from paredown.reporting import report
from tests.browser import PROGRAM, Page, browsing
from tests.conftest import WORDS
from tests.families import adaptive

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed (Debian's package: chromium)")
DEPTH = 8
BAD = "</script><img src=x onerror=document.title='taken'>"
BENCH = {
    "batches": {"1": {"transformers sdpa": {"texts_per_second": 50.0, "times_transformers": 1.0}}},
    **{"cpu": "some CPU", "gpu": None, "threads": 2, "time": "wall"},
}
# Of every text that is seen: its contrast with what is behind it, by the formula of WCAG 2.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((v) => linear(v / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("white");
  };
  const found = [];
  for (const one of document.querySelectorAll("body *")) {
    const words = [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!words || !one.checkVisibility() || ["SCRIPT", "NOSCRIPT", "title"].includes(one.tagName)) continue;
    const style = getComputedStyle(one), ink = rgba(one instanceof SVGElement ? style.fill : style.color);
    const [high, low] = [light(ink), light(behind(one))].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), words.slice(0, 40)]);
  }
  return found;
})()"""
CHOOSE = """(() => {
  const rule = document.getElementById("rule");
  rule.value = %s;
  rule.dispatchEvent(new Event("change"));
})()"""
NAMELESS = """[...document.querySelectorAll("button, input, select, [role=img], [role=region]")].filter((one) =>
  !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim())).map((one) => one.outerHTML)"""


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> AdaptiveModel:
    plan = Plan(exit="entropy:0.99", reduce="fixed_share:0.6,score=attention")
    return adaptive("bert", tokenizer=tokenizer, plan=plan, vocab_size=len(tokenizer), num_hidden_layers=DEPTH)


@pytest.fixture(scope="module")
def texts() -> list[Row]:
    return [Row(f"{BAD} " + " ".join(WORDS[: 2 + at % 13]), label=at % 3) for at in range(80)]


@pytest.fixture(scope="module")
def rows(model: AdaptiveModel, texts: list[Row]) -> list[Encoded]:
    return model.encode(texts)


@pytest.fixture(scope="module")
def seen(model: AdaptiveModel, rows: list[Encoded]) -> tuple[Record, Bill]:
    found = record(model, rows, plan=model.plan)
    return found, Bill(found, Cost.of(model, model.plan))


@pytest.fixture(scope="module")
def html(model: AdaptiveModel, texts: list[Row], tmp_path_factory: Any) -> Path:
    made = report(model, texts, name="films", bench=BENCH, commands=["paredown report …"], examples=4)
    return made.save(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: Any) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: Page, html: Path) -> Iterator[Page]:
    yield browser.open(html)
    assert browser.problems == [] and set(browser.asked) == {html.resolve().as_uri()}  # no word, no network
    browser.close()


def shown(page: Page) -> dict[str, Any]:
    """The figures at the present setting, exact as they are in the page."""
    figures = (
        'Object.fromEntries([...document.querySelectorAll("#figures dd")].map((one) => [one.id, +one.dataset.value]))'
    )
    found: dict[str, Any] = page.run(figures)
    found["setting"] = page.run('document.getElementById("setting").textContent')
    found["exits"] = page.run('[...document.querySelectorAll("#exits [data-count]")].map((one) => +one.dataset.count)')
    found["groups"] = page.run('document.getElementById("groups").textContent')
    return found


def check_against_replay(found: dict[str, Any], seen: tuple[Record, Bill]) -> None:
    rule = exits.of(found["setting"])
    wanted = point(seen[0], rule, accuracy, seen[1])
    for name, figure in (("score", "score"), ("layers", "layers"), ("flops", "flops"), ("speedup", "flops_speedup")):
        assert found[f"figure-{name}"] == pytest.approx(wanted[figure], rel=1e-5), found["setting"]
    assert found["exits"] == replay(seen[0], rule).histogram(DEPTH)
    assert f"{wanted['layers']:.2f} layers" in found["groups"]


def test_everything_follows_slider_and_rule(page: Page, seen: tuple[Record, Bill]) -> None:
    at_plan = shown(page)
    assert at_plan["setting"] == "entropy:0.99"
    check_against_replay(at_plan, seen)
    visited = {at_plan["setting"]}
    page.run('document.getElementById("speed").focus()')
    for key in ("Home", "End", "ArrowLeft", "ArrowLeft"):  # as a keyboard moves it
        page.press(key)
        check_against_replay(found := shown(page), seen)
        visited.add(found["setting"])
    assert len(visited) >= 4
    for value in page.run("[...document.querySelectorAll('#rule option')].map((one) => one.value)"):
        page.run(CHOOSE % value)
        check_against_replay(found := shown(page), seen)
        visited.add(found["setting"].partition(":")[0])
    assert {"patience", "margin", "ensemble"} <= visited
    page.click("#to-plan")
    assert shown(page) == at_plan
    page.click("#to-full")
    assert shown(page)["figure-layers"] == DEPTH


def test_clicks(page: Page) -> None:
    page.click("#legend li:nth-child(3) button")
    assert page.run("document.querySelector('#legend [aria-pressed=true]').textContent") == page.run(
        "document.querySelector('#rule').selectedOptions[0].textContent"
    )
    before = page.run("document.querySelector('#cost').textContent")
    page.click("#axis-milliseconds")
    assert "milliseconds" in page.run("document.querySelector('#cost').textContent") != before
    bands = page.run("document.querySelectorAll('#cost .band').length")
    page.click("#bands")
    assert page.run("document.querySelectorAll('#cost .band').length") > bands == 1
    page.click("details summary")
    assert page.run("document.querySelector('#table tr.here td').textContent") == shown(page)["setting"]
    for section in ("tokens-section", "bench-section"):
        assert page.run(f"document.getElementById('{section}').checkVisibility()")


def test_texts_stay_texts(page: Page) -> None:
    assert page.run("document.title") == "films · paredown report"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.querySelector('#hardest li').textContent").startswith(BAD)


def test_tokens_leave_where_the_record_says(page: Page, seen: tuple[Record, Bill]) -> None:
    """At full depth, as many tokens are in the last layer as the record has there."""
    page.click("#to-full")
    there = f"p.querySelectorAll('[data-layers=\"{DEPTH}\"]').length"
    last = page.run(f"[...document.querySelectorAll('#tokens p')].map((p) => {there})")
    units = page.run("JSON.parse(document.getElementById('record').textContent).tokens.map((one) => one.unit)")
    assert last == [int(seen[0].tokens[unit, -1]) for unit in units]


@pytest.mark.parametrize("width", [360, 700, 1200])
def test_it_fits_the_screen(page: Page, width: int) -> None:
    page.resize(width)
    page.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert page.run("document.documentElement.scrollWidth") <= width
    outside = (
        f"[...document.querySelectorAll('svg text')].filter((one) => one.getBoundingClientRect().right > {width} + 1)"
    )
    assert page.run(f"{outside}.map((one) => one.textContent)") == []


def test_a_keyboard_reaches_every_control(page: Page) -> None:
    focused = []
    for _ in range(12):
        page.press("Tab")
        focused.append(page.run("document.activeElement.id"))
    assert {"theme", "rule", "speed", "to-plan", "to-full", "axis-flops", "bands"} <= set(focused)


def test_everybody_can_read_it(page: Page) -> None:
    assert page.run(NAMELESS) == []
    page.click("details summary")
    page.click("#to-full")  # tokens in every colour
    for theme in ("light", "dark"):
        assert page.run("document.documentElement.dataset.theme") == theme
        page.run("Promise.all(document.getAnimations().map((one) => one.finished))")
        found = page.run(CONTRAST)
        assert len(found) > 100 and [one for one in found if one[0] < 4.5] == []
        page.click("#theme")


def test_it_begins_as_the_system_has_it(browser: Page, html: Path) -> None:
    browser.open(html, dark=True)
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    browser.close()


def test_a_model_without_exits_has_a_page_too(browser: Page, tokenizer: Any, texts: list[Row], tmp_path: Path) -> None:
    model = adaptive("bert", tokenizer=tokenizer, vocab_size=len(tokenizer))
    model.drop_heads()
    browser.open(report(model, texts, name="plain").save(tmp_path / "report.html"))
    assert browser.problems == [] and not browser.run("document.getElementById('controls').checkVisibility()")
    assert browser.run("document.querySelectorAll('#per-layer .bar').length") == 1
    assert "full depth" in browser.run("document.getElementById('cost').textContent")
    browser.close()
