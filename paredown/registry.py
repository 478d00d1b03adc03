"""Catalogues by name. An entry is a frozen dataclass of plain values, so it is also JSON and a short text."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import Any, ClassVar, Generic, TypeVar

from paredown.errors import BadSetting, UnknownName

Entry = TypeVar("Entry")
type_hints = cache(typing.get_type_hints)  # evaluating them takes a millisecond


class Registry(Generic[Entry]):
    """What exists under one heading, and how to name it: `entropy:0.3`, `patience:4,tolerance=0.1`."""

    def __init__(self, heading: str, package: str | None = None):
        self.heading = heading
        self.package = package  # importing it registers the entries; that is done at the first question
        self._classes: dict[str, type] = {}
        self._aliases: dict[str, tuple[type, dict[str, Any]]] = {}

    def register(self, name: str) -> Callable[[type], type]:
        """Class decorator: the class is known as `name` from now on."""

        def add(cls: type) -> type:
            if name in self:
                raise BadSetting(f"two entries want to be the {self.heading} {name!r}")
            if not (dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen):  # type: ignore[attr-defined]
                raise BadSetting(f"the {self.heading} {name!r} must be a frozen dataclass")
            cls.name = name  # type: ignore[attr-defined]
            self._classes[name] = cls
            return cls

        return add

    def alias(self, name: str, target: str, **settings: Any) -> None:
        """Another name for an entry with some settings chosen; they can still be overridden."""
        if name in self:
            raise BadSetting(f"two entries want to be the {self.heading} {name!r}")
        self._aliases[name] = (self[target], settings)

    def _fill(self) -> None:
        if self.package is not None:
            import_module(self.package)

    def __contains__(self, name: object) -> bool:
        self._fill()
        return name in self._classes or name in self._aliases

    def __getitem__(self, name: str) -> type:
        self._fill()
        if name in self._classes:
            return self._classes[name]
        if name in self._aliases:
            return self._aliases[name][0]
        known = self.names() + self.aliases()
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownName(f"no {self.heading} is called {name!r}; {hint}known: {', '.join(known)}")

    def names(self) -> list[str]:
        self._fill()
        return sorted(self._classes)

    def aliases(self) -> list[str]:
        self._fill()
        return sorted(self._aliases)

    def make(self, name: str, /, **settings: Any) -> Entry:
        """An entry by name; every setting is checked against its field."""
        cls = self[name]
        if name in self._aliases:
            settings = {**self._aliases[name][1], **settings}
        hints = type_hints(cls)
        fields = {field.name for field in dataclasses.fields(cls) if field.init}
        for key, value in settings.items():
            if key not in fields:
                near = difflib.get_close_matches(key, fields, n=1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise BadSetting(f"{name} has no setting {key!r}; {hint}it has: {', '.join(sorted(fields)) or 'none'}")
            settings[key] = _fit(value, hints[key], f"{name}.{key}")
        try:
            return cls(**settings)
        except TypeError as error:  # a required setting is missing
            raise BadSetting(f"{name}: {str(error).split(') ')[-1]}") from None

    def parse(self, text: str) -> Entry:
        """`name`, `name:value` for the first setting, or `name:value,key=value,…`.

        A value that has commas of its own stands in brackets or quotes: `rule=(patience:4,tolerance=0.1)`.
        """
        name, _, rest = text.strip().partition(":")
        settings: dict[str, Any] = {}
        positions = [field.name for field in dataclasses.fields(self[name]) if field.init]
        for index, part in enumerate(_split(rest)):
            key, equals, value = part.partition("=")
            if not equals or not key.strip().isidentifier():  # `(patience:4,tolerance=0.1)` is a value
                if index >= len(positions):
                    raise BadSetting(f"{text!r} gives more values than {name} has settings")
                key, value = positions[index], part
            if key.strip() in settings:
                raise BadSetting(f"{text!r} gives {key.strip()} twice")
            settings[key.strip()] = _literal(value.strip())
        return self.make(name, **settings)

    def of(self, entry: Entry | str | dict[str, Any]) -> Entry:
        """An entry from itself, its short text or its JSON."""
        if isinstance(entry, str):
            return self.parse(entry)
        if isinstance(entry, dict):
            return self.from_json(entry)
        if type(entry) not in self._classes.values():
            raise BadSetting(f"{entry!r} is not a {self.heading}; known: {', '.join(self.names())}")
        return entry

    def to_json(self, entry: Entry) -> dict[str, Any]:
        return {"name": entry.name, **dataclasses.asdict(entry)}  # type: ignore[attr-defined, call-overload]

    def from_json(self, data: dict[str, Any]) -> Entry:
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise BadSetting(f'a {self.heading} in JSON is an object with a "name"; got {data!r:.80}')
        return self.make(data["name"], **{key: value for key, value in data.items() if key != "name"})


def _split(text: str) -> list[str]:
    """Split at commas outside brackets and quotes, so that a setting may be a tuple, or another entry's short text."""
    parts, depth, start, quote = [], 0, 0, ""
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0 and not quote:
            parts.append(text[start:index])
            start = index + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


def _literal(text: str) -> Any:
    lower = {"true": True, "false": False, "none": None}
    if text.lower() in lower:
        return lower[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # all that a literal can go wrong with
        return text[1:-1].strip() if _enclosed(text) else text


def _enclosed(text: str) -> bool:
    """Whether the first character is a bracket that the last one closes: `(entropy:0.3)`, not `(a),(b)`."""
    depths = list(accumulate((char == "(") - (char == ")") for char in text))
    return text.startswith("(") and 0 in depths and depths.index(0) == len(text) - 1


def _fit(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type its field declares (lists become tuples, whole numbers may stand for floats)."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in inner:
            try:
                return _fit(value, option, where)
            except BadSetting:
                continue
    elif origin is typing.Literal:
        if value in inner:
            return value
    elif origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_fit(item, inner[0], where) for item in value)
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    elif hint in (bool, str) and isinstance(value, hint):
        return value
    elif hint is type(None) and value is None:
        return None
    raise BadSetting(f"{where} must be {_described(hint)}, not {value!r}")


def _described(hint: Any) -> str:
    if hint is type(None):
        return "none"
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(repr, inner))
    if typing.get_origin(hint) is tuple:
        return f"a list of {_described(inner[0])}"
    if inner:
        return " or ".join(_described(option) for option in inner)
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(hint, str(hint))


answers: Registry = Registry("kind of answer", "paredown.answers")
exits: Registry = Registry("exit rule", "paredown.exits")
heads: Registry = Registry("head", "paredown.heads")
reducers: Registry = Registry("reducer", "paredown.reducers")
methods: Registry = Registry("method", "paredown.methods")
tasks: Registry = Registry("task", "paredown.tasks")
runtimes: Registry = Registry("runtime", "paredown.runtime")


class Knob:
    """Base of a frozen dataclass of plain values whose field `knob` trades caution for speed."""

    name: ClassVar[str]
    knob: ClassVar[str] = "threshold"
    limits: ClassVar[tuple[float, float]] = (0.0, 1.0)  # of the knob; whole limits ask for a whole number
    per_layer: ClassVar[bool] = False  # whether the knob may have one value for each count of layers run

    def __post_init__(self) -> None:
        if not self.knob:
            return
        value = getattr(self, self.knob)
        if not (self.per_layer and isinstance(value, (list, tuple))):
            object.__setattr__(self, self.knob, self._checked(value))
        elif value:
            object.__setattr__(self, self.knob, tuple(self._checked(item) for item in value))
        else:
            raise BadSetting(f"{self.name}.{self.knob} must be one value or one for each layer, not an empty list")

    def _checked(self, value: Any) -> float:
        low, high = self.limits
        whole = isinstance(low, int)
        number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and low <= value <= high):
            span = f"from {low} to {high}" if math.isfinite(high) else f"of {low} or more"
            what = "a whole number" if whole else "a number"
            raise BadSetting(f"{self.name}.{self.knob} must be {what} {span}, not {value!r}")
        return int(value) if whole else float(value)  # plain, so that it can be printed and written as JSON

    def at_speed(self, speed: float) -> Any:
        """The same at another speed: 0 spares nothing, 1 all it can. Never more work as it grows.

        Values per layer give way to one value for all.
        """
        if not 0 <= speed <= 1:
            raise BadSetting(f"speed must lie between 0 (nothing is spared) and 1, not {speed!r}")
        knob = {self.knob: self._value_at(float(speed))} if self.knob else {}
        return dataclasses.replace(self, **knob)  # type: ignore[type-var]

    def _value_at(self, speed: float) -> float:
        """The knob's value at a speed; as it stands, for a threshold in 0..1 where 0 spares nothing."""
        return speed

    def __str__(self) -> str:
        """Short text that the registry reads back: the knob, and every other setting that is not at its default."""
        parts: list[str] = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            text = str(value).replace(" ", "")
            if field.name == self.knob:
                parts.insert(0, text)
            elif value != field.default:
                parts.append(f"{field.name}={text}")
        return ":".join([self.name, ",".join(parts)] if parts else [self.name])
