"""Questions about a text, and how every reader of them checks, counts and names what is wrong."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paredown.answers import Choices, Question
from paredown.answers._questions import is_labelled
from paredown.errors import BadInput
from paredown.registry import answers
from paredown.tasks._reading import Fault, tell_bad
from paredown.tasks._task import Problem, Split

JSON = (".json", ".json.gz")

Found = Iterator[tuple[str, Question | Choices | str]]  # by location: a question, or what is wrong with it


def gather_questions(source: str, found: Found, kind: str, skip_bad_rows: bool = False) -> Split:
    """Questions by location; a text instead of one says what is wrong with it, and is an error or left out on request.

    The first fault is named and the others are counted. Two questions with one id are a fault (predictions go by id),
    and so is one without an answer where others have one; a file in which none has is unlabelled.
    """
    all_found = list(found)
    labelled = any(not isinstance(asked, str) and is_labelled(asked) for _, asked in all_found)
    rows: list[Question | Choices] = []
    bad: list[Problem] = []
    seen: dict[str, str] = {}
    for location, asked in all_found:
        if not isinstance(asked, str):
            if asked.id in seen:
                asked = f"the id {asked.id!r} is taken by {seen[asked.id]}"
            elif labelled and not is_labelled(asked):
                asked = "it has no answer, while others in this file do"
        if isinstance(asked, str):
            bad.append(Problem(location, asked))
        else:
            seen[asked.id] = location
            rows.append(asked)
    if not rows and not bad:
        raise BadInput(f"{source}: the file has no questions")
    tell_bad(source, bad, len(rows), "question", skip_bad_rows)
    return Split(source, rows, kind, (answers.make(kind).metric,), bad=tuple(bad))


def field_of(record: Any, name: str, kind: type, what: str, missing: Any = ...) -> Any:
    """A value of a JSON object, of the right type; `missing` is returned where there is none, if given."""
    if not isinstance(record, dict):
        raise Fault(f"{what} must be a JSON object, not {record!r:.40}")
    if record.get(name) is None:
        if missing is not ...:
            return missing
        raise Fault(f"{what} has no {name!r}; it has {', '.join(map(str, record)) or 'nothing'}")
    value = record[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Fault(f"{name!r} of {what} must be {_TYPES[kind]}, not {value!r:.40}")
    return value


_TYPES = {str: "text", list: "a list", dict: "a JSON object", int: "a whole number", bool: "true or false"}


def text_of(record: Any, name: str, what: str) -> str:
    """A text of a JSON object that is not blank and can be written as UTF-8."""
    text = field_of(record, name, str, what)
    if not text.strip():
        raise Fault(f"{name!r} of {what} is empty")
    return readable(text, f"{name!r} of {what}")


def readable(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Fault(f"{what} is not UTF-8 (at character {error.start}: {text[error.start]!a})") from None
    if "\0" in text:
        raise Fault(f"{what} holds a NUL character")
    return text


def read_json(path: Path) -> Any:
    """The value of a JSON file, gzipped or not; what is not JSON is an error that names the line."""
    try:
        content = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise BadInput(f"{path} is missing") from None
    except (EOFError, OSError, zlib.error) as error:
        raise BadInput(f"{path}: the file is cut short or damaged ({error})") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise BadInput(f"{path}: this is UTF-16; save the file as UTF-8")
    if not content.strip():
        raise BadInput(f"{path}: the file is empty")
    try:
        # A byte that is not UTF-8 becomes a surrogate, for the question's check to find and name.
        return json.loads(content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise BadInput(f"{path}: lists or objects are nested too deeply to be questions") from None
