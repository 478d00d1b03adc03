"""What every exit rule promises, tried on every rule in the catalogue; then each rule's own arithmetic, by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paredown.answers import Kind
from paredown.errors import BadPlan, BadSetting
from paredown.exits.entropy import entropy, normalised_entropy
from paredown.registry import answers, exits
from paredown.state import Evidence, Memory, not_a_number
from tests.contracts.exit_settings import all_rules
from tests.families import outputs

HEADS = 12  # the last one is the end: nobody asks the rule there
ASKED = tuple(range(1, HEADS))
GAPS = (0.0, 1e-3, 1.0, 10.0, 18.0, 104.0, 1e3, 1e4)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SPEEDS = [step / 20 for step in range(21)]


def accepts(rule: Any, kind: Kind) -> bool:
    try:
        rule.check(kind, ASKED, True)
    except BadPlan:
        return False
    return True


RULES = all_rules()
PAIRS = [
    pytest.param(rule, kind, id=f"{rule}-{kind.name}")
    for rule in RULES
    for kind in map(answers.make, answers.names())
    if accepts(rule, kind)
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
each_pair = pytest.mark.parametrize("rule, kind", PAIRS)


def evidence(
    kind: Kind, logits: Tensor, layer: int = 1, answer_mask: Tensor | None = None, error_probability: Any = None
) -> Evidence:
    """Evidence from [rows, labels]; where every token is answered, two tokens that say the same."""
    if kind.per_word and logits.dim() == 2:
        logits = logits.unsqueeze(1).expand(-1, 2, -1)
    elif kind.per_token and logits.dim() == 2:  # classes are the tokens, for every item alike
        logits = logits.unsqueeze(-1).expand(-1, -1, outputs(kind.name))
    if kind.per_token and answer_mask is None:
        answer_mask = kind.answer_mask({"attention_mask": torch.ones(logits.shape[:2])})
    error_probability = torch.full((len(logits), 1), 0.01) if error_probability is None else error_probability
    return Evidence(kind, logits, layer, answer_mask, error_probability)


def story(kind: Kind, rows: int, seed: int = 0, labels: int = 3, tokens: int = 4) -> list[Evidence]:
    """What 12 heads say of random rows: they change their minds, and grow surer."""
    noise = torch.Generator().manual_seed(seed)
    shape = (rows, tokens, labels if kind.per_word else outputs(kind.name)) if kind.per_token else (rows, labels)
    answer_mask = None
    if kind.per_token:
        asked = torch.rand(rows, tokens, generator=noise) < 0.5
        asked[:, 0] = True  # every row is asked something
        answer_mask = kind.answer_mask({"attention_mask": asked})
    elif kind.grouped:
        answer_mask = torch.arange(labels) < torch.randint(1, labels + 1, (rows, 1), generator=noise)
    now, heads = torch.zeros(shape), []
    for layer in range(1, HEADS + 1):
        now = now + torch.randn(shape, generator=noise) * 0.5
        error_probability = torch.rand(rows, tokens if kind.per_word else 1, generator=noise)
        logits = now * (1 + layer / 3)
        if answer_mask is not None:
            logits = kind.ruled_out(logits[answer_mask] if kind.grouped else logits, answer_mask)
        heads.append(evidence(kind, logits, layer, answer_mask, error_probability))
    return heads


def of_rows(head: Evidence, rows: Tensor) -> Evidence:
    parts = {
        name: value[rows]
        for name in ("logits", "answer_mask", "error_probability")
        if (value := getattr(head, name)) is not None
    }
    return replace(head, **parts)


def decide(rule: Any, seen: Evidence, memory: Memory | None = None) -> tuple[Tensor, Memory]:
    """[rows] True where a row leaves, and the memory for the next head."""
    certainty, after = rule.certainty(seen, memory or {})
    assert certainty.dtype == torch.float32 and certainty.shape == (len(seen.logits),)
    return certainty > rule.bounds((seen.step,))[0], after


def run(rule: Any, heads: list[Evidence]) -> tuple[Tensor, Tensor]:
    """Layers run and answer of each row; rows that leave are taken out, as the model does."""
    rows = torch.arange(len(heads[0].logits))
    memory: Memory = {}
    layers, answer = torch.zeros(len(rows), dtype=torch.long), torch.zeros_like(heads[0].logits)
    for head in heads:
        seen = of_rows(head, rows)
        outputs = rule.answer(seen, memory)
        if head is heads[-1]:
            leave = torch.ones(len(rows), dtype=torch.bool)
        else:
            leave, memory = decide(rule, seen, memory)
        layers[rows[leave]], answer[rows[leave]] = head.step, outputs[leave]
        rows, memory = rows[~leave], {name: value[~leave] for name, value in memory.items()}
        if not len(rows):
            break
    return layers, answer


def classes(*predicted: int, labels: int = 2) -> list[Evidence]:
    """One row, one head for each predicted class."""
    rows = [torch.nn.functional.one_hot(torch.tensor([label]), labels).float() for label in predicted]
    return [evidence(answers.make("single_label"), logits, layer) for layer, logits in enumerate(rows, 1)]


def values(*predicted: float) -> list[Evidence]:
    return [
        evidence(answers.make("regression"), torch.tensor([[value]]), layer) for layer, value in enumerate(predicted, 1)
    ]


def layers_of(rule: str, heads: list[Evidence]) -> int:
    return int(run(exits.parse(rule), heads)[0])


# Every rule


@each_rule
def test_some_kind_of_answer_suits_it(rule: Any) -> None:
    assert any(accepts(rule, kind) for kind in map(answers.make, answers.names()))


@each_pair
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_decides_for_every_logit(rule: Any, kind: Kind, dtype: torch.dtype) -> None:
    one_hot = torch.tensor([[gap, 0.0, 0.0] for gap in GAPS])
    ruled_out = torch.tensor([[0.0, 1.0, -math.inf], [5.0, -math.inf, -math.inf]])
    both_ways = torch.cat([one_hot, -one_hot, torch.zeros(1, 3), torch.full((1, 3), 1e4), ruled_out])
    for logits in (both_ways.to(dtype), both_ways[:, :1].to(dtype)):  # several labels, and one
        memory: Memory = {}
        for layer in ASKED:
            seen = evidence(kind, logits, layer)
            answer = rule.answer(seen, memory)
            leave, memory = decide(rule, seen, memory)
            assert leave.dtype == torch.bool and leave.shape == (len(logits),)
            assert answer.shape == seen.logits.shape and answer.dtype == dtype
            assert not not_a_number(answer).any()
            assert all(len(value) == len(logits) and not value.isnan().any() for value in memory.values())


@each_pair
def test_a_larger_speed_never_leaves_later(rule: Any, kind: Kind) -> None:
    heads = story(kind, rows=500, seed=1)
    ladder = torch.stack([run(rule.at_speed(speed), heads)[0] for speed in SPEEDS])  # [speeds, rows]
    assert bool((ladder[0] == HEADS).all()), "at speed 0 somebody leaves early"
    assert bool((ladder.diff(dim=0) <= 0).all())
    assert rule.name == "never" or bool((ladder[-1] < HEADS).any()), "at speed 1 nobody leaves early"


@each_pair
def test_speed_0_holds_for_the_surest_rows(rule: Any, kind: Kind) -> None:
    # Always the same class, beyond what 32 bits can tell from certainty; the error probability is as low as it gets.
    sure = [
        evidence(kind, torch.tensor([[1e4, 0.0]]), layer, error_probability=torch.zeros(1, 1))
        for layer in range(1, HEADS + 1)
    ]
    assert run(rule.at_speed(0), sure)[0].item() == HEADS


@each_pair
def test_rows_do_not_depend_on_their_neighbours(rule: Any, kind: Kind) -> None:
    heads = story(kind, rows=40, seed=2)
    layers, answer = run(rule, heads)
    assert rule.name in ("never", "at_layer") or len(layers.unique()) > 1, "the story should tell rows apart"
    for row in range(0, 40, 3):
        alone = run(rule, [of_rows(head, torch.tensor([row])) for head in heads])
        assert alone[0].item() == layers[row].item()
        assert torch.equal(alone[1][0], answer[row])


@pytest.mark.parametrize("rule", [rule for rule in RULES if accepts(rule, answers.make("token_label"))], ids=str)
def test_tokens_nobody_asks_about_do_not_matter(rule: Any) -> None:
    heads = story(answers.make("token_label"), rows=30, seed=3)
    answer_mask = heads[0].answer_mask
    assert answer_mask is not None
    other = []
    for head in heads:
        assert head.error_probability is not None
        logits = torch.where(answer_mask.unsqueeze(-1), head.logits, -head.logits)
        other.append(
            evidence(head.kind, logits, head.step, answer_mask, torch.where(answer_mask, head.error_probability, 1.0))
        )
    assert torch.equal(run(rule, heads)[0], run(rule, other)[0])


@each_rule
def test_is_json_and_short_text(rule: Any) -> None:
    for same in (rule, *(rule.at_speed(speed) for speed in SPEEDS)):
        assert exits.from_json(json.loads(json.dumps(exits.to_json(same), allow_nan=False))) == same
        assert exits.parse(str(same)) == same
        assert hash(exits.parse(str(same))) == hash(same)


@each_rule
@pytest.mark.parametrize("speed", [-0.1, 1.1, math.nan])
def test_refuses_a_speed_outside_0_to_1(rule: Any, speed: float) -> None:
    with pytest.raises(BadSetting, match="speed"):
        rule.at_speed(speed)


@each_rule
def test_regression_suits_it_or_it_says_what_does(rule: Any) -> None:
    try:
        rule.check(answers.make("regression"), ASKED, True)
    except BadPlan as error:
        assert "patience" in str(error) and "tolerance" in str(error)


@pytest.mark.parametrize("name", exits.names())
@given(knob=st.one_of(st.floats(0, 1), st.integers(2, 99), st.lists(st.floats(0, 1), min_size=1, max_size=12)))
def test_any_knob_it_takes_is_read_back(name: str, knob: Any) -> None:
    cls: Any = exits[name]
    if not cls.knob:
        return
    try:
        rule = exits.make(name, **{cls.knob: knob})
    except BadSetting:
        return
    assert exits.parse(str(rule)) == rule == exits.from_json(json.loads(json.dumps(exits.to_json(rule))))


# Entropy


def published(logits: Tensor) -> Tensor:
    """DeeBERT's formula as published."""
    probs = torch.softmax(logits, dim=-1)
    return -(probs * probs.log()).sum(-1)


@pytest.mark.parametrize("dtype, gap", [(torch.float16, 18.0), (torch.bfloat16, 104.0), (torch.float32, 104.0)])
@pytest.mark.parametrize("rule", ["entropy:0.01", "entropy_nats:0.01", "top_entropy:0.01"])
def test_the_surest_rows_leave(rule: str, dtype: torch.dtype, gap: float) -> None:
    logits = torch.tensor([[gap, 0.0]], dtype=dtype)
    assert bool(published(logits).isnan()), "the published formula should fail here; is this test still needed?"
    assert not bool(published(logits) < 0.01)
    for larger in (gap, *(other for other in GAPS if other > gap)):
        seen = evidence(answers.make("single_label"), torch.tensor([[larger, 0.0]], dtype=dtype))
        assert decide(exits.parse(rule), seen)[0]


@pytest.mark.parametrize(
    "rule", ["entropy:0.01", "entropy_nats:0.01", "top_entropy:0.01", "confidence:0.99", "margin:0.99"]
)
def test_a_row_with_one_class_left_leaves(rule: str) -> None:
    seen = evidence(answers.make("single_label"), torch.tensor([[5.0, -math.inf, -math.inf]]))
    assert decide(exits.parse(rule), seen)[0]


def test_entropy_by_hand() -> None:
    log_probs = answers.make("single_label").log_probs(torch.tensor([[0.0, 0.0], [0.0, math.log(3)]]))
    assert entropy(log_probs).flatten().tolist() == pytest.approx([0.6931, 0.5623], abs=1e-4)
    assert normalised_entropy(log_probs, 2).flatten().tolist() == pytest.approx([1.0, 0.8113], abs=1e-4)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=9))
def test_entropy_lies_between_its_bounds(logits: list[float]) -> None:
    log_probs = answers.make("single_label").log_probs(torch.tensor([logits]))
    assert 0 <= entropy(log_probs).item() <= math.log(len(logits)) + 1e-5
    assert 0 <= normalised_entropy(log_probs, log_probs.shape[-1]).item() <= 1 + 1e-5


@pytest.mark.parametrize(
    "rule, leaves",
    [
        ("entropy:0.81", False),  # 0.8113
        ("entropy:0.82", True),
        ("entropy_nats:0.56", False),  # 0.5623
        ("entropy_nats:0.57", True),
        ("confidence:0.76", False),  # 0.75
        ("confidence:0.74", True),
        ("margin:0.51", False),  # 0.75 - 0.25
        ("margin:0.49", True),
    ],
)
def test_thresholds_by_hand(rule: str, leaves: bool) -> None:
    seen = evidence(answers.make("single_label"), torch.tensor([[0.0, math.log(3)]]))
    assert bool(decide(exits.parse(rule), seen)[0]) is leaves


def test_top_entropy_ignores_the_tail() -> None:
    # 1/2, 1/4 and 250 classes of 1/1000: over the top two it is the entropy of (2/3, 1/3).
    seen = evidence(answers.make("single_label"), torch.tensor([[0.5, 0.25, *[0.001] * 250]]).log())
    wanted = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)) / math.log(2)
    assert not decide(exits.make("top_entropy", threshold=wanted - 1e-3), seen)[0]
    assert decide(exits.make("top_entropy", threshold=wanted + 1e-3), seen)[0]


def test_top_entropy_over_all_classes_is_entropy() -> None:
    heads = story(answers.make("single_label"), rows=100)
    assert torch.equal(run(exits.parse("top_entropy:0.6,top=99"), heads)[0], run(exits.parse("entropy:0.6"), heads)[0])


@pytest.mark.parametrize(
    "rule", ["entropy:0", "entropy_nats:0", "top_entropy:0", "learned:0", "confidence:1", "margin:1", "ensemble:1"]
)
def test_the_cautious_end_of_a_threshold_is_never(rule: str) -> None:
    head = evidence(answers.make("single_label"), torch.tensor([[1e4, 0.0]]), error_probability=torch.zeros(1, 1))
    assert not decide(exits.parse(rule), head)[0]


def test_one_value_for_each_layer() -> None:
    heads = classes(0, 0, 0, 0, 0)  # confidence 0.731 every time
    assert layers_of("confidence:(0.9,0.8,0.7,0.9)", heads) == 3
    assert layers_of("patience:(1,9,9,3)", heads) == 4


# Patience


@pytest.mark.parametrize(
    "rule, message, layers",
    [
        ("patience:1", (0, 0, 0, 0), 2),
        ("patience:2", (0, 0, 0, 0), 3),
        ("patience:2", (0, 0, 1, 1, 1, 1), 5),
        ("patience:1", (0, 1, 0, 1, 0, 1), 6),
        ("patience:3", (0, 1, 1, 1, 1, 0), 5),
    ],
)
def test_patience_by_hand(rule: str, message: tuple[int, ...], layers: int) -> None:
    assert layers_of(rule, classes(*message)) == layers


def test_patience_with_numbers() -> None:
    assert layers_of("patience:2,tolerance=0.25", values(1.0, 2.0, 2.125, 2.0, 2.5, 3.0)) == 4
    assert layers_of("patience:1,tolerance=0.25", values(0.0, 0.25, 0.5, 0.75)) == 4  # strictly less
    assert layers_of("patience:1,tolerance=0.25", values(3.0, 2.0, 1.0, 0.0)) == 4  # falling is no agreement


def test_patience_waits_for_every_item() -> None:
    # The second label settles one head later than the first.
    heads = [
        evidence(answers.make("multi_label"), torch.tensor([pair]), layer)
        for layer, pair in enumerate([(1.0, 1.0), (1.0, -1.0), (1.0, -1.0), (1.0, -1.0), (1.0, -1.0)], 1)
    ]
    assert layers_of("patience:2", heads) == 4


def test_patience_knows_when_a_tolerance_is_wanted() -> None:
    with pytest.raises(BadPlan, match="give patience a tolerance"):
        exits.parse("patience:3").check(answers.make("regression"), ASKED, False)
    for name in ("single_label", "multi_label", "token_label"):
        with pytest.raises(BadPlan, match="tolerance is for numbers"):
            exits.parse("patience:3,tolerance=0.1").check(answers.make(name), ASKED, False)


# Votes


def test_vote_by_hand() -> None:
    assert layers_of("vote:2", classes(0, 1, 0, 1, 1)) == 3
    assert layers_of("vote:3", classes(0, 1, 0, 1, 1, 1)) == 5
    assert layers_of("vote:3", classes(0, 1, 2, 0, 1, 2, labels=3)) == 6  # nobody wins: the end


def test_vote_answers_with_the_winner_of_every_item() -> None:
    pairs = [(1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (1.0, -1.0), (1.0, 1.0)]
    heads = [evidence(answers.make("multi_label"), torch.tensor([pair]), layer) for layer, pair in enumerate(pairs, 1)]
    layers, answer = run(exits.parse("vote:2"), heads)
    # The first label wins at 2 and the second at 3, but head 3 says otherwise of the first: head 4 agrees with both.
    assert (layers.item(), answer.tolist()) == (4, [[1.0, -1.0]])


def test_ensemble_answers_with_the_mean() -> None:
    heads = [
        evidence(answers.make("single_label"), torch.tensor([pair]), layer)
        for layer, pair in enumerate([(0.0, 0.0), (0.0, 6.0), (6.0, 0.0), (0.0, 9.0)], 1)
    ]
    layers, answer = run(exits.parse("ensemble:0.95"), heads)  # sigmoid(3) = 0.953
    assert (layers.item(), answer.tolist()) == (2, [[0.0, 3.0]])
    layers, answer = run(exits.parse("ensemble:0.96"), heads)  # the end: the mean of all four
    assert (layers.item(), answer.tolist()) == (4, [[1.5, 3.75]])


# Learned, fixed


def test_learned_needs_a_model_that_estimates_its_errors() -> None:
    with pytest.raises(BadPlan, match="estimates its error probability"):
        exits.parse("learned").check(answers.make("single_label"), ASKED, False)
    with pytest.raises(BadPlan, match="estimates its error probability"):
        exits.parse("learned").certainty(Evidence(answers.make("single_label"), torch.zeros(1, 2), 1), {})


def test_learned_waits_for_every_token_that_counts() -> None:
    kind, answer_mask = answers.make("token_label"), torch.tensor([[True, True, False]] * 2)
    error_probability = torch.tensor([[0.05, 0.05, 0.9], [0.05, 0.9, 0.05]])
    leave, _ = decide(
        exits.parse("learned:0.1"), evidence(kind, torch.zeros(2, 3, 4), 1, answer_mask, error_probability)
    )
    assert leave.tolist() == [True, False]


def test_at_layer_leaves_at_the_first_head_from_there() -> None:
    heads = classes(0, 1, 0, 1, 0, 1, 0, 1)
    assert layers_of("at_layer:3", heads) == 3
    assert layers_of("at_layer:4", [head for head in heads if head.step in (2, 6, 8)]) == 6
    assert layers_of("never", heads) == 8


# What is refused


@pytest.mark.parametrize(
    "text",
    [
        "entropy:-1",
        "entropy:nan",
        "entropy:1e999",
        "entropy:()",
        "entropy:(0.1,-0.1)",
        "entropy_nats:-1",
        "top_entropy:0.5,top=1",
        "top_entropy:0.5,top=2.5",
        "confidence:1.5",
        "confidence:-0.1",
        "margin:2",
        "ensemble:1.01",
        "learned:-0.1",
        "learned:2",
        "patience:0",
        "patience:-3",
        "patience:2.5",
        "patience:(2,0)",
        "patience:3,tolerance=0",
        "patience:3,tolerance=-1",
        "vote:1",
        "vote:(2,3)",
        "at_layer:0",
        "never:1",
        "entropy:0.3,treshold=1",
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        exits.parse(text)


@pytest.mark.parametrize("bad", ["0.5", None, True, [], float("nan"), float("inf"), -1])
@pytest.mark.parametrize("name", [name for name in exits.names() if exits[name].knob])  # type: ignore[attr-defined]
def test_a_knob_that_makes_no_sense_is_refused_in_python_too(name: str, bad: Any) -> None:
    with pytest.raises(BadSetting):
        exits[name](bad)


def test_a_refusal_says_what_would_be_right() -> None:
    with pytest.raises(BadSetting, match=r"patience.patience must be a whole number of 1 or more, not 0"):
        exits.parse("patience:0")
    with pytest.raises(BadSetting, match=r"confidence.threshold must be a number from 0.0 to 1.0, not 1.5"):
        exits.parse("confidence:1.5")


def test_too_few_values_for_the_layers_are_refused() -> None:
    for text in ("entropy:(0.1,0.2)", "patience:(2,2)"):
        exits.parse(text).check(answers.make("single_label"), (1, 2), False)
        with pytest.raises(BadPlan, match="has 2 values"):
            exits.parse(text).check(answers.make("single_label"), (1, 2, 3), False)


@pytest.mark.parametrize(
    "name", ["entropy", "entropy_nats", "top_entropy", "confidence", "confirmed", "margin", "vote", "ensemble"]
)
def test_probabilities_mean_nothing_for_numbers(name: str) -> None:
    with pytest.raises(BadPlan, match="patience with a tolerance, or the learned rule"):
        exits.make(name).check(answers.make("regression"), ASKED, True)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.per_layer], ids=str)
def test_bounds_for_every_layer_are_a_rule(rule: Any) -> None:
    """Bounds become values of the knob, and these the bounds again; at steps without a head nobody leaves."""
    middle = rule.at_speed(0.3).bounds([1])[0]
    made = rule.at_bounds({1: math.inf, 3: middle, 4: -math.inf})
    never, at_once = rule.at_speed(0.0).bounds([1])[0], rule.at_speed(1.0).bounds([1])[0]
    assert made.bounds([1, 2, 3, 4]) == pytest.approx((never, never, middle, at_once), rel=1e-5)
    assert exits.of(str(made)) == made and exits.from_json(exits.to_json(made)) == made


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.per_layer], ids=str)
def test_a_stretched_certainty_grows_with_it(rule: Any) -> None:
    cautious, fast = (rule.at_speed(speed).bounds([1])[0] for speed in (0.0, 1.0))
    values = torch.linspace(max(min(cautious, fast), -50.0), min(max(cautious, fast), 50.0), 99)
    stretched = rule.stretched(values)
    assert stretched.isfinite().all() and (stretched.diff() >= 0).all() and stretched[-1] > stretched[0]
