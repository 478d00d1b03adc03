"""A damaged bundle is refused with BadBundle, whatever was done to it (promises 19 and 20)."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from paredown import AdaptiveModel
from paredown.bundle.card import CARD
from paredown.errors import BadBundle
from tests.families import adaptive

OLD = Path(__file__).parent.parent / "bundles" / "format_1"
FACTS, OWN, STOCK = "paredown.json", "paredown.safetensors", "model.safetensors"


@pytest.fixture(scope="module")
def saved(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "bundle"
    adaptive("bert", tokenizer=tokenizer, plan="entropy:0.5").save_pretrained(folder)
    return folder


@pytest.fixture
def bundle(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "bundle"))


def refused(folder: Path) -> bool:
    """True where loading raises BadBundle; any other error goes through."""
    try:
        AdaptiveModel.from_pretrained(folder)
    except BadBundle:
        return True
    return False


def facts_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / FACTS).read_text())


def forge(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda facts: None) -> None:
    """Change the description as an attacker would, who then makes every checksum fit."""
    facts = facts_of(folder)
    for name in facts["sha256"]:
        if name != FACTS:
            facts["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    change(facts)
    if isinstance(facts.get("sha256"), dict) and FACTS in facts["sha256"]:
        del facts["sha256"][FACTS]
        seal = json.dumps(facts, sort_keys=True).encode()
        facts["sha256"][FACTS] = hashlib.sha256(seal).hexdigest()
    (folder / FACTS).write_text(json.dumps(facts))


def checked(bundle: Path) -> list[Path]:
    """All files but the card, which is for people to write in."""
    return sorted(path for path in bundle.iterdir() if path.name != CARD)


def test_an_honest_forgery_loads(bundle: Path) -> None:
    """So that the tests below fail for the change they make, not for a wrong checksum."""
    forge(bundle)
    assert not refused(bundle)


def test_flipped_bits(bundle: Path) -> None:
    dice = random.Random(0)
    for path in checked(bundle):
        whole = path.read_bytes()
        for _ in range(40):
            at, bit = dice.randrange(len(whole)), 1 << dice.randrange(8)
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            assert refused(bundle), f"{path.name}: bit {bit} of byte {at}"
        path.write_bytes(whole)
    assert not refused(bundle)


def test_cut_and_lengthened_files(bundle: Path) -> None:
    dice = random.Random(1)
    for path in checked(bundle):
        whole = path.read_bytes()
        for size in (0, 1, 7, len(whole) - 2, *(dice.randrange(len(whole)) for _ in range(5))):
            path.write_bytes(whole[:size])
            assert refused(bundle), f"{path.name} cut to {size} bytes"
        path.write_bytes(whole + b"\0")
        assert refused(bundle), f"{path.name} lengthened"
        path.unlink()
        if path.name != FACTS:  # without it the folder is a plain Hugging Face folder
            assert refused(bundle), f"{path.name} gone"
        path.write_bytes(whole)


def test_swapped_files(bundle: Path) -> None:
    names = [path.name for path in checked(bundle)]
    for one, other in zip(names, names[1:] + names[:1]):
        a, b = (bundle / one).read_bytes(), (bundle / other).read_bytes()
        (bundle / one).write_bytes(b), (bundle / other).write_bytes(a)
        assert refused(bundle), f"{one} and {other}"
        (bundle / one).write_bytes(a), (bundle / other).write_bytes(b)


@pytest.mark.parametrize("name", [OWN, STOCK])
def test_weights_that_do_not_fit(bundle: Path, name: str) -> None:
    """Even with checksums that fit."""
    weights = load_file(bundle / name)
    first = sorted(weights)[-1]
    wrong = {
        "shape": weights | {first: torch.zeros(3, 5, 7)},
        "nothing": {},
        "renamed": {f"x{key}": value for key, value in weights.items()},
    }
    for what, state in wrong.items():
        save_file(state, bundle / name, metadata={"format": "pt"})
        forge(bundle)
        assert refused(bundle), what
    for junk in (b"", b"\xff" * 64, (1 << 62).to_bytes(8, "little") + b"{}", b"\x02" + b"\0" * 7 + b"{}junk"):
        (bundle / name).write_bytes(junk)
        forge(bundle)
        assert refused(bundle), junk


def test_facts_that_lack_a_key(bundle: Path) -> None:
    for key in ("format", "answer", "sha256", "heads", "error_probability"):  # others have a default
        copy = shutil.copytree(bundle, bundle.parent / "copy")
        forge(copy, lambda facts, key=key: facts.pop(key))
        assert refused(copy), key
        shutil.rmtree(copy)


NONSENSE = [None, 7, -1, 1e300, True, "", "x", "\0", [], [1, [2]], {}, {"name": "attention", "size": 10**12}, ["a"]]


SECTIONS = ["format", "answer", "heads", "grown_layers", "selectors", "plan", "sha256"]
INSIDE = [("answer", "kind"), ("heads", "spec"), ("heads", "after"), ("grown_layers", "like"), ("selectors", "before")]


@pytest.mark.parametrize("key", SECTIONS)
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_facts_that_make_no_sense(bundle: Path, key: str, value: Any) -> None:
    forge(bundle, lambda facts: facts.update({key: value}))
    assert refused(bundle) != ((key, value) == ("plan", {}))  # an empty plan is a plan


@pytest.mark.parametrize("section, key", INSIDE)
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_sections_that_make_no_sense(bundle: Path, section: str, key: str, value: Any) -> None:
    usual = {"selectors": {"size": 4}}.get(section, {})
    forge(bundle, lambda facts: facts.update({section: {**usual, **facts.get(section, {}), key: value}}))
    harmless = [("grown_layers", []), ("selectors", [])]  # there are none
    assert refused(bundle) != ((section, value) in harmless)


OF_FORMAT_1 = ["format", "kind", "head", "head_layers", "doubt", "grown_like", "selectors", "plan", "sha256"]


@pytest.mark.parametrize("key", OF_FORMAT_1)
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_an_earlier_format_that_makes_no_sense(tmp_path: Path, key: str, value: Any) -> None:
    bundle = Path(shutil.copytree(OLD, tmp_path / "bundle"))
    forge(bundle, lambda facts: facts.update({key: value}))
    assert refused(bundle) != ((key, value) in [("plan", {}), ("doubt", True)])


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '"x"', "[" * 100_000, "{" + '"a":{' * 50_000, "\ufeff{}"])
def test_facts_that_are_not_a_description(bundle: Path, text: str) -> None:
    (bundle / FACTS).write_text(text, encoding="utf-8")
    assert refused(bundle)


EVIL_EXITS: list[Any] = [
    "os.system",
    "entropy:{[]}",
    "entropy:name=1",
    "entropy:" + "-" * 100_000 + "1",
    "entropy:" + "(" * 5_000,
    {"name": "entropy", "self": 1},
    {"name": "entropy", "__class__": "x"},
    {"name": ["entropy"]},
    {"name": "entropy", "threshold": float("nan")},
    {"name": "entropy", "threshold": {"a": []}},
    ["entropy", 0.5],
    0.5,
]


@pytest.mark.parametrize("rule", EVIL_EXITS, ids=lambda rule: str(rule)[:30])
def test_plans_that_make_no_sense(bundle: Path, rule: Any) -> None:
    forge(bundle, lambda facts: facts["plan"].update(exit=rule))
    assert refused(bundle)


OUTSIDE = ["../canary", "/etc/hostname", "sub/../../canary", "..", ".", "", "sub\\..\\x", "~/.profile"]
OUTSIDE += ["a\0b", "x" * 300, "ü" * 200, "\ud800"]  # names that no file system takes


@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: repr(name)[:20])
def test_paths_stay_inside(bundle: Path, name: str) -> None:
    (bundle.parent / "canary").write_text("left alone")
    forge(bundle, lambda facts: facts["sha256"].update({name: hashlib.sha256(b"left alone").hexdigest()}))
    assert refused(bundle)
    assert sorted(path.name for path in bundle.parent.iterdir()) == ["bundle", "canary"]
    assert (bundle.parent / "canary").read_text() == "left alone"


@pytest.mark.parametrize("name", ["config.json", STOCK, OWN, "tokenizer.json", FACTS])
def test_links_are_not_followed(bundle: Path, name: str) -> None:
    outside = (bundle / name).rename(bundle.parent / "outside")
    (bundle / name).symlink_to(outside)
    assert refused(bundle)


def test_weights_that_nobody_accounts_for(bundle: Path) -> None:
    shutil.copy(bundle / STOCK, bundle / "other.safetensors")
    assert refused(bundle)
