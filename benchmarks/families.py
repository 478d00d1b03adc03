"""Which encoder families can be walked with the installed transformers: writes docs/families.json and docs/families.md.

Run it with `make families`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from transformers.utils import logging

from benchmarks.pages import Document
from tests.families import COMMITTED, EVERY_TOKEN, EXACT, survey, version

CELLS = {EXACT: "yes | yes |", EVERY_TOKEN: "yes | no |"}


def page(found: dict[str, str], transformers: str) -> str:
    walked = sum(verdict in CELLS for verdict in found.values())
    rows = "\n".join(
        f"| {family} | {CELLS.get(verdict, f'no | no | {verdict}')} |" for family, verdict in found.items()
    )
    return f"""# Encoder families

{walked} of the {len(found)} encoder families of transformers {transformers} run layer by layer here, with results equal
to the bit to the stock model. The others are refused when they are loaded, with the reason given here. Where tokens
cannot be dropped, a plan that reduces is refused too, and exits work as everywhere.

| family | walked | tokens can be dropped | why not |
|---|---|---|---|
{rows}

## How this was made

`make families` writes this page and overwrites edits. It builds a tiny random model of every family that transformers
can both classify sequences and fill masks with, runs its layers one by one and compares with the stock forward
(`tests/contracts/test_parity.py`). No family has code of its own. Families without a tiny model were not tried.
"""


def documents() -> Iterator[Document]:
    survey_ = json.loads(COMMITTED.read_text(encoding="utf-8"))
    yield COMMITTED.with_suffix(".md"), lambda _: page(survey_["families"], survey_["transformers"])


def main() -> None:
    logging.set_verbosity_error()
    found = survey()
    COMMITTED.parent.mkdir(exist_ok=True)
    COMMITTED.write_text(json.dumps({"transformers": version(), "families": found}, indent=2) + "\n")
    COMMITTED.with_suffix(".md").write_text(page(found, version()))
    print(
        f"{sum(verdict in CELLS for verdict in found.values())} of {len(found)} families walked; see {COMMITTED.parent}"
    )


if __name__ == "__main__":
    main()
