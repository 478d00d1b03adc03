"""What the five papers claim, and what we want of ourselves, each with the check that decides on it.

A check reads the committed results of experiments; `benchmarks.claims_report` writes what comes of it. All scores are
of test rows, on which nothing was chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy.stats import t as student

from benchmarks.result_files import FULL, by_seed, paired


class Plan(NamedTuple):
    """A measured plan of a trained model, as `benchmarks.result_files` names it."""

    recipe: str
    plan: str = FULL

    def __str__(self) -> str:
        return f"{self.recipe}, {self.plan}"


@dataclass(frozen=True)
class Finding:
    """What one experiment says."""

    experiment: str
    values: tuple[float, ...]  # of the seeds
    unit: str
    holds: bool
    faster: float = 0.0  # times less work on test rows, mean of the seeds

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean over seeds, 95 %, by Student's t."""
        number, mean = len(self.values), statistics.mean(self.values)
        if number < 2:
            return float("-inf"), float("inf")
        half = float(student.ppf(0.975, number - 1)) * statistics.stdev(self.values) / number**0.5
        return mean - half, mean + half


@dataclass(frozen=True)
class Loses:
    """A plan loses at most so many points against another one, seed by seed."""

    experiments: tuple[str, ...]
    plan: Plan
    against: Plan
    most: float
    every_seed: bool = False  # not only on average

    def __str__(self) -> str:
        each = " with every seed" if self.every_seed else ""
        bound = f"at most {self.most:g} points below" if self.most > 0 else "not below"
        bound = f"at least {-self.most:g} points above" if self.most < 0 else bound
        return f"*{self.plan}* is {bound} *{self.against}*{each}"

    def findings(self) -> Iterator[Finding]:
        for name in self.experiments:
            both = paired(by_seed(name), self.plan, self.against)
            if not both:
                continue
            lost = tuple(100 * (theirs["score"] - mine["score"]) for mine, theirs in both)
            worst = max(lost) if self.every_seed else statistics.mean(lost)
            faster = statistics.mean(mine.get("flops_speedup", 0.0) for mine, _ in both)
            yield Finding(name, lost, "points lost", worst <= self.most, faster)


@dataclass(frozen=True)
class Reaches:
    """A plan scores at least so much."""

    experiment: str
    plan: Plan
    least: float  # percent
    count: str = "paper_speedup"

    @property
    def experiments(self) -> tuple[str, ...]:
        return (self.experiment,)

    def __str__(self) -> str:
        return f"*{self.plan}* scores at least {self.least:g}"

    def findings(self) -> Iterator[Finding]:
        points = by_seed(self.experiment).get(self.plan, {})
        if points:
            scores = tuple(100 * points[seed]["score"] for seed in sorted(points))
            faster = statistics.mean(point.get(self.count, 0.0) for point in points.values())
            yield Finding(self.experiment, scores, "score", statistics.mean(scores) >= self.least, faster)


@dataclass(frozen=True)
class Retains:
    """A plan keeps such a share of another one's mean score over several tasks, whichever of them is left out, so that
    no single one makes the mean."""

    experiments: tuple[str, ...]
    plan: Plan
    against: Plan
    share: float  # percent

    def __str__(self) -> str:
        return f"*{self.plan}* keeps {self.share:g} % of the mean score of *{self.against}*, whichever task is left out"

    def findings(self) -> Iterator[Finding]:
        seen = {name: by_seed(name) for name in self.experiments}
        pairs = {name: [found.get(its, {}) for its in (self.plan, self.against)] for name, found in seen.items()}
        pairs = {name: both for name, both in pairs.items() if all(both)}
        if len(pairs) < 2:
            return
        for left_out in (None, *pairs):
            kept = [both for name, both in pairs.items() if name != left_out]
            seeds = sorted(set.intersection(*(set(one) for both in kept for one in both)))
            if seeds:
                shares = tuple(100 * self._mean(kept, 0, seed) / self._mean(kept, 1, seed) for seed in seeds)
                name = f"{len(kept)} tasks" if left_out is None else f"without {left_out}"
                yield Finding(name, shares, "% kept", statistics.mean(shares) >= self.share)

    def _mean(self, kept: list[Any], which: int, seed: int) -> float:
        return statistics.mean(both[which][seed]["score"] for both in kept)


@dataclass(frozen=True)
class Claim:
    source: str
    said: str  # in our words
    checks: tuple[Any, ...]
    why: str = ""  # what we know of the reasons

    @property
    def waiting(self) -> list[str]:
        """The experiments that some check has nothing of yet."""
        found: dict[str, None] = {}
        for check in self.checks:
            ran = {finding.experiment for finding in check.findings()}
            if isinstance(check, Retains):  # whose findings are of several together
                ran = {name for name in check.experiments if by_seed(name)}
            found |= dict.fromkeys(name for name in check.experiments if name not in ran)
        return list(found)

    @property
    def verdict(self) -> str:
        found = [finding.holds for check in self.checks for finding in check.findings()]
        if not found:
            return "not run yet"
        if all(found):
            return "holds where it was run" if self.waiting else "holds"
        return "holds in part" if any(found) else "does not hold here"


LATE = "Heads on the first token learn little below the last layers of e5-small: see the last table."
FIRST_TOKEN = ("exits-book-review", "exits-chnsenticorp", "exits-sst-2-e5-small")
GLUE = tuple(f"theseus-{task}" for task in ("rte", "mrpc", "cola", "sts-b", "sst-2"))
LABELLED = tuple(name for name in GLUE if name != "theseus-sts-b")  # numbers have no entropy
LONG = ("three-imdb", "three-20news")
READ = "imdb imdb-distilbert-cased 20news squad squad_v2 race hyperpartisan hyperpartisan-1024".split()
READ = tuple(f"tokens-{rows}" for rows in READ)
AUTO = tuple(f"auto-{rows}" for rows in ("ag_news", "chnsenticorp", "scitail", "snli", "rte", "cola"))


def _halves(recipe: str, rule: str, most: float = 1.0) -> Loses:
    return Loses(FIRST_TOKEN, Plan(recipe, f"{rule} 2x"), Plan(recipe), most)


HEADS = {"deebert": "entropy", "pabee": "patience", "berxit": "entropy", "elasticbert": "patience"}
ON_DOUBAN = ("fastbert", "fastbert, longer", "fastbert, more text", "auto")
ALL_TOKENS, BEST_EXITS = Plan("all tokens"), "self_distill, then joint"


CLAIMS = [
    Claim("DeeBERT", "Some 40 % of the time can be saved at little loss.", (_halves("deebert", "entropy_nats"),), LATE),
    Claim(
        "PABEE",
        "Leaving where heads agree is faster and better than the whole model.",
        (_halves("pabee", "patience", 0),),
        f"{LATE} Where they do learn, three agreements take four layers, however sure the first head is.",
    ),
    Claim(
        "BERxiT",
        "A learned estimate of being right lets rows leave early at little loss.",
        (
            _halves("berxit", "learned"),
            Loses(FIRST_TOKEN[:2], Plan("berxit", "learned 2x"), Plan("berxit", "entropy 2x"), 0),
        ),
        f"{LATE} The estimate reads the same state as the head, whose entropy says as much.",
    ),
    Claim(
        "ElasticBERT",
        "With exits, half of the layers do by either rule.",
        (_halves("elasticbert", "entropy_nats"), _halves("elasticbert", "patience")),
        LATE,
    ),
    Claim(
        "paredown",
        "Attention heads answer earlier than heads on the first token.",
        tuple(
            Loses(FIRST_TOKEN, Plan(f"{recipe}, attention", f"{rule} 3x"), Plan(recipe, f"{rule} 3x"), -0.5)
            for recipe, rule in HEADS.items()
        ),
        """Heads of BERxiT on ChnSentiCorp had no threshold between 2.5 and 12 times fewer layers in these runs; a sweep
        has now. Where the encoder learns along and its first token can answer, as by ElasticBERT there, both heads
        are alike.""",
    ),
    Claim(
        "FastBERT",
        "Douban's book reviews: 86.64 at 4.21 times less work by its own count, and 85.14 at 7.23 times.",
        tuple(
            Reaches("fastbert-book-review", Plan(recipe, f"entropy {target}x"), least)
            for recipe in ON_DOUBAN
            for target, least in (("4.21", 86.64), ("7.23", 85.14))
        ),
        """Imitation alone, longer or on more text, stays below at 7.23 times; `auto`, where the encoder learns along
        with its exits at the end, is above at both.""",
    ),
    Claim(
        "BERT-of-Theseus",
        "Six layers in place of twelve keep 98.4 % of the score.",
        (
            Retains(GLUE, Plan("theseus"), Plan("predecessor"), 98.4),
            Retains(GLUE, Plan("replaced"), Plan("predecessor"), 98.4),
            Loses(GLUE, Plan("theseus"), Plan("first 6 layers"), 0),
        ),
        """As published it has BERT-base's rate and, on the small tasks, some hundred steps: probably too little for an
        encoder half as wide. With twice the predecessor's rate, and imitation at the end, six layers keep all.""",
    ),
    Claim(
        "paredown",
        "Exits on the six layers save as much again.",
        (Loses(LABELLED, Plan("replaced, then exits", "entropy 4x"), Plan("replaced"), 1.0),),
        """Six layers have fewer to spare: on SST-2 another two times costs a point or so, on the small tasks more.
        Their exits had one epoch of distillation and one of all together.""",
    ),
    Claim(
        "TR-BERT",
        "A learned policy drops half of the work and more at a comparable score.",
        tuple(Loses(READ, Plan(recipe, f"selector:0.5, {FULL}"), ALL_TOKENS, 1.0) for recipe in ("trbert", "policy")),
    ),
    Claim(
        "paredown",
        "Exits, fewer tokens and fewer layers in one model beat exits, and exits on fewer layers, at 6x fewer FLOPs.",
        tuple(
            Loses(LONG, Plan("depth, tokens, exits", "selector:0.5, entropy 6x"), Plan(recipe, "entropy 6x"), 0)
            for recipe in ("exits", "depth, exits")
        ),
    ),
    Claim(
        "paredown",
        "`auto` by itself: 2 times fewer layers at half a point, 3 at one, 4 at two.",
        tuple(
            Loses(AUTO, Plan("auto", f"entropy {target}x"), Plan("auto"), most)
            for target, most in ((2, 0.5), (3, 1.0), (4, 2.0))
        ),
        """AG News' dev rows come from other sources than its test rows, so that what they choose is too fast there. RTE
        and CoLA, hard for so small an encoder, need more of its layers.""",
    ),
    Claim(
        "paredown",
        "Better than any: SST-2 at 4.33x less work loses 0.3 points at most, IMDb at 6x 0.7, 20news at 4.3x 0.3.",
        (
            Loses(("exits-sst-2",), Plan(BEST_EXITS, "entropy 4.33x"), Plan(BEST_EXITS), 0.3),
            *(
                Loses(("best-sst-2",), Plan(recipe, "entropy 4.33x"), Plan(recipe), 0.3)
                for recipe in ("auto", "fastbert, longer exits")
            ),
            *(
                Loses((name,), Plan("tokens, exits", f"selector:0.5, entropy {speed}"), ALL_TOKENS, most, every)
                for rows, speed, most, every in (("imdb", "6x", 0.7, False), ("20news", "4.3x", 0.3, True))
                for name in (f"three-{rows}", f"best-{rows}")
            ),
        ),
        """Tried on SST-2: ten recipes with 10,000 rows, of which longer imitation is best at that speed; with all rows
        it loses less. On IMDb and 20news all combinations of the three axes: fewer tokens and exits are best on IMDb,
        all three at 6 times on 20news. Exits had an epoch of each stage there, two with all rows.""",
    ),
]
