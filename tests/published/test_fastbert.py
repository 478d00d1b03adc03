"""FastBERT checkpoints answer as the published forward does; that forward is written again here."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertConfig, BertTokenizer

from paredown import AdaptiveModel, Plan
from paredown.errors import BadBundle, BadSetting
from paredown.published import load_fastbert
from tests.placement import agree

LAYERS, WIDTH, FFN, VOCABULARY, POSITIONS, LABELS, HEADS = 3, 16, 24, 45, 20, 3, 2
State = dict[str, Tensor]


def state(kernel: str = "kernel.") -> State:
    """A state dict with the names that the `fastbert` package saves; the script saves them without `kernel.`."""
    torch.manual_seed(0)
    sizes: dict[str, tuple[int, ...]] = {
        f"{kernel}embedding.word_embedding.weight": (VOCABULARY, WIDTH),
        f"{kernel}embedding.position_embedding.weight": (POSITIONS, WIDTH),
        f"{kernel}embedding.segment_embedding.weight": (3, WIDTH),
        f"{kernel}embedding.layer_norm.gamma": (WIDTH,),
        f"{kernel}embedding.layer_norm.beta": (WIDTH,),
    }

    def linear(name: str, before: int, after: int) -> None:
        sizes[f"{name}.weight"], sizes[f"{name}.bias"] = (after, before), (after,)

    for layer in range(LAYERS):
        block, head = f"{kernel}encoder.transformer.{layer}", f"classifiers.{layer}"
        for part in ("linear_layers.0", "linear_layers.1", "linear_layers.2", "final_linear"):
            linear(f"{block}.self_attn.{part}", WIDTH, WIDTH)
            linear(f"{head}.self_atten.{part}", 128, 128)
        linear(f"{block}.feed_forward.linear_1", WIDTH, FFN)
        linear(f"{block}.feed_forward.linear_2", FFN, WIDTH)
        for norm in ("layer_norm_1", "layer_norm_2"):
            sizes[f"{block}.{norm}.gamma"] = sizes[f"{block}.{norm}.beta"] = (WIDTH,)
        linear(f"{head}.output_layer_0", WIDTH, 128)
        linear(f"{head}.output_layer_1", 128, 128)
        linear(f"{head}.output_layer_2", 128, LABELS)
    found = {
        name: torch.randn(size) * (0.3 if len(size) == 1 else 1.5 / size[1] ** 0.5) for name, size in sizes.items()
    }
    for name in found:
        found[name] += name.endswith("gamma")
    if kernel:
        found["kernel.target.mlm_linear_2.weight"] = torch.randn(VOCABULARY, WIDTH)
        found["kernel.target.layer_norm.gamma"] = torch.randn(WIDTH)
    found["classifiers.0.output_layer_0.total_ops"] = torch.zeros(1, dtype=torch.float64)
    found["total_params"] = torch.zeros(1, dtype=torch.float64)
    return found


def published_forward(state: State, ids: Tensor, segments: Tensor) -> list[Tensor]:
    """Logits of every head: UER's BERT and FastBERT's classifier, with UER's own norm, mask and segments."""
    state = {name.removeprefix("kernel."): value for name, value in state.items()}

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ state[f"{name}.weight"].t() + state[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return state[f"{name}.gamma"] * centred / (x.std(-1, keepdim=True) + 1e-6) + state[f"{name}.beta"]

    mask = (1.0 - (segments > 0)[:, None, None, :].float()) * -10000.0

    def attend(name: str, x: Tensor, heads: int) -> Tensor:
        rows, tokens, width = x.shape
        query, key, value = (
            linear(f"{name}.linear_layers.{part}", x).view(rows, tokens, heads, width // heads).transpose(1, 2)
            for part in range(3)
        )
        probs = (query @ key.transpose(-2, -1) / math.sqrt(width // heads) + mask).softmax(-1)
        return linear(f"{name}.final_linear", (probs @ value).transpose(1, 2).reshape(rows, tokens, width))

    hidden = state["embedding.word_embedding.weight"][ids] + state["embedding.segment_embedding.weight"][segments]
    hidden = norm("embedding.layer_norm", hidden + state["embedding.position_embedding.weight"][: ids.shape[1]])
    answers = []
    for layer in range(LAYERS):
        block, head = f"encoder.transformer.{layer}", f"classifiers.{layer}"
        hidden = norm(f"{block}.layer_norm_1", hidden + attend(f"{block}.self_attn", hidden, HEADS))
        inner = F.gelu(linear(f"{block}.feed_forward.linear_1", hidden))
        hidden = norm(f"{block}.layer_norm_2", hidden + linear(f"{block}.feed_forward.linear_2", inner))
        small = attend(f"{head}.self_atten", linear(f"{head}.output_layer_0", hidden).tanh(), 2)[:, 0]
        answers.append(linear(f"{head}.output_layer_2", linear(f"{head}.output_layer_1", small).tanh()))
    return answers


def inputs() -> tuple[Tensor, Tensor]:
    """A single text and a pair, padded; segments as UER counts them: 0 padding, 1 first, 2 second."""
    ids = torch.randint(5, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    segments = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 2, 2, 2, 2, 0]])
    return ids.masked_fill(segments == 0, 0), segments


def as_batch(ids: Tensor, segments: Tensor) -> State:
    return {
        "input_ids": ids,
        "attention_mask": (segments > 0).long(),
        "token_type_ids": (segments - 1).clamp(min=0),
    }


def saved(path: Path, state: State, zipped: bool = True) -> Path:
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    return path


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("kernel", ["kernel.", ""], ids=["package", "script"])
def test_every_head_answers_as_published(kernel: str, zipped: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "fastbert.bin", state(kernel), zipped)
    model = load_fastbert(path, labels=["bad", "fair", "good"], attention_heads=HEADS)
    ids, segments = inputs()
    expected = published_forward(state(kernel), ids, segments)
    with torch.no_grad():
        trace = model.trace(as_batch(ids, segments))
    assert list(trace.logits) == [0, 1, 2] and trace.final is trace.logits[2]
    for layer, logits in enumerate(expected):
        assert (trace.logits[layer] - logits).abs().max() <= 1e-4
    assert torch.allclose(model.answer(as_batch(ids, segments), Plan()).logits, expected[-1], atol=1e-4)
    assert model.plan == Plan(exit="entropy:0.5")
    assert model.labels == ["bad", "fair", "good"] and not model.training


def test_segments_are_shifted(tmp_path: Path) -> None:
    model = load_fastbert(saved(tmp_path / "a.bin", state()), attention_heads=HEADS)
    theirs = state()["kernel.embedding.segment_embedding.weight"]
    assert torch.equal(model.stock.bert.embeddings.token_type_embeddings.weight, theirs[1:])
    ids, segments = inputs()
    one = as_batch(ids, segments.clamp(max=1))
    assert not torch.allclose(
        model.answer(one, Plan()).logits[1], model.answer(as_batch(ids, segments), Plan()).logits[1]
    )


def test_early_exit_as_in_the_package(tmp_path: Path) -> None:
    model = load_fastbert(saved(tmp_path / "a.bin", state()), attention_heads=HEADS)
    ids, segments = inputs()
    logits = torch.stack(published_forward(state(), ids, segments))
    probs = logits.softmax(-1)
    uncertain = -(probs * probs.log()).sum(-1) / math.log(LABELS)  # [layers, rows]
    for speed in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95):
        answer = model.answer(as_batch(ids, segments), Plan(exit=f"entropy:{speed}"))
        for row in range(2):
            left = next((layer for layer in range(LAYERS) if uncertain[layer, row] < speed), LAYERS - 1)
            assert answer.layers[row] == left + 1
            assert torch.allclose(answer.logits[row], logits[left, row], atol=1e-4)


def vocabulary(folder: Path) -> Path:
    words = [f"word{index}" for index in range(VOCABULARY - 5)]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    return folder


def test_texts_are_written_as_fastbert_was_trained_even_after_saving(tmp_path: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(vocabulary(tmp_path / "words"))
    model = load_fastbert(saved(tmp_path / "a.bin", state()), attention_heads=HEADS, tokenizer=tokenizer)
    model.save_pretrained(tmp_path / "bundle")
    again = AdaptiveModel.from_pretrained(tmp_path / "bundle")
    for one in (model, again):
        assert one.tokenizer("word0 word1")["input_ids"] == [2, 5, 6]  # no [SEP] after a single text
        pair = one.tokenizer("word0", "word1 word2")
        assert pair["input_ids"] == [2, 5, 3, 6, 7, 3] and pair["token_type_ids"] == [0, 0, 0, 1, 1, 1]
        assert one.tokenizer(["word0 word1 word2"], truncation=True, max_length=3)["input_ids"] == [[2, 5, 6]]
    assert tokenizer("word0")["input_ids"] == [2, 5, 3]  # the given one is left as it was
    assert agree(model.predict(["word0 word1"]), again.predict(["word0 word1"]))
    label, layers = again("word0 word1", speed=0.0)
    assert label in again.labels and layers == LAYERS


def test_a_folder_tells_heads_dropout_and_vocabulary(tmp_path: Path) -> None:
    folder = vocabulary(tmp_path / "base")
    BertConfig(hidden_size=WIDTH, num_attention_heads=4, hidden_dropout_prob=0.25).save_pretrained(folder)
    model = load_fastbert(saved(tmp_path / "a.bin", state()), config=folder)
    assert (model.config.num_attention_heads, model.config.hidden_dropout_prob) == (4, 0.25)
    assert model.predict(["word3"])[0].label in ("LABEL_0", "LABEL_1", "LABEL_2")
    with pytest.raises(BadSetting, match=r"config\.json"):
        load_fastbert(tmp_path / "a.bin", config=tmp_path)


def test_the_untrained_classifier_says_nothing(tmp_path: Path) -> None:
    model = load_fastbert(saved(tmp_path / "a.bin", state()), attention_heads=HEADS)
    assert not model.trace(as_batch(*inputs())).stock.any()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda s: s.pop("classifiers.1.output_layer_1.bias"), r"missing: classifiers\.1\.output_layer_1\.bias"),
        (lambda s: s.pop("kernel.embedding.layer_norm.gamma"), r"missing: embedding\.layer_norm\.gamma"),
        (lambda s: s.update({"kernel.extra": torch.ones(1)}), r"unknown: extra"),
        (lambda s: s.update({"classifiers.3.output_layer_0.bias": torch.ones(128)}), r"unknown: classifiers\.3"),
        (lambda s: s.update({"kernel.embedding.segment_embedding.weight": torch.ones(2, WIDTH)}), "3 rows"),
        (lambda s: s.update({"classifiers.2.output_layer_2.bias": torch.ones(2)}), r"should be \[3\]"),
        (lambda s: s.update({"kernel.embedding.word_embedding.weight": torch.ones(1, 1 << 16)}), "should be"),
        (lambda s: s.update({"kernel.embedding.layer_norm.beta": torch.ones(WIDTH, dtype=torch.long)}), "int64"),
        (lambda s: s.clear(), "no layers"),
    ],
)
def test_what_does_not_fit_is_named(change: object, complaint: str, tmp_path: Path) -> None:
    wrong = state()
    change(wrong)  # type: ignore[operator]
    with pytest.raises(BadBundle, match=complaint):
        load_fastbert(saved(tmp_path / "a.bin", wrong), attention_heads=HEADS)


def test_settings_that_do_not_fit(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.bin", state())
    with pytest.raises(BadSetting, match="attention_heads"):
        load_fastbert(path)  # a width of 16 is no multiple of 64
    with pytest.raises(BadSetting, match="3 labels"):
        load_fastbert(path, labels=["a", "b"], attention_heads=HEADS)
