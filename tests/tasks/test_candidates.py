"""Questions with candidates as windows: a marker for every candidate in each, all supports in some, nothing lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paredown.answers import Choices, collate
from paredown.answers._marked_windows import marked_windows
from paredown.errors import BadSetting
from tests.tasks.asking import raw_bytes, word_pieces
from tests.tasks.choosing import made_choices

ASKED = Choices("a", "the town\nof the river and the bridge", "what town", ("river", "the bridge", "built"), 1)


def shown(tokenizer: Any, *questions: Choices, **settings: Any) -> list[list[str]]:
    found = marked_windows(tokenizer, questions, **settings)
    return [tokenizer.convert_ids_to_tokens(window.ids["input_ids"]) for window in found]


def test_the_layout() -> None:
    tokenizer = word_pieces()
    (window,) = marked_windows(tokenizer, [ASKED])
    (tokens,) = shown(tokenizer, ASKED)
    head = "[CLS] what town [unused1] river [unused1] the bridge [unused1] built [SEP]".split()
    assert tokens == head + "[unused2] the town [unused2] of the river and the bridge [SEP]".split()
    assert window.first == (3, 5, 8) and window.label == ((5,),) and window.teaches
    assert window.protected == (*range(len(head)), len(tokens) - 1)
    assert window.ids["token_type_ids"] == [0] * len(head) + [1] * (len(tokens) - len(head))
    (free,) = marked_windows(tokenizer, [ASKED], protect=False)
    assert free.protected is None and free.ids == window.ids
    inputs = collate([window, free], 0)
    assert inputs["labels"].tolist() == [[[5]], [[5]]] and inputs["answer_mask"].sum(1).tolist() == [3, 3]
    assert "[unused1]" in tokenizer.get_vocab() and tokenizer.tokenize("[unused1]") != ["[unused1]"]  # left as it was


def test_where_the_vocabulary_has_no_markers_the_separator_marks() -> None:
    tokenizer = raw_bytes()
    (window,) = marked_windows(tokenizer, [ASKED])
    ids = window.ids["input_ids"]
    assert [ids[place] for place in window.first or ()] == [tokenizer.sep_token_id] * 3
    tokenizer.sep_token = None
    with pytest.raises(BadSetting, match=r"neither \[unused1\] and \[unused2\] nor a separator"):
        marked_windows(tokenizer, [ASKED])


@pytest.mark.parametrize("stride", [None, 5, 1000])
@pytest.mark.parametrize("make", [word_pieces, raw_bytes])
def test_every_window_has_the_candidates_and_all_have_the_supports(make: Any, stride: int | None) -> None:
    tokenizer, questions = make(), made_choices(6, supports=12)
    length = 64 if make is word_pieces else 160
    whole = [window.ids["input_ids"] for window in marked_windows(tokenizer, questions, 10_000)]
    found = marked_windows(tokenizer, questions, length, stride, max_windows=None)
    assert {window.unit for window in found} == set(range(6)) and len(found) > 12
    for number, asked in enumerate(questions):
        own = [window for window in found if window.unit == number]
        assert max(map(len, own)) == length
        head = len(own[0].protected or ()) - 1
        markers = {(one.first, one.label, tuple(one.ids["input_ids"][:head])) for one in own}
        assert len(markers) == 1 and own[0].label == (((own[0].first or ())[asked.label or 0],),)
        room, body = length - head - 1, whole[number][head:-1]
        step = min(stride or room, room)
        assert [one.ids["input_ids"][head:-1] for one in own[:-1]] == [
            body[start : start + room] for start in range(0, step * (len(own) - 1), step)
        ]
        assert own[-1].ids["input_ids"][head:-1] == body[step * (len(own) - 1) :]


def test_what_is_not_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer, questions = word_pieces(), made_choices(5, supports=20)
    assert len(marked_windows(tokenizer, questions, 64, max_windows=2)) == 10
    assert "5 of 5 questions have supports beyond their first 2 windows, which are not read" in caplog.text
    caplog.clear()
    many = replace(ASKED, options=tuple(f"town {number}" for number in range(90)), label=85)
    (window,) = marked_windows(tokenizer, [many])
    assert len(window.first or ()) == 79 and not window.teaches and window.label is None
    assert "1 of 1 questions have the right candidate beyond the first 79, so they count as wrong" in caplog.text
    caplog.clear()
    (window,) = marked_windows(tokenizer, [many], max_candidates=None)
    assert len(window.first or ()) == 90 and window.teaches and not caplog.text
    assert marked_windows(tokenizer, [replace(many, label=None)])[0].teaches


def test_long_candidates_are_cut_alike(caplog: pytest.LogCaptureFixture) -> None:
    asked = replace(ASKED, options=("river", "the " * 30, "built", "of " * 25))
    (tokens,) = shown(word_pieces(), asked, max_length=48)
    assert len(tokens) == 47  # one more for each of the two would be too many
    assert "1 of 1 questions have long candidates, which were cut to fit into max_length=48" in caplog.text
    first, second = tokens.count("the"), tokens.count("of")
    assert first - 3 == second - 1 == 13 and tokens.count("[unused1]") == 4  # supports have three and one
    with pytest.raises(BadSetting, match="max_length=16 cannot hold question 'a': a query of 2 tokens, 4 candidates"):
        shown(word_pieces(), asked, max_length=16)


@pytest.mark.parametrize("wrong", [{"stride": 0}, {"max_windows": 0}, {"max_candidates": 1}])
def test_wrong_settings(wrong: dict[str, int]) -> None:
    with pytest.raises(BadSetting, match=f"{next(iter(wrong))} must be at least"):
        marked_windows(word_pieces(), [ASKED], **wrong)  # type: ignore[arg-type]
