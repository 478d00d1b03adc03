"""A record on disk: a folder of record.json, record.safetensors and, where questions are read in windows, these.

Logits are kept whole, also where every token is answered: exit rules need the entropy over all tokens, and spans are
decoded from all pairs of a start and an end that are near enough, which need not be among the best starts and the best
ends. They are written batch by batch and mapped when read, so memory does not grow with the rows.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from paredown.answers import Encoded, Kind
from paredown.errors import BadBundle, BadInput, BadSetting, ParedownError
from paredown.evaluation.window_file import plain, read_windows, write_windows
from paredown.model import AdaptiveModel
from paredown.plan import Plan
from paredown.registry import answers
from paredown.system.saving import saving, sha256, staged

FORMAT = 1
FACTS, TENSORS, WINDOWS = "record.json", "record.safetensors", "windows.jsonl"
FILES = {FACTS, TENSORS, WINDOWS}
ALIGNMENT = 64  # bytes; where the first tensor starts
DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL"}

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]  # type and shape by name


# What a record was made from


def hashes_of(model: AdaptiveModel, rows: Sequence[Encoded], plan: Plan) -> dict[str, str]:
    """What was recorded: sha256 of the data, the model and the plan, with the runtime where that answers otherwise."""
    executor = model.executor
    way = plan.to_json() if executor.exact else [plan.to_json(), executor.name]
    return {
        "data": _hash_of_rows(rows, model.kind.windowed),
        "model": model.fingerprint(),
        "plan": hashlib.sha256(_canonical(way)).hexdigest(),
    }


def _hash_of_rows(rows: Sequence[Encoded], windowed: bool) -> str:
    """Token ids, labels and positions in their order; of windows also what is asked, which they are judged by."""
    digest, before = hashlib.sha256(), None
    for row in rows:
        facts = {**vars(row), "asked": row.asked if windowed and row.asked is not before else None}
        digest.update(json.dumps(facts, default=plain).encode() + b"\n")
        before = row.asked
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


# Tensors that are filled row by row


@dataclass
class InMemory:
    """Tensors whose rows come in any order."""

    tensors: dict[str, Tensor] = field(default_factory=dict)

    def prepare(self, layout: Layout) -> None:
        self.tensors = {name: torch.empty(shape, dtype=dtype) for name, (dtype, shape) in layout.items()}

    def put(self, name: str, rows: Sequence[int], values: Tensor) -> None:
        self.tensors[name][list(rows)] = _of_type(values, self.tensors[name].dtype, name)


class InFile:
    """The same in a safetensors file, which has its full size from the start.

    Rows are written, not mapped: a full disk is then an error; a mapped page that finds no room kills the process.
    """

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self.dtypes: dict[str, torch.dtype] = {}
        self.starts: dict[str, int] = {}  # byte of the first row

    def prepare(self, layout: Layout) -> None:
        header, end = {}, 0
        for name, (dtype, shape) in sorted(layout.items(), key=lambda item: (-item[1][0].itemsize, item[0])):
            start, end = end, end + dtype.itemsize * torch.Size(shape).numel()
            header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
            self.dtypes[name], self.starts[name] = dtype, start
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % ALIGNMENT)
        first = len(text) + 8
        self.starts = {name: first + start for name, start in self.starts.items()}
        self._write(len(text).to_bytes(8, "little") + text, 0)
        os.truncate(self.handle, first + end)

    def put(self, name: str, rows: Sequence[int], values: Tensor) -> None:
        values = _of_type(values, self.dtypes[name], name).contiguous()
        if not values.numel():
            return
        flat = values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)
        start, size = self.starts[name], flat.shape[1] * flat.element_size()
        if list(rows) == list(range(rows[0], rows[0] + len(rows))):
            return self._write(_bytes(flat), start + rows[0] * size)
        for row, value in zip(rows, flat, strict=True):
            self._write(_bytes(value), start + row * size)

    def _write(self, data: bytes | memoryview[int], at: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self.handle, data[done:], at + done)

    def close(self) -> None:
        os.close(self.handle)


Rows = InMemory | InFile


def _bytes(values: Tensor) -> memoryview[int]:
    """The bytes of a tensor, in place where it lies on the CPU."""
    whole: Any = values.cpu().contiguous().view(torch.uint8).numpy()
    return memoryview(whole).cast("B")


def _of_type(values: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    if values.dtype != dtype:
        raise BadInput(f"the {name} of some rows are {values.dtype}, those of others {dtype}")
    return values


# The folder


@dataclass(frozen=True)
class Facts:
    """What a record holds beside its tensors."""

    kind: Kind
    plan: Plan
    hashes: Mapping[str, str]
    windows: tuple[Any, ...] = ()


@contextmanager
def writing(folder: str | Path, facts: Facts) -> Iterator[InFile]:
    """Tensors to fill; the record takes its place when all of it is on the disk, or nothing is left of it."""
    check_target(folder)
    with saving(folder), staged(folder) as fresh:
        tensors = InFile(fresh / TENSORS)
        try:
            yield tensors
        finally:
            tensors.close()
        if facts.windows:
            write_windows(fresh / WINDOWS, facts.windows)
        stated: dict[str, Any] = {
            "format": FORMAT,
            "kind": answers.to_json(facts.kind),
            "plan": facts.plan.to_json(),
            "sha256": {**facts.hashes, **{path.name: sha256(path) for path in sorted(fresh.iterdir())}},
        }
        stated["sha256"][FACTS] = hashlib.sha256(_canonical(stated)).hexdigest()
        (fresh / FACTS).write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")


def check_target(folder: str | Path) -> None:
    """Refuse to replace anything but a record."""
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= FILES):
        raise BadSetting(f"{folder} exists and is not a record; it is left as it is: name a new folder")


def is_record(folder: str | Path) -> bool:
    return (Path(folder) / FACTS).is_file()


def read(folder: str | Path) -> tuple[Facts, dict[str, Tensor]]:
    """A record's facts and its tensors, which are mapped; BadBundle where files are damaged or do not fit."""
    folder = Path(folder)
    facts = _read_facts(folder)
    try:
        kind, plan = answers.from_json(facts["kind"]), Plan.from_json(facts["plan"])
        names = [TENSORS, *[WINDOWS] * kind.windowed]
        for name in names:
            if not (folder / name).is_file():
                raise BadBundle(f"{folder}: {name} is missing")
            if sha256(folder / name) != facts["sha256"][name]:
                raise BadBundle(f"{folder / name} is damaged: its sha256 is not the one in {FACTS}")
        tensors = load_file(folder / TENSORS)
        windows = read_windows(folder / WINDOWS, kind) if WINDOWS in names else ()
        _check_shapes(folder, kind, tensors, len(windows))
    except BadBundle:
        raise
    except (KeyError, TypeError, ValueError, SafetensorError, ParedownError) as error:
        raise BadBundle(f"{folder} is not a complete record: {error}") from error
    hashes = {name: value for name, value in facts["sha256"].items() if name in ("data", "model", "plan")}
    return Facts(kind, plan, hashes, windows), tensors


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadBundle(f"{folder} is not a record: it has no {FACTS}") from None
    except (ValueError, RecursionError) as error:
        raise BadBundle(f"{folder / FACTS} is not JSON: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else None
        raise BadBundle(f"{folder} is a record of format {found!r:.80}; this version reads format {FORMAT}")
    if not isinstance(facts.get("sha256"), dict):
        raise BadBundle(f"{folder / FACTS} names no sha256 of its files")
    if facts["sha256"].pop(FACTS, None) != hashlib.sha256(_canonical(facts)).hexdigest():
        raise BadBundle(f"{folder / FACTS} is damaged: it does not have the sha256 it names")
    return facts


def _check_shapes(folder: Path, kind: Kind, tensors: dict[str, Tensor], windows: int) -> None:
    """Check that every tensor is there that belongs to another, with as many rows."""
    steps = sorted(int(name.partition(".")[2]) for name in tensors if name.startswith("logits."))
    if not steps or "lengths" not in tensors:
        raise BadBundle(f"{folder / TENSORS} holds no logits or no lengths")
    shape = tensors[f"logits.{steps[0]}"].shape
    rows, read_rows = shape[0], len(tensors["lengths"])
    wanted: dict[str, tuple[int, ...]] = {f"logits.{step}": tuple(shape) for step in steps}
    wanted |= {"lengths": (read_rows,), "group": (read_rows,), "dropped_to": (read_rows, steps[-1])}
    for name, value in tensors.items():
        if name in wanted:
            fits = value.shape == wanted[name]
        else:
            known = name in ("labels", "answer_mask") or name.removeprefix("error_probability.") in map(str, steps)
            fits = known and len(value) == rows
        if not fits:
            raise BadBundle(f"{folder / TENSORS}: {name} {list(value.shape)} does not fit logits {list(shape)}")
    group = tensors.get("group")
    if kind.grouped != (group is not None) or (group is None and read_rows != rows) or windows != rows * kind.windowed:
        raise BadBundle(f"{folder}: {rows} rows of {kind.name} do not fit {read_rows} lengths and {windows} windows")
    if group is not None and not torch.equal(group.unique(), torch.arange(rows)):
        raise BadBundle(f"{folder / TENSORS}: group does not name each of the {rows} questions")
