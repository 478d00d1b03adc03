"""What is imported when: a first line of code or `--help` does not wait for what it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import paredown

ROOT = Path(paredown.__file__).parent.parent
SLOW = {"transformers", "sklearn", "matplotlib", "datasets", "accelerate"}


def imported(code: str, *words: str) -> set[str]:
    """The packages that a fresh process has imported after it ran some code."""
    tell = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    done = subprocess.run([sys.executable, "-c", tell + code, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in done.stderr.split()}


def test_importing_the_package_imports_no_library() -> None:
    assert not imported("import paredown; dir(paredown)") & (SLOW | {"torch", "numpy"})


def test_public_names_import_nothing_slow_and_catalogues_fill_themselves() -> None:
    found = imported(
        """
from paredown import Plan
assert Plan(exit="entropy:0.3", reduce="attention").exit.threshold == 0.3
from paredown.registry import methods, tasks
assert "sst-2" in tasks and "fastbert" in methods.aliases()
from paredown import AdaptiveModel, Stage, evaluate, record, train
"""
    )
    assert "torch" in found and not found & SLOW


def test_the_list_of_commands_does_not_import_torch() -> None:
    found = imported("from paredown.__main__ import run; run()", "--help")
    assert "typer" in found and not found & (SLOW | {"torch", "numpy"})


def test_the_help_of_a_command_does_not_import_transformers() -> None:
    assert not imported("from paredown.__main__ import run; run()", "train", "--help") & SLOW


def test_the_package_has_its_public_names_and_no_others() -> None:
    assert set(paredown.__all__) <= set(dir(paredown))
    for name in paredown.__all__:
        assert getattr(paredown, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        paredown.trian  # noqa: B018
