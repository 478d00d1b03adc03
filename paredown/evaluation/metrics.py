"""Metrics by name, as the benchmarks define them; higher is better. sklearn and scipy are imported where they count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from paredown.answers import Kind, Question
from paredown.answers._spans import Fact
from paredown.errors import BadSetting, UnknownName
from paredown.evaluation.hotpot import answer_overlap, facts_overlap
from paredown.evaluation.spans import best_over
from paredown.evaluation.spans import f1 as word_f1

KEPT = 2**18  # scores of answers that are remembered: thresholds ask for the same ones again and again

Metric = Callable[[np.ndarray, np.ndarray], float]  # (predicted, labels) -> score


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(labels, predicted))


def _right(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[answers] whether all of an answer is right."""
    return (predicted == labels).reshape(len(labels), -1).all(1)


def f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """F1 of class 1, as GLUE has it. Counted here: sklearn's checks take longer, and resampling asks 1000 times."""
    found, real = predicted == 1, labels == 1
    return float(2 * np.sum(found & real) / max(np.sum(found) + np.sum(real), 1))


def accuracy_and_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    return (accuracy(predicted, labels) + f1(predicted, labels)) / 2


def micro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predicted, average="micro", zero_division=0))


def matthews(predicted: np.ndarray, labels: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(labels, predicted))


def pearson(predicted: np.ndarray, labels: np.ndarray) -> float:
    """0 where one side is constant, as for the other correlations."""
    from scipy.stats import pearsonr

    predicted, labels = predicted.ravel(), labels.ravel()
    return 0.0 if _constant(predicted, labels) else float(pearsonr(predicted, labels)[0])


def spearman(predicted: np.ndarray, labels: np.ndarray) -> float:
    from scipy.stats import spearmanr

    predicted, labels = predicted.ravel(), labels.ravel()
    return 0.0 if _constant(predicted, labels) else float(spearmanr(predicted, labels)[0])


def correlation(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Mean of Pearson and Spearman."""
    return (pearson(predicted, labels) + spearman(predicted, labels)) / 2


def _constant(predicted: np.ndarray, labels: np.ndarray) -> bool:
    return len(labels) < 2 or np.ptp(predicted) == 0 or np.ptp(labels) == 0


def mean_reciprocal_rank(scores: np.ndarray, labels: np.ndarray, groups: Sequence[str]) -> float:
    """1 / rank of the best right answer (label 1), mean over the groups that have one; a tie counts against it."""
    return float(np.mean(1 / _ranks(scores, labels, groups)))


def choice_accuracy(scores: np.ndarray, labels: np.ndarray, groups: Sequence[str]) -> float:
    """Share of groups in which the right answer (label 1) has the highest score; a tie counts against it."""
    return float(np.mean(_ranks(scores, labels, groups) == 1))


def _ranks(scores: np.ndarray, labels: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """[groups that have a right answer] the rank of the best one."""
    if not len(scores) == len(labels) == len(groups):
        raise BadSetting(f"{len(scores)} scores, {len(labels)} labels and {len(groups)} groups must be as many")
    indexes: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        indexes.setdefault(group, []).append(index)
    ranks = []
    for members in indexes.values():
        score, right = np.asarray(scores)[members], np.asarray(labels)[members] == 1
        if right.any():
            ranks.append(1 + int((score[~right] >= score[right].max()).sum()))
    if not ranks:
        raise BadSetting("no group has a right answer, so there is nothing to rank")
    return np.array(ranks)


@dataclass(frozen=True)
class Grouped:
    """A metric of ranked rows, bound to the group of every row."""

    groups: tuple[str, ...]
    of_scores: ClassVar[bool] = True  # it wants the score of label 1, not the predicted label


@dataclass(frozen=True)
class MeanReciprocalRank(Grouped):
    __name__: ClassVar[str] = "mean_reciprocal_rank"

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> float:
        return mean_reciprocal_rank(scores, labels, self.groups)


@dataclass(frozen=True)
class ChoiceAccuracy(Grouped):
    __name__: ClassVar[str] = "choice_accuracy"

    def __call__(self, scores: np.ndarray, labels: np.ndarray) -> float:
        return choice_accuracy(scores, labels, self.groups)


class MeanScore(ABC):
    """A metric that is the mean of what every prediction scores alone."""

    @abstractmethod
    def score(self, prediction: Any, asked: Any) -> float: ...

    def each(self, predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """[units]"""
        return np.array([self.score(*pair) for pair in zip(predicted, labels, strict=True)])

    def __call__(self, predicted: np.ndarray, labels: np.ndarray) -> float:
        return float(np.mean(self.each(predicted, labels)))


@lru_cache(KEPT)
def _word_f1(text: str, question: Question) -> float:
    return best_over(word_f1, text, question)


@lru_cache(KEPT)
def _support_f1(text: str, facts: tuple[Fact, ...], question: Question) -> float:
    right = [(sentence.title, sentence.number) for sentence in question.sentences if sentence.support]
    answer = max(answer_overlap(text, gold).f1 for gold in question.answers or ("",))
    return (answer + facts_overlap(facts, right).f1) / 2


@dataclass(frozen=True)
class SpanF1(MeanScore):
    """Over the words of answers to questions, as SQuAD counts them."""

    __name__: ClassVar[str] = "span_f1"

    def score(self, prediction: Any, asked: Any) -> float:
        return _word_f1(prediction.label, asked)


@dataclass(frozen=True)
class AnswerAndSupportF1(MeanScore):
    """Half for the answer, half for the sentences that are given as its support, as HotpotQA counts both."""

    __name__: ClassVar[str] = "answer_and_support_f1"

    def score(self, prediction: Any, asked: Any) -> float:
        return _support_f1(prediction.label, prediction.facts, asked)


span_f1, answer_and_support_f1 = SpanF1(), AnswerAndSupportF1()
METRICS: dict[str, Metric] = {
    metric.__name__: metric
    for metric in (accuracy, f1, accuracy_and_f1, micro_f1, matthews, pearson, spearman, correlation)
    + (span_f1, answer_and_support_f1)
}
# Of the metrics that are a mean over answers: what is averaged, [answers].
MEANS: dict[Metric, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {accuracy: _right}
GROUPED: dict[str, Callable[[tuple[str, ...]], Metric]] = {
    "mean_reciprocal_rank": MeanReciprocalRank,
    "choice_accuracy": ChoiceAccuracy,
}


def metric_named(name: str, groups: Sequence[str] | None = None) -> Metric:
    """A metric by name; one that ranks needs the group of every row."""
    if name in GROUPED:
        if groups is None:
            raise BadSetting(f"{name} ranks the rows of a group: give the groups of the rows (Split.groups)")
        return GROUPED[name](tuple(groups))
    if name not in METRICS:
        raise UnknownName(f"no metric is called {name!r}; known: {', '.join([*METRICS, *GROUPED])}")
    return METRICS[name]


def metric_for(kind: Kind) -> Metric:
    """The usual metric of a kind of answer."""
    return METRICS[kind.metric]
