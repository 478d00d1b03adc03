"""What a run did: per stage its losses, its dev scores and its best; also as metrics.json, kept up to date."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class DevEvaluation:
    step: int  # steps done in the stage
    value: float  # what chooses the best weights
    scores: dict[int, float]  # the metric at every exit, by layers run
    suspicion: str | None = None  # why it looks as if nothing had been learnt


@dataclass
class StageReport:
    name: str
    steps: int  # in all
    losses: list[float] = field(default_factory=list)  # one per step done
    evaluations: list[DevEvaluation] = field(default_factory=list)
    seconds: float = 0.0
    best: float | None = None  # the best dev value
    best_step: int | None = None  # where it was seen; its weights end the stage


@dataclass
class Report:
    stages: list[StageReport] = field(default_factory=list)
    worth: dict[str, Any] | None = None  # what the plan scores and costs on dev rows, beside full depth
    warnings: list[str] = field(default_factory=list)

    def done(self) -> int:
        """Optimizer steps done, over all stages."""
        return sum(len(stage.losses) for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Report:
        report = cls(worth=data.get("worth"), warnings=data.get("warnings", []))
        for stage in data["stages"]:
            stage = StageReport(**stage)
            stage.evaluations = [_evaluation(**entry) for entry in stage.evaluations]  # type: ignore[arg-type]
            report.stages.append(stage)
        return report


def _evaluation(step: int, value: float, scores: dict[str, float], suspicion: str | None = None) -> DevEvaluation:
    return DevEvaluation(step, value, {int(layers): score for layers, score in scores.items()}, suspicion)
