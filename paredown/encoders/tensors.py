"""Tensors out of a published file: safetensors, or PyTorch's two state-dict layouts, without running what is in them.

A PyTorch file describes its tensors in a small stack language that could call any function. `genops` only lists its
instructions; the few that a state dict is made of are understood here, and everything else is refused by name.
"""

from __future__ import annotations

import math
import mmap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pickletools import genops
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from paredown.errors import BadBundle

MAGIC = 0x1950A86A20F9469CFC6C  # how a file begins that was saved before PyTorch 1.6
PROTOCOL = 1001
FLOATS = {"Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16, "Double": torch.float64}
WHOLES = {"Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8}
STORAGES = {f"torch.{kind}Storage": dtype for kind, dtype in (FLOATS | WHOLES | {"Bool": torch.bool}).items()}
TENSOR, PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
KNOWN = {"collections.OrderedDict", TENSOR, PARAMETER, *STORAGES}
VALUES = {"BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class Global:
    """A name the file refers to, one of KNOWN. It is never looked up."""

    name: str


@dataclass(frozen=True)
class Storage:
    key: str
    dtype: torch.dtype
    count: int

    @property
    def size(self) -> int:
        return self.count * self.dtype.itemsize


@dataclass(frozen=True)
class View:
    """A tensor as the file describes it: a part of a storage."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def of(self, data: Tensor) -> Tensor:
        reach = self.offset + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        elements = math.prod(self.size)
        # No more elements than the storage has: a stride of 0 would make a huge tensor of a small file.
        if elements > len(data) or (elements and reach >= len(data)):
            raise BadBundle(f"a tensor reaches beyond its storage of {len(data)} elements")
        return data.as_strided(self.size, self.stride, self.offset)


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """The named tensors of a .safetensors file or a PyTorch state dict; anything else in the file is refused."""
    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with open(path, "rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
        return _read_zip(path) if zipped else _read_legacy(path)
    except BadBundle as error:
        raise BadBundle(f"{path}: {error}") from None
    except Exception as error:  # a damaged file can fail anywhere below, and it always means the same
        reason = f"{type(error).__name__}: {error!s:.200}"
        raise BadBundle(f"{path} is damaged or not a file of tensors ({reason})") from error


def _read_zip(path: Path) -> dict[str, Tensor]:
    """One member with the description, one for every storage."""
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        # Uncompressed members cannot be larger than the file; compressed ones could be bombs.
        stored = all(info.compress_type == zipfile.ZIP_STORED for info in members.values())
        if not stored or sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
            raise BadBundle("its members are compressed or larger than the file")
        root = next((name[: -len("data.pkl")] for name in members if name.endswith("/data.pkl")), None)
        if root is None:
            raise BadBundle("a zip file without data.pkl is not a state dict")
        if f"{root}byteorder" in members and archive.read(f"{root}byteorder") != b"little":
            raise BadBundle("only little-endian files can be read")
        described = interpret(archive.read(f"{root}data.pkl"))

        def data(storage: Storage) -> bytes:
            return archive.read(f"{root}data/{storage.key}")

        return _tensors(described, data)


def _read_legacy(path: Path) -> dict[str, Tensor]:
    """Five descriptions one after the other, then every storage: a count of elements and the elements."""
    # Mapped, because a read from a map never allocates more than the file holds, whatever length it declares.
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        if interpret(mapped) != MAGIC or interpret(mapped) != PROTOCOL:
            raise BadBundle("not a PyTorch state dict")
        system = interpret(mapped)
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise BadBundle("only little-endian files can be read")
        described, keys = interpret(mapped), interpret(mapped)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise BadBundle("its list of storages is damaged")
        storages = {view.storage.key: view.storage for view in _views(described).values()}
        found = {}
        for key in keys:
            if key not in storages:
                raise BadBundle(f"storage {key!r:.40} belongs to no tensor")
            if mapped.read(8) != storages[key].count.to_bytes(8, "little"):
                raise BadBundle(f"storage {key!r:.40} has another size than its tensors say")
            found[key] = mapped.read(storages[key].size)
        if mapped.read(1):
            raise BadBundle("something follows its last storage")
        return _tensors(described, lambda storage: found.pop(storage.key))


def _views(described: Any) -> dict[str, View]:
    if not isinstance(described, dict):
        raise BadBundle(f"a state dict was expected, not {type(described).__name__}")
    for name, value in described.items():
        if not isinstance(value, View):
            raise BadBundle(f"{name!r:.80} is not a tensor but {_what(value)}")
    return described


def _tensors(described: Any, data: Callable[[Storage], bytes]) -> dict[str, Tensor]:
    views = _views(described)
    filled: dict[str, tuple[Storage, Tensor]] = {}
    for view in views.values():
        storage = view.storage
        if storage.key not in filled:
            raw = data(storage)
            if len(raw) != storage.size:
                raise BadBundle(f"storage {storage.key!r:.40} holds {len(raw)} bytes, not {storage.size}")
            empty = torch.empty(0, dtype=storage.dtype)
            filled[storage.key] = storage, torch.frombuffer(bytearray(raw), dtype=storage.dtype) if raw else empty
        if filled[storage.key][0] != storage:
            raise BadBundle(f"storage {storage.key!r:.40} is described twice, differently")
    return {name: view.of(filled[view.storage.key][1]) for name, view in views.items()}


def interpret(file: Any) -> Any:
    """What one description says, made of dicts, lists, tuples, texts, numbers and `View`s. Nothing is called."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    value: Any
    for opcode, value, _ in genops(file):
        op = opcode.name
        if op in VALUES:
            stack.append(value)
        elif op in CONSTANTS:
            stack.append(CONSTANTS[op])
        elif op == "GLOBAL":
            stack.append(_known(value.replace(" ", ".")))
        elif op == "MARK":
            marks.append(len(stack))
        elif op in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[op])
        elif op == "TUPLE":
            stack.append(tuple(since_mark()))
        elif op in TUPLES:
            stack[-TUPLES[op] :] = [tuple(stack[-TUPLES[op] :])]
        elif op in ("BINPUT", "LONG_BINPUT"):
            memo[value] = stack[-1]
        elif op in ("BINGET", "LONG_BINGET"):
            stack.append(memo[value])
        elif op in ("SETITEM", "SETITEMS"):
            items = since_mark() if op == "SETITEMS" else [stack.pop(-2), stack.pop()]
            _put(stack[-1], items)
        elif op in ("APPEND", "APPENDS"):
            items = since_mark() if op == "APPENDS" else [stack.pop()]
            _expect(stack[-1], list).extend(items)
        elif op == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif op == "REDUCE":
            args = stack.pop()
            stack.append(_reduce(stack.pop(), args))
        elif op == "BUILD":  # state_dict() hangs versions of its modules on the dict; they say nothing of the tensors
            state = _expect(stack.pop(), dict)
            if set(state) != {"_metadata"} or not isinstance(stack[-1], dict):
                raise BadBundle("it sets attributes of an object, which a state dict never does")
        elif op not in ("PROTO", "STOP"):
            raise BadBundle(f"it uses the instruction {op}, which a state dict never does")
    (result,) = stack
    return result


def _put(target: Any, items: list[Any]) -> None:
    for name, value in zip(items[::2], items[1::2], strict=True):
        _expect(target, dict)[_expect(name, str)] = value


def _known(name: str) -> Global:
    if name not in KNOWN:
        raise BadBundle(f"it names {name!r:.80}, which does not belong in a state dict; nothing was run")
    return Global(name)


def _storage(reference: Any) -> Storage:
    """From ("storage", type, key, device, count), and in old files None, where a part of another would be named."""
    match reference:
        case ("storage", Global(name), str(key), str(), int(count), *rest) if name in STORAGES and rest in ([], [None]):
            return Storage(key, STORAGES[name], count)
    raise BadBundle("it refers to something that is not a plain storage")


def _reduce(function: Any, args: Any) -> Any:
    """What a call would have given, for the three calls a state dict is made of."""
    match function, args:
        case Global("collections.OrderedDict"), ():
            return {}
        case Global(name), (Storage() as storage, int(offset), tuple(size), tuple(stride), *_) if name == TENSOR:
            numbers = (offset, *size, *stride)
            if len(size) != len(stride) or len(size) > 64 or not all(_countable(number) for number in numbers):
                raise BadBundle("a tensor has an impossible shape")
            return View(storage, offset, size, stride)
        case Global(name), (View() as view, *_) if name == PARAMETER:
            return view
    raise BadBundle(f"it calls {_what(function)} in a way a state dict never does")


def _countable(number: Any) -> bool:
    return type(number) is int and 0 <= number < 1 << 48


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise BadBundle(f"{_what(value)} stands where a {kind.__name__} belongs")
    return value


def _what(value: Any) -> str:
    # Never the value itself: it can be nested so that printing it does not end.
    return value.name if isinstance(value, Global) else f"a {type(value).__name__}"
