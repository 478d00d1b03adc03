"""TR-BERT: its policy gradient, length penalty, guide, ranks and prices against hand-made values; targets are met."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from paredown import AdaptiveModel, Plan
from paredown.answers import collate
from paredown.engine import Observer, Trace
from paredown.errors import BadSetting
from paredown.methods import SelfDistill, TokenPolicy
from paredown.methods._stage import Progress
from paredown.methods._targets import PRICE, keep_for, spans
from paredown.methods.token_policy import PUBLISHED
from paredown.methods.token_policy.importance import importance, rank
from paredown.methods.token_policy.sampling import Draw, draw, guided, in_use, repeated
from paredown.model import Reading
from paredown.registry import methods
from paredown.state import State
from paredown.training import train
from tests.families import EVERY_TOKEN, adaptive, batch, walked
from tests.grids import halved
from tests.placement import agree
from tests.training.test_resume import assert_same, newest_files, run, run_with_stops
from tests.training.tiny import bits, rows, tiny

QUICK = {"epochs": 0, "policy_epochs": 1, "joint_epochs": 1, "samples": 4, "batch_size": 8, "joint_lr": 1e-3}


def made(method: TokenPolicy, seed: int = 0, **changes: Any) -> AdaptiveModel:
    """A tiny model with selectors that have an opinion."""
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = adaptive("bert", head=None, **{**still, **changes})
    method.grow(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.selectors.parameters():
            if parameter.dim():
                parameter.copy_(torch.randn_like(parameter) * 0.4)
    return model


def labelled(lengths: list[int]) -> dict[str, Tensor]:
    return {**batch(99, lengths), "labels": torch.arange(len(lengths)) % 3}


def kept_share(model: AdaptiveModel, number: int = 100) -> float:
    """In use: of the tokens of a row, a mean over the layers from the first selector on."""
    inputs = collate(model.encode(rows(number)), 0)
    answer = model.answer(inputs, Plan(reduce="selector:0.5"))
    length, full = inputs["attention_mask"].sum(1), model.depth.index(model.selector_layers[0])
    return ((answer.tokens - full * length) / ((len(model.depth) - full) * length)).mean().item()


def test_all_tokens_start_with_the_same_chance_to_stay() -> None:
    for method, chance in ((TokenPolicy(), 0.5), (TokenPolicy(select_before=(0, 1, 2), start=0.85), 0.7)):
        model, inputs = adaptive("bert", head=None), batch(99, [6, 9])
        method.grow(model)
        state = model.embed(inputs)
        for layer in model.selector_layers:
            chances = model.keep_logits(layer, state.hidden).sigmoid()[state.mask]
            assert torch.allclose(chances, torch.full_like(chances, chance), atol=0.02)


def test_the_policy_gradient_is_that_of_the_expected_reward() -> None:
    method = TokenPolicy(select_before=(1,), guide_rate=0, alpha=0.7, samples=8)
    model = made(method)
    one = labelled([6])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith("selectors."))
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]

    expected: Any = 0.0
    for mask in product((True, False), repeat=5):
        keep, likely = torch.tensor([[True, *mask]]), []

        class Choose(Observer):
            drops_tokens = True

            def before(self, state: Any, step: Any, keep: Tensor = keep, likely: list[Tensor] = likely) -> Any:
                if step.layer != 1:
                    return state
                chance = model.keep_logits(step.layer, state.hidden).sigmoid()[:, 1:]
                likely.append(torch.where(keep[:, 1:], chance, 1 - chance).prod())
                return state.drop(keep)

        loss = model.kind.loss(model.trace(one, observer=Choose()).final, one["labels"]).detach()
        expected = expected + likely[0] * (-loss - 0.7 * keep.sum() / 6)
    exact = torch.autograd.grad(expected, learning)

    many = {name: value.repeat(64, *[1] * (value.dim() - 1)) for name, value in one.items()}
    drawn = []
    for seed in range(40):
        torch.manual_seed(seed)
        drawn.append(torch.autograd.grad(method._policy(model, many, Progress(1, 10)), learning))
    for index, wanted in enumerate(exact):
        found = torch.stack([gradients[index] for gradients in drawn])
        error = found.std(0) / len(drawn) ** 0.5
        # The mean of the samples holds each of them, and the surprise is a mean over the five tokens that may go.
        assert ((found.mean(0) + wanted * (7 / 8) / 5).abs() <= 5 * error + 1e-7).all()
        assert (found.mean(0).abs() > 5 * error).any() or wanted.abs().max() < 1e-4


def test_the_length_penalty_and_advantages_by_hand() -> None:
    """Two rows of 10 and 5 tokens, two samples each, two selectors; rows may have 16 tokens."""
    trace = Trace({}, {}, torch.zeros(4, 3), torch.ones(4, 12), 3)
    kept, length = torch.tensor([[8, 4], [5, 1], [6, 2], [3, 1]]), torch.tensor([10, 5, 10, 5])
    surprise = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    drawn = Draw(trace, surprise, kept, length)
    losses = torch.tensor([0.1, 0.2, 0.5, 0.4])
    model, data = made(TokenPolicy()), labelled([10, 5])
    model.reading = Reading(max_length=16)

    def loss(**settings: Any) -> float:
        method = TokenPolicy(samples=2, **settings)
        return method._reinforce(model, data, drawn, losses, 2.0, Progress(0, 10)).item()

    # Shares (0.8 + 0.4) / 2, (1 + 0.2) / 2, (0.6 + 0.2) / 2, (0.6 + 0.2) / 2 make rewards -1.3, -1.4, -1.3, -1.2;
    # the rows' means are -1.3 and -1.3, so the advantages are 0, -0.1, 0, 0.1.
    assert loss() == pytest.approx((-0.1 * 2 + 0.1 * 4) / 4, abs=1e-6)
    # Of 16 tokens, however wide the batch is: rewards -0.85, -0.575, -1, -0.65.
    published = pytest.approx((0.075 * (1 - 3) + 0.0375 * (2 - 4)) / 4, abs=1e-6)
    assert loss(penalty="published") == loss(preset="imdb") == published
    assert loss(preset="imdb", penalty="real") == loss()


def test_samples_are_rows_again_and_forced_tokens_do_not_count() -> None:
    model, data = made(TokenPolicy()), labelled([9, 4])
    drawn = draw(model, data, 3)
    assert drawn.length.tolist() == [9, 4] * 3 and drawn.kept.shape == (6, 2)
    assert (drawn.kept[:, 0] >= drawn.kept[:, 1]).all() and (drawn.kept >= 1).all()
    data["protected"] = data["attention_mask"].bool()
    drawn = draw(model, data, 3)
    assert drawn.surprise.tolist() == [0.0] * 6 and drawn.kept.tolist() == [[9, 9], [4, 4]] * 3


def test_samples_of_a_question_are_questions_and_share_its_reward() -> None:
    model = adaptive("bert", "choice", head=None)
    TokenPolicy().grow(model)
    data = {**batch(99, [9, 4, 7, 5, 3]), "group": torch.tensor([0, 0, 1, 1, 1]), "labels": torch.tensor([1, 2])}
    assert repeated(data, 3)["group"].tolist() == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5]
    everything = data | {"protected": data["attention_mask"].bool()}
    drawn = draw(model, everything, 3)
    torch.testing.assert_close(drawn.trace.final, model.trace(data).final.repeat(3, 1))
    kept, length = torch.tensor([[2], [4], [3], [6], [9]] * 2), torch.tensor([4, 4, 12, 12, 12] * 2)
    surprise = torch.tensor([1.0, 2.0, 1.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 6.0])
    trace = Trace({}, {}, torch.zeros(4, 3), drawn.trace.answer_mask[:4], 3)
    by_hand, losses = Draw(trace, surprise, kept, length), torch.tensor([0.1, 0.2, 0.5, 0.4])
    found = TokenPolicy(samples=2)._reinforce(model, data, by_hand, losses, 1.0, Progress(0, 1))
    # Both samples keep as much, so the losses alone decide: advantages 0.2, 0.1, -0.2, -0.1; surprises 1.5, 2, 3.5, 5.
    assert found.item() == pytest.approx((0.2 * (1.5 - 3.5) + 0.1 * (2 - 5)) / 4)


def test_the_guide_keeps_as_many_as_expected_and_the_most_important() -> None:
    chances = torch.tensor([[0.9, 0.9, 0.3, 0.8, 0.6, 0.9], [0.2, 0.1, 0.2, 0.1, 0.9, 0.9]])
    free = torch.tensor([[False, True, True, True, True, False], [False, True, True, True, False, False]])
    scores = torch.tensor([[9.0, 1, 5, 2, 4, 9], [9.0, 3, 1, 2, 9, 9]])
    keep = guided(scores, chances.logit(), free)  # 2.6 are expected in the first row, 0.4 in the second
    assert (keep & free).tolist() == [[False, False, True, True, True, False], [False] * 6]
    assert rank(scores, free)[0, [2, 4, 3, 1]].tolist() == [0, 1, 2, 3]


def test_only_the_first_sample_is_guided_and_only_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    method = TokenPolicy(samples=3, guide_rate=0.5)
    model, data = made(method), labelled([9, 4])
    scores, _ = importance(model, data, method.task_loss)
    one, two = (draw(model, data, 3, scores).kept for _ in range(2))
    assert torch.equal(one[:2], two[:2]) and not torch.equal(one[2:], two[2:])
    seen: list[Any] = []
    from paredown.methods import token_policy

    monkeypatch.setattr(token_policy, "draw", lambda *args: seen.append(args[3]) or draw(*args))
    for step in (0, 4, 5, 9):
        method._policy(model, data, Progress(step, 10))
    assert [scores is not None for scores in seen] == [True, True, False, False]


def test_importance_is_the_residual_strategy() -> None:
    model, data = made(TokenPolicy()), labelled([9, 4])
    states: list[Tensor] = []

    class Note(Observer):
        def after(self, state: State, step: Any) -> State:
            states.append(state.hidden)
            return state

    loss = model.kind.loss(model.trace(data, observer=Note()).final, data["labels"])
    (gradient,) = torch.autograd.grad(loss, states[2])  # four layers: the third one's output is two thirds of the way
    scores, seen = importance(model, data, TokenPolicy().task_loss)
    assert scores.keys() == seen.keys() == {1, 2}
    for layer, found in scores.items():
        wanted = (gradient * (states[2] - states[layer - 1])).sum(-1).abs()
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-8)
        torch.testing.assert_close(seen[layer].hidden, states[layer - 1])
    assert all(parameter.grad is None for parameter in model.parameters())


def test_ranks_are_learnt_by_their_distance() -> None:
    method = TokenPolicy(init_epochs=1)
    model = made(method)
    for selector in model.selectors.values():
        torch.nn.init.zeros_(selector.out.weight)
        torch.nn.init.zeros_(selector.out.bias)
    stage = next(stage for stage in method.stages(model) if stage.name == "init")
    # Four tokens may go: all are kept with 0.5, and shall be with 1, 0.75, 0.5, 0.25; two selectors.
    assert stage.loss(model, labelled([5]), Progress(0, 1)).item() == pytest.approx(2 * (0.5 + 0.25 + 0 + 0.25) / 4)


def test_published_prices() -> None:
    assert TokenPolicy().alphas == (1.0, 1.0) and TokenPolicy(alpha=3.0).alphas == (3.0, 3.0)
    assert TokenPolicy(preset="hotpotqa").alphas == (0.1, 4.0) and TokenPolicy(preset="yelp_f").alphas == (2.0, 0.5)
    assert TokenPolicy(preset="race", alpha=3.0).alphas == (3.0, 3.0)
    assert TokenPolicy(preset="race", joint_alpha=3.0).alphas == (0.5, 3.0)
    assert methods.parse("trbert:preset=squad").alphas == (5.0, 5.0) and len(PUBLISHED) == 10


def test_the_alias_is_as_published() -> None:
    published: Any = methods.make("trbert")
    assert (published.samples, published.guided_share, published.selector_size) == (8, 0.5, 32)
    assert (published.epochs, published.policy_epochs, published.joint_epochs) == (5.0, 3.0, 3.0)
    assert (published.lr, published.selector_lr, published.joint_lr, published.weight_decay) == (3e-5, 3e-5, 3e-5, 0.0)
    assert (published.penalty, published.detach_dropped, published.temperature) == ("published", True, 1.0)
    assert methods.parse("trbert:preset=squad").guided_share == 0.2 != TokenPolicy().guided_share
    assert methods.parse("trbert:preset=squad,guide_rate=0.3").guided_share == 0.3


@pytest.mark.parametrize("detach", [False, True])
def test_dropped_tokens_answer_and_teach_the_encoder_unless_detached(detach: bool) -> None:
    """The answers are the same; as published, what was dropped teaches the classifier alone."""
    model, data = adaptive("bert", "token_label", head=None), batch(99, [6, 9])
    TokenPolicy(select_before=(2,)).grow(model)
    with torch.no_grad():
        model.get_parameter("selectors.2.out.bias").fill_(-30.0)  # only the first token stays
    drawn = draw(model, data, 2, detach_dropped=detach)
    assert drawn.kept.tolist() == [[1]] * 4
    torch.testing.assert_close(drawn.trace.final, draw(model, data, 2).trace.final)
    drawn.trace.final[:, 1:].sum().backward()
    moved = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
    assert {name.split(".")[1] for name in moved} == ({"classifier"} if detach else {"classifier", "bert"})


def test_a_speedup_is_a_share_of_the_tokens() -> None:
    model = made(TokenPolicy(select_before=(1, 3)))  # four layers: one full, two, one
    assert spans(model) == [2 / 3, 1 / 3]
    assert keep_for(2.0, model) == pytest.approx(1 / 3)  # 1 + 3 / 3 of 4
    with pytest.raises(BadSetting, match="below 4"):
        keep_for(4.0, model)


def test_stages_and_who_learns() -> None:
    method = TokenPolicy(init_epochs=1)
    model = made(method)
    found = {stage.name: {n for n, _ in model.named_parameters() if stage.trains(n)} for stage in method.stages(model)}
    chosen = {f"selectors.{at}.{part}" for at in (1, 2) for part in ("dense.weight", "dense.bias")}
    chosen |= {f"selectors.{at}.{part}" for at in (1, 2) for part in ("out.weight", "out.bias")}
    own = {name for name, _ in model.named_parameters() if name.startswith("stock.")}
    assert found == {"finetune": own, "init": chosen, "policy": chosen, "joint": own | chosen}
    priced = TokenPolicy(target_keep=0.4, epochs=0).stages(model)
    assert [stage.name for stage in priced] == ["policy", "joint"] and all(stage.trains(PRICE) for stage in priced)
    assert [stage.unlabelled for stage in priced] == [False, True] and str(Plan(reduce=priced[0].reduce).reduce)


@pytest.mark.parametrize("keep", halved([0.7, 0.4]))
def test_the_kept_share_comes_to_the_target(keep: float, tmp_path: Path) -> None:
    model = tiny(layers=4, dropout=0.0)
    settings = {**QUICK, "policy_epochs": 5, "joint_epochs": 4, "selector_lr": 3e-3, "batch_size": 16}
    train(model, TokenPolicy(**settings, target_keep=keep), rows(400), output=tmp_path)
    assert kept_share(model) == pytest.approx(keep, abs=0.05)
    assert model.plan == Plan(reduce="selector:0.5") and not model.companions


def test_what_is_kept_in_use_is_measured_without_chance() -> None:
    model, data = made(TokenPolicy()), labelled([9, 4, 12])
    answer = model.answer(data, Plan(reduce="selector:0.5"))
    length = data["attention_mask"].sum(1)
    shares = in_use(model, data)
    torch.testing.assert_close(length * (1 + shares[:, 0] + 2 * shares[:, 1]), answer.tokens.float())


@pytest.mark.usefixtures("deterministic")
def test_a_price_on_its_way_resumes_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = TokenPolicy(**QUICK, init_epochs=1, target_speedup=1.5)
    whole = run(tmp_path / "whole", [method])
    assert_same(whole, run_with_stops(tmp_path / "stopped", [method], monkeypatch, every=5))
    assert newest_files(tmp_path / "whole") == newest_files(tmp_path / "stopped")


def test_exits_learn_along_and_a_bundle_remembers_all(tmp_path: Path) -> None:
    model = tiny(layers=4)
    exits = SelfDistill(epochs=1, exit_epochs=1, lr=1e-3, batch_size=8, rule="entropy:0.9")
    before: dict[str, bytes] = {}
    method = TokenPolicy(**QUICK)
    train(model, exits, rows(24), rows(8), output=tmp_path / "exits")
    before = bits(model)
    train(model, method, rows(24), rows(8), output=tmp_path / "tokens")
    after = bits(model)
    assert {name for name in before if name.startswith("heads.") and before[name] != after[name]}
    assert str(model.plan.exit) == "entropy:0.9" and str(model.plan.reduce) == "selector:0.5"
    again = AdaptiveModel.from_pretrained(tmp_path / "tokens" / "model")
    texts = [row["text"] for row in rows(8)]
    assert agree(again.predict(texts), model.predict(texts)) and again.plan == model.plan


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_keep": 0.4, "target_speedup": 2.0}, "give one"),
        ({"target_keep": 1.0}, "between 0 and 1"),
        ({"target_speedup": 1.0}, "above 1"),
        ({"samples": 1}, "at least 2"),
        ({"guide_rate": 1.5}, "guide_rate"),
        ({"policy_epochs": 0, "joint_epochs": 0}, "no selector would learn"),
        ({"penalty": "published", "target_keep": 0.4}, "needs penalty=real"),
        ({"preset": "imdb", "target_speedup": 2.0}, "needs penalty=real"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        TokenPolicy(**settings)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadSetting, match="tie tokens to their positions"):
        TokenPolicy().check(adaptive(walked(EVERY_TOKEN)[0], head=None))
    short = adaptive("bert", head=None, plan=Plan(depth=(0, 1)))
    with pytest.raises(BadSetting, match="export it first, or use labels"):
        TokenPolicy().grow(short)
    short = adaptive("bert", head=None, plan=Plan(depth=(0, 1)))
    with pytest.raises(BadSetting, match="but the plan runs"):
        TokenPolicy(learns_from="labels", select_before=(3,)).grow(short)


@pytest.mark.parametrize("kind", ["single_label", "multi_label", "regression", "token_label"])
@pytest.mark.parametrize("taught", [False, True])
def test_the_loss_of_a_row_is_its_loss_alone(kind: str, taught: bool) -> None:
    model, method = tiny(kind, dropout=0.0), TokenPolicy()
    many = collate(model.encode(rows(5, kind)), 0)
    trace = model.trace(many)
    theirs = torch.randn_like(trace.final) if taught else None
    found = method.row_losses(model, trace, many, theirs)
    for row in range(5):
        here = slice(row, row + 1)
        alone = {"labels": many["labels"][here]}
        other = None if theirs is None else theirs[here]
        wanted = method._loss(model, trace.final[here], alone, trace.answer_mask[here], other)
        torch.testing.assert_close(found[row], wanted)
