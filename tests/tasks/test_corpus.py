"""Text of any size as rows: nothing lost, nothing mixed, half swapped, read once."""

from __future__ import annotations

import gzip
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerFast

from paredown.answers import Row
from paredown.errors import BadInput, BadSetting
from paredown.methods._stage import Stage
from paredown.registry import answers
from paredown.tasks import Corpus
from paredown.tasks import corpus as module
from paredown.training.batches import Batches, Data, Unlabelled, lengths
from tests.training.tiny import VOCABULARY, rows, tiny

NUMBERS = [f"n{place}" for place in range(400)]  # every document has numbers of its own
SENTENCE_END = "."


@pytest.fixture(scope="module")
def bert() -> BertTokenizer:
    return BertTokenizer(vocab={token: place for place, token in enumerate([*VOCABULARY, ".", *NUMBERS])})


def documents(number: int = 12, seed: int = 0) -> list[list[str]]:
    """Documents of paragraphs; a document repeats its own number, so that its words are known anywhere."""
    source = random.Random(seed)
    return [
        [" ".join([f"n{place}"] * source.randint(5, 30) + [SENTENCE_END]) for _ in range(source.randint(1, 9))]
        for place in range(number)
    ]


def written(path: Path, texts: list[list[str]]) -> Path:
    path.write_text("\n\n".join("\n".join(paragraphs) for paragraphs in texts) + "\n")
    return path


def parts(tokenizer: Any, row: Any) -> tuple[list[int], list[int]]:
    """The two texts of a row, in the order of the document."""
    ids = row.ids["input_ids"]
    sep = tokenizer.sep_token_id
    assert ids[0] == tokenizer.cls_token_id and ids[-1] == sep and ids.count(sep) == 2
    one, two = ids[1 : ids.index(sep)], ids[ids.index(sep) + 1 : -1]
    return (two, one) if row.label else (one, two)


def test_rows_reproduce_the_text(bert: Any, tmp_path: Path) -> None:
    texts = documents()
    corpus = Corpus.read([written(tmp_path / "a.txt", texts)], bert, 40, cache=tmp_path / "cache")
    found = [token for row in corpus for part in parts(bert, row) for token in part]
    for paragraphs in texts:  # but for a few tokens at its end, that would be no row
        ids = bert(" ".join(paragraphs), add_special_tokens=False)["input_ids"]
        there = next(size for size in range(len(ids), -1, -1) if found[:size] == ids[:size])
        assert len(ids) - there < module.SHORTEST
        found = found[there:]
    assert not found
    assert [len(row) for row in corpus] == corpus.lengths.tolist() and max(corpus.lengths) == 40
    assert min(corpus.lengths) >= module.SHORTEST + 3


def test_no_row_crosses_documents(bert: Any, tmp_path: Path) -> None:
    files = [written(tmp_path / f"{place}.txt", documents(12)[place::3]) for place in range(3)]
    corpus = Corpus.read(files, bert, 40, cache=tmp_path / "cache")
    numbers = {bert.convert_tokens_to_ids(name): name for name in NUMBERS}
    assert all(len({numbers[token] for token in row.ids["input_ids"] if token in numbers}) == 1 for row in corpus)


def test_a_row_is_what_the_tokenizer_makes_of_its_parts(bert: Any, tmp_path: Path) -> None:
    corpus = Corpus.read([written(tmp_path / "a.txt", documents())], bert, 40, cache=tmp_path / "cache")
    for row in corpus[:10]:
        one, two = (bert.decode(part) for part in parts(bert, row))
        texts = Row(two, one, "swapped") if row.label else Row(one, two, "in order")
        (expected,) = answers.make("single_label").encode(bert, [texts], module.LABELS)
        assert row == expected


def test_half_of_the_rows_are_swapped_and_the_seed_says_which(bert: Any, tmp_path: Path) -> None:
    file = written(tmp_path / "a.txt", documents(300))
    one, two, other = (Corpus.read([file], bert, 40, cache=tmp_path / "cache", seed=seed) for seed in (1, 1, 2))
    swapped = [row.label for row in one]
    assert len(one) > 500 and sum(swapped) / len(one) == pytest.approx(0.5, abs=0.08)
    assert swapped == [row.label for row in two] != [row.label for row in other]
    assert one.digest == two.digest != other.digest


def test_parts_and_rows_end_with_sentences_where_they_can(bert: Any, tmp_path: Path) -> None:
    corpus = Corpus.read([written(tmp_path / "a.txt", documents(50))], bert, 60, cache=tmp_path / "cache")
    stop, possible, short = bert.convert_tokens_to_ids(SENTENCE_END), 0, 0
    for row in corpus:
        one, two = parts(bert, row)
        size = len(one + two)
        margin = size // 4
        assert min(len(one), len(two)) >= margin
        if stop in (one + two)[margin - 1 : size - margin]:
            possible += 1
            assert one[-1] == stop
        if stop in (one + two)[57 // 2 - 1 :]:
            assert two[-1] == stop
        else:
            short += 1
            assert size == 57 or two[-1] == stop
    assert possible > 20 and short < len(corpus) / 2


def test_it_is_mapped_not_held(bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 1 << 14)
    monkeypatch.setattr(module, "HELD", 1 << 12)
    file = written(tmp_path / "a.txt", [["n1 " * 200] * 8000, ["n2 " * 30]])  # one document of 4.8 MB
    tracemalloc.start()
    corpus = Corpus.read([file], bert, 40, cache=tmp_path / "cache")
    assert 8000 * 200 + 30 - module.SHORTEST < len(corpus.tokens) <= 8000 * 200 + 30
    assert corpus[-1].ids["input_ids"][1] == bert.convert_tokens_to_ids("n2")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(corpus.tokens, np.memmap) and isinstance(corpus.spans, np.memmap) and most < 2_500_000


def test_what_was_read_is_used_again_until_something_changes(
    bert: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, cache = written(tmp_path / "a.txt", documents()), tmp_path / "cache"
    first = Corpus.read([file], bert, 40, cache=cache)
    bert("the movie", truncation=True, max_length=2, padding="max_length")  # leaves its traces in the tokenizer
    with monkeypatch.context() as patch:
        patch.setattr(module, "_write", None)
        assert Corpus.read([file], bert, 40, cache=cache).digest == first.digest
    os.utime(file, ns=(1, 1))
    assert Corpus.read([file], bert, 40, cache=cache).digest == first.digest  # read again, and found to be the same
    assert Corpus.read([file], bert, 39, cache=cache).digest != first.digest
    written(file, documents(seed=1))
    assert Corpus.read([file], bert, 40, cache=cache).digest != first.digest
    assert len(list(cache.iterdir())) == 4 and not list(cache.glob(".*"))
    for path in cache.glob("*/tokens.bin"):
        path.write_bytes(path.read_bytes()[:-2])  # a damaged file is not believed
    assert len(list(Corpus.read([file], bert, 40, cache=cache)))


def test_gz_and_windows_lines_and_a_byte_order_mark(bert: Any, tmp_path: Path) -> None:
    plain = written(tmp_path / "a.txt", documents())
    with gzip.open(tmp_path / "a.gz", "wt", encoding="utf-8-sig", newline="\r\n") as file:
        file.write(plain.read_text())
    one, two = (Corpus.read([path], bert, 40, cache=tmp_path / "cache") for path in (plain, tmp_path / "a.gz"))
    assert one.digest == two.digest


def test_views_and_held_out_rows(bert: Any, tmp_path: Path) -> None:
    corpus = Corpus.read([written(tmp_path / "a.txt", documents(390))], bert, 40, cache=tmp_path / "cache")
    learnt, held = corpus.split(0.1)
    assert len(learnt) + len(held) == len(corpus) and len(held) / len(corpus) == pytest.approx(0.1, abs=0.03)
    shown = [row.ids["input_ids"] for row in (*learnt, *held)]
    assert sorted(shown) == sorted(row.ids["input_ids"] for row in corpus)
    assert held[3] == held[::3][1] and held[-1] == held[len(held) - 1]
    assert held.lengths.tolist() == [len(row) for row in held]
    assert len({corpus.digest, learnt.digest, held.digest}) == 3
    with pytest.raises(IndexError):
        held[len(held)]
    with pytest.raises(BadSetting, match="held out"):
        corpus.split(0.0)
    few = corpus[:5].split(0.01)
    assert [len(part) for part in few] == [4, 1]


def test_training_uses_the_rows_where_they_are(bert: Any, tmp_path: Path) -> None:
    corpus = Corpus.read([written(tmp_path / "a.txt", documents())], bert, 40, cache=tmp_path / "cache")
    data = Data.read(tiny(), corpus, rows(5), None, None)
    assert data.train is corpus and lengths(corpus) is corpus.lengths
    assert data.digest() != Data.read(tiny(), corpus[1:], rows(5), None, None).digest()
    needs_none = Stage("words", lambda *_: None, lambda _: True, 1, 1e-3, unlabelled=True)  # type: ignore[arg-type, return-value]
    joined = data.rows(needs_none)
    assert isinstance(joined, Unlabelled) and len(joined) == len(corpus) + 5
    assert [row.ids for row in joined] == [row.ids for row in (*corpus, *data.extra)]
    assert all(row.label is None for row in joined) and joined[-1] == joined[len(joined) - 1]
    assert Batches(lengths(joined), 4, (0,)).epoch(0) == Batches([len(row) for row in joined], 4, (0,)).epoch(0)


def byte_level() -> PreTrainedTokenizerFast:
    """As RoBERTa's: two tokens between the texts, a space before a word is part of it."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {token: place for place, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters])}
    inner = Tokenizer(models.BPE(words, [], unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    named = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="<mask>", unk_token="<unk>", **named)


def test_other_templates(tmp_path: Path) -> None:
    tokenizer = byte_level()
    (tmp_path / "a.txt").write_text("a good film\nthe plot. " * 20)
    corpus = Corpus.read([tmp_path / "a.txt"], tokenizer, 40, cache=tmp_path / "cache")
    assert all(row.ids["input_ids"].count(2) == 3 and row.ids["input_ids"][0] == 0 for row in corpus)
    text = "".join(tokenizer.decode(part) for row in corpus for part in _texts(row))
    assert text.startswith(" a good film the plot. a good film")
    assert max(corpus.lengths) <= 40


def _texts(row: Any) -> tuple[list[int], list[int]]:
    ids = row.ids["input_ids"]
    at = ids.index(2)
    one, two = ids[1:at], ids[at + 2 : -1]
    return (two, one) if row.label else (one, two)


def test_text_that_will_not_do(bert: Any, tmp_path: Path) -> None:
    def refused(content: bytes | None, said: str, name: str = "a.txt", **settings: Any) -> None:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises((BadInput, BadSetting), match=said):
            Corpus.read([tmp_path / name], bert, **{"max_length": 40, "cache": tmp_path / "cache", **settings})

    refused(b"", "a.txt: it is empty")
    refused(b"\n \n\n", "it is empty")
    refused(b"n1 n2\n\nn3", "no document in it has the 16 tokens")
    refused(b"n1 \x00 n2", "not text: it holds zero bytes")
    refused(b"\xff\xfe\x00n1", "not text in UTF-8")
    refused(b"n1 n2", "cannot be unpacked", name="a.gz")
    refused(None, "is not there", name="none.txt")
    (tmp_path / "folder").mkdir()
    refused(None, "a folder; name the files in it", name="folder")
    refused(b"n1", "max_length must be at least 19", max_length=18)
    with pytest.raises(BadInput, match="name at least one file"):
        Corpus.read([], bert, cache=tmp_path)
    assert not list((tmp_path / "cache").iterdir())


def test_a_tokenizer_without_pairs_is_refused(tmp_path: Path) -> None:
    words = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(BadSetting, match=r"\[CLS\] A \[SEP\] B \[SEP\]"):
        Corpus.read([tmp_path], PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>"), cache=tmp_path)
