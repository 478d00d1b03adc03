"""docs/claims.md: what the papers claim, what our runs say of it, and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.claims import CLAIMS, Claim, Finding
from benchmarks.pages import DOCS, SCRIPT, Document, committed, filled, table

PAGE = DOCS / "claims.md"
HEAD = """Every verdict is given by a check that reads committed results (`benchmarks/claims.py`); nobody types one.
    Scores are of test rows. Weights and thresholds were chosen on dev rows, so on test rows a plan may do a little
    more or less work than it is named for. Values are the mean over the seeds of one recipe, with its 95 % interval
    over seeds by Student's t: wide, since the seeds are few, and none where there is one. *Holds*: in every
    experiment that a check names; *holds where it was run*: some of them were not yet; *holds in part*: not in all.
    The work saved is in FLOPs on test rows, of FastBERT by its own count."""


def documents() -> Iterator[Document]:
    yield PAGE, lambda _: page()


def page() -> str:
    overview = [[str(number), claim.source, claim.said, claim.verdict] for number, claim in enumerate(CLAIMS, 1)]
    parts = [
        "# What the papers claim, on equal ground",
        filled(HEAD),
        table(["", "of", "claim", "verdict"], overview),
        *(section(number, claim) for number, claim in enumerate(CLAIMS, 1)),
        first_token(committed("first_token")),
        "## How this was made",
        filled(
            f"`{SCRIPT}` writes this page and overwrites edits; [the experiments](experiments.md) say how every model "
            f"was trained, and `python -m benchmarks.run --only NAME` makes one again."
        ),
    ]
    return "\n\n".join(parts) + "\n"


def section(number: int, claim: Claim) -> str:
    parts = [f"## {number}. {claim.source}: {claim.verdict}", filled(claim.said)]
    lines = []
    for check in claim.checks:
        found = list(check.findings())
        lines += [line(str(check), finding) for finding in found] or [[str(check), "not run yet", "", "", ""]]
    parts.append(table(["check", "experiment", "mean, and interval", "seeds", "holds"], lines))
    if claim.why:
        parts.append(filled(claim.why))
    if claim.waiting:
        parts.append(filled(f"Still to run, in whole or in part: {', '.join(f'`{name}`' for name in claim.waiting)}."))
    return "\n\n".join(parts)


def first_token(found: dict[str, Any]) -> str:
    """What the tokens of encoders say before training, by layer."""
    lines = []
    for encoder, its in found["encoders"].items():
        for name in ("first token", "mean of all tokens"):
            lines.append([f"{encoder}, {name}", *(f"{100 * score:.0f}" for score in its[name])])
        shares = zip(its["spread over rows"], its["spread of channels"], strict=True)
        lines.append([f"{encoder}, first token: spread over rows, in % of that of channels"])
        lines[-1] += [f"{100 * rows / channels:.1f}" for rows, channels in shares]
    rows, layers = found["rows"], len(lines[0]) - 1
    about = f"""Test accuracy of linear probes on SST-2, before any training, each channel standardised over the {
        rows["teach"]:,} rows that teach; {rows["judged"]} rows are judged. `{found["command"]}` at {
        found["commit"]
    }."""
    why = """These are sentence encoders that answer by the mean of their tokens. Their first token knows nearly as
        much, but below the last layers it hardly changes from row to row: what it knows lies in deviations that are
        tiny beside the distances between its channels. A probe finds them once channels are standardised; a head that
        starts from small weights and learns by small steps does not. Attention heads read the other tokens."""
    table_ = table(["layer", *map(str, range(1, layers + 1))], lines)
    return "\n\n".join(["## Why heads on the first token come late", filled(why), table_, filled(about)])


def line(check: str, finding: Finding) -> list[str]:
    low, high = finding.interval
    within = f" ({low:.2f} to {high:.2f})" if len(finding.values) > 1 else ""
    faster = f" at {finding.faster:.2f}x" if finding.faster else ""
    said = f"{statistics.mean(finding.values):.2f} {finding.unit}{within}{faster}"
    return [check, finding.experiment, said, str(len(finding.values)), "yes" if finding.holds else "no"]
