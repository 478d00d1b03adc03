"""`paredown evaluate RUN --checkpoints`: every kept checkpoint of a run on the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from paredown.answers import Encoded
from paredown.cli._app import print_json, results
from paredown.cli._loading import check_source, is_bundle
from paredown.errors import BadBundle
from paredown.evaluation import Metric, Worth, worth
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.system.saving import write_json
from paredown.training.checkpoint import KEPT

FILE = "checkpoints.json"


def kept_bundles(run: str) -> list[str]:
    """The bundles of a run: every kept checkpoint by step, then the one it ended with."""
    check_source(run)
    kept = sorted(str(path) for path in (Path(run) / KEPT).glob("step-*"))
    if not kept:
        hint = "`paredown train --save-every N --keep-checkpoints` keeps them"
        raise BadBundle(f"{run} keeps no checkpoints; {hint}")
    last = str(Path(run) / "model")
    return [*kept, last] if is_bundle(last) else kept


@dataclass(frozen=True)
class Kept:
    """What each kept checkpoint is worth."""

    found: dict[str, Worth]  # by bundle

    @classmethod
    def judged(
        cls,
        bundles: list[str],
        loaded: Callable[[str], tuple[AdaptiveModel, Plan]],
        rows: list[Encoded],
        metric: Metric,
    ) -> Kept:
        found = {}
        for bundle in bundles:
            model, plan = loaded(bundle)
            found[bundle] = worth(model, rows, metric, plan)
        return cls(found)

    def show(self, output: Path | None, as_json: bool) -> None:
        each = [{"bundle": bundle, **its.to_json()} for bundle, its in self.found.items()]
        print_json({"checkpoints": each}) if as_json else results.print(self.table())
        if output is not None:
            write_json(output / FILE, {"checkpoints": each})
            if not as_json:
                results.print(f"written: {output / FILE}", highlight=False)

    def table(self) -> Table:
        first: Any = next(iter(self.found.values()))
        title = f"{first.metric} in % on {first.rows:,} rows"
        table = Table("checkpoint", title=title, title_justify="left")
        for name in ("full depth", "plan", "under the plan", "layers", "MFLOPs", "speed-up"):
            table.add_column(name, justify="left" if name == "plan" else "right")
        for bundle, its in self.found.items():
            numbers = f"{its.layers:.2f}", f"{its.flops / 1e6:,.1f}", f"{its.flops_speedup:.2f}×"
            scores = f"{100 * its.full_score:.2f}", its.plan, f"{100 * its.score:.2f}"
            table.add_row(Path(bundle).name, *scores, *numbers)
        return table
