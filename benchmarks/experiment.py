"""What an experiment is, as data: on which rows, with which encoder, trained how, measured how.

An experiment is one file of results. Its recipes share rows, encoder and seeds, and may go on from each other's models.
"""

from __future__ import annotations

from dataclasses import dataclass

CHOSEN = (
    "Weights: the epoch that is best on dev rows. Thresholds: of every rule the one with the best dev score among "
    "those that save as much on dev rows. Scores: test rows, which nothing is chosen on."
)
# Of work, in words.
COUNTS = {"speedup": "layers", "flops_speedup": "FLOPs", "paper_speedup": "FLOPs by the paper's count"}


@dataclass(frozen=True)
class Recipe:
    """How one model is trained, and which plans of it are measured."""

    label: str
    methods: tuple[str, ...]  # in order, as their short texts
    start: str | None = None  # the recipe of the same experiment whose model it goes on from
    depth: int | None = None  # the first layers alone
    reduce: str | None = None  # the reducer it learns with
    reducers: tuple[str, ...] = ("none",)  # that are measured
    fixed: tuple[str, ...] = ()  # exit rules that are measured as they stand
    rules: tuple[str, ...] = ("entropy",)  # exit rules whose thresholds dev rows choose
    more_text: str | None = None  # the set whose train rows serve as text without labels
    teacher: str | None = None  # the recipe of the same experiment whose answers fine-tuning imitates

    @property
    def after(self) -> str | None:
        """The recipe whose model it needs."""
        return self.start or self.teacher


@dataclass(frozen=True)
class Experiment:
    name: str
    rows: str  # of benchmarks.rows
    encoder: str  # of benchmarks.encoders
    recipes: tuple[Recipe, ...]
    targets: tuple[float, ...] = (2, 3, 4)  # times less work, at which dev rows choose
    count: str = "speedup"  # how work is counted, one of COUNTS
    paper: str | None = None  # whose count of FLOPs is given too
    seeds: tuple[int, ...] = (1, 2, 3)
    chosen: str = CHOSEN  # on which rows

    @property
    def short(self) -> str:
        """Its name without the family's."""
        return self.name.split("-", 1)[1]

    def recipe(self, label: str) -> Recipe:
        return next(recipe for recipe in self.recipes if recipe.label == label)


@dataclass(frozen=True)
class Tuning:
    """Batches are large for a GPU's sake: the papers' of 8 or 32 would leave it idle."""

    batch_size: int
    lr: float
    epochs: float

    def __str__(self) -> str:
        return f"batch_size={self.batch_size},lr={self.lr:g},epochs={self.epochs:g}"
