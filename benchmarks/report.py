"""Every page of figures, the cards and the README, with the figures of the committed results.

    python -m benchmarks.report            # write them, and their pictures
    python -m benchmarks.report --check    # end with 1 where a figure in them is not that of its result

Figures stand in slots `<!-- name -->` … `<!-- end -->`, or a page is written whole; both overwrite edits.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from benchmarks.pages import ROOT

MODULES = (
    "auto_report",
    "calibration_report",
    "claims_report",
    "elastic_report",
    "elue_report",
    "experiments_report",
    "families",
    "readme_report",
    "runtime_report",
    "tokens_report",
)
AGE = re.compile(r"^Changed since then: .*\n", re.MULTILINE)  # of the source: no figure, and other after every commit


@cache
def fills() -> dict[Path, list[Callable[[str], str]]]:
    """Every document, and what fills its slots."""
    found: dict[Path, list[Callable[[str], str]]] = {}
    for name in MODULES:
        for path, fill in import_module(f"benchmarks.{name}").documents():
            found.setdefault(path, []).append(fill)
    return found


def written_anew(path: Path, text: str) -> str:
    """The text of a document with the figures of the results."""
    for fill in fills()[path]:
        text = fill(text)
    return text


def holds(path: Path, text: str) -> bool:
    """Whether every figure of a document's text is that of its result."""
    return AGE.sub("", written_anew(path, text)) == AGE.sub("", text)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; name the documents that are out of date")
    parser.add_argument("--no-pictures", action="store_true")
    args = parser.parse_args(words)
    texts = {path: path.read_text(encoding="utf-8") if path.is_file() else "" for path in fills()}
    if args.check:
        stale = [path for path, text in texts.items() if not holds(path, text)]
        print("\n".join(f"{path.relative_to(ROOT)}: not as its results say" for path in stale) or "all hold")
        return 1 if stale else 0
    for path, text in texts.items():
        if (new := written_anew(path, text)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    for name in [] if args.no_pictures else MODULES:
        if draw := getattr(import_module(f"benchmarks.{name}"), "pictures", None):
            draw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
