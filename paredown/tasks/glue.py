"""The GLUE tasks in GLUE's own files: tab-separated, columns by number, one folder per task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from paredown.errors import BadInput
from paredown.kinds import kind_named
from paredown.registry import tasks
from paredown.rows import Row


@tasks.register("glue")
@dataclass(frozen=True)
class Glue:
    folder: str  # as GLUE names it
    texts: tuple[int, ...]  # columns of the text, or of both texts of a pair; -1 is the last
    label: int  # column of the label
    labels: tuple[str, ...] = ("0", "1")
    kind: str = "single_label"
    metric: str = "accuracy"
    header: bool = True
    dev: str = "dev"
    name: ClassVar[str]
    version: ClassVar[int] = 1

    def read(self, root: str | Path, split: str) -> list[Row]:
        """The rows of `train` or `dev`; a file that is not as GLUE made it is an error that names the line."""
        path = Path(root) / self.folder / f"{self.dev if split == 'dev' else split}.tsv"
        if not path.is_file():
            raise BadInput(f"{path} is missing; GLUE's {self.folder} keeps its {split} rows there")
        wanted = max(*self.texts, self.label) + 1
        rows = []
        with open(path, encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                cells = line.rstrip("\r\n").split("\t")
                if number == 1 and self.header:
                    continue
                if len(cells) < wanted:
                    raise BadInput(f"{path}, line {number}: {len(cells)} columns where {wanted} are needed")
                pair = cells[self.texts[1]] if len(self.texts) > 1 else None
                rows.append(Row(cells[self.texts[0]], pair, self._label(cells[self.label], f"{path}, line {number}")))
        return rows

    def _label(self, text: str, where: str) -> str | float:
        if kind_named(self.kind).name == "regression":
            try:
                return float(text)
            except ValueError:
                raise BadInput(f"{where}: {text!r} is not a number") from None
        if text not in self.labels:
            raise BadInput(f"{where}: label {text!r} is not one of {', '.join(self.labels)}")
        return text


_ENTAILMENT = ("entailment", "not_entailment")
tasks.alias("sst-2", "glue", folder="SST-2", texts=(0,), label=1)
tasks.alias("cola", "glue", folder="CoLA", texts=(3,), label=1, metric="matthews", header=False)
tasks.alias("mrpc", "glue", folder="MRPC", texts=(3, 4), label=0)
tasks.alias("rte", "glue", folder="RTE", texts=(1, 2), label=-1, labels=_ENTAILMENT)
tasks.alias("qnli", "glue", folder="QNLI", texts=(1, 2), label=-1, labels=_ENTAILMENT)
tasks.alias("wnli", "glue", folder="WNLI", texts=(1, 2), label=-1)
tasks.alias("qqp", "glue", folder="QQP", texts=(3, 4), label=5)
_NLI = ("contradiction", "entailment", "neutral")
tasks.alias("mnli", "glue", folder="MNLI", texts=(8, 9), label=-1, labels=_NLI, dev="dev_matched")
_NUMBER = {"labels": ("score",), "kind": "regression", "metric": "correlation"}
tasks.alias("sts-b", "glue", folder="STS-B", texts=(7, 8), label=-1, **_NUMBER)
