"""Labelled questions, asked as a whole: an evaluation knows rows, of which a question may take several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rich.table import Table

from paredown.evaluation import (
    HotpotPredictions,
    score_choices,
    score_hotpot,
    score_spans,
    score_trivia,
    write_candidates,
    write_letters,
    write_predictions,
)
from paredown.evaluation.hotpot import PREDICTED
from paredown.evaluation.spans import N_BEST, PREDICTIONS
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import tasks

BATCH = 64  # rows of a batch
SHOWN = ("accuracy", "exact", "em", "f1", "sp_em", "sp_f1", "joint_em", "joint_f1")  # in a table, where there are such


@dataclass(frozen=True)
class Asked(ABC):
    model: AdaptiveModel
    plan: Plan
    questions: list[Any]
    max_length: int | None
    task: str | None  # of the catalogue, which knows how to score
    files: ClassVar[tuple[str, ...]] = (PREDICTIONS,)

    def ask(self, plan: Plan) -> list[Any]:
        """A prediction for every question, with the layers and tokens it took."""
        settings = asdict(self.model.kind.suiting(self.questions))
        return self.model.predict(self.questions, plan, BATCH, self.max_length, **settings)

    @abstractmethod
    def score(self, predictions: list[Any]) -> dict[str, float | int]:
        """The scores by the task's rules."""

    @abstractmethod
    def write(self, folder: Path) -> list[Path]:
        """The answers under the bundle's own plan, as the task's own tools want them."""

    @cached_property
    def answers(self) -> dict[str, list[Any]]:
        """The predictions by plan, the bundle's own last."""
        full = Plan(self.plan.depth)
        plans = {"full depth": full} if full == self.plan else {"full depth": full, str(self.plan): self.plan}
        return {name: self.ask(plan) for name, plan in plans.items()}

    @property
    def own(self) -> list[Any]:
        """The answers under the bundle's own plan."""
        return list(self.answers.values())[-1]

    @property
    def figures(self) -> list[dict[str, Any]]:
        """The scores of every plan, and the work for a question."""
        found = []
        for name, predictions in self.answers.items():
            layers = sum(one.layers for one in predictions) / sum(one.windows for one in predictions)
            work = {"layers": layers, "token_layers": sum(one.tokens for one in predictions) / len(predictions)}
            found.append({"plan": name, **self.score(predictions), **work})
        return found

    def table(self) -> Table:
        title = f"official score of {len(self.questions):,} questions, in %"
        table = Table("plan", title=title, title_justify="left")
        figures = self.figures
        shown = [name for name in SHOWN if name in figures[0]]
        for name in (*shown, "layers", "token-layers"):
            table.add_column(name.replace("_", " ").replace("f1", "F1"), justify="right", no_wrap=True)
        for at in figures:
            scores = [f"{100 * at[name]:.2f}" for name in shown]
            table.add_row(at["plan"], *scores, f"{at['layers']:.2f}", f"{at['token_layers']:,.0f}")
        return table


class Spans(Asked):
    files: ClassVar[tuple[str, ...]] = (PREDICTIONS, N_BEST)

    def score(self, predictions: list[Any]) -> dict[str, float | int]:
        headline = tasks.make(self.task).metric if self.task else None
        if headline == "hotpot_f1":
            return score_hotpot(self.questions, HotpotPredictions.of(predictions))
        return (score_trivia if headline == "trivia_f1" else score_spans)(self.questions, predictions)

    def write(self, folder: Path) -> list[Path]:
        return write_predictions(folder, self.own)


class SupportedSpans(Spans):
    files: ClassVar[tuple[str, ...]] = (*Spans.files, PREDICTED)

    def write(self, folder: Path) -> list[Path]:
        written = super().write(folder)
        HotpotPredictions.of(self.own).write(folder / PREDICTED)
        return [*written, folder / PREDICTED]


class Options(Asked):
    def score(self, predictions: list[Any]) -> dict[str, float | int]:
        return score_choices(self.questions, [one.label for one in predictions])

    def write(self, folder: Path) -> list[Path]:
        return write_letters(folder, self.questions, [one.label for one in self.own])


class Candidates(Options):
    def write(self, folder: Path) -> list[Path]:
        return write_candidates(folder, self.own)


ASKED: dict[str, type[Asked]] = {  # by kind of answer
    "span": Spans,
    "supported_span": SupportedSpans,
    "choice": Options,
    "marked": Candidates,
}
