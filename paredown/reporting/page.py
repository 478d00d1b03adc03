"""The HTML file: a template with its style, its scripts and the data inside, and leave to load nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from importlib.resources import files
from typing import Any

SCRIPTS = ("record.js", "charts.js", "sections.js", "page.js")
DIGITS = 6  # of numbers, which is more than a page can show


def page(data: dict[str, Any]) -> str:
    style, script = _part("style.css"), "\n".join(_part(name) for name in SCRIPTS)
    allowed = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    parts = {
        "policy": html.escape(f"default-src 'none'; img-src data:; {allowed}; base-uri 'none'; form-action 'none'"),
        "title": html.escape(f"{data['name']} · paredown report"),
        "style": style,
        "data": _in_script(data),
        "script": script,
    }
    text = re.sub(r"\{\{ (\w+) \}\}", lambda mark: parts[mark[1]], _part("template.html"))
    return text.encode("utf-8", "replace").decode()  # half a character, as broken names have it


def _part(name: str) -> str:
    return (files("paredown.reporting") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _in_script(data: Any) -> str:
    """JSON that cannot end the element it stands in, whatever texts it holds."""
    text = json.dumps(_rounded(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _rounded(its) for name, its in value.items()}
    return [_rounded(its) for its in value] if isinstance(value, (list, tuple)) else value
