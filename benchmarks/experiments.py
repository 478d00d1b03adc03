"""The table of experiments. `benchmarks.run` makes them, `docs/experiments.md` shows what came of them."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from benchmarks.experiment import Experiment, Recipe, Tuning
from paredown.errors import UnknownName

BASE, SMALL = Tuning(64, 4e-5, 3), Tuning(64, 7e-5, 3)  # of encoders 768 and 384 wide


# Exits: the published methods with the heads of their papers on the first token, and with attention heads


LATER, LONGER = "exit_epochs=3,exit_lr=5e-4", "exit_epochs=5,exit_lr=1e-3"


def _exits(name: str, rows: str, encoder: str, tuning: Tuning) -> Experiment:
    published = {
        "deebert": (f"deebert:{tuning},{LATER}", ("entropy_nats", "entropy")),
        "pabee": (f"pabee:{tuning}", ("patience", "entropy")),
        "berxit": (f"berxit:{tuning}", ("learned", "entropy")),
        "elasticbert": (f"elasticbert:{tuning}", ("entropy_nats", "patience")),
    }
    recipes = [Recipe(label, (method,), rules=rules) for label, (method, rules) in published.items()]
    recipes += [
        Recipe(f"{label}, attention", (f"{method},head=attention",), rules=rules)
        for label, (method, rules) in published.items()
    ]
    recipes.append(Recipe("fastbert", (f"fastbert:{tuning},{LATER}",)))
    return Experiment(name, rows, encoder, tuple(recipes))


TOGETHER = "joint:{tuning},head=attention,equilibrium=True,distill=1.0"


def _all_exits(rows: str, tuning: Tuning) -> Experiment:
    """Every method on an encoder without a pooler: as published, and ours with attention heads."""
    size, rules = f"batch_size={tuning.batch_size}", ("entropy", "patience")
    together = TOGETHER.format(tuning=tuning)
    trained = {
        "fastbert": (f"fastbert:{tuning},{LATER}",),
        "deebert": (f"deebert:{tuning},{LATER}",),
        "elasticbert": (f"elasticbert:{tuning}",),
        "pabee": (f"pabee:{tuning}",),
        "berxit": (f"berxit:{tuning}",),
        "self_distill + labels": (f"self_distill:{tuning},{LATER},gold=1.0",),
        "joint, attention heads": (together,),
        "joint, attention heads, then distilled": (
            together,
            f"self_distill:{size},{LATER},epochs=0,teacher=stock,gold=0.5",
        ),
        "fastbert, longer exits": (f"fastbert:{tuning},{LONGER}",),
        "self_distill, then joint": (
            f"self_distill:{tuning},teacher=stock,exit_epochs=1,exit_lr=5e-4",
            f"joint:{size},epochs=2,lr=3e-5,head=attention,equilibrium=True,distill=1.0",
        ),
    }
    recipes = tuple(Recipe(label, methods, rules=rules) for label, methods in trained.items())
    return Experiment(f"exits-{rows}", rows, "gte-small", recipes, targets=(2, 2.48, 3.16, 4.33))


EXITS = [
    _all_exits("sst-2", Tuning(128, 7e-5, 3)),
    _all_exits("mrpc", Tuning(32, 5e-5, 8)),
    _exits("exits-book-review", "book-review", "bert-base-zh", BASE),
    _exits("exits-chnsenticorp", "chnsenticorp", "bert-base-zh", BASE),
    _exits("exits-sst-2-e5-small", "sst-2", "e5-small", SMALL),
]


# FastBERT's own benchmark, at the paper's speeds and at the speed-ups that it prints

SPEEDS = ("entropy:0.1", "entropy:0.5", "entropy:0.8")
FASTBERT = "fastbert:batch_size=64,lr=3e-5,epochs=3,exit_lr=3e-4,exit_epochs={}"


def _fastbert(rows: str, encoder: str, recipes: tuple[Recipe, ...], targets: tuple[float, ...]) -> Experiment:
    name = f"fastbert-{rows.removesuffix('-all')}"
    return Experiment(name, rows, encoder, recipes, targets, count="paper_speedup", paper="fastbert")


def _as_published(lr: float, exit_lr: float, exit_epochs: int = 3) -> Recipe:
    tuning = Tuning(64, lr, 3)
    return Recipe("fastbert", (f"fastbert:{tuning},exit_epochs={exit_epochs},exit_lr={exit_lr:g}",), fixed=SPEEDS)


FASTBERTS = [
    _fastbert(
        "book-review-all",
        "bert-base-zh",
        (
            Recipe("fastbert", (FASTBERT.format(3),), fixed=SPEEDS),
            Recipe("fastbert, longer", (FASTBERT.format(8),), fixed=SPEEDS),
            Recipe("fastbert, more text", (FASTBERT.format(3),), fixed=SPEEDS, more_text="chnsenticorp"),
            Recipe("auto", ("auto",), fixed=SPEEDS),
        ),
        (1.60, 4.21, 7.23),
    ),
    _fastbert("imdb", "gte-small", (_as_published(5e-5, 5e-4, 2),), (1.60, 4.21, 7.23)),
    _fastbert("ag_news", "gte-small", (_as_published(7e-5, 5e-4),), (4.21, 10.33)),
]


# Fewer layers: twelve become six, then exits on those six

EXITS_ON_TOP = (  # what was best in the first comparison of exit methods: exits alone, then a little of all together
    "self_distill:batch_size={size},epochs=0,teacher=stock,exit_epochs={epochs},exit_lr=5e-4,rule=none",
    "joint:batch_size={size},epochs={epochs},lr={lr:g},head=attention,equilibrium=True,distill=1.0,rule=none",
)


def _exits_on_top(tuning: Tuning, epochs: int = 1) -> tuple[str, ...]:
    return tuple(text.format(size=tuning.batch_size, lr=0.4 * tuning.lr, epochs=epochs) for text in EXITS_ON_TOP)


def _successors(tuning: Tuning, into: int = 6, imitate: bool = True) -> str:
    """Most of the epochs are spent replacing, the rest is for the successors alone; a module learns only in steps that
    draw it, so it learns twice as fast."""
    size, rates = f"batch_size={tuning.batch_size}", f"replacing_lr={2 * tuning.lr:g},successor_lr={tuning.lr:g}"
    epochs = f"replacing_epochs={0.8 * tuning.epochs:g},successor_epochs={0.2 * tuning.epochs:g}"
    imitating = ",successor_trains=everything,distill=1.0,temperature=2.0" if imitate else ""
    return f"module_replacing:epochs=0,into={into},{size},{epochs},{rates}{imitating}"


class Task(NamedTuple):
    """A task of GLUE, and how all of its models are tuned."""

    rows: str
    tuning: Tuning
    changes: str = ""  # of the published settings, where its steps would be too few or too many here


GLUE = [
    Task("rte", Tuning(64, 7e-5, 8), ",scheduler_linear_k=0.0015"),
    Task("mrpc", Tuning(64, 7e-5, 8)),
    Task("cola", Tuning(128, 1e-4, 8), ",replacing_epochs=8"),
    Task("sts-b", Tuning(128, 1e-4, 8), ",replacing_epochs=10"),
    Task("sst-2", Tuning(128, 1e-4, 4), ",replacing_epochs=6"),
]
PREDECESSOR = "predecessor"


def _theseus(task: Task) -> Experiment:
    plain = (f"finetune:{task.tuning}",)
    recipes = (
        Recipe(PREDECESSOR, plain),
        Recipe("first 6 layers", plain, depth=6),
        Recipe("theseus", (f"theseus:epochs=0,into=6{task.changes}",), start=PREDECESSOR),
        Recipe("replaced", (_successors(task.tuning),), start=PREDECESSOR),
        Recipe("replaced, then exits", _exits_on_top(task.tuning), start="replaced"),
    )
    return Experiment(f"theseus-{task.rows}", task.rows, "gte-small", recipes, targets=(3, 4, 6))


def _depths(task: Task) -> Experiment:
    """Six, four and three layers: the first ones, and successors, with imitation and without."""
    plain = (f"finetune:{task.tuning}",)
    recipes = [Recipe(PREDECESSOR, plain)]
    for into in (6, 4, 3):
        recipes += [
            Recipe(f"first {into} layers", plain, depth=into),
            Recipe(f"first {into} layers, distilled", plain, depth=into, teacher=PREDECESSOR),
            Recipe(f"replaced {into}", (_successors(task.tuning, into, imitate=False),), start=PREDECESSOR),
            Recipe(f"replaced {into}, distilled", (_successors(task.tuning, into),), start=PREDECESSOR),
        ]
    return Experiment(f"depth-{task.rows}", task.rows, "gte-small", tuple(recipes), targets=())


THESEUS = [*map(_theseus, GLUE), *map(_depths, GLUE)]


# Fewer tokens: TR-BERT as published (its alias, its prices, eight samples), and policies that lead to a target

ALL_TOKENS = "all tokens"
UNTRAINED = (
    "none",
    *(f"attention:{threshold}" for threshold in (0.3, 0.6)),
    *(f"fixed_share:share={share},score=attention" for share in (0.8, 0.6)),
)


class Reading(NamedTuple):
    """A set of long texts, and how it is learned."""

    rows: str
    tuning: Tuning
    preset: str  # whose published prices are taken
    speedup: float  # of our target, in token-layers
    encoder: str = "gte-small"
    name: str = ""  # where it is not that of the rows
    untrained: tuple[str, ...] = ("none",)  # ways to drop tokens without training for it


READINGS = [
    Reading("imdb-512", Tuning(32, 5e-5, 2), "imdb", 2.25, untrained=UNTRAINED),
    Reading("20news-512", Tuning(32, 1e-4, 5), "20news", 3.9, untrained=UNTRAINED),
    Reading("squad", Tuning(32, 1e-4, 3), "squad", 1.5, untrained=UNTRAINED),
    Reading("squad_v2", Tuning(32, 1e-4, 4), "squad", 1.5),
    Reading("race", Tuning(16, 5e-5, 4), "race", 1.5, "e5-small"),
    Reading("hyperpartisan", Tuning(16, 5e-5, 8), "hyperpartisan", 2.0),
    Reading("hyperpartisan-1024", Tuning(16, 5e-5, 8), "hyperpartisan", 2.0, "gte-small-1024"),
    Reading("imdb-512", Tuning(32, 4e-5, 2), "imdb", 2.25, "distilbert-cased", "imdb-distilbert-cased"),
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
        f"tokens-{reading.name or reading.rows.removesuffix('-512')}",
        reading.rows,
        reading.encoder,
        (
            Recipe(ALL_TOKENS, (f"finetune:{tuning}",), reducers=reading.untrained),
            *(Recipe(label, (method,), **learned) for label, method in policies.items()),
        ),
        targets=(),
        count="flops_speedup",
    )


TOKENS = [_tokens(reading) for reading in READINGS]


# All three: exits, tokens and depth in one model


def _all_three(rows: str, tuning: Tuning, speedup: float) -> Experiment:
    kept, exits = ("selector:0.5",), _exits_on_top(tuning)
    under: dict[str, Any] = {"reduce": kept[0], "reducers": kept}
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
        targets=(3, 4.3, 6, 8),
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

# As good as it gets: with all rows, and with what was best above


def _best(rows: str, tuning: Tuning, speedup: float, targets: tuple[float, ...]) -> Experiment:
    """Fewer tokens, then exits."""
    kept = ("selector:0.5",)
    return Experiment(
        f"best-{rows.removesuffix('-512-all')}",
        rows,
        "gte-small",
        (
            Recipe(ALL_TOKENS, (f"finetune:{tuning}",)),
            Recipe("tokens", (_policy(tuning, speedup),), start=ALL_TOKENS, reducers=kept),
            Recipe("tokens, exits", _exits_on_top(tuning, 2), start="tokens", reduce=kept[0], reducers=kept),
        ),
        targets,
        count="flops_speedup",
    )


BEST = [
    Experiment(
        "best-sst-2",
        "sst-2-all",
        "gte-small",
        (
            Recipe("auto", ("auto",), fixed=("own",)),
            Recipe("fastbert, longer exits", (f"fastbert:{Tuning(128, 7e-5, 3)},{LONGER}",)),
        ),
        targets=(2, 3, 4.33, 6),
    ),
    _best("imdb-512-all", Tuning(32, 5e-5, 2), 2.25, (3, 4.3, 6, 8)),
    _best("20news-512-all", Tuning(32, 1e-4, 5), 3.9, (3, 4.3, 6, 8)),
]

EXPERIMENTS = {one.name: one for one in [*EXITS, *FASTBERTS, *THESEUS, *TOKENS, *THREE, *AUTOS, *BEST]}


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
