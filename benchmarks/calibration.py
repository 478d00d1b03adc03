"""Does a certified plan keep its promise, and how much speed does the certificate cost? Real logits, resampled.

    python -m benchmarks.calibration sst2 grounds/sst2

A ground is what `benchmarks.calibration_ground` recorded, of rows that the model must not have seen; they are all that
there is, so their mean loss is the true risk of every plan. From them units are drawn with replacement, a plan is
certified on the draw, and its true risk is looked up. The oracle knows the true risk of every threshold of every rule.
Beside it, on the same draws: units apart that choose, as dev rows do; one threshold for all layers; every rule alone on
all units of the draw; the control, which takes the cheapest plan whose mean loss on the draw is within the bound; and
ways to learn bounds per layer, a free search over all of them (`free_bounds`) and a temperature for every head among
them. Each name is an entry of calibration.json.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.calibration_ground import load
from benchmarks.commands import repeatable_command
from paredown.calibration import Promise, Risk
from paredown.calibration.calibrating import Search
from paredown.calibration.judged import Judged, Outlook
from paredown.calibration.losses import usual_scale
from paredown.calibration.per_layer import learned_rules
from paredown.calibration.testing import fixed_sequence
from paredown.errors import BadInput, CannotPromise
from paredown.evaluation import metric_named, sweep
from paredown.evaluation.replay import certainties
from paredown.evaluation.report import fitting_rules
from paredown.system.machine import machine

LEVEL, SELECTION, LEARNED = 0.05, 0.2, 20  # draws on which ways to learn bounds are compared
DEV, DEV_SETS = 1000, 20  # units apart, that choose what all units of a draw test; how many sets of them
MORE, REPEATED, ONE_SIDED = (2000, 4000, 8000, 16000), 100, 1.645  # units, draws of each; 5 % of a normal law
PRICES = tuple(2.0 ** (step / 2) for step in range(-2, 19))  # of a lost unit, in passes at full depth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the entry")
    parser.add_argument("ground", type=Path)
    parser.add_argument("--max-drop", type=float, default=0.01)
    parser.add_argument("--max-disagreement", type=float, default=0.02)
    parser.add_argument("--units", type=int, default=2000, help="of a draw")
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    grounds = by_risk(args.ground)
    bounds = {"disagreement": args.max_disagreement, next(iter(grounds)): args.max_drop}
    entry: dict[str, Any] = {"command": repeatable_command("-m benchmarks.calibration"), **machine()}
    entry |= {"units_in_all": grounds["disagreement"].units, "units_of_a_draw": args.units, "resamples": args.resamples}
    for risk, judged in grounds.items():
        start = time.process_time()
        world = World(judged, bounds[risk], args.units, args.resamples)
        entry[risk] = world.report() | {"cpu_seconds": round(time.process_time() - start)}
        print(json.dumps(entry[risk], indent=1), flush=True)
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    args.out.write_text(json.dumps({**known, args.name: entry}, indent=1) + "\n")


def by_risk(folder: Path) -> dict[str, Judged]:
    """Full depth judged by the score, or where it is no mean over units by their error; and by the disagreement."""
    ground, name = load(folder)
    seen, metric = ground.full, metric_named(name)
    scale = usual_scale(seen, range(len(seen)))
    try:
        Risk("score", metric).check(seen.kind, seen.labelled)
        first = Risk("score", metric)
    except BadInput:
        first = Risk("error", metric, scale)
    return {risk.name: ground.judged(risk)[seen.plan] for risk in (first, Risk("disagreement", metric, scale))}


@dataclass(frozen=True)
class World:
    """All units, whose means are the truth."""

    judged: Judged
    bound: float
    units: int
    resamples: int

    @cached_property
    def families(self) -> dict[str, list[Any]]:
        seen = self.judged.record
        rules = fitting_rules("all", seen.kind, tuple(seen.stops[:-1]), bool(seen.error_probability))
        return {rule.name: [at for _, at in sweep(rule)] for rule in rules}

    @cached_property
    def everything(self) -> Outlook:
        return self.judged.of([rule for family in self.families.values() for rule in family])

    @cached_property
    def draws(self) -> np.ndarray:
        return np.random.default_rng(0).integers(0, self.judged.units, (self.resamples, self.units))

    @cached_property
    def stock(self) -> float:
        return float(self.judged.stock_flops.mean())

    def report(self) -> dict[str, Any]:
        true, costs = self.everything.losses.mean(1), self.everything.flops.mean(1)
        within = np.flatnonzero(true <= self.bound)
        best = within[costs[within].argmin()]
        oracle = self.stock / costs[best]
        facts = {"bound": self.bound, "level": LEVEL, "selection": SELECTION, "oracle_speedup": round(oracle, 3)}
        facts |= {"oracle_plan": str(self.everything.plans[best].exit)}
        facts |= {"oracle_units_changed": round(float(np.abs(self.everything.losses[best]).mean()), 4)}
        facts["certified"] = self._figures([self._certified(draw, True) for draw in self.draws], oracle)
        facts["certified_one_threshold"] = self._figures([self._certified(draw, False) for draw in self.draws], oracle)
        facts["certified_dev_rows_choose"] = self._figures(self._chosen_apart(), oracle)
        alone, careless = self._by_rule()
        facts["every_rule_alone"] = {name: self._figures(found, oracle) for name, found in alone.items()}
        facts["control_without_correction"] = self._figures(careless, oracle)
        facts["entropy_alone_by_units"] = self.by_units(oracle)
        return facts | {"bounds_per_layer": self._ways_to_learn()}

    def _figures(self, found: list[tuple[float, float]], oracle: float) -> dict[str, float]:
        """Of (true risk, true speed-up) of every draw; (0, 1) where nothing was certified."""
        risks, speedups = np.array(found).T
        return {
            "violations": round(float((risks > self.bound).mean()), 4),
            "mean_speedup": round(float(speedups.mean()), 3),
            "share_of_oracle": round(float(speedups.mean() / oracle), 3),
            "nothing_certified": round(float((speedups == 1).mean()), 4),
        }

    def _certified(self, draw: np.ndarray, per_layer: bool) -> tuple[float, float]:
        half, full = round(SELECTION * len(draw)), self.judged.record.plan
        promise = Promise(max_drop=self.bound, confidence=1 - LEVEL, risk=self.judged.risk.name)
        search = Search({full: self.judged}, promise, draw[:half], draw[half:], "all", per_layer)
        try:
            plan, _ = search.cheapest(self.bound)
        except CannotPromise:
            return 0.0, 1.0
        truth = self.judged.of([plan.exit])
        return float(truth.losses.mean()), self.stock / float(truth.flops.mean())

    def _chosen_apart(self) -> list[tuple[float, float]]:
        """Where units of which nothing is drawn choose, as dev rows would: several sets of them take turns."""
        full, dice = self.judged.record.plan, np.random.default_rng(2)
        promise = Promise(max_drop=self.bound, confidence=1 - LEVEL, risk=self.judged.risk.name)
        orders = [dice.permutation(self.judged.units) for _ in range(DEV_SETS)]
        searches = [Search({full: self.judged}, promise, its[:DEV], its[DEV:], apart=True) for its in orders]
        found = []
        for number, draw in enumerate(self.draws):
            search, others = searches[number % DEV_SETS], orders[number % DEV_SETS][DEV:]
            search.testing = others[draw % len(others)]
            try:
                plan, _ = search.cheapest(self.bound)
            except CannotPromise:
                found.append((0.0, 1.0))
                continue
            truth = self.judged.of([plan.exit], others)
            speedup = self.judged.stock_flops[others].mean() / truth.flops.mean()
            found.append((float(truth.losses.mean()), float(speedup)))
        return found

    def _by_rule(self) -> tuple[dict[str, list[tuple[float, float]]], list[tuple[float, float]]]:
        """Every rule on all units of a draw, from cautious to fast; and the control over all rules."""
        true, costs = self.everything.losses.mean(1), self.everything.flops.mean(1)
        starts = np.cumsum([0, *[len(family) for family in self.families.values()]])
        alone: dict[str, list[tuple[float, float]]] = {name: [] for name in self.families}
        careless = []
        for draw in self.draws:
            losses = self.everything.losses[:, draw]
            for name, start in zip(self.families, starts, strict=False):
                path = losses[start : start + len(self.families[name])]
                passed = fixed_sequence(path, self.bound, LEVEL, self.judged.risk.signed)
                last = start + passed - 1
                alone[name].append((float(true[last]), self.stock / costs[last]) if passed else (0.0, 1.0))
            fine = np.flatnonzero(losses.mean(1) <= self.bound)
            cheapest = fine[self.everything.flops[fine][:, draw].mean(1).argmin()]
            careless.append((float(true[cheapest]), self.stock / costs[cheapest]))
        return alone, careless

    def by_units(self, oracle: float) -> dict[str, dict[str, float]]:
        """The share of the oracle's speed-up that the entropy rule alone reaches with more units; beside it the mean of
        a test that knew the variance of the losses, which no test can do better than on so many units."""
        start = sum(len(family) for family in list(self.families.values())[: list(self.families).index("entropy")])
        path = self.everything.only(range(start, start + len(self.families["entropy"])))
        speedups, spread = np.append(1.0, self.stock / path.flops.mean(1)), path.losses.std(1)
        found = {}
        for units in MORE:
            tested, known = [], []
            for draw in np.random.default_rng(1).integers(0, self.judged.units, (REPEATED, units)):
                losses = path.losses[:, draw]
                tested.append(speedups[fixed_sequence(losses, self.bound, LEVEL, self.judged.risk.signed)])
                fails = losses.mean(1) > self.bound - ONE_SIDED * spread / math.sqrt(units)
                known.append(speedups[np.append(fails, True).argmax()])
            shares = {"exact": np.mean(tested) / oracle, "variance_known": np.mean(known) / oracle}
            found[str(units)] = {name: round(float(share), 3) for name, share in shares.items()}
        return found

    def _ways_to_learn(self) -> dict[str, Any]:
        """The mean speed-up of bounds learned on the units that would choose, at the first whose true risk is within
        the bound: what a perfect test would let pass. Of the entropy rule, or the first that takes bounds per layer."""
        names = [name for name, family in self.families.items() if family[0].per_layer]
        rule = self.families["entropy" if "entropy" in names else names[0]][0]
        ways = {"one_threshold": [], "offsets": [], "free": [], "temperatures": []}  # type: dict[str, list[float]]
        for draw in self.draws[:LEARNED]:
            units = draw[: round(SELECTION * len(draw))]
            ways["one_threshold"].append(self._best(self.families[rule.name]))
            ways["offsets"].append(self._best([at for its in learned_rules(self.judged, rule, units) for at in its]))
            ways["free"].append(self._best(free_rules(self.judged, rule, units)))
            if self.judged.record.kind.name == "single_label":
                tempered = replace(self, judged=with_temperatures(self.judged, units))
                ways["temperatures"].append(tempered._best(self.families[rule.name]))
        return {"rule": rule.name, **{way: round(float(np.mean(found)), 3) for way, found in ways.items() if found}}

    def _best(self, rules: list[Any]) -> float:
        truth = self.judged.of(rules)
        within = truth.losses.mean(1) <= self.bound
        return self.stock / float(truth.flops.mean(1)[within].min()) if within.any() else 1.0


def with_temperatures(judged: Judged, units: np.ndarray) -> Judged:
    """The same record, the logits of every head divided by the temperature that is likeliest on some units."""
    seen, temperatures = judged.record, torch.logspace(-1, 1, 61)
    assert seen.labels is not None
    rows = torch.from_numpy(judged.rows_of(units))
    logits = {}
    for step, its in seen.logits.items():
        losses = [torch.nn.functional.cross_entropy(its[rows] / at, seen.labels[rows]) for at in temperatures]
        logits[step] = its / temperatures[torch.stack(losses).argmin()]
    return replace(judged, record=replace(seen, logits=logits), _each={})


def free_rules(judged: Judged, rule: Any, units: np.ndarray) -> list[Any]:
    """The bounds that are cheapest on some units, at every price of a loss."""
    seen, rows = certainties(judged.record, rule), judged.rows_of(units)
    flops, _, _ = judged.bill.flops
    costs = flops.double().numpy()[rows][:, np.array(seen.steps) - 1].T
    losses = np.maximum(judged.losses_at_exits(seen)[:, rows], 0.0)
    values = seen.values.numpy()[:, rows]
    found = [free_bounds(values, costs / costs[-1].mean() + price * losses) for price in PRICES]
    return [rule.at_bounds(dict(zip(seen.steps, bounds.tolist(), strict=False))) for bounds in found]


def free_bounds(values: np.ndarray, prices: np.ndarray, turns: int = 10) -> np.ndarray:
    """Bounds of all exits but the last, of certainties [these exits, rows] and the price of leaving [exits, rows].

    Given the later bounds it is known what a row will cost that stays, and given the earlier ones which rows arrive:
    the best bound of one layer is found by a sort. Layers take turns, the last one first, until none changes.
    """
    bounds = np.full(len(values), math.inf)
    for _ in range(turns):
        before = bounds.copy()
        for exit in reversed(range(len(values))):
            arrives = (values[:exit] <= bounds[:exit, None]).all(0)
            stays = values[exit + 1 :] <= bounds[exit + 1 :, None]
            later = exit + 1 + stays.cumprod(0).sum(0)
            gain = prices[later, np.arange(values.shape[1])] - prices[exit]
            bounds[exit] = _best_bound(values[exit, arrives], gain[arrives])
        if (bounds == before).all():
            break
    return bounds


def _best_bound(values: np.ndarray, gain: np.ndarray) -> float:
    """Where the rows above gain most by leaving; rows that are equally sure leave together."""
    order = np.argsort(-values, kind="stable")
    last = np.append(values[order][1:] < values[order][:-1], True)
    sums = np.where(last, np.cumsum(gain[order]), -math.inf)
    if not len(sums) or sums.max() <= 0:
        return math.inf
    best = int(sums.argmax())
    return -math.inf if best + 1 == len(order) else float(values[order[best + 1]])


if __name__ == "__main__":
    main()
