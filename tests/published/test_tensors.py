"""Reading published files runs nothing, and damaged ones fail in one way only."""

from __future__ import annotations

import builtins
import io
import os
import random
import struct
import warnings
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from paredown.errors import BadBundle
from paredown.published import read_tensors

LAYOUTS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


def saved(path: Path, value: Any, zipped: bool, **settings: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, path, _use_new_zipfile_serialization=zipped, **settings)
    return path


def some_tensors() -> dict[str, Tensor]:
    torch.manual_seed(0)
    tensors = dict(nn.TransformerEncoderLayer(8, 2, 12).state_dict())
    tensors["turned"] = torch.randn(3, 4).half().t()
    tensors["part"] = torch.randn(9).bfloat16()[2:5]
    tensors["tied"] = tensors["linear1.weight"]
    tensors["parameter"] = nn.Parameter(torch.ones(2))
    tensors["empty"], tensors["alone"] = torch.empty(0, 3), torch.tensor(True)
    for dtype in (torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        tensors[str(dtype)] = torch.arange(5).to(dtype)
    return tensors


@LAYOUTS
def test_both_layouts_come_back_bit_for_bit(zipped: bool, tmp_path: Path) -> None:
    tensors = some_tensors()
    found = read_tensors(saved(tmp_path / "a.bin", tensors, zipped))
    assert list(found) == list(tensors)
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value)
    assert found["tied"].data_ptr() == found["linear1.weight"].data_ptr()


@LAYOUTS
def test_a_module_s_own_state_dict_with_its_metadata(zipped: bool, tmp_path: Path) -> None:
    state = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)).state_dict()
    assert hasattr(state, "_metadata")
    found = read_tensors(saved(tmp_path / "a.pt", state, zipped))
    assert all(torch.equal(found[name], state[name]) for name in state)


def test_safetensors(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "a.safetensors")
    assert torch.equal(read_tensors(tmp_path / "a.safetensors")["a"], torch.ones(2))
    (tmp_path / "b.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:-3])
    with pytest.raises(BadBundle, match=r"b\.safetensors"):
        read_tensors(tmp_path / "b.safetensors")


# Files that want to run something


class Calls:
    def __init__(self, function: Any, *args: Any):
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


class WithState:
    def __setstate__(self, state: Any) -> None:
        raise AssertionError("run")

    def __getstate__(self) -> Any:
        return {"a": 1}


@LAYOUTS
@pytest.mark.parametrize("where", ["alone", "as a value", "inside a list", "in the metadata"])
def test_nothing_is_run(zipped: bool, where: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    bad: Any = Calls(os.system, f"touch {canary}")
    if where == "as a value":
        bad = {"weight": torch.ones(2), "evil": bad}
    elif where == "inside a list":
        bad = {"weight": [bad]}
    elif where == "in the metadata":
        good = nn.Linear(2, 2).state_dict()
        good._metadata["evil"] = bad  # type: ignore[attr-defined]
        bad = good
    path = saved(tmp_path / "evil.bin", bad, zipped)
    with pytest.raises(BadBundle, match=r"system"):
        read_tensors(path)
    assert not canary.exists()
    torch.load(path, weights_only=False)  # the file does what it threatens, so the test means something
    assert canary.exists()


@LAYOUTS
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Calls(builtins.eval, "1"), "eval"),
        (Calls(builtins.getattr, "text", "upper"), "getattr"),
        (builtins.exec, "exec"),
        ({"a": numpy.ones(3)}, "numpy"),
        ({"a": numpy.float32(1)}, "numpy"),
        (WithState(), "WithState|__reduce|copyreg"),
        (nn.Linear(2, 2), "Linear"),
        ({"a": torch.float32}, "float32"),
        ({"a": torch.device("cpu")}, "device"),
        ({"a": {1, 2}}, "set"),
        ({"a": torch.ones(2).to_sparse()}, "sparse"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "ComplexFloatStorage"),
        ({"a": b"bytes"}, "encode"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_every_other_name_is_refused_and_told(value: Any, named: str, zipped: bool, tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match=named):
        read_tensors(saved(tmp_path / "a.bin", value, zipped))


@LAYOUTS
@pytest.mark.parametrize(
    "value", [[torch.ones(1)], torch.ones(1), 3, {"a": 1}, {"a": {"b": torch.ones(1)}}, {1: torch.ones(1)}, {"a": 1.5}]
)
def test_what_is_not_a_state_dict_is_refused(value: Any, zipped: bool, tmp_path: Path) -> None:
    with pytest.raises(BadBundle):
        read_tensors(saved(tmp_path / "a.bin", value, zipped))


@LAYOUTS
def test_other_protocols_are_refused_without_a_crash(zipped: bool, tmp_path: Path) -> None:
    with pytest.raises(BadBundle):
        read_tensors(saved(tmp_path / "a.bin", {"a": torch.ones(2)}, zipped, pickle_protocol=4))


# Damaged files


@LAYOUTS
def test_truncated_files(zipped: bool, tmp_path: Path) -> None:
    whole = saved(tmp_path / "a.bin", some_tensors(), zipped).read_bytes()
    path = tmp_path / "short.bin"
    for length in [*range(0, 40), *range(40, len(whole) - 1, len(whole) // 60), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(BadBundle, match=r"short\.bin"):
            read_tensors(path)


@LAYOUTS
def test_a_file_that_ends_with_an_empty_storage_is_read_whole_or_not_at_all(zipped: bool, tmp_path: Path) -> None:
    whole = saved(tmp_path / "a.bin", {"empty": torch.empty(0, 3)}, zipped).read_bytes()
    assert read_tensors(tmp_path / "a.bin")["empty"].shape == (0, 3)
    path = tmp_path / "short.bin"
    for missing in range(1, 10):
        path.write_bytes(whole[:-missing])
        with pytest.raises(BadBundle, match=r"short\.bin"):
            read_tensors(path)


@LAYOUTS
def test_flipped_bits_fail_in_one_way_only(zipped: bool, tmp_path: Path) -> None:
    whole = saved(tmp_path / "a.bin", some_tensors(), zipped).read_bytes()
    chance, path, refused = random.Random(3), tmp_path / "flipped.bin", 0
    described = whole.index(b"\x80\x02")  # where the instructions start; most flips go there
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 10])):
            number = chance.randrange(len(whole)) if chance.random() < 0.3 else described + chance.randrange(2500)
            damaged[min(number, len(whole) - 1)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            read_tensors(path)
        except BadBundle:
            refused += 1
    assert refused > 100


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_text("hello")
    (tmp_path / "empty.pt").touch()
    with zipfile.ZipFile(tmp_path / "other.bin", "w") as archive:
        archive.writestr("readme", "hello")
    for name in ("text.bin", "empty.pt", "other.bin", "absent.bin", "."):
        with pytest.raises(BadBundle):
            read_tensors(tmp_path / name)


# Sizes that a file only claims


def described(count: int, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """The instructions of a state dict with one float tensor, as PyTorch writes them."""

    def number(value: int) -> bytes:
        return b"\x8a" + bytes([9]) + value.to_bytes(9, "little", signed=True)

    def several(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(number, values)) + b"t"

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(count) + b"tQ"
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    call = b"(" + storage + number(offset) + several(size) + several(stride) + hooks + b"tR"
    return b"\x80\x02}" + text("a") + b"ctorch._utils\n_rebuild_tensor_v2\n" + call + b"s."


def zip_of(path: Path, instructions: bytes, data: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", instructions)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", data)
    return path


def legacy_of(path: Path, instructions: bytes, count: int, data: bytes) -> Path:
    file = io.BytesIO()
    torch.save({}, file, _use_new_zipfile_serialization=False)
    head, empty, _ = file.getvalue().rpartition(b"\x80\x02}q\x00.")  # what comes before the empty dict
    assert empty
    keys = b"\x80\x02](X\x01\x00\x00\x000e."
    path.write_bytes(head + instructions + keys + (count % (1 << 64)).to_bytes(8, "little") + data)
    return path


def test_hand_made_files_are_read(tmp_path: Path) -> None:
    instructions, data = described(6, (2, 2), (3, 1), 1), struct.pack("<6f", *range(6))
    for path in (zip_of(tmp_path / "a.bin", instructions, data), legacy_of(tmp_path / "b.bin", instructions, 6, data)):
        assert read_tensors(path)["a"].tolist() == [[1.0, 2.0], [4.0, 5.0]]


@pytest.mark.parametrize(
    ("count", "size", "stride", "offset"),
    [
        (1 << 40, (1 << 40,), (1,), 0),  # a storage the file does not hold
        (6, (1 << 40,), (0,), 0),  # a stride of 0 makes a little look like much
        (6, (1 << 50, 0), (1, 1), 0),
        (6, (7,), (1,), 0),
        (6, (2, 2), (5, 1), 1),
        (6, (2,), (1,), 5),
        (6, (2,), (-1,), 1),
        (6, (-2,), (1,), 0),
        (6, (2,), (1, 1), 0),
        (6, (2,), (1,), -1),
        (6, (1,) * 100, (1,) * 100, 0),
        (-6, (2,), (1,), 0),
        (5, (2,), (1,), 0),
        (1 << 63, (2,), (1,), 0),
    ],
)
def test_sizes_are_checked_against_the_file(
    count: int, size: tuple[int, ...], stride: tuple[int, ...], offset: int, tmp_path: Path
) -> None:
    instructions, data = described(count, size, stride, offset), bytes(24)
    for path in (
        zip_of(tmp_path / "a.bin", instructions, data),
        legacy_of(tmp_path / "b.bin", instructions, count, data),
    ):
        with pytest.raises(BadBundle):
            read_tensors(path)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    bomb = zip_of(tmp_path / "a.bin", described(1 << 20, (1 << 20,), (1,)), bytes(1 << 22), zipfile.ZIP_DEFLATED)
    with pytest.raises(BadBundle, match="compressed"):
        read_tensors(bomb)


def test_big_endian_is_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.bin", described(1, (1,), (1,)), bytes(4))
    path.write_bytes(path.read_bytes().replace(b"little", b"bigbig"))
    with pytest.raises(BadBundle):
        read_tensors(path)


def test_a_value_nested_beyond_printing_is_refused_quickly(tmp_path: Path) -> None:
    nested = b")" + b"".join(b"q\x00h\x00\x86" for _ in range(200))  # each pair holds the last one twice: 2**200 leaves
    for instructions in (b"\x80\x02" + nested + b".", b"\x80\x02}X\x01\x00\x00\x00a" + nested + b"s."):
        with pytest.raises(BadBundle, match="tuple"):
            read_tensors(zip_of(tmp_path / "a.bin", instructions, b""))


def test_an_ordered_dict_is_a_dict(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.bin", OrderedDict(a=torch.ones(1)), True)
    assert type(read_tensors(path)) is dict


def test_no_module_of_the_package_can_unpickle() -> None:
    import paredown

    for path in Path(paredown.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert not any(word in text for word in ("import pickle\n", "torch.load(", "from pickle ", "joblib")), path
