"""Kinds of answer that are spans: every right position counts; types and support are learnt where asked for."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paredown.answers import IGNORED, RULED_OUT, SupportedSpan
from paredown.answers.supported_span import MAX_POSITIONS
from paredown.errors import BadSetting
from paredown.exits.entropy import normalised_entropy
from paredown.registry import answers
from paredown.state import Evidence

SPAN = answers.make("span")
SUPPORTED = answers.make("supported_span")
assert isinstance(SUPPORTED, SupportedSpan)
TOKENS = 9


def random_logits(rows: int, outputs: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, TOKENS, outputs, generator=torch.Generator().manual_seed(seed))


def label(positions: list[tuple[int, int]], what: str = "span", support: dict[int, bool] | None = None) -> list[int]:
    return SUPPORTED.label(positions, what, support or {}, TOKENS)


def masks(rows: int, sentences: list[int]) -> Tensor:
    marked = torch.zeros(rows, TOKENS, dtype=torch.bool)
    marked[:, sentences] = True
    return SUPPORTED.answer_mask({"attention_mask": torch.ones(rows, TOKENS), "sentence_mask": marked})


# Every position counts


def test_one_position_is_the_plain_loss() -> None:
    logits, pairs = random_logits(6, 2), torch.tensor([[1, 3], [0, 0], [2, 2], [8, 8], [4, 7], [0, 5]])
    plain = F.cross_entropy(logits.transpose(1, 2).flatten(0, 1), pairs.flatten())
    assert torch.equal(SPAN.loss(logits, pairs.unsqueeze(1)), plain)
    twice = pairs.unsqueeze(1).expand(-1, 3, -1)
    torch.testing.assert_close(SPAN.loss(logits, twice), plain)


def test_several_positions_are_one_event() -> None:
    logits = random_logits(1, 2).requires_grad_()
    probs = logits[0].softmax(0)
    starts, ends = probs[1, 0] + probs[4, 0], probs[2, 1] + probs[5, 1] + probs[6, 1]  # a start that is shared, once
    positions = torch.tensor([[[1, 2], [4, 5], [4, 6], [IGNORED, IGNORED]]])
    loss = SPAN.loss(logits, positions)
    torch.testing.assert_close(loss, -(starts.log() + ends.log()) / 2)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.isfinite().all() and (gradient[0, [1, 4], 0] < 0).all() and gradient[0, 2, 0] > 0


def test_the_position_that_fits_best_is_what_was_missed() -> None:
    logits = torch.zeros(2, TOKENS, 2)
    logits[:, 4, 0] = logits[:, 5, 1] = 9.0
    positions = torch.tensor([[[0, 1], [4, 5]], [[1, 2], [4, 8]]])
    assert SPAN.wrong(logits, positions).tolist() == [[0.0], [0.5]]


# Types and support


def test_a_label_has_three_parts() -> None:
    many = [(token, token) for token in range(MAX_POSITIONS + 3)]
    labels = torch.tensor([label(many, support={2: True, 5: False}), label([], "no")])
    positions, types, support = SUPPORTED.parts(labels)
    assert positions[0].tolist() == [list(pair) for pair in many[:MAX_POSITIONS]] and bool(
        (positions[1] == IGNORED).all()
    )
    assert types.tolist() == [0, 2]
    assert support[0].tolist() == [IGNORED, IGNORED, 1, IGNORED, IGNORED, 0, IGNORED, IGNORED, IGNORED]


def test_the_loss_is_that_of_its_parts() -> None:
    logits = random_logits(2, 6)
    labels = torch.tensor([label([(1, 2)], support={0: True, 4: False}), label([], "yes", {3: True})])
    where = SPAN.loss(logits[:1, :, :2], torch.tensor([[[1, 2]]]))
    what = F.cross_entropy(logits[:, 0, 2:5], torch.tensor([0, 1]))
    each = -F.logsigmoid(torch.stack([logits[0, 0, 5], -logits[0, 4, 5], logits[1, 3, 5]]))
    support = (each[:2].mean() + each[2]) / 2
    torch.testing.assert_close(SUPPORTED.loss(logits, labels), where / 2 + what + support)
    alone = [SUPPORTED.loss(logits[row : row + 1], labels[row : row + 1]) for row in range(2)]
    torch.testing.assert_close(SUPPORTED.loss(logits, labels), sum(alone) / 2)  # micro-batches weigh by rows
    with pytest.raises(BadSetting, match="smoothing"):
        SUPPORTED.loss(logits, labels, 0.1)


def test_what_is_not_asked_teaches_nothing() -> None:
    logits = random_logits(1, 6).requires_grad_()
    (gradient,) = torch.autograd.grad(SUPPORTED.loss(logits, torch.tensor([label([], "no", {3: True})])), logits)
    touched = gradient[0].abs() > 1e-6
    assert touched.nonzero().tolist() == [[0, 2], [0, 3], [0, 4], [3, 5]]


def test_being_wrong_is_half_the_answer_and_half_the_sentences() -> None:
    logits = torch.zeros(4, TOKENS, 6)
    logits[:, 1, 0] = logits[:, 2, 1] = 9.0
    logits[:, 0, 2] = 9.0  # a span
    logits[:, :, 5] = -9.0
    sentences = {0: False, 4: True}
    rows = [label([(1, 2)]), label([(1, 3)]), label([], "yes"), label([(1, 2)], support=sentences)]
    assert SUPPORTED.wrong(logits, torch.tensor(rows)).flatten().tolist() == [0.0, 0.25, 0.5, 0.25]


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher || student) of logits [rows, classes], mean over the rows."""
    return F.kl_div(student.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=True)


def test_imitation_sums_start_and_end_as_published() -> None:
    student, teacher = random_logits(3, 2), random_logits(3, 2, seed=1)
    start, end = (divergence(student[..., item] / 2, teacher[..., item] / 2) for item in (0, 1))
    found = SPAN.distill(student, teacher, torch.ones(3, TOKENS), temperature=2.0)
    torch.testing.assert_close(found, 2.0**2 * (start + end))


def test_imitation_sums_the_parts_of_a_supported_span_as_published() -> None:
    student, teacher, answer_mask = random_logits(3, 6), random_logits(3, 6, seed=1), masks(3, [2, 6])
    where = SPAN.distill(student[..., :2], teacher[..., :2], answer_mask[..., 0])
    what = divergence(student[:, 0, 2:5], teacher[:, 0, 2:5])
    yes = (logits[:, [2, 6], 5].flatten() for logits in (student, teacher))
    support = divergence(*(torch.stack([torch.zeros_like(logit), logit], -1) for logit in yes))
    torch.testing.assert_close(SUPPORTED.distill(student, teacher, answer_mask), where + what + support)


def test_imitation_looks_at_sentences_alone() -> None:
    student, teacher, answer_mask = random_logits(3, 6), random_logits(3, 6, seed=1), masks(3, [2, 6])
    assert SUPPORTED.distill(teacher, teacher, answer_mask).item() == pytest.approx(0, abs=1e-6)
    apart = SUPPORTED.distill(student, teacher, answer_mask)
    other = student.clone()
    other[:, [0, 1, 3, 4, 5, 7, 8], 5] += 5.0
    assert torch.equal(SUPPORTED.distill(other, teacher, answer_mask), apart)
    other[:, 2, 5] += 5.0
    assert not torch.equal(SUPPORTED.distill(other, teacher, answer_mask), apart)
    for direction in ("forward", "reverse"):
        assert SUPPORTED.distill(student, teacher, answer_mask, 2.0, direction) > 0  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_items_have_as_many_classes_as_can_be_the_answer(tokens: int) -> None:
    mask = torch.ones(2, tokens)
    mask[1, 1:] = 0
    answer_mask = SUPPORTED.answer_mask({"attention_mask": mask})
    evidence = Evidence(SUPPORTED, SUPPORTED.ruled_out(torch.zeros(2, tokens, 6), answer_mask), 1, answer_mask)
    assert torch.as_tensor(evidence.classes).tolist() == [[tokens, tokens, 3], [1, 1, 3]]
    assert evidence.log_probs.shape == (2, 3, max(tokens, 3)) and evidence.predicted.shape == (2, 3)
    full = normalised_entropy(evidence.log_probs, evidence.classes)
    wanted = [[float(tokens > 1)] * 2 + [1.0], [0.0, 0.0, 1.0]]
    torch.testing.assert_close(full, torch.tensor(wanted))
    assert math.isclose(evidence.log_probs[0, 2].exp()[:3].sum().item(), 1, rel_tol=1e-6)


def test_only_positions_are_ruled_out() -> None:
    logits, answer_mask = random_logits(1, 6), masks(1, [])
    answer_mask[0, 4:, 0] = False
    after = SUPPORTED.ruled_out(logits, answer_mask)
    assert bool((after[0, 4:, :2] == RULED_OUT).all()) and torch.equal(after[..., 2:], logits[..., 2:])
    assert torch.equal(after[0, :4], logits[0, :4])
