"""The wheel, installed without extras in an environment of its own, does what the README's first screen shows."""

from __future__ import annotations

import ast
import email
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.families import tiny

ROOT = Path(__file__).parent.parent
STORY = """
from paredown.cli import main
for words in {commands!r}:
    assert main(words) == 0, words
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    return found


def wanted(requirements: list[str] | None, extras: Iterable[str] = ("",)) -> list[Requirement]:
    """The requirements that hold here with some extras."""
    found = map(Requirement, requirements or ())
    return [one for one in found if not one.marker or any(one.marker.evaluate({"extra": extra}) for extra in extras)]


def direct(wheel: Path) -> list[Requirement]:
    """What the wheel says it needs without extras."""
    with zipfile.ZipFile(wheel) as archive:
        (facts,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return wanted(email.message_from_bytes(archive.read(facts)).get_all("Requires-Dist"))


def needed(wheel: Path) -> list[Distribution]:
    """That, and all that it needs in turn; the versions installed here."""
    found: dict[str, Distribution] = {}
    left = direct(wheel)
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if name not in found:
            found[name] = distribution(name)
            left += wanted(found[name].requires, one.extras or {""})
    return list(found.values())


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs (as links to what is installed here), and nothing else."""
    folder = tmp_path_factory.mktemp("plain")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for each in needed(wheel):
        for top in {file.parts[0] for file in each.files or () if file.parts[0] != ".."}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(each.locate_file(top))))
    program = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(program), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    return program


def run(*words: Any, cwd: Path) -> str:
    alone = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_commands_work_without_extras(python: Path, tokenizer: Any, tmp_path: Path) -> None:
    tiny("bert", num_labels=2).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    rows = ["Rating;Review", *["good;a great film", "bad;the plot was dull"] * 8]
    (tmp_path / "reviews.csv").write_text("\n".join(rows).replace(";", ","))
    (tmp_path / "new.csv").write_text("Review\na fine cast\nawful\n")
    columns = ["--text-column", "Review", "--label-column", "Rating"]
    commands = [
        ["train", "encoder", "--train", "reviews.csv", "--dev", "reviews.csv", *columns, "-o", "run", "-m"]
        + ["self_distill:epochs=1,exit_epochs=1"],
        ["evaluate", "run/model", "reviews.csv", "-o", "evaluation", "-r", "entropy", "--timed-batch", "1"],
        ["report", "run/model", "reviews.csv", "-o", "report.html", "--no-time"],
        ["predict", "run/model", "new.csv", "answers.jsonl"],
        ["info", "run/model"],
    ]
    printed = run(python, "-c", STORY.format(commands=commands), cwd=tmp_path)
    assert "accuracy" in printed and "bert" in printed and (tmp_path / "evaluation" / "evaluation.json").is_file()
    assert not list((tmp_path / "evaluation").glob("*.png"))  # no matplotlib in a plain install
    assert (tmp_path / "report.html").stat().st_size > 20_000  # with its style and scripts
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2
    assert "evaluate" in run(python.parent / "paredown", "--help", cwd=tmp_path)


ENDINGS = (".py", ".md", ".json", ".html", ".css", ".js")


def test_the_wheel_holds_the_package_with_its_cards_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    sources = (path for path in (ROOT / "paredown").rglob("*") if path.suffix in ENDINGS)
    ours = {str(path.relative_to(ROOT)) for path in sources}
    assert {name for name in names if ".dist-info/" not in name} == ours
    assert "paredown/methods/joint/README.md" in ours


def test_what_is_imported_is_declared_and_what_is_declared_is_imported(wheel: Path) -> None:
    used: set[str] = set()
    for path in (ROOT / "paredown").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            used |= {module.split(".")[0] for module in modules}
    owners = packages_distributions()
    # Extras that code imports by itself, and what comes with Ray Data, or with torch where there is a GPU.
    used -= sys.stdlib_module_names | {"paredown", "matplotlib", "onnx", "onnxruntime", "pandas", "ray", "triton"}
    assert {canonicalize_name(owners[name][0]) for name in used} == {
        canonicalize_name(one.name) for one in direct(wheel)
    }
