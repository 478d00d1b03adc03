"""Flags as other tools spell them: those that mean the same are understood, for others the right one is named."""

from __future__ import annotations

from collections.abc import Sequence

# transformers' example scripts and Trainer, which the scripts of most papers follow.
SAME = {
    "--learning-rate": "--lr",
    "--num-train-epochs": "--epochs",
    "--max-seq-length": "--max-length",
    "--output-dir": "--output",
    "--task-name": "--task",
    "--data-dir": "--data",
    "--train-file": "--train",
    "--validation-file": "--dev",
    "--test-file": "--test",
    "--eval-steps": "--evaluate-every",
    "--save-steps": "--save-every",
}
MODEL = "--model-name-or-path"  # an argument without a flag here
INSTEAD = {
    "--per-device-train-batch-size": "--batch-size is the rows of a step here, over all devices",
    "--per-gpu-train-batch-size": "--batch-size is the rows of a step here, over all devices",
    "--do-train": "leave it out: `paredown train` trains",
    "--do-eval": "leave it out: `paredown train --dev` scores while it trains, `paredown evaluate` afterwards",
    "--do-predict": "leave it out: `paredown predict` predicts",
    "--eval-all-checkpoints": "`paredown evaluate RUN --checkpoints` does this",
    "--overwrite-output-dir": "leave it out: delete the folder, or name another --output",
    "--fp16": "it is --precision fp16 here",
    "--bf16": "it is --precision bf16 here",
    "--report-to": "it is --tracker here",
}


def understood(words: Sequence[str]) -> list[str]:
    """The words with our names of flags; the path after --model-name-or-path stands alone."""
    found = []
    for word in words:
        flag, equals, value = word.partition("=")
        if not flag.startswith("--"):
            found.append(word)
            continue
        flag = flag.replace("_", "-")
        if flag == MODEL:
            found += [value] if equals else []
        else:
            found.append(SAME.get(flag, flag) + equals + value)
    return found


def hint(flag: str) -> str | None:
    """What to give in place of a flag that no command has."""
    return INSTEAD.get(flag)
