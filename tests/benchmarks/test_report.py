"""Every figure in README, docs and cards is that of a committed result, and a changed digit is found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import paredown
from benchmarks import auto_report, experiments_picture, experiments_report, report, result_files, tokens_report
from benchmarks.experiments import EXPERIMENTS
from benchmarks.pages import DOCS, ROOT, SCRIPT, put
from benchmarks.result_files import code
from paredown.errors import UnknownName

README = ROOT / "README.md"
SLOT = re.compile(r"<!-- (?!end)[^>]* -->.*?<!-- end -->", re.DOTALL)
CARDS = sorted((Path(paredown.__file__).parent / "methods").glob("*/README.md"))
DOCUMENTS = sorted(report.fills())


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_a_document_has_the_figures_of_its_results(path: Path) -> None:
    assert report.holds(path, path.read_text(encoding="utf-8")), f"make it again with `{SCRIPT}`"


WITH_SLOTS = [path for path in DOCUMENTS if path.is_file() and SLOT.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", WITH_SLOTS, ids=named)
def test_one_changed_digit_in_a_slot_is_found(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    slots = [slot for slot in SLOT.finditer(text) if re.search(r"\d", slot[0].split("-->", 1)[1])]
    for slot in slots:
        begin = slot.start() + slot[0].index("-->")
        at = next(found.start() for found in re.finditer(r"\d", text[begin : slot.end()])) + begin
        changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
        assert not report.holds(path, changed), f"{slot[0][:40]}: nobody fills this slot"


def test_one_changed_digit_in_a_page_that_is_written_whole_is_found() -> None:
    path = DOCS / "experiments.md"
    text = path.read_text(encoding="utf-8")
    at = re.search(r"\d", text)
    assert at is not None
    assert not report.holds(path, text[: at.start()] + "x" + text[at.end() :])


def test_no_figure_of_the_readme_is_typed() -> None:
    section = README.read_text(encoding="utf-8").split("## Figures\n")[1].split("\n## ")[0]
    typed = re.sub(r"\(docs/[^)]*\)", "", SLOT.sub("", section))
    assert re.findall(r"(?<![\w-])\d[\d.,]*", typed) == []


def test_every_slot_has_an_end() -> None:
    for path in [README, *DOCS.glob("*.md"), *CARDS]:
        marks = re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))
        assert [mark == "end" for mark in marks] == [bool(number % 2) for number, _ in enumerate(marks)], path


def test_every_picture_is_there() -> None:
    for path in [README, *DOCS.glob("*.md")]:
        for picture in re.findall(r"!\[.*?\]\((.*?)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / picture).is_file(), f"{path}: {picture}"


def test_a_slot_is_filled_anew() -> None:
    assert put("a\n<!-- one -->\nold\n<!-- end -->\nb", one="new") == "a\n<!-- one -->\nnew\n<!-- end -->\nb"


# A made-up result of an experiment


def point(score: float, speedup: float) -> dict[str, Any]:
    figures = {"score": score, "speedup": speedup}
    return {"exit": "entropy:0.3", "dev": figures, "test": {**figures, "interval": [score - 0.02, score + 0.02]}}


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    one = EXPERIMENTS["auto-rte"]
    runs = []
    for seed, score in enumerate((0.6, 0.62, 0.64), 1):
        targets = {f"{target:g}x": point(score - target / 100, target + 0.1) for target in one.targets[:-1]}
        plan = {"full": point(score, 1.0), "targets": {"entropy": targets | {f"{one.targets[-1]:g}x": None}}}
        plan["per_layer"] = {"1": 0.55, "2": score}
        run = {"recipe": "auto", "seed": seed, "plans": {"none": plan}, "rows": {"train": 9, "dev": 8, "test": 7}}
        made = {
            "machine": 0,
            "commit": "abc",
            "code": {**code()},
            "described": {"methods": ["auto"], "start": None, "fixed": ["own"]},
        }
        runs.append({**run, **made})
    machine = {"device": "a GPU", "torch": "2", "transformers": "5"}
    facts = {"targets": list(one.targets), "recipes": ["independent", "auto"], "count": one.count}
    result = {"name": one.name, "command": "python …", "machines": [machine]}
    result |= {"experiment": facts, "runs": runs}
    monkeypatch.setattr(result_files, "COMMITTED", tmp_path)
    (tmp_path / "auto-rte.json").write_text(json.dumps(result))
    return result


def test_an_experiment_that_was_run_has_its_section(made_up: dict[str, Any]) -> None:
    page = experiments_report.page()
    assert "| auto | 3 | 62.0 (60.0 to 64.0) at 1.00x | ±2.0 | 60.0 (58.0 to 62.0) at 2.10x |" in page
    assert "4x on dev" not in page, "no seed is so fast"
    assert "9 train, 8 dev and 7 test rows" in page and "Changed since then" not in page


def test_a_result_whose_source_changed_says_so(made_up: dict[str, Any], tmp_path: Path) -> None:
    made_up["runs"][1]["code"]["training"] = "another"
    (tmp_path / "auto-rte.json").write_text(json.dumps(made_up))
    page = experiments_report.page()
    assert "\nChanged since then: training.\n" in page
    assert "Changed" not in report.AGE.sub("", page)


def test_slots_of_experiments_are_filled_in_any_document(made_up: dict[str, Any]) -> None:
    sentence, block = (
        "It scores <!-- figure: auto-rte; auto; entropy 2x --><!-- end -->.",
        "<!-- experiment: auto-rte -->",
    )
    filled = experiments_report.with_figures(f"{sentence}\n{block}\n<!-- end -->")
    assert "It scores <!-- figure: auto-rte; auto; entropy 2x -->60.0<!-- end -->." in filled
    assert "| auto | 3 | 62.0 (60.0 to 64.0)" in filled


def test_what_was_not_run_yet_is_named_and_what_nobody_knows_is_an_error(made_up: dict[str, Any]) -> None:
    def filled(slot: str) -> str:
        return experiments_report.with_figures(f"<!-- {slot} -->\n<!-- end -->").split("-->\n")[1].split("\n<!--")[0]

    assert filled("experiment: auto-snli") == filled("layers: auto-snli") == "Not run yet: `auto-snli`."
    assert filled("experiment: auto-rte").endswith("|\n\nNot run yet: `independent`.")
    assert filled("experiment: auto-rte; independent") == "Not run yet: `independent`."
    assert experiments_report.with_figures(
        "<!-- lost: auto-snli; auto; entropy 2x --><!-- end --> <!-- figure: auto-rte; independent; own --><!-- end -->"
    ).replace("<!-- end -->", "").split("-->")[1:] == [
        "not run yet <!-- figure: auto-rte; independent; own ",
        "not run yet",
    ]
    assert filled("across: auto-rte*; auto").splitlines()[2:] == [
        "| auto | 62.0 | 62.0 | 100.0 |",
        "",
        "Not run yet: `auto-rte-gte-small`.",
    ]
    for unknown in ("experiment: auto-sst2", "experiment: auto-snli; Auto", "across: otto-*; auto"):
        with pytest.raises((KeyError, UnknownName)):
            filled(unknown)


def test_slots_have_some_recipes_layers_and_single_figures(made_up: dict[str, Any]) -> None:
    def filled(slot: str) -> str:
        return experiments_report.with_figures(f"<!-- {slot} -->\n<!-- end -->").split("-->", 1)[1]

    def inline(slot: str) -> str:
        return experiments_report.with_figures(f"<!-- {slot} --><!-- end -->").split("-->", 1)[1].split("<")[0]

    assert "| auto | 3 | 62.0 (60.0 to 64.0)" in filled("experiment: auto-rte; auto")
    assert "| after layer | 1 | 2 |" in filled("layers: auto-rte") and "| auto | 55.0 | 62.0 |" in filled(
        "layers: auto-rte"
    )
    assert inline("lost: auto-rte; auto; entropy 3x") == "3.0" and inline("faster: auto-rte; auto; entropy 3x") == "3.1"
    with pytest.raises(KeyError, match="entropy 9x"):
        inline("figure: auto-rte; auto; entropy 9x")


# The pages of the default and of fewer tokens, whatever was run


def trained(recipe: str, seed: int, **plans: dict[str, Any]) -> dict[str, Any]:
    return {"recipe": recipe, "seed": seed, "plans": plans, "tokens": 300.0, "rows": {"train": 9, "dev": 8, "test": 7}}


def full(score: float, faster: float = 1.0, **more: Any) -> dict[str, Any]:
    figures = {"score": score, "speedup": faster, "flops_speedup": faster, "layers": 12 / faster}
    return {"full": {"test": figures}, **more}


def with_exits(recipe: str, seed: int, score: float, able: bool = True) -> dict[str, Any]:
    """Two points lost at 2x, where it is able to."""
    point = full(score - 0.02, 2.5)["full"] if able else None
    own = {"fixed": {"own": full(score - 0.01, 1.5)["full"]}} if recipe == "auto" else {}
    targets = {"2x": point, "3x": None, "4x": None}
    return trained(recipe, seed, none=full(score, targets={"entropy": targets}, **own))


def test_auto_is_compared_with_the_seeds_and_at_the_speeds_that_both_recipes_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(name: str, *runs: dict[str, Any]) -> None:
        (tmp_path / f"{name}.json").write_text(json.dumps({"runs": runs}))

    monkeypatch.setattr(result_files, "COMMITTED", tmp_path)
    assert auto_report.answer().startswith("Not run yet: `auto-ag_news`,")
    write("auto-rte", with_exits("independent", 1, 0.6))
    assert "Not run yet" in auto_report.answer(), "it has nothing beside it"
    runs = [with_exits("independent", seed, 0.6) for seed in (1, 2)]
    runs += [with_exits("auto", seed, 0.62 + seed / 100) for seed in (1, 2, 3)]
    write("auto-rte", *runs)
    write("auto-cola", with_exits("independent", 1, 0.5, able=False), with_exits("auto", 1, 0.5))
    assert "| rte | e5-small | accuracy | 9 / 8 / 7 | 2 | 63.5 (+3.5) | 61.5 (+3.5) |  |  |" in auto_report.scores()
    assert "| cola | e5-small | matthews | 9 / 8 / 7 | 1 | 50.0 (+0.0) |  |  |  |" in auto_report.scores()
    said = " ".join(auto_report.answer().split())
    assert "on 2 of the table's" in said and "the median gain is 3.5 points, the least 0.0 (cola: 50.0 at 1.0x" in said
    assert "the largest 3.5 (rte: 63.5 at 1.0x, the plain recipe 60.0 at 1.0x)" in said
    assert "run 1.5 times fewer FLOPs and lose 1.0 points" in said and "mean of 2 seeds, of cola 1." in said
    assert "| rte | 8.0 of 12 | 1.50x | +1.00 | +1.0, +1.0, +1.0 |" in auto_report.plans()
    assert "| cola | independent | 50.0 (50.0 to 50.0) at 1.00x |  |  |  |" in auto_report.spreads()


def test_a_policy_is_compared_with_all_tokens_of_the_same_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(recipe: str, seed: int, score: float) -> dict[str, Any]:
        return trained(recipe, seed, **{"selector:0.5": full(score, 4.0)})

    monkeypatch.setattr(result_files, "COMMITTED", tmp_path)
    assert tokens_report.answer().startswith("Not run yet: `tokens-imdb`,")
    assert tokens_report.sets().startswith("Not run yet: `tokens-imdb`,")
    runs = [trained("all tokens", seed, none=full(0.8 + seed / 100)) for seed in (1, 2, 3)]
    runs += [kept("policy", 1, 0.80), kept("policy", 3, 0.84)]
    (tmp_path / "tokens-20news.json").write_text(json.dumps({"runs": runs}))
    line = "| 20news | gte-small | 7 | 300 | accuracy | 82.0 | +0.00 (+1.00, -1.00) at 4.00x |  |"
    assert line in tokens_report.sets()
    said = " ".join(tokens_report.answer().split())
    assert "a policy led to a target runs 4.0 times fewer FLOPs on 1 set and loses 0.0 points. Time" in said
    assert "published" not in said


def test_a_picture_is_of_the_best_at_so_much_work_and_has_a_row_for_each_kind_of_head(tmp_path: Path) -> None:
    def run_of(recipe: str, method: str, seed: int, low: float) -> dict[str, Any]:
        curve = [{"score": score, "speedup": times} for score, times in ((0.9, 1.0), (0.8, 2.0), (low, 6.0))]
        plan = {"curve": curve, "per_layer": {"1": low, "2": 0.9}}
        return {"recipe": recipe, "seed": seed, "described": {"methods": [method]}, "plans": {"none": plan}}

    runs = [run_of("own", "deebert:lr=1", 1, 0.5), run_of("ours", "deebert:head=attention", 1, 0.6)]
    runs += [run_of("ours", "deebert:head=attention", 2, 0.7)]
    runs[2]["plans"]["selector:0.5"] = runs[2]["plans"].pop("none")
    runs[0]["rows"] = {"test": 10}
    groups = experiments_picture.grouped({"runs": runs})
    assert {title: list(recipes) for title, recipes in groups.items()} == {
        "attention heads": ["ours"],
        "heads on the first token": ["own"],
    }
    found = dict(zip(experiments_picture.STEPS, experiments_picture.frontier(runs[1:], "speedup"), strict=True))
    assert [round(found[times], 6) for times in (1.0, 2.0, 3.0, 6.0)] == [90.0, 80.0, 65.0, 65.0]
    assert experiments_picture.heads_of(runs[1:]) == pytest.approx([65.0, 90.0])
    facts = {"rows": "sst-2", "encoder": "gte-small", "count": "speedup"}
    experiments_picture.draw({"name": "exits", "experiment": facts, "runs": runs}, tmp_path / "exits.png")
    assert (tmp_path / "exits.png").stat().st_size > 10_000
