"""paredown.json: a format number, a section for each part of the model, the sha256 of every file and its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from paredown.bundle.migration import MIGRATIONS, migrated, present_names
from paredown.certificate import Certificate
from paredown.errors import BadBundle
from paredown.plan import Plan
from paredown.registry import answers
from paredown.system.saving import sha256, write_text

FORMAT = 2
FACTS, WEIGHTS = "paredown.json", "paredown.safetensors"
# What a section means that a bundle does not have.
ABSENT: dict[str, Any] = {
    "grown_layers": {"like": []},  # the layer that each appended one began as
    "heads": {"spec": None, "after": []},
    "error_probability": False,  # whether the heads' errors are foreseen
    "selectors": {"before": [], "size": 0},
    "plan": {},
    "reading": {},
    "scores": None,
    "ranges": None,  # of what linear maps meet
    "certificate": None,  # what is promised of the plan
}
REQUIRED = ("format", "answer", "sha256")


@dataclass(frozen=True)
class Description:
    """The facts of a bundle, in the present format."""

    folder: Path
    written: int  # the format it was written in
    sections: dict[str, Any]
    sha256: dict[str, str]  # of the other files

    def __getitem__(self, section: str) -> Any:
        return self.sections.get(section, ABSENT.get(section))

    @property
    def unknown(self) -> dict[str, Any]:
        """Sections of which this version knows nothing; they are saved again."""
        return {name: value for name, value in self.sections.items() if name not in ABSENT and name not in REQUIRED}

    def tensors(self) -> dict[str, Tensor]:
        """The weights beside those of the Hugging Face model, by their present names."""
        found = load_file(self.folder / WEIGHTS)
        return {new: found[old] for old, new in present_names(list(found), self.written).items()}

    def verify(self) -> None:
        """Check that every file is there, inside the folder, and unchanged; weights not named are refused."""
        for name, digest in self.sha256.items():
            path = self.folder / name
            try:
                inside = Path(name).name == name and not path.is_symlink() and path.is_file()
            except (OSError, ValueError):  # names that no file system takes
                inside = False
            if not inside:
                raise BadBundle(f"{self.folder}: {name!r} is missing or lies outside the bundle")
            if sha256(path) != digest:
                raise BadBundle(f"{path} is damaged: its sha256 is not the one in {FACTS}")
        unknown = [path.name for path in self.folder.glob("*.safetensors") if path.name not in self.sha256]
        if unknown or not {"config.json", WEIGHTS} <= self.sha256.keys():
            missing = ", ".join(unknown) or f"config.json and {WEIGHTS}"
            raise BadBundle(f"{self.folder}: {FACTS} does not account for {missing}")


def read_description(folder: Path) -> Description:
    facts = _read(folder)
    try:
        sections = migrated(facts)
    except (KeyError, TypeError) as error:
        raise BadBundle(f"{folder / FACTS} is not a complete description: {error!r}") from error
    answer = sections.get("answer")
    name = answer.get("kind") if isinstance(answer, dict) else None
    if not isinstance(name, str) or name not in answers:
        raise BadBundle(f"{folder / FACTS}: no kind of answer is called {name!r:.80}")
    return Description(folder, facts["format"], sections, facts["sha256"])


def write_description(folder: Path, sections: dict[str, Any]) -> None:
    """Describe a folder that holds everything else; a section that equals its default is left out."""
    stated = {name: value for name, value in sections.items() if name not in ABSENT or value != ABSENT[name]}
    digests = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    (folder / FACTS).write_text(_sealed({"format": FORMAT, **stated, "sha256": digests}), encoding="utf-8")


def write_plan(folder: str | Path, plan: Plan, certificate: Certificate | None = None) -> None:
    """Write another plan into a bundle, which must be one it can run; only its description changes, in one move.

    What the plan before was worth goes; the scores after every layer stay, and so does a certificate, which is void
    unless it is of this plan. These sections look alike in every format, so the bundle keeps its own.
    """
    folder = Path(folder)
    facts = _read(folder) | {"plan": plan.to_json()}
    if certificate is not None:
        facts["certificate"] = certificate.to_json()
    (facts.get("scores") or {}).pop("worth", None)
    write_text(folder / FACTS, _sealed(facts))


def _read(folder: Path) -> dict[str, Any]:
    """The description as it was written, of a format that can be read, without its seal, which is right."""
    if (folder / FACTS).is_symlink():
        raise BadBundle(f"{folder}: {FACTS} is a link to another place")
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadBundle(f"{folder / FACTS} is not JSON: {error}") from error
    if not isinstance(facts, dict):
        raise BadBundle(f"{folder / FACTS} does not describe a bundle")
    _check_format(folder, facts.get("format"))
    if not isinstance(facts.get("sha256"), dict):
        raise BadBundle(f"{folder / FACTS} does not describe a bundle: it names no sha256 of its files")
    # The first bundles had no seal.
    if FACTS in facts["sha256"] and facts["sha256"].pop(FACTS) != _seal(facts):
        raise BadBundle(f"{folder / FACTS} is damaged: it does not have the sha256 it names")
    return facts


def _check_format(folder: Path, found: Any) -> None:
    if type(found) is int and (found == FORMAT or found in MIGRATIONS):
        return
    known = f"this version reads formats up to {FORMAT}"
    if type(found) is int and found > FORMAT:
        raise BadBundle(
            f"{folder} is a bundle of format {found}, which a newer paredown wrote; {known}: update paredown, or save "
            "the bundle again with this version"
        )
    raise BadBundle(f"{folder / FACTS}: {found!r:.80} is no format of a bundle; {known}")


def _seal(facts: dict[str, Any]) -> str:
    """The sha256 of the description itself, as it is before the seal is put in."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _sealed(facts: dict[str, Any]) -> str:
    """The text of a description that holds its own sha256."""
    digests = {**facts["sha256"], FACTS: _seal(facts)}
    return json.dumps({**facts, "sha256": digests}, indent=2) + "\n"
