"""The methods' losses and settings against their papers, on a tiny encoder."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertTokenizer,
)

from paredown.errors import BadSetting
from paredown.methods import Alternating, Finetune, Joint, SelfDistill, TwoStage
from paredown.methods._recipe import at_full_depth
from paredown.methods._stage import Progress
from paredown.model import AdaptiveModel
from paredown.registry import answers, methods
from tests.families import outputs
from tests.grids import combinations

LAYERS = 4
START = Progress(0, 10)


def tiny(kind="single_label", labels=3):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=labels,
    )  # fmt: skip
    own = {"span": BertForQuestionAnswering}
    own |= dict.fromkeys(("token_label", "supported_span", "marked"), BertForTokenClassification)
    stock = own.get(kind, BertForSequenceClassification)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *[f"word{index}" for index in range(55)]]
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    return AdaptiveModel(stock(config).eval(), tokenizer, answers.make(kind))


def batch(kind="single_label", rows=5, tokens=9, labels=3):
    torch.manual_seed(1)
    mask = torch.ones(rows, tokens, dtype=torch.long)
    mask[0, 5:] = 0
    gold = {
        "single_label": torch.randint(labels, (rows,)),
        "multi_label": torch.randint(2, (rows, labels)).float(),
        "regression": torch.rand(rows, 1),
        "token_label": torch.randint(labels, (rows, tokens)).masked_fill(mask == 0, -100),
        "span": torch.randint(5, (rows, 2, 2)),
        "supported_span": torch.tensor([supported_label(row, tokens) for row in range(rows)]),
        "choice": torch.tensor([1, 2]),
        "marked": torch.randint(5, (rows, 1, 1)),
    }[kind]
    found = {"input_ids": torch.randint(5, 60, (rows, tokens)), "attention_mask": mask, "labels": gold}
    if kind == "supported_span":
        found["sentence_mask"] = gold[:, -tokens:] >= 0
    elif kind == "choice":
        found["group"] = torch.tensor([0, 0, 1, 1, 1])
    return found


def supported_label(row, tokens):
    """Of a span at two positions, of yes, of no; two sentences."""
    what = ("span", "yes", "no")[row % 3]
    return answers.make("supported_span").label(
        [(1, 2), (3, 3)][: 2 * (row % 3 == 0)], what, {1: True, 4: False}, tokens
    )


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chosen", [None, (0, 2)])
def test_gradient_equilibrium_is_the_mean_over_the_exits_above(chosen):
    model, data = tiny(), batch()
    method = Joint(equilibrium=True, layers=chosen)
    method.grow(model)
    (stage,) = method.stages(model)
    balanced = gradients(model, stage.loss(model, data, START))
    trace = model.trace(data)
    plain = gradients(model, sum(F.cross_entropy(x, data["labels"]) for x in (*trace.exits.values(), trace.final)))
    exits = [*model.head_layers, LAYERS - 1]
    assert balanced.keys() == plain.keys()
    for name, gradient in balanced.items():
        if name.startswith("stock.bert.encoder.layer."):
            above = sum(stop >= int(name.split(".")[4]) for stop in exits)
        else:
            above = len(exits) if name.startswith("stock.bert.embeddings") else 1  # heads are untouched
        torch.testing.assert_close(gradient * above, plain[name], rtol=1e-4, atol=1e-7)


def test_equilibrium_leaves_the_loss_alone():
    model, data = tiny(), batch()
    Joint().grow(model)
    losses = [Joint(equilibrium=e).stages(model)[0].loss(model, data, START).item() for e in (False, True)]
    assert losses[0] == losses[1]


def test_joint_weights_and_groups():
    model, data = tiny(), batch()
    Joint().grow(model)
    trace = model.trace(data)
    each = [F.cross_entropy(x, data["labels"]).item() for x in (*trace.exits.values(), trace.final)]

    def loss(step=0, **settings):
        return Joint(**settings).stages(model)[0].loss(model, data, Progress(step, 10)).item()

    assert loss() == pytest.approx(sum(each))
    assert loss(weights="depth") == pytest.approx(sum(k * x for k, x in enumerate(each, 1)) / 10)
    groups = ((0, 2, 3), (1, 3))
    assert loss(groups=groups) == pytest.approx(each[0] + each[2] + each[3])
    assert loss(step=1, groups=groups) == pytest.approx(each[1] + each[3])
    with pytest.raises(BadSetting, match="a group names layers with a head"):
        loss(groups=((0, 9),))
    imitation = sum(
        F.kl_div(x.log_softmax(-1), trace.final.softmax(-1), reduction="batchmean").item() for x in trace.exits.values()
    )
    assert loss(distill=0.5) == pytest.approx(sum(each) + 0.5 * imitation)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_self_distillation_loss(direction, temperature):
    model, data = tiny(), batch()
    method = SelfDistill(direction=direction, temperature=temperature, head="pooler")
    method.grow(model)
    stage = method.stages(model)[1]
    trace = model.trace(data)
    teacher = (trace.final / temperature).log_softmax(-1)
    expected = 0.0
    for student in (*trace.exits.values(), trace.stock):
        student = (student / temperature).log_softmax(-1)
        pair = (student, teacher) if direction == "forward" else (teacher, student)
        expected += temperature**2 * F.kl_div(*pair, log_target=True, reduction="batchmean").item()
    assert stage.loss(model, data, START).item() == pytest.approx(expected, rel=1e-5)
    without = {name: value for name, value in data.items() if name != "labels"}
    assert stage.unlabelled and stage.loss(model, without, START).item() == pytest.approx(expected, rel=1e-5)


def test_alternating_turns_and_the_error_probability():
    model, data = tiny(), batch()
    method = Alternating(learned_exit=False)
    method.grow(model)
    (stage,) = method.stages(model)
    trace = model.trace(data)
    each = [F.cross_entropy(x, data["labels"]).item() for x in trace.exits.values()]
    final = F.cross_entropy(trace.final, data["labels"]).item()
    assert stage.loss(model, data, Progress(0, 10)).item() == pytest.approx(final)
    assert stage.loss(model, data, Progress(1, 10)).item() == pytest.approx(sum(each) + final)
    learned = Alternating()
    learned.grow(model)
    trace = model.trace(data)
    estimates = torch.stack([
        (trace.error_probability[layer][:, 0] - (logits.argmax(-1) != data["labels"]).float()).pow(2).mean()
        for layer, logits in trace.exits.items()
    ]).mean().item()  # fmt: skip
    (stage,) = learned.stages(model)
    assert stage.loss(model, data, Progress(0, 10)).item() == pytest.approx(final + estimates)
    assert stage.loss(model, data, Progress(1, 10)).item() == pytest.approx(sum(each) + estimates)


def test_a_rule_that_does_not_fit_is_refused_before_training():
    with pytest.raises(BadSetting, match="does not fit"):
        Alternating(learned_exit=False).check(tiny())  # its rule reads an estimate that nobody would train
    with pytest.raises(BadSetting, match="patience with a tolerance"):
        TwoStage().check(tiny("regression", labels=1))
    Alternating().check(tiny())
    Alternating(learned_exit=False, rule="entropy:0.3").check(tiny())
    SelfDistill(rule="patience:4,tolerance=0.1").check(tiny("regression", labels=1))


def test_label_smoothing_is_the_published_one():
    logits, gold, eps = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1]), 0.1
    target = torch.full((6, 4), eps / 3).scatter(1, gold[:, None], 1 - eps)
    expected = -(target * logits.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(answers.make("single_label").loss(logits, gold, eps), expected)
    with pytest.raises(BadSetting, match="label smoothing needs labels"):
        answers.make("regression").loss(torch.zeros(2, 1), torch.zeros(2, 1), 0.1)


@pytest.mark.parametrize("name, kind", combinations([*methods.names(), *methods.aliases()], answers.names(), times=3))
def test_every_method_trains_every_kind_of_answer(name, kind):
    model, data = tiny(kind, labels=outputs(kind)), batch(kind)
    method = methods.make(name)
    method.grow(model)
    method.grow(model)  # idempotent
    for stage in method.stages(model):
        for parameter_name, parameter in model.named_parameters():
            parameter.requires_grad_(stage.trains(parameter_name))
        trained = {n for n, p in model.named_parameters() if p.requires_grad}
        touched: set[str] = set()
        for step in (0, 1):
            loss = stage.loss(model, data, Progress(step, 10))
            assert loss.isfinite()
            touched |= gradients(model, loss).keys()
        # A gate that no exit reads, or a pooler that per-token answers do not use, may stay untouched; nothing else.
        assert touched and touched <= trained


@pytest.mark.parametrize("method", [TwoStage(), SelfDistill(), SelfDistill(teacher="stock", head="shared_pooler")])
def test_second_stages_run_the_frozen_encoder_without_gradients(method):
    model, data = tiny(), batch()
    method.grow(model)
    first, second = method.stages(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(second.trains(name))
        assert first.trains(name) != second.trains(name)
    seen = []
    hook = model.walk.layers[0].register_forward_hook(lambda module, args, output: seen.append(output.requires_grad))
    loss = second.loss(model, data, START)
    hook.remove()
    assert seen and not any(seen) and loss.requires_grad
    assert not any(second.trains(name) for name in model.body)


def test_a_method_without_its_first_stage_keeps_a_finetuned_model():
    model = tiny()
    method = TwoStage(epochs=0)
    method.grow(model)
    assert [stage.name for stage in method.stages(model)] == ["exits"]
    assert [stage.name for stage in Finetune().stages(model)] == ["finetune"]
    assert at_full_depth(model) == {name for name, _ in model.named_parameters() if name.startswith("stock.")}


PUBLISHED = {
    "fastbert": {
        "head": "attention", "rule": "entropy:0.5", "epochs": 3.0, "lr": 2e-5, "exit_epochs": 5.0, "exit_lr": 2e-4,
        "batch_size": 32, "warmup": 0.1, "clip": None, "adam_eps": 1e-6, "direction": "forward", "temperature": 1.0,
        "weight_decay": 0.01, "teacher": "head",
    },
    "deebert": {
        "head": "pooler", "epochs": 3.0, "lr": 2e-5, "exit_epochs": 3.0, "exit_lr": 2e-5, "batch_size": 8,
        "warmup": 0.0, "clip": 1.0, "adam_eps": 1e-8, "weight_decay": 0.0,
    },
    "elasticbert": {
        "head": "pooler", "epochs": 5.0, "lr": 2e-5, "batch_size": 32, "warmup": 0.06, "weight_decay": 0.1,
        "weights": "plain", "equilibrium": True, "distill": 0.0,
    },
    "pabee": {
        "head": "shared_pooler", "rule": "patience:6", "epochs": 5.0, "lr": 2e-5, "batch_size": 32,
        "weights": "depth", "equilibrium": False,
    },
    "berxit": {
        "head": "pooler", "epochs": 3.0, "lr": 2e-5, "batch_size": 8, "warmup": 0.0, "weight_decay": 0.0,
        "learned_exit": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("alias", PUBLISHED)
def test_aliases_carry_the_published_settings(alias):
    settings = dataclasses.asdict(methods.make(alias))
    assert {name: settings[name] for name in PUBLISHED[alias]} == PUBLISHED[alias]
    assert methods.make(alias, lr=1e-4).lr == 1e-4
