"""Labelled questions, asked as a whole: an evaluation knows rows, of which a question may take several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rich.table import Table

from paredown.evaluation import (
    CandidateAnswering,
    QuestionAnswering,
    score_candidates,
    score_choices,
    score_spans,
    score_trivia,
    write_candidates,
    write_letters,
    write_predictions,
)
from paredown.evaluation.spans import N_BEST, PREDICTIONS
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import tasks

BATCH = 64  # rows of a batch


@dataclass(frozen=True)
class Asked(ABC):
    model: AdaptiveModel
    plan: Plan
    questions: list[Any]
    max_length: int | None
    task: str | None  # of the catalogue: who says how to score
    columns: ClassVar[dict[str, str]] = {"accuracy": "accuracy"}  # of the table, and the figure in each
    files: ClassVar[tuple[str, ...]] = (PREDICTIONS,)

    @abstractmethod
    def ask(self, plan: Plan) -> list[Any]:
        """An answer for every question, with the layers and tokens it took."""

    @abstractmethod
    def score(self, said: list[Any]) -> dict[str, float | int]:
        """By the task's rules."""

    @abstractmethod
    def write(self, folder: Path) -> list[Path]:
        """The answers under the bundle's own plan, as the task's own tools want them."""

    @cached_property
    def answers(self) -> dict[str, list[Any]]:
        """By plan, the bundle's own last."""
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
        for name, said in self.answers.items():
            layers = sum(one.layers for one in said) / sum(getattr(one, "windows", 1) for one in said)
            work = {"layers": layers, "token_layers": sum(one.tokens for one in said) / len(said)}
            found.append({"plan": name, **self.score(said), **work})
        return found

    def table(self) -> Table:
        title = f"official score of {len(self.questions):,} questions"
        table = Table("plan", title=title, title_justify="left")
        for name in (*self.columns, "layers", "token-layers"):
            table.add_column(name, justify="right", no_wrap=True)
        for at in self.figures:
            scores = [f"{at[figure]:.2f}" for figure in self.columns.values()]
            table.add_row(at["plan"], *scores, f"{at['layers']:.2f}", f"{at['token_layers']:,.0f}")
        return table


class Spans(Asked):
    columns: ClassVar[dict[str, str]] = {"exact": "exact", "F1": "f1"}
    files: ClassVar[tuple[str, ...]] = (PREDICTIONS, N_BEST)

    def ask(self, plan: Plan) -> list[Any]:
        """ "No answer" is an answer where it is ever right."""
        silence = 0.0 if any(question.impossible for question in self.questions) else None
        asking = QuestionAnswering(self.model, self.max_length, null_threshold=silence)
        return asking.answers(self.questions, plan, BATCH)

    def score(self, said: list[Any]) -> dict[str, float | int]:
        score = score_trivia if self.task and tasks.make(self.task).metric == "trivia_f1" else score_spans
        return score(self.questions, said)

    def write(self, folder: Path) -> list[Path]:
        return write_predictions(folder, self.own)


class Options(Asked):
    def ask(self, plan: Plan) -> list[Any]:
        return self.model.predict(self.questions, plan, BATCH, self.max_length)

    def score(self, said: list[Any]) -> dict[str, float | int]:
        return score_choices(self.questions, [one.label for one in said])

    def write(self, folder: Path) -> list[Path]:
        return write_letters(folder, self.questions, [one.label for one in self.own])


class Candidates(Asked):
    def ask(self, plan: Plan) -> list[Any]:
        return CandidateAnswering(self.model, self.max_length).answers(self.questions, plan, BATCH)

    def score(self, said: list[Any]) -> dict[str, float | int]:
        return score_candidates(self.questions, said)

    def write(self, folder: Path) -> list[Path]:
        return write_candidates(folder, self.own)


ASKED: dict[str, type[Asked]] = {"span": Spans, "choice": Options, "marked": Candidates}  # by kind of answer
