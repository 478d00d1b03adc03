"""A record on disk equals the one in memory, knows what it was made from, and takes no more memory for more rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paredown import AdaptiveModel, Plan
from paredown.answers import Encoded, Question
from paredown.errors import BadBundle, BadInput, BadSetting, CannotSave
from paredown.evaluation import Cost, Record, curve, evaluate, metric_for, record, replay
from paredown.evaluation import record_file as files
from paredown.evaluation.record import record_once
from paredown.registry import answers, exits
from tests.contracts.reducer_settings import with_selectors
from tests.contracts.test_answers import asked, model_of
from tests.evaluation.made import encoded, sst2
from tests.families import adaptive

PLANS = (Plan(), Plan(reduce="selector:0.5"), Plan((0, 1, 2), reduce="fixed_share:0.6"))
each_kind = pytest.mark.parametrize("kind", answers.names())


def rules_for(kind: str) -> list[Any]:
    if answers.make(kind).numeric:
        return [None, *map(exits.parse, ("patience:1,tolerance=0.5", "learned:0.5"))]
    return [None, *map(exits.parse, ("entropy:0.6", "entropy:0.2", "patience:1", "ensemble:0.6", "learned:0.5"))]


def made(kind: str) -> tuple[AdaptiveModel, list[Encoded]]:
    model = with_selectors(model_of(kind))
    return model, model.encode(asked(model), 28 if model.kind.asks is Question else None)  # few tokens: many windows


def facts(seen: Record) -> tuple[Any, ...]:
    return seen.kind, seen.plan, seen.hashes, seen.units, seen.labelled, seen.stops


def check_same(ours: Record, theirs: Record) -> None:
    ours_by_name, theirs_by_name = ours.tensors(), theirs.tensors()
    assert ours_by_name.keys() == theirs_by_name.keys() and facts(ours) == facts(theirs)
    for name, value in ours_by_name.items():
        assert value.dtype == theirs_by_name[name].dtype and torch.equal(value, theirs_by_name[name]), name


@each_kind
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_file_says_what_memory_says(kind: str, plan: Plan, tmp_path: Path) -> None:
    model, rows = made(kind)
    seen = record(model, rows, batch_size=3, plan=plan)
    streamed = record(model, rows, batch_size=3, plan=plan, to=tmp_path / "streamed")
    seen.save(tmp_path / "saved")
    loaded = Record.load(tmp_path / "saved")
    metric, cost, rules = metric_for(model.kind), Cost.of(model, plan), rules_for(kind)
    for other in (streamed, loaded):
        check_same(seen, other)
        assert other.scores(metric) == seen.scores(metric)
        assert curve(other, rules, metric, cost) == curve(seen, rules, metric, cost)
        for rule in rules:
            ours, theirs = replay(seen, rule), replay(other, rule)
            assert torch.equal(ours.logits, theirs.logits) and torch.equal(ours.layers, theirs.layers)
    loaded.save(tmp_path / "saved")  # over the very files that it is mapped from
    check_same(seen, Record.load(tmp_path / "saved"))


@each_kind
def test_rows_need_no_labels(kind: str, tmp_path: Path) -> None:
    model = model_of(kind)
    rows = model.encode(model.kind.unlabelled(model.kind.units(asked(model))))
    seen = record(model, rows, to=tmp_path / "record")
    assert not seen.labelled and seen.labels is None
    check_same(seen, record(model, rows))


@pytest.mark.parametrize("kind", [name for name in answers.names() if answers.make(name).windowed])
def test_units_are_decoded_from_a_file_as_before(kind: str, tmp_path: Path) -> None:
    model, rows = made(kind)
    seen = record(model, rows, to=tmp_path / "record")
    assert {len(unit) for unit in seen.units} != {1}
    for indexes in seen.units:
        for step in seen.stops:
            logits = [seen.logits[step][index][: len(rows[index])] for index in indexes]
            ours, theirs = ([its[index] for index in indexes] for its in (rows, seen.windows))
            assert model.kind.decode(theirs, logits, ()) == model.kind.decode(ours, logits, ())


# What it was made from


def test_it_knows_what_it_was_made_from(tmp_path: Path) -> None:
    model, rows = made("single_label")
    record(model, rows, to=tmp_path / "record")
    seen = Record.load(tmp_path / "record")
    seen.check_belongs(model, rows)
    model.companions["teacher"] = torch.nn.Linear(2, 2)  # no part of what answers
    seen.check_belongs(model, rows)
    seen.check_belongs(model, model.encode(asked(model)), Plan(exit="entropy:0.3"))  # nobody left when it was recorded
    relabelled = [replace(rows[0], label=1 - rows[0].label), *rows[1:]]
    for others in (rows[1:], rows[::-1], relabelled):
        with pytest.raises(BadInput, match=r"another data$"):
            seen.check_belongs(model, others)
    with pytest.raises(BadInput, match=r"another plan$"):
        seen.check_belongs(model, rows, Plan((0, 1)))
    with torch.no_grad():
        model.heads["0"].get_parameter(next(iter(dict(model.heads["0"].named_parameters())))).flatten()[0] += 1
    with pytest.raises(BadInput, match=r"another model and another plan$"):
        seen.check_belongs(model, rows, Plan((0, 1)))
    sst2(5).save(tmp_path / "unknown")
    with pytest.raises(BadInput, match="does not know"):
        Record.load(tmp_path / "unknown").check_belongs(model, rows)


def test_other_answers_are_other_data() -> None:
    """The tokens are the same; what is right is not."""
    model, rows = made("span")
    other = [replace(row, asked=replace(row.asked, answers=("another",))) for row in rows]
    assert record(model, rows).differs(model, other) == ["data"]


def test_a_record_is_used_again_only_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    caplog.set_level("INFO")
    model, rows = made("single_label")
    folder, settings = tmp_path / "record", {"timed_batches": (), "resamples": 20, "record_in": tmp_path / "record"}
    first = evaluate(model, rows, ["entropy"], **settings)
    assert not caplog.messages
    again = evaluate(model, rows, ["entropy"], **settings)
    assert again.to_json() == first.to_json() and "used again" in caplog.messages[-1]
    before = (folder / files.FACTS).read_bytes()
    seen = record_once(model, rows[1:], 4, None, folder)
    assert len(seen) == len(rows) - 1 and "another data: it is recorded anew" in caplog.messages[-1]
    assert (folder / files.FACTS).read_bytes() != before


# What can go wrong


@pytest.mark.parametrize("name", sorted(files.FILES))
def test_damage_is_found(name: str, tmp_path: Path) -> None:
    model, rows = made("span")
    record(model, rows, to=tmp_path / "record")
    path = tmp_path / "record" / name
    whole = path.read_bytes()
    for index in (len(whole) // 3, len(whole) - 3):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        with pytest.raises(BadBundle, match=name.replace(".", r"\.") + "|format|record"):
            Record.load(path.parent)
    path.write_bytes(whole[:-20])
    with pytest.raises(BadBundle):
        Record.load(path.parent)
    path.unlink()
    with pytest.raises(BadBundle, match=name):
        Record.load(path.parent)


def test_another_format_is_named(tmp_path: Path) -> None:
    sst2(5).save(tmp_path / "record")
    path = tmp_path / "record" / files.FACTS
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(BadBundle, match="format 2; this version reads format 1"):
        Record.load(tmp_path / "record")


@pytest.mark.parametrize(
    "change",
    [
        {"labels": torch.zeros(4, dtype=torch.long)},
        {"lengths": torch.ones(6, dtype=torch.long)},
        {"error_probability": {1: torch.zeros(4, 1)}},
        {"error_probability": {99: torch.zeros(5, 1)}},
        {"dropped_to": torch.ones(5, 3, dtype=torch.long)},
        {"logits": {1: torch.zeros(5, 2), 2: torch.zeros(5, 3)}},
        {"group": torch.zeros(5, dtype=torch.long)},
    ],
    ids=str,
)
def test_tensors_must_fit_together(change: dict[str, Any], tmp_path: Path) -> None:
    replace(sst2(5), **change).save(tmp_path / "record")
    with pytest.raises(BadBundle, match="fit"):
        Record.load(tmp_path / "record")


def test_windows_must_be_what_their_kind_reads(tmp_path: Path) -> None:
    model, rows = made("span")
    record(model, rows, to=tmp_path / "record")
    path = tmp_path / "record" / files.WINDOWS
    lines = path.read_text().splitlines()
    for old, new in (('"at": ', '"at": 0.'), ('"question": "', '"answer": "'), ('"int32"', '"object"')):
        path.write_text("\n".join([lines[0], lines[1].replace(old, new)]))
        with pytest.raises(BadBundle, match="line 2: not the windows"):
            files.read_windows(path, model.kind)
    path.write_text("\n".join(lines[1:]))
    with pytest.raises(BadBundle, match="every window once"):
        files.read_windows(path, model.kind)


def test_a_crash_leaves_nothing_or_the_record_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = made("single_label")

    def full(*call: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.InFile, "put", full)
        with pytest.raises(CannotSave, match="No space left"):
            record(model, rows, to=tmp_path / "record")
        assert list(tmp_path.iterdir()) == []
    seen = record(model, rows, to=tmp_path / "record")
    with monkeypatch.context() as patch:
        patch.setattr(files.InFile, "put", full)
        with pytest.raises(CannotSave, match="intact"):
            record(model, rows[1:], to=tmp_path / "record")
    check_same(seen, Record.load(tmp_path / "record"))
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


def test_nothing_but_a_record_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for target in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(BadSetting, match="not a record"):
            sst2(5).save(target)
    assert (tmp_path / "notes.txt").read_text() == "mine"


# Memory


def own_memory() -> int:
    """Bytes of this process that no file stands behind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say how much memory is used")
def test_memory_does_not_grow_with_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Padding:
        pad_token_id = 1

    model = adaptive("bert", "token_label", "linear", Padding(), num_labels=800)
    rows = encoded("token_label", [32] * 160)
    used, of_type = [0], files._of_type
    monkeypatch.setattr(files, "_of_type", lambda *call: used.append(own_memory()) or of_type(*call))
    record(model, rows[:8], batch_size=8, to=tmp_path / "small")  # what is allocated once
    size, grown = 4 * 160 * 32 * 800 * 4, {}
    for name, settings in {"file": {"to": tmp_path / "record"}, "memory": {}}.items():
        used[:] = [own_memory()]
        seen = record(model, rows, batch_size=8, **settings)
        grown[name] = max(*used, own_memory()) - used[0]
        assert len(seen) == 160
    assert grown["file"] < size / 3 < size / 2 < grown["memory"], grown  # some of it may have been free before
