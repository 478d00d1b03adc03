"""Windows of questions as lines of JSON, one for each question: what answers are decoded with the help of."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from paredown.answers import Encoded, Kind
from paredown.answers._rows import by_unit
from paredown.errors import BadBundle
from paredown.registry import type_hints

PLAIN = (int, str, bool, float)
ARRAYS = ("bool", "int32", "int64")
LEFT_OUT = {"asked", "label", "options"}  # asked once for all windows; learnt from only; of questions with options


def plain(value: Any) -> Any:
    """What `json` cannot write by itself: dataclasses, arrays and their numbers."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": value.shape, "values": value.ravel().astype(int).tolist()}
    return value.tolist()


def write_windows(path: Path, windows: Sequence[Encoded]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        for indexes in by_unit(windows):
            rows = [
                {name: value for name, value in plain(windows[index]).items() if name not in LEFT_OUT}
                for index in indexes
            ]
            unit = {"rows": indexes, "asked": windows[indexes[0]].asked, "windows": rows}
            file.write(json.dumps(unit, default=plain) + "\n")


def read_windows(path: Path, kind: Kind) -> tuple[Any, ...]:
    """The windows, as they were written; every value must have the type of its field."""
    found: dict[int, Encoded] = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                unit = json.loads(line)
                asked = _typed(unit["asked"], kind.asks)
                for index, row in zip(unit["rows"], unit["windows"], strict=True):
                    found[index] = _object(row, kind.row_type, asked=asked)
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                raise BadBundle(f"{path}, line {number}: not the windows of a question: {error}") from error
    if sorted(found) != list(range(len(found))):
        raise BadBundle(f"{path} does not hold every window once")
    return tuple(found[index] for index in range(len(found)))


def _object(value: Mapping[str, Any], cls: type, **known: Any) -> Any:
    hints = type_hints(cls)
    return cls(**{name: _typed(its, hints[name]) for name, its in value.items()}, **known)


def _typed(value: Any, hint: Any) -> Any:
    if hint in PLAIN:
        if type(value) is not hint:
            raise TypeError(f"{value!r:.40} is no {hint.__name__}")
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if is_dataclass(hint):
        return _object(value, hint)  # type: ignore[arg-type]
    if hint is np.ndarray:
        if value["dtype"] not in ARRAYS:
            raise TypeError(f"arrays are of {', '.join(ARRAYS)}, not {value['dtype']!r:.40}")
        return np.array(value["values"], dtype=value["dtype"]).reshape(value["shape"])
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _typed(value, next(one for one in inner if one is not types.NoneType))
    alike = origin is list or (origin is tuple and inner[-1] is Ellipsis)
    if alike and inner[0] in PLAIN and set(map(type, value)) <= {inner[0]}:  # most of a file is such
        return origin(value)
    if origin is tuple:
        each = repeat(inner[0], len(value)) if inner[-1] is Ellipsis else inner
        return tuple(_typed(one, its) for one, its in zip(value, each, strict=True))
    if origin is list:
        return [_typed(one, inner[0]) for one in value]
    if origin is dict:
        return {name: _typed(one, inner[1]) for name, one in value.items()}
    raise TypeError(f"no {hint} can be read from a file")
