"""Catalogues: names, short texts and JSON all give the same entry, and every mistake has a helpful error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paredown.errors import BadSetting, ParedownError, UnknownName
from paredown.registry import Registry, exits, heads, methods, reducers

SHELF: Registry = Registry("thing")


@SHELF.register("thing")
@dataclass(frozen=True)
class Thing:
    size: float = 1.0
    count: int | None = None
    parts: tuple[int, ...] = ()
    mode: Literal["slow", "fast"] = "slow"
    loud: bool = False
    title: str = ""


SHELF.alias("big_thing", "thing", size=9.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("thing", Thing()),
        ("thing:2", Thing(size=2.0)),
        (" thing: 2.5 , 3 ", Thing(size=2.5, count=3)),
        ("thing:parts=(1,2),mode=fast", Thing(parts=(1, 2), mode="fast")),
        ("thing:parts=[4],loud=true,count=none", Thing(parts=(4,), loud=True)),
        ("thing:title=hello", Thing(title="hello")),
        ("thing:title=(patience:4,tolerance=0.1),loud=true", Thing(title="patience:4,tolerance=0.1", loud=True)),
        ("thing:title='patience:4,tolerance=0.1',loud=true", Thing(title="patience:4,tolerance=0.1", loud=True)),
        ('thing:title="a, (b",loud=true', Thing(title="a, (b", loud=True)),
        ("thing:title=(a:(1,2),b=3)", Thing(title="a:(1,2),b=3")),
        ("thing:title=(a)(b)", Thing(title="(a)(b)")),
        ("thing:1,none,(1,2),fast,true,(a:b,c=d)", Thing(1.0, None, (1, 2), "fast", True, "a:b,c=d")),
        ("big_thing", Thing(size=9.0)),
        ("big_thing:count=1", Thing(size=9.0, count=1)),
        ("big_thing:1", Thing(size=1.0)),
    ],
)
def test_short_texts(text: str, expected: Thing) -> None:
    assert SHELF.parse(text) == expected == SHELF.of(text) == SHELF.of(expected)
    assert SHELF.from_json(SHELF.to_json(expected)) == expected
    assert isinstance(SHELF.parse(text).size, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("thng", "did you mean 'thing'"),
        ("", "no thing is called ''"),
        ("thing:sise=1", "did you mean 'size'"),
        ("thing:x", "thing.size must be a number, not 'x'"),
        ("thing:true", "thing.size must be a number"),
        ("thing:count=1.5", "thing.count must be a whole number or none"),
        ("thing:parts=(1,a)", "thing.parts must be a list of a whole number"),
        ("thing:mode=medium", "one of 'slow', 'fast'"),
        ("thing:1,1,(1,),slow,true,a,7", "more values than thing has settings"),
        ("thing:name=1", "no setting 'name'"),
        ("thing:self=1", "no setting 'self'"),
        ("thing:{[]}", "must be a number"),
        ("thing:" + "-" * 100_000 + "1", "must be a number"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_mistakes_have_helpful_errors(text: str, message: str) -> None:
    with pytest.raises((BadSetting, UnknownName)) as error:
        SHELF.parse(text)
    assert message in str(error.value)


def test_entries_must_be_frozen_and_names_free() -> None:
    with pytest.raises(BadSetting, match="frozen dataclass"):
        SHELF.register("loose")(dataclass(type("Loose", (), {})))
    for taken in ("thing", "big_thing"):
        with pytest.raises(BadSetting, match="two entries"):
            SHELF.register(taken)(Thing)
        with pytest.raises(BadSetting, match="two entries"):
            SHELF.alias(taken, "thing")
    with pytest.raises(BadSetting, match="is not a thing"):
        SHELF.of(7)  # type: ignore[arg-type]
    assert SHELF.names() == ["thing"] and SHELF.aliases() == ["big_thing"]


def test_a_rule_with_settings_inside_a_method() -> None:
    rule = exits.parse("patience:4,tolerance=0.1")
    for text in (f"fastbert:epochs=2,rule=({rule})", f"fastbert:rule='{rule}',epochs=2"):
        method = methods.parse(text)
        assert exits.parse(method.rule) == rule and method.epochs == 2
        assert methods.from_json(methods.to_json(method)) == method


@pytest.mark.parametrize("catalogue", [exits, heads, reducers], ids=lambda catalogue: catalogue.heading)
def test_every_entry_survives_json(catalogue: Registry) -> None:
    for name in catalogue.names() + catalogue.aliases():
        entry = catalogue.make(name)
        assert catalogue.from_json(catalogue.to_json(entry)) == entry and hash(entry) == hash(catalogue.make(name))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NEARLY = st.builds(
    lambda name, rest: {"name": name, **rest},
    st.sampled_from([*exits.names(), "x", ""]),
    st.dictionaries(st.sampled_from(["threshold", "patience", "self", "name", "top"]), JSON, max_size=2),
)


@given(JSON | NEARLY | st.text(alphabet="entropy:0.5,=()[]{}-'\"\\", max_size=30))
def test_anything_is_an_entry_or_a_declared_error(value: Any) -> None:
    try:
        entry = exits.of(value)
    except ParedownError:
        return
    assert type(entry) in (exits[name] for name in exits.names())
