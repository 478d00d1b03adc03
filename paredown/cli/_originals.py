"""`paredown evaluate --write`: the original tools' files, at which settings, and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paredown.answers import Encoded
from paredown.errors import BadInput, BadSetting
from paredown.evaluation import Metric, Record, metric_named, record
from paredown.evaluation.elue import STATIC
from paredown.evaluation.original_files import (
    DEEBERT_THRESHOLDS,
    EACH_LAYER,
    ELASTICBERT_PATIENCES,
    ELASTICBERT_THRESHOLDS,
    ELASTICBERT_TOLERANCE,
    ELUE,
    GLUE,
    Point,
    Written,
    benchmark_name,
    deebert_metric,
    deebert_name,
    elastic_names,
    elastic_points,
    still_missing,
    write_deebert,
    write_elasticbert,
    write_elue_submission,
    write_glue_submission,
)
from paredown.exits import EntropyNats
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import tasks
from paredown.runtime.timing import spread, time_plans

# What --write knows, and the flags each reads.
FORMATS = {
    "deebert": ("threshold",),
    "elasticbert": ("threshold", "patience", "tolerance"),
    "glue": ("exit",),
    "elue": ("threshold", "patience", "tolerance"),
}
BENCHMARKS = {"glue": GLUE, "elue": ELUE}  # submissions: answers to the test rows of one of their tasks
TIMED_ROWS = 64  # DeeBERT's time is measured on so many rows, one by one, and stands for all


@dataclass(frozen=True)
class OriginalSettings:
    """The flags beside --write; None: as the original scripts have it."""

    threshold: Sequence[float] | None = None
    patience: Sequence[int] | None = None
    tolerance: float | None = None
    exit: str | None = None  # of the plan, else the bundle's own

    def check(
        self, formats: Sequence[str], output: Path | None, for_report: Sequence[str] = (), checkpoints: bool = False
    ) -> None:
        """`for_report` are the given flags that only the report reads."""
        if formats and checkpoints:
            raise BadSetting("--write and --checkpoints both take the place of the report; give one")
        if unknown := [name for name in formats if name not in FORMATS]:
            raise BadSetting(f"--write knows no {unknown[0]!r}; it knows: {', '.join(FORMATS)}")
        for flag in ("threshold", "patience", "tolerance", "exit"):
            readers = [name for name, flags in FORMATS.items() if flag in flags]
            reported = flag == "exit" and not formats
            if getattr(self, flag) is not None and not reported and not set(readers) & set(formats):
                raise BadSetting(f"--{flag} is for --write {' or '.join(readers)}")
        if (formats or checkpoints) and for_report:
            instead = "--write" if formats else "--checkpoints"
            raise BadSetting(f"with {instead} there is no report, so nothing would listen to {', '.join(for_report)}")
        if formats and output is None:
            raise BadSetting("--write needs --output, the folder for the files")


def split_of(formats: Sequence[str], split: str | None) -> str:
    """Submissions answer test rows, all else is about dev rows by default."""
    sent = [name for name in formats if name in BENCHMARKS]
    if sent and split is not None and not split.startswith("test"):
        raise BadSetting(f"--write {sent[0]} makes a submission, which answers test rows, not --split {split}")
    if split is None and sent and len(sent) < len(formats):
        raise BadSetting(f"{sent[0]} wants test rows; give the other --write in a command of its own, or --split test")
    return split or ("test" if sent else "dev")


@dataclass(frozen=True)
class OriginalFiles:
    """What --write makes of one task's rows."""

    formats: tuple[str, ...]
    folder: Path
    task: str | None  # of the catalogue
    rows: str  # the task, or the file of the rows
    split: str
    settings: OriginalSettings
    model: AdaptiveModel
    plan: Plan

    def __post_init__(self) -> None:
        for name in self.formats:
            if name in BENCHMARKS:
                self._check_task(name)
        for rule in self.rules():
            self.model.route(self.plan.but(exit=rule))

    def _check_task(self, benchmark: str) -> None:
        known = ", ".join(name for name in tasks.aliases() if tasks[name] is tasks[benchmark])
        if self.task is None or tasks[self.task] is not tasks[benchmark]:
            raise BadSetting(f"--write {benchmark} needs a --task of {benchmark.upper()}: {known}")
        labels = tasks.make(self.task).labels
        if not self.model.kind.numeric and set(self.model.labels) != set(labels):
            theirs, ours = ", ".join(labels), ", ".join(self.model.labels[:20])
            raise BadSetting(f"the answers to {self.task} are {theirs}; this bundle answers {ours}")

    @property
    def thresholds(self) -> tuple[float, ...]:
        return tuple(DEEBERT_THRESHOLDS if self.settings.threshold is None else self.settings.threshold)

    @property
    def points(self) -> list[Point]:
        """ElasticBERT's points: what is asked for, or what both scripts sweep; numbers have no entropy, and a
        model without exits runs to its end."""
        asked, numbers = self.settings, self.model.kind.numeric
        tolerance = ELASTICBERT_TOLERANCE if numbers and asked.tolerance is None else asked.tolerance
        if asked.threshold is None and asked.patience is None:
            depth = self.model.depth_of(self.plan)
            if not any(str(layer) in self.model.heads for layer in depth[:-1]):
                return [Point(STATIC, str(len(depth)), None)]
            return elastic_points(() if numbers else ELASTICBERT_THRESHOLDS, ELASTICBERT_PATIENCES, tolerance)
        return elastic_points(asked.threshold or (), asked.patience or (), tolerance)

    @property
    def stage(self) -> str:
        return "infer" if self.split.startswith("test") else "eval"

    @property
    def name(self) -> str:
        """The name of the task, as ElasticBERT spells it in file names."""
        return Path(self.rows).stem if self.task is None else self.task.removeprefix("elue-")

    @property
    def labels(self) -> list[str]:
        """What the model answers, as the benchmark writes it."""
        task = None if self.task is None else tasks.make(self.task)
        spelled = dict(zip(task.labels, task.spelled, strict=True)) if task and task.spelled else {}
        return [spelled.get(label, label) for label in self.model.labels]

    def rules(self) -> list[Any]:
        """Every exit rule that is asked, once; None: full depth."""
        found: list[Any] = []
        for name in self.formats:
            if name == "deebert":
                found += map(EntropyNats, self.thresholds)
            elif name == "glue":
                found.append(self.plan.exit)
            else:
                found += [point.rule for point in self.points]
        return list(dict.fromkeys(found))

    def names(self) -> list[str]:
        """Of the files, in the order they are written."""
        found: list[str] = []
        for name in self.formats:
            if name == "deebert":
                found += [*map(deebert_name, self.thresholds), EACH_LAYER]
            elif name == "elasticbert":
                found += [file for at in self.points for file in elastic_names(self.name, at, self.stage)]
            else:
                found.append(f"{name}.zip")
        return found

    def check(self, labelled: bool, left_out: int) -> None:
        """Whether the rows suit the files."""
        if "deebert" in self.formats and not labelled:
            raise BadInput(f"DeeBERT's files hold scores, and the {self.split} rows have no labels")
        if left_out and self.formats != ("deebert",):
            raise BadInput(f"{left_out} rows were left out, but these files number all rows; mend the rows")

    def write(self, rows: list[Encoded], metrics: Sequence[str], groups: Any) -> Written:
        """Run the model once and write all; the first of `metrics` is the task's headline."""
        seen = record(self.model, rows, plan=self.plan)
        seen.check_finite()
        made = [self._written(name, seen, rows, metrics, groups) for name in self.formats]
        return Written([path for one in made for path in one.files], [line for one in made for line in one.lines])

    def _written(self, name: str, seen: Record, rows: list[Encoded], metrics: Sequence[str], groups: Any) -> Written:
        folder, task = self.folder, self.task or ""
        if name == "deebert":
            metric = metric_named(deebert_metric(metrics), groups)
            return write_deebert(folder, seen, self.thresholds, metric, self._seconds(rows))
        if name == "elasticbert":
            scored: list[Metric] = [metric_named(metric, groups) for metric in metrics]
            return write_elasticbert(folder, seen, self.name, self.labels, self.points, self.stage, scored)
        if name == "elue":
            path = write_elue_submission(folder / "elue.zip", seen, task, self.labels, self.points)
            return Written([path], [f"{path.name} has {benchmark_name(task, ELUE)} at {len(self.points)} points"])
        path = write_glue_submission(folder / "glue.zip", seen, task, self.labels, self.plan.exit)
        missing = still_missing(path)
        rest = f"; GLUE also wants {', '.join(missing)}" if missing else ": all that GLUE wants is there"
        return Written([path], [f"{path.name} has {benchmark_name(task, GLUE)}, {self.plan}{rest}"])

    def _seconds(self, rows: list[Encoded]) -> list[float]:
        plans = [self.plan.but(exit=EntropyNats(threshold)) for threshold in self.thresholds]
        taken = time_plans(self.model, spread(rows, TIMED_ROWS), plans, batch_size=1, rounds=1)
        return [round(taken[plan].seconds_per_row * len(rows), 4) for plan in plans]
