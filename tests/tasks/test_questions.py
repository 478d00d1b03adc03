"""Readers of questions, and the windows made of them: every gold answer is found again, in every tokenizer."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paredown.answers import Question, Span
from paredown.answers._windows import Window, windows
from paredown.errors import BadInput, BadSetting
from paredown.evaluation.spans import exact, score_spans
from paredown.registry import tasks
from paredown.tasks.mrqa import MARKERS
from tests.tasks.asking import decoded, made_questions, raw_bytes, word_pieces

DATA = Path(os.environ.get("PAREDOWN_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
WEIGHTS = os.environ.get("PAREDOWN_WEIGHTS")  # a folder of downloaded models
TOKENIZERS = {"word pieces": word_pieces, "bytes": raw_bytes}
BOOK = "Ann wrote it. Bob read it."


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return TOKENIZERS[request.param]()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (DATA / "qa.tar.xz").is_file():
        pytest.skip(f"the real data is not here: no qa.tar.xz in {DATA}")
    root = tmp_path_factory.mktemp("qa")
    subprocess.run(["tar", "-C", root, "-xJf", DATA / "qa.tar.xz"], check=True)
    return root


def squad_file(*questions: dict[str, Any]) -> str:
    return json.dumps({"version": "2.0", "data": [{"paragraphs": [{"context": BOOK, "qas": list(questions)}]}]})


WHO = {"id": "1", "question": "Who wrote?", "answers": [{"text": "Ann", "answer_start": 0}] * 2}
BOB = {"id": "2", "question": "Who read?", "answers": [{"text": "Bob", "answer_start": 14}], "is_impossible": False}
NONE = {"id": "3", "question": "Who sold?", "answers": [], "is_impossible": True, "plausible_answers": [{"text": "x"}]}


def test_squad(tmp_path: Path) -> None:
    (tmp_path / "train-v1.1.json").write_text(squad_file(WHO))
    (tmp_path / "squad").mkdir()
    (tmp_path / "squad" / "dev-v2.0.json.gz").write_bytes(gzip.compress(squad_file(WHO, BOB, NONE).encode()))
    ann = Question("1", "Who wrote?", BOOK, ("Ann",), ((0, 3),))
    assert tasks.make("squad").read(tmp_path, "train").rows == [ann]
    assert tasks.make("squad").read(tmp_path / "train-v1.1.json", "train").rows == [ann]  # any file of the format
    read = tasks.make("squad_v2").read(tmp_path, "dev")
    assert read.kind == "span" and not read.bad
    assert [(one.answers, one.impossible) for one in read.rows] == [(("Ann",), False), (("Bob",), False), ((), True)]


def test_squad_without_answers_is_unlabelled(tmp_path: Path) -> None:
    (tmp_path / "test-v2.0.json").write_text(squad_file(*[{"id": str(n), "question": "Who?"} for n in range(3)]))
    rows = tasks.make("squad_v2").read(tmp_path, "test").rows
    assert [row.answers for row in rows] == [(), (), ()] and not rows[0].impossible
    assert windows(word_pieces(), rows)[0].label is None


def mrqa_lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


HEADER = {"header": {"dataset": "NewsQA", "split": "dev"}}
LINE = {
    "context": f"[TLE] News [PAR] {BOOK}",
    "qas": [
        {
            "qid": "a",
            "question": "Who wrote?",
            "answers": ["Ann", "ann"],
            "detected_answers": [{"text": "ann", "char_spans": [[17, 19], [31, 33]][:1]}],
        }
    ],
}


@pytest.mark.parametrize("name", ["newsqa", "naturalqa"])
@pytest.mark.parametrize("header", [True, False])
def test_mrqa(tmp_path: Path, name: str, header: bool) -> None:
    content = mrqa_lines(*[HEADER] * header, LINE)
    wanted = [Question("a", "Who wrote?", LINE["context"], ("Ann", "ann"), ((17, 20),))]  # type: ignore[arg-type]
    (tmp_path / name).mkdir()
    (tmp_path / name / "dev.jsonl").write_bytes(content)
    assert tasks.make(name).read(tmp_path, "dev").rows == wanted
    (tmp_path / name / "dev.jsonl").unlink()
    (tmp_path / "dev").mkdir()  # MRQA's own folders
    stem = {"newsqa": "NewsQA", "naturalqa": "NaturalQuestionsShort"}[name]
    (tmp_path / "dev" / f"{stem}.jsonl.gz").write_bytes(gzip.compress(content))
    assert tasks.make(name).read(tmp_path, "dev").rows == wanted


def gold_again(made: list[Window]) -> Iterator[tuple[Window, str]]:
    """The text that every label stands for."""
    for window in made:
        for label in window.spans:
            start, end = window.characters(*label)
            yield window, window.asked.context[start:end]


@pytest.mark.parametrize(("max_length", "stride"), [(64, 16), (128, 50), (384, 128)])
def test_every_gold_answer_is_found_again(tokenizer: Any, max_length: int, stride: int) -> None:
    questions = made_questions(40, 150)
    made = windows(tokenizer, questions, max_length, stride, max_question=20)
    assert all(len(window) <= max_length for window in made)
    found: dict[str, set[str]] = {question.id: set() for question in questions}
    for window, text in gold_again(made):
        assert text in window.asked.answers
        found[window.asked.id].add(text)
    # An answer longer than a step may be whole in no window.
    short = {one.id: {text for text in one.answers if len(text.encode()) < 40} for one in questions}
    assert max_length == 64 or all(found[key] >= texts for key, texts in short.items())
    assert sum(map(len, found.values())) >= 0.8 * sum(len(set(one.answers)) for one in questions)


def test_windows_are_the_tokenizers_own_pairs(tokenizer: Any) -> None:
    for question in made_questions(12, 120):
        asked = tokenizer(question.question.strip(), add_special_tokens=False)["input_ids"]
        made = windows(tokenizer, [question], max_length=96, stride=20)
        room = 96 - len(asked) - tokenizer.num_special_tokens_to_add(pair=True)
        own = tokenizer(
            question.question.strip(),
            question.context,
            truncation="only_second",
            max_length=96,
            stride=room - 20,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        assert [window.ids["input_ids"] for window in made] == own["input_ids"]
        assert [window.ids.get("token_type_ids") for window in made] == own.get("token_type_ids", [None] * len(made))
        for place, window in enumerate(made):
            inside = [at for at, part in enumerate(own.sequence_ids(place)) if part == 1]
            assert (window.at, len(window.offsets)) == (inside[0], len(inside))
            assert window.offsets.tolist() == [list(own["offset_mapping"][place][at]) for at in inside]


def test_what_stays_and_what_may_answer(tokenizer: Any) -> None:
    question = replace(made_questions(1, 60)[0], protected=((0, 5), (20, 22)))
    for window in windows(tokenizer, [question], max_length=80, stride=30):
        context = range(window.at, window.at + len(window.offsets))
        assert window.first == (0, *context)
        kept = set(window.protected or ())
        assert kept >= set(range(len(window))) - set(context)
        for place in context:
            start, end = window.offsets[place - window.at]
            assert (place in kept) == any(start < stop and begin < end for begin, stop in question.protected)


def test_the_question_is_cut_and_must_leave_room(tokenizer: Any) -> None:
    question = replace(made_questions(1, 30)[0], question="w" * 90 + " what who" * 50)
    (window, *_) = windows(tokenizer, [question], max_length=64, stride=16, max_question=10)
    whole = tokenizer(question.question, add_special_tokens=False)["input_ids"]
    assert window.ids["input_ids"][1:11] == whole[:10]
    with pytest.raises(BadSetting, match="max_length=64 leaves no room after a question of 61 tokens"):
        windows(tokenizer, [question], max_length=64, max_question=61)
    with pytest.raises(BadSetting, match=r"stride \(0\)"):
        windows(tokenizer, [question], stride=0)


def test_labels_without_an_answer(tokenizer: Any) -> None:
    (question,) = made_questions(1, 200)
    late = replace(question, spans=question.spans[:1], answers=question.answers[:1])
    made = windows(tokenizer, [late, replace(late, impossible=True, spans=(), answers=())], max_length=64, stride=16)
    labels = [window.label for window in made]
    none = ((0, 0),)
    assert none in labels and all((label == none) == (not one.spans) for label, one in zip(labels, made))
    assert {window.label for window in made if window.unit == 1} == {none}
    kept = windows(tokenizer, [late], max_length=64, stride=16, drop_without_answer=True)
    assert [window for window in kept] == [window for window in made if window.spans]


def test_an_answer_at_the_border_of_a_window(tokenizer: Any) -> None:
    context = " ".join("abcdefghijklmnopqrstuvwxyz" * 4)
    places = [(start, start + 3) for start in range(0, len(context) - 3, 2)]
    for span in places:
        question = Question("q", "who?", context, (context[slice(*span)],), (span,))
        made = windows(tokenizer, [question], max_length=40, stride=11)
        assert {text for _, text in gold_again(made)} == set(question.answers)
        for window in made:
            shown = window.offsets[0, 0] <= span[0] and window.offsets[-1, 1] >= span[1]
            assert bool(window.spans) == shown
            assert window.tokens(*span) == (window.spans[0] if shown else None)


def test_every_token_is_fullest_in_one_window(tokenizer: Any) -> None:
    (question,) = made_questions(1, 300)
    made = windows(tokenizer, [question], max_length=64, stride=13)
    best: dict[int, tuple[float, int]] = {}
    first = [13 * place for place in range(len(made))]
    for place, window in enumerate(made):
        for at in range(len(window.offsets)):
            score = min(at, len(window.offsets) - 1 - at) + 0.01 * len(window.offsets)
            if score > best.get(first[place] + at, (-1.0, 0))[0]:
                best[first[place] + at] = (score, place)
    for place, window in enumerate(made):
        assert window.fullest.tolist() == [best[first[place] + at][1] == place for at in range(len(window.offsets))]


def test_markers_are_one_token() -> None:
    tokenizer = word_pieces()
    context = LINE["context"]
    question = Question("a", "Who wrote?", context, ("Ann",), ((17, 20),))  # type: ignore[arg-type]
    (window,) = windows(tokenizer, [question], markers=MARKERS)
    ids = window.ids["input_ids"]
    names = tokenizer.convert_ids_to_tokens(ids)[window.at :]
    assert names[0] == "[unused2]" and names.count("[unused1]") == 1
    assert [text for _, text in gold_again([window])] == ["Ann"]
    assert "[PAR]" not in tokenizer.get_vocab() and len(windows(tokenizer, [question])[0]) > len(ids)
    with pytest.raises(BadSetting, match=r"no \[unused1\], \[unused2\], \[unused3\] to read markers as"):
        windows(raw_bytes(), [question], markers=MARKERS)


def test_a_long_context(tokenizer: Any) -> None:
    context = "the river and the bridge of the town 1234 " * 2400
    span = (42 * 2_143, 42 * 2_143 + 3)
    question = Question("q", "what river?", context, (context[slice(*span)],), (span,))
    started = time.perf_counter()
    made = windows(tokenizer, [question])
    answers = decoded(Span(), made, [peak(window) for window in made])
    assert time.perf_counter() - started < 30  # seconds; about one where nothing else runs
    assert len(context) > 100_000 and (answers[0].start, answers[0].end) == span


def peak(window: Window) -> torch.Tensor:
    """Logits that say the label, and of windows without an answer nothing."""
    logits = torch.full((len(window), 2), -8.0)
    if window.spans:
        ((start, end),) = window.label
        logits[start, 0] = logits[end, 1] = 8.0
    return logits


def test_nothing_to_read(tokenizer: Any) -> None:
    assert windows(tokenizer, []) == []
    (window,) = windows(tokenizer, [Question("q", "who?", "\x00\x01" if "token_type_ids" in tokenizer("a") else "")])
    assert len(window.offsets) == 0 and decoded(Span(), [window], [torch.zeros(len(window), 2)])[0].label == ""
    slow = type("Slow", (), {"is_fast": False})()
    with pytest.raises(BadSetting, match="Slow cannot say where its tokens stand"):
        windows(slow, [])


def test_official_counts(data: Path) -> None:
    dev = tasks.make("squad").read(data, "dev").rows
    assert len(dev) == 10_570 and all(one.answers and one.spans for one in dev)
    assert len(tasks.make("squad", train="train-v1.1-subset").read(data, "train").rows) == 11_877
    second = tasks.make("squad_v2", dev="dev-v2.0-half", test="unlabelled-v2.0-half")
    half = second.read(data, "dev").rows
    assert (len(half), sum(one.impossible for one in half)) == (6_078, 3_168)
    assert len(second.read(data, "test").rows) == 5_915
    with pytest.raises(BadInput, match=r"read the file as squad_v2; and 3167 more"):
        tasks.make("squad", dev="dev-v2.0-half", folder="SQuAD_v2.0").read(data, "dev")
    assert score_spans(dev, {one.id: one.answers[0] for one in dev}) == {"exact": 1, "f1": 1, "total": 10_570}
    figures = score_spans(half, {one.id: (*one.answers, "")[0] for one in half})
    assert (figures["exact"], figures["f1"], figures["HasAns_total"], figures["NoAns_total"]) == (
        1,
        1,
        2_910,
        3_168,
    )


def test_real_answers_survive_windows(data: Path, tokenizer: Any) -> None:
    dev = tasks.make("squad").read(data, "dev").rows[::20]
    made = windows(tokenizer, dev)
    assert survivors(dev, made) >= (1.0 if "token_type_ids" not in tokenizer("a") else 0.97)


@pytest.mark.skipif(WEIGHTS is None, reason="PAREDOWN_WEIGHTS does not name a folder of models")
@pytest.mark.parametrize("name", ["minilm-l3", "bert-base-zh"])
def test_real_answers_survive_real_tokenizers(data: Path, name: str) -> None:
    from transformers import AutoTokenizer

    dev = tasks.make("squad").read(data, "dev").rows
    made = windows(AutoTokenizer.from_pretrained(Path(WEIGHTS or "") / name), dev)
    assert survivors(dev, made) >= 0.995


def survivors(questions: list[Question], made: list[Window]) -> float:
    """The share of gold answers that labels are and peaks give back; all are covered, even parts of words."""
    covered = np.zeros(len(questions), dtype=bool)
    for window in made:
        for first, last in window.spans[:1]:
            start, end = window.characters(first, last)
            covered[window.unit] |= any(start <= one and other <= end for one, other in window.asked.spans)
    assert covered.all()
    long = Span(max_answer_length=250)  # tokens may be single letters
    said = decoded(long, made, [peak(window) for window in made])
    same = [one.label in question.answers for one, question in zip(said, questions, strict=True)]
    right = [max(exact(one.label, gold) for gold in question.answers) for one, question in zip(said, questions)]
    return float(min(np.mean(same), np.mean(right)))
