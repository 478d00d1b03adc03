"""Loading runs no code (promise 18)."""

from __future__ import annotations

import ast
import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import paredown
from paredown import AdaptiveModel
from paredown.errors import BadBundle
from tests.families import adaptive

SOURCES = sorted(Path(paredown.__file__).parent.rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "pickletools"}
ALLOWED = {("encoders/tensors.py", "pickletools")}  # reads the opcodes of a pickle without running them
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "yaml.load", "numpy.load", "np.load"}


class Canary:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.write_text, (self.path, "it sang")


@pytest.fixture
def plain(tokenizer: Any, tmp_path: Path) -> Path:
    """A plain Hugging Face folder."""
    model = adaptive("bert", tokenizer=tokenizer, head=None)
    model.stock.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(SOURCES[0].parent)))
def test_no_source_could_run_a_file(source: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            found |= {ast.unparse(node.func)} & FORBIDDEN_CALLS
            printed = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            found |= {"trust_remote_code"} if printed.get("trust_remote_code", "False") != "False" else set()
            found |= {"allow_pickle"} if printed.get("allow_pickle", "False") != "False" else set()
    here = source.relative_to(Path(paredown.__file__).parent).as_posix()
    assert not {what for what in found if (here, what) not in ALLOWED}


def test_the_canary_sings_when_unpickled(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Canary(tmp_path / "song")))
    assert (tmp_path / "song").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl", "training_args.bin"])
def test_pickles_are_not_opened(plain: Path, name: str, tmp_path: Path) -> None:
    torch.save({"weight": Canary(tmp_path / "song")}, plain / name)
    AdaptiveModel.from_pretrained(plain)  # the safetensors beside it are all that is read
    (plain / "model.safetensors").unlink()
    with pytest.raises(BadBundle):
        AdaptiveModel.from_pretrained(plain)
    assert not (tmp_path / "song").exists()


@pytest.mark.parametrize("sharded", [False, True])
def test_torch_never_unpickles(plain: Path, sharded: bool, tmp_path: Path, monkeypatch: Any) -> None:
    """PyTorch files that are sound are read, and not by torch."""
    whole = load_file(plain / "model.safetensors")
    (plain / "model.safetensors").unlink()
    name = "pytorch_model-00001-of-00001.bin" if sharded else "pytorch_model.bin"
    torch.save(whole, plain / name)
    if sharded:
        index = {"metadata": {}, "weight_map": dict.fromkeys(whole, name)}
        (plain / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("torch.load was called"))
    AdaptiveModel.from_pretrained(plain)
    torch.save(whole | {"evil": Canary(tmp_path / "song")}, plain / name)
    with pytest.raises(BadBundle, match="nothing was run"):
        AdaptiveModel.from_pretrained(plain)
    assert not (tmp_path / "song").exists()


@pytest.mark.parametrize("bundled", [True, False])
def test_remote_code_is_not_run(tokenizer: Any, plain: Path, bundled: bool, tmp_path: Path) -> None:
    config = json.loads((plain / "config.json").read_text())
    config["auto_map"] = {
        "AutoConfig": "modeling.Config",
        "AutoModelForSequenceClassification": "modeling.Model",
        "AutoTokenizer": ["modeling.Tokenizer", "modeling.Tokenizer"],
    }
    song = tmp_path / "song"
    (plain / "modeling.py").write_text(f"open({str(song)!r}, 'w').write('it sang')")
    for name in ("config.json", "tokenizer_config.json"):
        printed = json.loads((plain / name).read_text())
        (plain / name).write_text(json.dumps(printed | {"auto_map": config["auto_map"]}))
    if bundled:
        model = AdaptiveModel.from_pretrained(plain)
        model.config.auto_map = config["auto_map"]
        model.save_pretrained(plain)
        (plain / "modeling.py").write_text(f"open({str(song)!r}, 'w').write('it sang')")
    with suppress(BadBundle):  # refusing is as good as ignoring
        AdaptiveModel.from_pretrained(plain)
    assert not song.exists()
