"""The shape of the source: imports point one way, the core knows no entry, nothing grows too long."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import paredown
from paredown.registry import answers, exits, heads, methods, reducers, tasks

ROOT = Path(paredown.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
BENCHMARKS = sorted((ROOT.parent / "benchmarks").glob("*.py"))
CORE = sorted({*ROOT.glob("*.py"), *ROOT.glob("bundle/*.py")} - {ROOT / "__init__.py", ROOT / "__main__.py"})
CATALOGUES = {
    "answers": answers,
    "heads": heads,
    "exits": exits,
    "reducers": reducers,
    "methods": methods,
    "tasks": tasks,
}
# A folder may import from its own and from the lower ones.
HEIGHT = (
    {"system": 0, "bundle": 0, "encoders": 0}
    | {name: 1 for name in CATALOGUES}
    | {"training": 2, "evaluation": 2, "calibration": 2, "runtime": 2}
)
HEIGHT |= {"published": 2, "reporting": 3, "serving": 3, "cluster": 3, "cli": 4}
SPOKEN = {"auto", "pooler", "text", "Linear"}  # entries' names that are also Hugging Face's or torch's words
LINES, FUNCTION_LINES = 400, 60  # of a function without its signature: that of a command is its list of options


def room(path: Path) -> str:
    """The folder a source lives in; core modules live in none."""
    first = path.relative_to(ROOT).parts[0]
    return "" if first.endswith(".py") else first


def height(name: str) -> int:
    return HEIGHT.get(name, 0)


def imported(path: Path, at_top: bool = False) -> list[str]:
    """Modules of ours that a source imports, what only type checkers see left out; `at_top`: not inside functions."""
    tree = ast.parse(path.read_text())
    hidden = {id(inner) for node in ast.walk(tree) if is_hidden(node, at_top) for inner in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "paredown":
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] == "paredown"]
    return found


def is_hidden(node: ast.AST, at_top: bool) -> bool:
    typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    return typing_only or (at_top and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_folder_has_its_place() -> None:
    folders = {room(path) for path in SOURCES} - {""}
    assert folders <= HEIGHT.keys(), "add the new folder to HEIGHT, where design.md puts it"


ENTRANCES = {ROOT / "__init__.py", ROOT / "__main__.py"}  # they may reach everything


@pytest.mark.parametrize("path", [path for path in SOURCES if path not in ENTRANCES], ids=named)
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    for module in imported(path):
        there = module.split(".")[1] if "." in module else ""
        if there in HEIGHT:
            assert height(there) <= height(here), f"{named(path)} imports {module}"
        assert not (here == "serving" and there == "training"), "a server must not need what trains"


def test_answering_needs_nothing_that_trains() -> None:
    """What a run has in common with a server and a prediction (signals, saving, memory) lies below both."""
    predicts = [
        ROOT / "cli" / f"{name}.py" for name in ("predict", "_predicting", "_incoming", "_outgoing", "_loading")
    ]
    for path in predicts:
        assert not [module for module in imported(path) if module.startswith("paredown.training")], named(path)
    below = {module.split(".")[1] for path in (ROOT / "system").glob("*.py") for module in imported(path)}
    assert below <= {"errors", "system"}


@pytest.mark.parametrize("path", CORE, ids=named)
def test_the_core_knows_no_entry_by_name(path: Path) -> None:
    entries = {name for shelf in CATALOGUES.values() for name in shelf.names() + shelf.aliases()}
    classes = {shelf[name].__name__ for shelf in CATALOGUES.values() for name in shelf.names()}
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not ((texts & entries) | (names & classes)) - SPOKEN


KIND_TEST = re.compile(r"kind\.name\s*(==|!=|in\b|not in\b)|isinstance\([\w.]*kind,")


def test_only_kinds_know_each_other_by_name() -> None:
    """What differs from kind to kind is asked of the kind."""
    outside = [path for path in SOURCES if room(path) != "answers"]
    assert [named(path) for path in outside if KIND_TEST.search(path.read_text())] == []
    assert KIND_TEST.search('if model.kind.name == "span":') and KIND_TEST.search("isinstance(self.kind, Span)")


@pytest.mark.parametrize("catalogue", sorted(name for name in CATALOGUES if (ROOT / name).is_dir()))
def test_a_catalogue_imports_all_it_holds(catalogue: str) -> None:
    module = importlib.import_module(f"paredown.{catalogue}")
    inside = imported(ROOT / catalogue / "__init__.py", at_top=True)
    for path in (ROOT / catalogue).iterdir():
        if path.name.startswith(("_", ".")) or not (path.suffix == ".py" or (path / "__init__.py").is_file()):
            continue
        assert any(f"{name}.".startswith(f"paredown.{catalogue}.{path.stem}.") for name in inside), path.name
    assert CATALOGUES[catalogue].names() and module.__doc__


@pytest.mark.parametrize("path", [*SOURCES, *BENCHMARKS], ids=lambda path: path.relative_to(ROOT.parent).as_posix())
def test_nothing_grows_too_long(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LINES
    long = [
        f"{node.name}: {node.end_lineno - node.body[0].lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.body[0].lineno + 1 > FUNCTION_LINES
    ]
    assert not long


@pytest.mark.parametrize("path", [path for path in SOURCES if path.read_text().strip()], ids=named)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(named(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_the_top_level_stays_small() -> None:
    assert sum(path.parent == ROOT for path in CORE) <= 10, "a room is missing, or something is in the wrong one"


# One loop


def loops_over_layers(source: str) -> list[int]:
    """Lines of loops that run layers or steps one after the other."""
    loops = [node for node in ast.walk(ast.parse(source)) if isinstance(node, (*LOOPS, ast.While))]
    return [loop.lineno for loop in loops if any(runs_layer(node, targets(loop)) for node in ast.walk(loop))]


LOOPS = (ast.For, ast.AsyncFor)


def targets(loop: ast.AST) -> set[str]:
    """Names that a loop over layers gives to them."""
    if not isinstance(loop, LOOPS) or "layers" not in ast.unparse(loop.iter):
        return set()
    return {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}


def runs_layer(node: ast.AST, layers: set[str]) -> bool:
    """`backend.run(state, step)`, `walk.layers[number](hidden)`, or a call of a layer itself."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr in ("run", "_run") and len(node.args) == 2 and "subprocess" not in ast.unparse(called)
    return "layers[" in ast.unparse(called) or (isinstance(called, ast.Name) and called.id in layers)


def test_one_module_loops_over_the_layers() -> None:
    assert {named(path) for path in SOURCES if loops_over_layers(path.read_text())} == {"engine.py"}


@pytest.mark.parametrize(
    "source",
    [
        "for layer in depth:\n    state = model.walk.run(state, layer)",
        "for number in range(12):\n    hidden = walk.layers[number](hidden)",
        "for layer in encoder.layers:\n    hidden = layer(hidden)",
        "while steps:\n    state = backend.run(state, steps.pop())",
    ],
)
def test_another_loop_would_be_noticed(source: str) -> None:
    assert loops_over_layers(source)


# Inference that others cannot feel

INFERENCE = ["engine.py", "route.py", "state.py", "model.py", "encoders/walk.py", "encoders/attention.py"]
INFERENCE += ["encoders/shadows.py", "evaluation/record.py", "evaluation/replay.py"]
INFERENCE += [named(path) for path in SOURCES if room(path) in ("answers", "exits", "heads", "reducers")]
FELT = {"train", "eval", "evaluating", "setattr", "Lock", "RLock", "register_forward_hook", "set_attn_implementation"}


def felt(source: str) -> list[str]:
    """Calls and assignments that change a model for others: its mode, its methods, its hooks."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found += [name] if name in FELT else []
        for target in getattr(node, "targets", []):
            if isinstance(target, ast.Attribute) and target.attr in ("training", "forward"):
                found.append(target.attr)
    return found


@pytest.mark.parametrize("name", INFERENCE)
def test_inference_changes_nothing_that_others_see(name: str) -> None:
    assert not felt((ROOT / name).read_text())


@pytest.mark.parametrize(
    "source", ["model.eval()", "with evaluating(model):\n    pass", "layer.forward = ours", "module.training = False"]
)
def test_a_change_would_be_noticed(source: str) -> None:
    assert felt(source)
