"""The experiments, as data: on which rows, with which encoder, trained how, measured how. `benchmarks.run` makes them.

An experiment is one file of results. Its recipes share rows, encoder and seeds, and may go on from each other's models.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paredown.errors import UnknownName

CHOSEN = (
    "Weights: the epoch that is best on dev rows. Thresholds: of every rule the one with the best dev score among "
    "those that save as much on dev rows. Scores: test rows, which nothing is chosen on."
)


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


@dataclass(frozen=True)
class Experiment:
    name: str
    rows: str  # of benchmarks.rows
    encoder: str  # of benchmarks.encoders
    recipes: tuple[Recipe, ...]
    targets: tuple[float, ...] = (2, 3, 4)  # times less work, at which dev rows choose
    count: str = "speedup"  # how work is counted: speedup (layers), flops_speedup, paper_speedup
    paper: str | None = None  # whose count of FLOPs is given too
    seeds: tuple[int, ...] = (1, 2, 3)
    chosen: str = CHOSEN  # on which rows

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


BASE, SMALL = Tuning(64, 4e-5, 3), Tuning(64, 7e-5, 3)  # of encoders 768 and 384 wide


# Exits: the published methods with the heads of their papers on the first token, and with attention heads


def _exits(name: str, rows: str, encoder: str, tuning: Tuning) -> Experiment:
    later = "exit_epochs=3,exit_lr=5e-4"
    published = {
        "deebert": (f"deebert:{tuning},{later}", ("entropy_nats", "entropy")),
        "pabee": (f"pabee:{tuning}", ("patience", "entropy")),
        "berxit": (f"berxit:{tuning}", ("learned", "entropy")),
        "elasticbert": (f"elasticbert:{tuning}", ("entropy_nats", "patience")),
    }
    recipes = [Recipe(label, (method,), rules=rules) for label, (method, rules) in published.items()]
    recipes += [
        Recipe(f"{label}, attention", (f"{method},head=attention",), rules=rules)
        for label, (method, rules) in published.items()
    ]
    recipes.append(Recipe("fastbert", (f"fastbert:{tuning},{later}",)))
    return Experiment(name, rows, encoder, tuple(recipes))


EXITS = [
    _exits("exits-book-review", "book-review", "bert-base-zh", BASE),
    _exits("exits-chnsenticorp", "chnsenticorp", "bert-base-zh", BASE),
    _exits("exits-sst-2-e5-small", "sst-2", "e5-small", SMALL),
    _exits("exits-sst-2-mpnet-base", "sst-2", "mpnet-base", BASE),
]


# FastBERT's own benchmark, at the paper's speeds and at the speed-ups that it prints

SPEEDS = ("entropy:0.1", "entropy:0.5", "entropy:0.8")
FASTBERT = "fastbert:batch_size=64,lr=3e-5,epochs=3,exit_lr=3e-4,exit_epochs={}"

FASTBERTS = [
    Experiment(
        "fastbert-book-review",
        "book-review-all",
        "bert-base-zh",
        (
            Recipe("fastbert", (FASTBERT.format(3),), fixed=SPEEDS),
            Recipe("fastbert, longer", (FASTBERT.format(8),), fixed=SPEEDS),
            Recipe("fastbert, more text", (FASTBERT.format(3),), fixed=SPEEDS, more_text="chnsenticorp"),
            Recipe("auto", ("auto",), fixed=SPEEDS),
            Recipe("auto, longer", ("auto:exit_epochs=6,joint_epochs=4",), fixed=SPEEDS),
        ),
        targets=(1.60, 4.21, 7.23),
        count="paper_speedup",
        paper="fastbert",
    )
]


# Fewer layers: twelve become six, then exits on those six

EXITS_ON_TOP = (  # what was best in the first comparison of exit methods: exits alone, then a little of all together
    "self_distill:batch_size={size},epochs=0,teacher=stock,exit_epochs=1,exit_lr=5e-4,rule=none",
    "joint:batch_size={size},epochs=1,lr={lr:g},head=attention,equilibrium=True,distill=1.0,rule=none",
)


def _exits_on_top(tuning: Tuning) -> tuple[str, ...]:
    return tuple(text.format(size=tuning.batch_size, lr=0.4 * tuning.lr) for text in EXITS_ON_TOP)


def _successors(tuning: Tuning) -> str:
    """Most of the epochs are spent replacing, the rest is for the successors alone; a module learns only in steps that
    draw it, so it learns twice as fast."""
    size, rates = f"batch_size={tuning.batch_size}", f"replacing_lr={2 * tuning.lr:g},successor_lr={tuning.lr:g}"
    epochs = f"replacing_epochs={0.8 * tuning.epochs:g},successor_epochs={0.2 * tuning.epochs:g}"
    imitating = "successor_trains=everything,distill=1.0,temperature=2.0"
    return f"module_replacing:epochs=0,into=6,{size},{epochs},{rates},{imitating}"


def _theseus(rows: str, tuning: Tuning, changes: str = "") -> Experiment:
    """`changes`: of the published settings, where its steps would be too few or too many here."""
    return Experiment(
        f"theseus-{rows}",
        rows,
        "gte-small",
        (
            Recipe("predecessor", (f"finetune:{tuning}",)),
            Recipe("first 6 layers", (f"finetune:{tuning}",), depth=6),
            Recipe("theseus", (f"theseus:epochs=0,into=6{changes}",), start="predecessor"),
            Recipe("replaced", (_successors(tuning),), start="predecessor"),
            Recipe("replaced, then exits", _exits_on_top(tuning), start="replaced"),
        ),
        targets=(3, 4, 6),
    )


THESEUS = [
    _theseus("rte", Tuning(64, 7e-5, 8), ",scheduler_linear_k=0.0015"),
    _theseus("mrpc", Tuning(64, 7e-5, 8)),
    _theseus("cola", Tuning(128, 1e-4, 8), ",replacing_epochs=8"),
    _theseus("sts-b", Tuning(128, 1e-4, 8), ",replacing_epochs=10"),
    _theseus("sst-2", Tuning(128, 1e-4, 4), ",replacing_epochs=6"),
]


# Fewer tokens: TR-BERT as published (its alias, its prices, eight samples), and policies that lead to a target

ALL_TOKENS = "all tokens"


@dataclass(frozen=True)
class Reading:
    """A set of long texts, and how it is learned."""

    rows: str
    tuning: Tuning
    preset: str  # whose published prices are taken
    speedup: float  # of our target, in token-layers
    encoder: str = "gte-small"


READINGS = [
    Reading("imdb-512", Tuning(32, 5e-5, 2), "imdb", 2.25),
    Reading("20news-512", Tuning(32, 1e-4, 5), "20news", 3.9),
    Reading("squad", Tuning(32, 1e-4, 3), "squad", 1.5),
    Reading("squad_v2", Tuning(32, 1e-4, 4), "squad", 1.5),
    Reading("race", Tuning(16, 5e-5, 4), "race", 1.5, "e5-small"),
    Reading("hyperpartisan", Tuning(16, 5e-5, 8), "hyperpartisan", 2.0),
]


def _policy(tuning: Tuning, speedup: float) -> str:
    rates = f"batch_size={tuning.batch_size},joint_lr={tuning.lr:g},selector_lr=4e-3"
    return f"token_policy:epochs=0,policy_epochs=1,joint_epochs=3,samples=4,{rates},target_speedup={speedup:g}"


def _tokens(reading: Reading) -> Experiment:
    tuning = reading.tuning
    trbert = f"trbert:epochs=0,preset={reading.preset},batch_size={tuning.batch_size}"
    policies = {"trbert": trbert, "policy": _policy(tuning, reading.speedup)}
    if reading.rows == "squad":  # dropped tokens answer here; as published, they teach no layer
        policies["policy, detached"] = f"{policies['policy']},detach_dropped=true"
    learned = {"start": ALL_TOKENS, "reducers": ("selector:0.5",)}
    return Experiment(
        f"tokens-{reading.rows.removesuffix('-512')}",
        reading.rows,
        reading.encoder,
        (
            Recipe(ALL_TOKENS, (f"finetune:{tuning}",)),
            *(Recipe(label, (method,), **learned) for label, method in policies.items()),
        ),
        targets=(),
        count="flops_speedup",
    )


TOKENS = [_tokens(reading) for reading in READINGS]


# All three: exits, tokens and depth in one model


def _all_three(rows: str, tuning: Tuning, speedup: float) -> Experiment:
    kept, exits = ("selector:0.5",), _exits_on_top(tuning)
    under: dict = {"reduce": kept[0], "reducers": kept}
    policy, gentle = _policy(tuning, speedup), _policy(tuning, 1 + (speedup - 1) / 2)
    return Experiment(
        f"three-{rows.removesuffix('-512')}",
        rows,
        "gte-small",
        (
            Recipe(ALL_TOKENS, (f"finetune:{tuning}",)),
            Recipe("exits", exits, start=ALL_TOKENS),
            Recipe("tokens", (policy,), start=ALL_TOKENS, reducers=kept),
            Recipe("tokens, exits", exits, start="tokens", **under),
            Recipe("depth", (_successors(tuning),), start=ALL_TOKENS),
            Recipe("depth, exits", exits, start="depth"),
            Recipe("depth, tokens", (gentle,), start="depth", reducers=kept),
            Recipe("depth, tokens, exits", exits, start="depth, tokens", **under),
        ),
        targets=(3, 4, 6, 8),
        count="flops_speedup",
    )


THREE = [
    _all_three("imdb-512", Tuning(32, 5e-5, 3), 2.25),
    _all_three("20news-512", Tuning(32, 1e-4, 5), 3.9),
]


# The default method beside what a script of an afternoon does: fine-tune with the model's own classifier, then
# attention heads by self-distillation

INDEPENDENT = "self_distill:teacher=stock,epochs=3,lr=5e-5,exit_epochs=3,exit_lr=5e-4,batch_size=64,rule=none"
DEFAULT = (Recipe("independent", (INDEPENDENT,)), Recipe("auto", ("auto",), fixed=("own",)))
AUTOS = [
    *(
        Experiment(f"auto-{rows}", rows, "gte-small", DEFAULT)
        for rows in ("ag_news", "snli", "sst-2", "imdb", "20news")
    ),
    *(Experiment(f"auto-{rows}", rows, "e5-small", DEFAULT) for rows in ("scitail", "rte", "cola", "mrpc")),
    Experiment("auto-chnsenticorp", "chnsenticorp", "bert-base-zh", DEFAULT),
    Experiment("auto-squad", "squad", "gte-small", DEFAULT),
    Experiment("auto-sts-b", "sts-b", "minilm-l6", DEFAULT),
    Experiment("auto-book-review", "book-review", "m3e-small", DEFAULT),
    Experiment("auto-chnsenticorp-m3e-small", "chnsenticorp", "m3e-small", DEFAULT),
    Experiment("auto-rte-gte-small", "rte", "gte-small", DEFAULT),
    Experiment("auto-ag_news-minilm-l6", "ag_news", "minilm-l6", DEFAULT),
    Experiment("auto-sst-2-1000", "sst-2-1000", "gte-small", DEFAULT),
    Experiment("auto-ag_news-1000", "ag_news-1000", "gte-small", DEFAULT),
    Experiment("auto-imdb-1000", "imdb-1000", "e5-small", DEFAULT),
    Experiment("auto-20news-1000", "20news-1000", "minilm-l6", DEFAULT),
]

EXPERIMENTS = {one.name: one for one in [*EXITS, *FASTBERTS, *THESEUS, *TOKENS, *THREE, *AUTOS]}


def chosen(patterns: list[str]) -> list[Experiment]:
    """Experiments by name or by a pattern such as `exits-*`; all without one."""
    found: dict[str, Experiment] = {}
    for pattern in patterns or ["*"]:
        matched = {name: one for name, one in EXPERIMENTS.items() if fnmatchcase(name, pattern)}
        if not matched:
            near = difflib.get_close_matches(pattern, EXPERIMENTS, n=3) or list(EXPERIMENTS)
            raise UnknownName(f"no experiment is called {pattern!r}; near: {', '.join(near)}")
        found |= matched
    return list(found.values())
