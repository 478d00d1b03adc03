"""Train a small encoder from scratch so that easy sentences leave early, and watch where each one leaves.

Everything is made here: a vocabulary, sentences whose mood is plain ("a great film") or turned around ("not a great
film", "dull at first but a great film"), and a six-layer BERT. It takes a minute on one CPU core and needs no network.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, logging

from paredown import AdaptiveModel, Plan
from paredown.evaluation import METRICS, curve, record
from paredown.registry import exits
from paredown.rows import as_rows, encode
from paredown.training import train

GOOD = "great fine superb moving bright witty lovely fresh".split()
BAD = "dull awful bland clumsy weak stale grim noisy".split()
THINGS = "film plot cast ending script story scene song".split()
OTHERS = "a the is was not never but at first then with and i found it".split()
FOLDER = Path("demo")


def sentence(random: random.Random, hard: bool | None = None) -> dict[str, object]:
    """One sentence and its mood; hard ones say a word of the other mood too, or turn one around."""
    mood = random.random() < 0.5
    said, other = (GOOD, BAD) if mood else (BAD, GOOD)
    thing = random.choice(THINGS)
    plain = [f"a {random.choice(said)} {thing}", f"the {thing} is {random.choice(said)} and {random.choice(said)}"]
    turned = [
        f"not a {random.choice(other)} {thing}",
        f"the {thing} was never {random.choice(other)}",
        f"{random.choice(other)} at first but then a {random.choice(said)} {thing}",
        f"i found it {random.choice(said)} with a {thing} not {random.choice(other)}",
    ]
    is_hard = random.random() < 0.5 if hard is None else hard
    return {"text": random.choice(turned if is_hard else plain), "label": "good" if mood else "bad"}


def encoder(folder: Path) -> Path:
    """A random BERT with its tokenizer, as a Hugging Face folder."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *OTHERS, *THINGS, *GOOD, *BAD]
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=64,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2,
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizer(vocab={word: place for place, word in enumerate(words)}, model_max_length=32).save_pretrained(folder)
    return folder


def main() -> None:
    console = Console()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    shutil.rmtree(FOLDER, ignore_errors=True)
    source = random.Random(0)
    train_rows, dev_rows = ([sentence(source) for _ in range(number)] for number in (4000, 800))
    model = AdaptiveModel.from_pretrained(encoder(FOLDER / "encoder"), labels=["bad", "good"])
    console.rule("training: fine-tune, then let the exits imitate the last head (FastBERT)")
    method = "fastbert:lr=1e-3,batch_size=64,epochs=5,exit_lr=2e-3,exit_epochs=3"
    train(model, method, train_rows, dev_rows, output=FOLDER / "run")

    console.rule("what every layer knows, and what leaving early costs")
    seen = record(model, encode(model.tokenizer, as_rows(dev_rows), model.kind, model.labels))
    layers = Table("layers run", "dev accuracy")
    for count, score in seen.scores(METRICS["accuracy"]).items():
        layers.add_row(str(count), f"{score:.3f}")
    speeds = Table("speed", "dev accuracy", "mean layers", "fewer layers")
    ladder = [0.0, 0.01, 0.1, 0.5, 0.9]
    points = curve(seen, [exits.parse(f"entropy:{speed}") for speed in ladder], METRICS["accuracy"])
    for speed, point in zip(ladder, points):
        speeds.add_row(f"{speed:g}", f"{point['score']:.3f}", f"{point['layers']:.2f}", f"{point['speedup']:.2f}x")
    console.print(layers, speeds)

    console.rule("where sentences leave")
    texts = [str(sentence(source, hard)["text"]) for hard in (False, True) for _ in range(4)]
    where = Table("text", "answer", "score", "layers run")
    for text, said in zip(texts, model.predict(texts, plan=Plan(exit="entropy:0.1"))):
        where.add_row(text, said.label, f"{said.score:.3f}", "▪" * said.layers + f" {said.layers}")
    console.print(where)
    console.print(f"The bundle is in {FOLDER / 'run' / 'model'}; plain transformers loads it too.")
    console.print(f'  AdaptiveModel.from_pretrained("{FOLDER / "run" / "model"}")("{texts[-1]}", speed=0.5)')


if __name__ == "__main__":
    main()
