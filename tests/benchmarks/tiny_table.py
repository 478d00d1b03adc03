"""The runner on a table of one tiny experiment, in a process of its own, since it forks.

python -m tests.benchmarks.tiny_table FOLDER [arguments of benchmarks.run]
"""

from __future__ import annotations

import sys
from pathlib import Path

from transformers import BertConfig, BertModel, BertTokenizer

from benchmarks import experiments, inputs, result_files, run
from benchmarks.experiment import Experiment, Recipe
from benchmarks.rows import SETS, RowSet, Source
from tests.training import tiny

EXITS = "two_stage:epochs=0,exit_epochs=1"
EXPERIMENT = Experiment(
    "tiny",
    "tiny",
    "tiny",
    (
        Recipe("plain", ("finetune:epochs=1,lr=1e-3",)),
        Recipe("first layer", ("finetune:epochs=1",), depth=1),
        Recipe("imitating", ("finetune:epochs=1",), depth=1, teacher="plain"),
        Recipe("exits", (EXITS,), start="plain", rules=("entropy", "patience"), fixed=("own",)),
        Recipe(
            "tokens",
            ("token_policy:epochs=0,policy_epochs=1,joint_epochs=1,samples=2",),
            start="plain",
            reducers=("none", "selector:0.5"),
        ),
    ),
    targets=(1.5, 50),
    seeds=(1, 2),
    paper="fastbert",
)


def make(folder: Path) -> None:
    """A tiny encoder, and rows in GLUE's layout."""
    data, encoder = folder / "data" / "SST-2", folder / "weights" / "tiny"
    data.mkdir(parents=True, exist_ok=True)
    for split, number in (("train", 40), ("dev", 30)):
        rows = [f"{row['text']}\t{row['label']}" for row in tiny.rows(number)]
        (data / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    vocabulary = {token: index for index, token in enumerate(tiny.VOCABULARY)}
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **sizes)).save_pretrained(encoder)
    BertTokenizer(vocab=vocabulary, model_max_length=64).save_pretrained(encoder)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if not folder.is_dir():
        make(folder)
    files = ("SST-2/train.tsv", "SST-2/dev.tsv")
    SETS["tiny"] = RowSet(Source("sst-2", splits={"test": "dev"}), files, max_length=32, held_out=10)
    experiments.EXPERIMENTS.clear()
    experiments.EXPERIMENTS["tiny"] = EXPERIMENT
    result_files.COMMITTED = run.COMMITTED = folder / "committed"
    inputs.ENCODERS["tiny"] = inputs.ENCODERS["minilm-l3"]
    where = ["--weights", str(folder / "weights"), "--data", str(folder / "data")]
    sys.exit(run.main([*where, *sys.argv[2:]]))
