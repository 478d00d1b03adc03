"""README.md of a bundle: a model card for people and for the Hugging Face Hub, from what the bundle's files say.

What lies between two marks is written anew whenever the bundle is; all around it is its owner's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paredown.bundle.format import Description, read_description
from paredown.certificate import Certificate
from paredown.errors import BadSetting
from paredown.plan import Plan
from paredown.registry import answers
from paredown.system.saving import write_text

CARD = "README.md"
BEGIN = "<!-- paredown writes this part anew; what you write above or below it stays -->"
END = "<!-- the end of what paredown writes -->"
MOST_LABELS = 20
PIPELINES = {  # of the Hub, by the class that transformers loads
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
}


def write_card(folder: Path, replaced: Path | None = None) -> None:
    """Write the card of a complete bundle, around its part what the card of the bundle that is `replaced` (default:
    of this one) has there. A card without the marks is its owner's alone."""
    described = read_description(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    part = f"{BEGIN}\n\n{_text(described, config)}\n{END}\n"
    known = (replaced or folder) / CARD
    if known.is_symlink() or not known.is_file():
        text = f"{_front_matter(described)}\n{part}"
    else:
        text = _renewed(known.read_bytes().decode("utf-8", "replace"), part)
    write_text(folder / CARD, text)


def _renewed(text: str, part: str) -> str:
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    return before + part + after.removeprefix("\n") if begin and end else text


def _front_matter(described: Description) -> str:
    """What the Hub reads; JSON is YAML too."""
    kind, scores = answers.make(described["answer"]["kind"]), described["scores"] or {}
    facts: dict[str, Any] = {"library_name": "transformers", "tags": ["paredown", "early-exit"]}
    if kind.auto_class in PIPELINES:
        facts["pipeline_tag"] = PIPELINES[kind.auto_class]
    if "metric" in scores:
        facts["metrics"] = [scores["metric"]]
    lines = (f"{name}: {json.dumps(value)}" for name, value in facts.items())
    return "\n".join(["---", *lines, "---", ""])


def _text(described: Description, config: dict[str, Any]) -> str:
    family = _plain(config.get("model_type", "encoder"))
    parts = [f"# {family}, {_plain(described['answer']['kind'])}", _about(described, config), _plan(described)]
    return "\n\n".join([*parts, *_scores(described["scores"]), _use()]) + "\n"


def _about(described: Description, config: dict[str, Any]) -> str:
    after, labels = described["heads"]["after"], [_plain(name) for name in (config.get("id2label") or {}).values()]
    exits = "a plan says which layers run"
    if after:
        exits = f"a head can answer after each of {len(after)} layers, and a plan says which rows leave where"
    shown = ", ".join(labels[:MOST_LABELS]) + (", …" if len(labels) > MOST_LABELS else "")
    named = f" Labels: {shown}." if len(labels) > 1 else ""
    return f"A Hugging Face encoder that spends compute only where it is needed, made with `paredown`: {exits}.{named}"


def _plan(described: Description) -> str:
    plan = Plan.from_json(described["plan"])
    lines = ["## Plan", "", f"`{plan}`"]
    if (promise := _promise(described["certificate"], plan)) is not None:
        lines += ["", f"Promised: {promise}. It holds for texts like those it was certified on."]
    return "\n".join(lines)


def _promise(certificate: Any, plan: Plan) -> Certificate | None:
    """The certificate, if there is one and it is of this plan."""
    try:
        known = None if certificate is None else Certificate.from_json(certificate)
    except BadSetting:
        return None
    return known if known is not None and known.plan == plan else None


def _scores(scores: Any) -> list[str]:
    """Tables of what the plan is worth and of the score after every layer, on dev rows."""
    found = []
    if worth := (scores or {}).get("worth"):
        rows = [("full depth", "full_"), (worth["plan"], "")]
        lines = ["| plan | score (%) | layers | MFLOPs | fewer FLOPs |", "|---|---:|---:|---:|---:|"]
        for name, which in rows if worth["plan"] != "full depth" else rows[:1]:
            score, layers, flops, times = (worth[which + one] for one in ("score", "layers", "flops", "flops_speedup"))
            lines.append(f"| {name} | {100 * score:.2f} | {layers:.2f} | {flops / 1e6:,.1f} | {times:.2f}× |")
        found.append(f"{_plain(worth['metric'])} on {worth['rows']:,} dev rows:\n\n" + "\n".join(lines))
    if by_layer := (scores or {}).get("per_layer"):
        lines = [f"| layers run | {_plain(scores['metric'])} (%) |", "|---:|---:|"]
        lines += [f"| {layers} | {100 * score:.2f} |" for layers, score in by_layer.items()]
        found.append("If all dev rows leave after a layer:\n\n" + "\n".join(lines))
    return ["## Scores", *found] if found else []


def _use() -> str:
    return """## Use

```python
from paredown import AdaptiveModel

model = AdaptiveModel.from_pretrained("this folder")
model.predict(["some text"])
```

`paredown predict`, `evaluate`, `calibrate` and `report` take the folder too. Plain `transformers` loads it as the
encoder at full depth, without exits."""


def _plain(text: Any) -> str:
    """A name that means nothing to Markdown."""
    return "".join(f"\\{one}" if one in "\\`*_{}[]<>()#+!|" else one for one in " ".join(str(text).split()))
