"""One run of an experiment: train a recipe with one seed, let dev rows choose, judge on test rows."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.experiment import Experiment, Recipe
from benchmarks.imitation import Imitating
from benchmarks.rows import SETS, Drawn
from paredown import AdaptiveModel, Plan
from paredown.evaluation import Bill, Cost, Record, front, intervals, metric_named, record, replay, sweep
from paredown.evaluation.choosing import tolerant_rules
from paredown.evaluation.replay import points
from paredown.registry import exits
from paredown.training import train

DIGITS = {"flops": 0, "token_layers": 1}  # others: 5
OWN = "own"  # the exit rule that the method chose or proposes


@dataclass(frozen=True)
class Place:
    """Where a run finds its rows, its encoder and the models it may go on from."""

    weights: Path
    kept: Path
    rows: dict[str, Drawn]
    precision: str = "auto"


def run_one(experiment: Experiment, recipe: Recipe, seed: int, place: Place) -> dict[str, Any]:
    torch.set_num_threads(1)  # others run beside it
    torch.set_float32_matmul_precision("high")  # of what is measured; training has its own precision
    chosen, rows, began = SETS[experiment.rows], place.rows[experiment.rows], time.perf_counter()
    model = _model(experiment, recipe, seed, place)
    metric = metric_named(chosen.metric)
    with tempfile.TemporaryDirectory() as folder:
        report = train(
            model,
            _methods(experiment, recipe, seed, place),
            rows.train,
            rows.dev,
            output=Path(folder) / "run",
            unlabelled=_more_text(recipe, place),
            metric=metric,
            seed=seed,
            max_length=chosen.max_length,
            precision=place.precision,
            checkpoint_every=10**9,  # a benchmark run is repeated, not resumed
            progress=False,
        )
    trained = time.perf_counter() - began
    torch.cuda.empty_cache()  # others share the device
    if any(other.after == recipe.label for other in experiment.recipes):
        model.save_pretrained(kept(place.kept, experiment, recipe.label, seed))
    figures = Measuring(model, experiment, recipe, rows, metric).figures()
    return {
        "recipe": recipe.label,
        "seed": seed,
        "rows": rows.counts,
        "steps": {stage.name: len(stage.losses) for stage in report.stages},
        "dev": {stage.name: stage.best for stage in report.stages},
        **figures,
        "warnings": report.warnings,
        "seconds": {"training": round(trained, 1), "all": round(time.perf_counter() - began, 1)},
    }


def kept(folder: Path, experiment: Experiment, label: str, seed: int) -> Path:
    """Where the model of a recipe stays that others go on from."""
    return folder / f"{experiment.name}-{label}-{seed}".replace(", ", "-").replace(" ", "_")


def _model(experiment: Experiment, recipe: Recipe, seed: int, place: Place) -> AdaptiveModel:
    chosen, labels = SETS[experiment.rows], place.rows[experiment.rows].labels
    torch.manual_seed(seed)
    if recipe.start is None:
        named = {"labels": list(labels)} if chosen.kind == "single_label" else {}
        model = AdaptiveModel.from_pretrained(place.weights / experiment.encoder, task=chosen.kind, **named)
    else:
        model = AdaptiveModel.from_pretrained(kept(place.kept, experiment, recipe.start, seed))
    model.float()  # encoders are stored in 16 bits
    model.plan = Plan(depth=tuple(range(recipe.depth))) if recipe.depth else model.plan.but(exit=None)
    model.plan = model.plan.but(reduce=recipe.reduce)
    return model.to("cuda" if torch.cuda.is_available() else "cpu")


def _methods(experiment: Experiment, recipe: Recipe, seed: int, place: Place) -> list[Any]:
    if recipe.teacher is None:
        return list(recipe.methods)
    teacher = AdaptiveModel.from_pretrained(kept(place.kept, experiment, recipe.teacher, seed))
    teacher.to("cuda" if torch.cuda.is_available() else "cpu")
    return [Imitating(text, teacher) for text in recipe.methods]


def _more_text(recipe: Recipe, place: Place) -> list[str] | None:
    return None if recipe.more_text is None else [row.text for row in place.rows[recipe.more_text].train]


class Measuring:
    """The plans of a trained model on dev and on test rows."""

    def __init__(self, model: AdaptiveModel, experiment: Experiment, recipe: Recipe, rows: Drawn, metric: Any):
        self.model, self.experiment, self.recipe, self.metric = model, experiment, recipe, metric
        self.plan = model.plan.but(exit=None)
        length = SETS[experiment.rows].max_length
        self.rows = {split: model.encode(getattr(rows, split), length) for split in ("dev", "test")}

    def figures(self) -> dict[str, Any]:
        plans = {reducer: self._under(reducer) for reducer in self.recipe.reducers}
        return {"tokens": round(sum(map(len, self.rows["test"])) / len(self.rows["test"]), 1), "plans": plans}

    def _under(self, reducer: str) -> dict[str, Any]:
        """What dev rows choose and test rows score with one reducer: to the end, and with exits."""
        plan = self.plan.but(reduce=None if reducer == "none" else reducer)
        seen = {split: record(self.model, rows, 128, plan) for split, rows in self.rows.items()}
        cost = Cost.of(self.model, plan)
        bills = {split: Bill(its, cost) for split, its in seen.items()}
        padded = SETS[self.experiment.rows].max_length
        papers = {split: self._paper(its, padded) for split, its in seen.items()}
        splits = {split: Split(seen[split], bills[split], papers[split], self.metric) for split in seen}
        found: dict[str, Any] = {"full": _both(splits, None)}
        if len(seen["test"].stops) > 1:
            found["per_layer"] = {layer: round(its, 5) for layer, its in seen["test"].scores(self.metric).items()}
            found["fixed"] = {text: _both(splits, self._rule(text)) for text in self.recipe.fixed}
            found["targets"] = {name: self._targets(splits, name) for name in self._rules(seen["dev"])}
            found["curve"] = self._curve(splits["test"])
        return found

    def _paper(self, seen: Record, padded: int) -> Bill | None:
        if self.experiment.paper is None:
            return None
        return Bill(seen, Cost.of_paper(self.experiment.paper, self.model.config, padded_to=padded))  # type: ignore[arg-type]

    def _rule(self, text: str) -> Any:
        return self.model.plan.exit if text == OWN else exits.of(text)

    def _rules(self, seen: Record) -> list[str]:
        """Those that fit the kind of answer; numbers have no probabilities, and leave where neighbours agree."""
        return ["patience"] if seen.kind.numeric else list(self.recipe.rules)

    def _targets(self, splits: dict[str, Split], name: str) -> dict[str, Any]:
        """By target, the threshold with the best dev score of those that save as much on dev rows; None where none is
        so fast."""
        dev, found = splits["dev"], {}
        rules = [rule for base in _candidates(name, dev.seen) for _, rule in sweep(base)]
        tried = list(zip(rules, dev.points(rules), strict=True))
        for target in self.experiment.targets:
            able = [(its["score"], its[self.experiment.count], rule) for rule, its in tried]
            able = [one for one in able if one[1] >= target]
            best = max(able, key=lambda one: one[:2], default=None)
            found[f"{target:g}x"] = None if best is None else _both(splits, best[2])
        return found

    def _curve(self, test: Split) -> list[dict[str, Any]]:
        """Test points of the first rule that no other is both better and cheaper than, for pictures."""
        base = _candidates(self._rules(test.seen)[0], test.seen)[0]
        found = test.points([rule for _, rule in sweep(base)])
        shown = ("rule", "score", "layers", "speedup", "flops_speedup", "paper_speedup")
        return [rounded({key: one[key] for key in shown if key in one}) for one in front(found, "flops")]


@dataclass(frozen=True)
class Split:
    """Recorded rows, and what they cost."""

    seen: Record
    bill: Bill
    paper: Bill | None
    metric: Any

    def points(self, rules: list[Any]) -> list[dict[str, Any]]:
        found = points(self.seen, rules, self.metric, self.bill)
        if self.paper is not None:
            for one, rule in zip(found, rules, strict=True):
                done = replay(self.seen, rule)
                one["paper_speedup"] = self.paper.mean(done.layers, rule is not None)["flops_speedup"]
        return found


def _candidates(name: str, seen: Record) -> list[Any]:
    return tolerant_rules(seen, range(len(seen))) if seen.kind.numeric else [exits.make(name)]


def _both(splits: dict[str, Split], rule: Any) -> dict[str, Any]:
    """The figures of one exit rule on dev and on test rows; of test rows with an interval."""
    found: dict[str, Any] = {"exit": None if rule is None else str(rule)}
    for name, split in splits.items():
        (figures,) = split.points([rule])
        found[name] = rounded({key: value for key, value in figures.items() if key != "rule"})
    test = splits["test"]
    (interval,) = intervals(test.seen, [replay(test.seen, rule).logits], test.metric)
    found["test"]["interval"] = [round(end, 5) for end in interval]
    return found


def rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        key: round(value, DIGITS.get(key, 5)) if isinstance(value, float) else value for key, value in figures.items()
    }
