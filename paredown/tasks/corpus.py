"""Text of any size as rows for pre-training: read once, kept as token ids in a mapped file, cut into ordered pairs.

One paragraph a line; a blank line or a new file begins a new document. A row is two consecutive parts of one document;
for half of the rows they are swapped, and the label says so.
"""

from __future__ import annotations

import bisect
import gzip
import hashlib
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, overload

import numpy as np

from paredown.answers import Encoded
from paredown.errors import BadInput, BadSetting
from paredown.system.saving import staged

LABELS = ("in order", "swapped")
FORMAT = 1
FACTS, TOKENS, SPANS = "corpus.json", "tokens.bin", "rows.bin"
SHORTEST = 16  # tokens; what is left of a document below this is no row
STRETCH = 32  # consecutive rows that are held out together, so that few documents are on both sides
AT_ONCE = 1 << 22  # characters tokenised together; of one paragraph a quarter
HELD = 1 << 20  # tokens of a document that are held before rows are cut from them
ENDS = ".!?。！？…"  # of sentences
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Template:
    """What a tokenizer puts around two texts, per input: before, on the first, between, on the second, after."""

    parts: dict[str, tuple[list[int], int, list[int], int, list[int]]]

    @classmethod
    def of(cls, tokenizer: Any) -> Template:
        encoded = tokenizer("a", "a", return_special_tokens_mask=True)
        special = "".join(map(str, encoded["special_tokens_mask"]))
        first, second = special.find("0"), special.rfind("0")
        between = special[first : second + 1].strip("0")
        if first < 1 or not between or "0" in between:
            raise BadSetting(
                "pairs need a tokenizer that puts a token before the first text and one between the two, such as "
                f"[CLS] A [SEP] B [SEP]; {type(tokenizer).__name__} makes {tokenizer.decode(encoded['input_ids'])!r}"
            )
        start = special.find("1", first)
        stop = start + len(between)
        return cls(
            {
                name: (values[:first], values[first], values[start:stop], values[stop], values[second + 1 :])
                for name in ("input_ids", "token_type_ids")
                if (values := encoded.get(name)) is not None
            }
        )

    @property
    def size(self) -> int:
        """Special tokens of a row."""
        before, _, between, _, after = self.parts["input_ids"]
        return len(before) + len(between) + len(after)

    def fill(self, one: list[int], two: list[int]) -> dict[str, list[int]]:
        def around(first: list[int], second: list[int], name: str) -> list[int]:
            before, _, between, _, after = self.parts[name]
            return before + first + between + second + after

        found = {"input_ids": around(one, two, "input_ids")}
        if "token_type_ids" in self.parts:
            _, first, _, second, _ = self.parts["token_type_ids"]
            found["token_type_ids"] = around([first] * len(one), [second] * len(two), "token_type_ids")
        return found


@dataclass(frozen=True, eq=False)
class Corpus(Sequence[Encoded]):
    """Rows that are made when they are asked for; in memory there is nothing but the numbers of chosen rows."""

    tokens: np.ndarray  # all text, mapped from its file
    spans: np.ndarray  # [rows, 3] where the first part begins, where it ends and the second begins, where that ends
    template: Template
    written: str  # digest of both files
    seed: int
    chosen: np.ndarray | None = None  # numbers of the rows this view shows; None: all

    @classmethod
    def read(
        cls, files: Iterable[str | Path], tokenizer: Any, max_length: int = 128, *, cache: str | Path, seed: int = 42
    ) -> Corpus:
        """Rows of text files (.gz too). What was read is kept below `cache` and used again while the files, the
        tokenizer and the length are the same."""
        template = Template.of(tokenizer)
        capacity = max_length - template.size
        if capacity < SHORTEST:
            raise BadSetting(
                f"max_length must be at least {SHORTEST + template.size} for rows of text, not {max_length}"
            )
        paths = [_checked(Path(path)) for path in files]
        if not paths:
            raise BadInput("there is no text: name at least one file")
        folder = Path(cache) / _key(paths, tokenizer, capacity)
        if (facts := _facts(folder)) is None:
            with staged(folder) as fresh:
                _write(fresh, paths, tokenizer, capacity)
            facts = _facts(folder)
            assert facts is not None
        tokens = np.memmap(folder / TOKENS, facts["dtype"], "r")
        return cls(tokens, np.memmap(folder / SPANS, np.int64, "r").reshape(-1, 3), template, facts["sha256"], seed)

    def __len__(self) -> int:
        return len(self.spans) if self.chosen is None else len(self.chosen)

    @overload
    def __getitem__(self, index: int) -> Encoded: ...
    @overload
    def __getitem__(self, index: slice) -> Corpus: ...
    def __getitem__(self, index: int | slice) -> Encoded | Corpus:
        if isinstance(index, slice):
            return self._view(np.arange(len(self))[index])
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        row = index % len(self) if self.chosen is None else int(self.chosen[index])
        start, cut, end = self.spans[row].tolist()
        one, two = self.tokens[start:cut].tolist(), self.tokens[cut:end].tolist()
        swapped = hashlib.blake2b(f"{self.seed} {row}".encode(), digest_size=1).digest()[0] % 2
        return Encoded(self.template.fill(two, one) if swapped else self.template.fill(one, two), swapped)

    @cached_property
    def lengths(self) -> np.ndarray:
        """[rows] tokens, special ones included."""
        every = (self.spans[:, 2] - self.spans[:, 0] + self.template.size).astype(np.int32)
        return every if self.chosen is None else every[self.chosen]

    @cached_property
    def digest(self) -> str:
        """The same for the same rows, wherever and whenever they were read."""
        chosen = b"" if self.chosen is None else self.chosen.tobytes()
        return hashlib.sha256(f"{self.written} {self.seed} {self.template.parts}".encode() + chosen).hexdigest()

    def split(self, share: float) -> tuple[Corpus, Corpus]:
        """Most rows, and a share of them, taken in stretches from everywhere, to be held out."""
        if not 0 < share <= 0.5:
            raise BadSetting(f"the share of rows that are held out must lie in 0..0.5, not {share}")
        if len(self) < 2:
            raise BadInput("one row cannot be split; give held-out text of its own")
        stretch, every = max(min(STRETCH, round(len(self) * share)), 1), max(round(1 / share), 2)
        held = np.arange(len(self)) // stretch % every == min(every, len(self) // stretch) - 1
        return self._view(np.flatnonzero(~held)), self._view(np.flatnonzero(held))

    def _view(self, indexes: np.ndarray) -> Corpus:
        return replace(self, chosen=indexes if self.chosen is None else self.chosen[indexes])


def _checked(path: Path) -> Path:
    if not path.is_file():
        raise BadInput(f"{path} is {'a folder; name the files in it' if path.is_dir() else 'not there'}")
    return path


def _key(paths: list[Path], tokenizer: Any, capacity: int) -> str:
    """A name for what would be written; changed files, another tokenizer or length give another."""
    seen = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    if tokenizer.is_fast:
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        rules = {name: rule for name, rule in rules.items() if name not in ("truncation", "padding")}  # of calls
    else:
        rules = {"vocabulary": tokenizer.get_vocab(), "settings": repr(tokenizer)}
    facts = json.dumps([FORMAT, SHORTEST, seen, rules, capacity], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:16]


def _facts(folder: Path) -> dict[str, Any] | None:
    """What a complete folder says of itself."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        complete = all((folder / name).stat().st_size == facts["bytes"][name] for name in (TOKENS, SPANS))
        return facts if complete else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(folder: Path, paths: list[Path], tokenizer: Any, capacity: int) -> None:
    """Tokenise all text and cut it into rows; whatever its size, little is held in memory."""
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    ends = _ends_sentence(tokenizer)
    digest, size, rows, document = hashlib.sha256(), 0, 0, _Document(capacity)
    with open(folder / TOKENS, "wb") as tokens, open(folder / SPANS, "wb") as spans:
        for ids in _paragraphs(paths, tokenizer, dtype):
            if ids is not None:
                document.add(ids, ends[ids])
            if not (ids is None or document.size >= HELD):
                continue
            text, cuts = document.take(rows, whole=ids is None)
            for file, value in ((tokens, text), (spans, cuts + size)):
                file.write(value.tobytes())
                digest.update(value.tobytes())
            size, rows = size + len(text), rows + len(cuts)
    if not rows:
        found = f"no document in it has the {SHORTEST} tokens of the shortest row" if document.seen else "it is empty"
        raise BadInput(f"{', '.join(map(str, paths[:5]))}: {found}; documents are separated by blank lines")
    written = {name: (folder / name).stat().st_size for name in (TOKENS, SPANS)}
    facts = {"dtype": dtype.name, "tokens": size, "rows": rows, "bytes": written, "sha256": digest.hexdigest()}
    (folder / FACTS).write_text(json.dumps({**facts, "files": list(map(str, paths))}, indent=1), encoding="utf-8")
    log.info("%s tokens of text, %s rows of %.0f on average", f"{size:,}", f"{rows:,}", size / rows)


class _Document:
    """The tokens of a document that are not in a row yet."""

    def __init__(self, capacity: int):
        self.capacity, self.size, self.seen = capacity, 0, False
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, ids: np.ndarray, ends: np.ndarray) -> None:
        if len(ids):
            ends[-1] = True  # of a paragraph
            self._parts.append((ids, ends))
            self.size, self.seen = self.size + len(ids), True

    def take(self, rows: int, whole: bool) -> tuple[np.ndarray, np.ndarray]:
        """Text and its rows [rows, 3]; all of it at the end of a document, else what fills rows."""
        if not self._parts:
            return np.empty(0, np.uint16), np.empty((0, 3), np.int64)
        ids, ends = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        cuts = _cut((np.flatnonzero(ends) + 1).tolist(), len(ids), self.capacity, Random(rows), whole)
        taken = cuts[-1][2] if cuts else 0
        self._parts = [] if whole else [(ids[taken:], ends[taken:])]
        self.size = 0 if whole else len(ids) - taken
        return ids[:taken], np.array(cuts, np.int64).reshape(-1, 3)


def _cut(stops: list[int], size: int, capacity: int, random: Random, whole: bool) -> list[tuple[int, int, int]]:
    """Rows of a text whose sentences stop at these positions: where each begins, where its second part does, its end.

    Rows and parts end with sentences where they can. All of them, or else the order could be told by who is cut short.
    """
    rows, start = [], 0
    while size - start > capacity or (whole and size - start >= SHORTEST):
        end = size
        if size - start > capacity:
            end = _nearest(stops, start + capacity, start + capacity // 2, start + capacity)
        margin = (end - start) // 4
        low, high = start + margin, end - margin
        rows.append((start, _nearest(stops, random.randint(low, high), low, high), end))
        start = end
    return rows


def _nearest(stops: list[int], wish: int, low: int, high: int) -> int:
    """The stop nearest to a wish, within bounds; the wish itself where there is none."""
    nearest = bisect.bisect_left(stops, wish)
    near = [stop for stop in stops[max(nearest - 1, 0) : nearest + 1] if low <= stop <= high]
    return min(near, key=lambda stop: abs(stop - wish), default=wish)


def _ends_sentence(tokenizer: Any) -> np.ndarray:
    """[vocabulary] True for tokens that are the end of a sentence."""
    spelled = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return np.array([bool(text := token.lstrip("#▁Ġ")) and text.strip(ENDS) == "" for token in spelled])


def _paragraphs(paths: list[Path], tokenizer: Any, dtype: np.dtype) -> Iterator[np.ndarray | None]:
    """Every paragraph as token ids, and None where a document ends."""
    for path in paths:
        held: list[str] = []
        size = 0
        for line in _lines(path):
            held.append(line)
            size += len(line)
            if size >= AT_ONCE:
                yield from _tokenised(held, tokenizer, dtype)
                held, size = [], 0
        yield from _tokenised([*held, ""], tokenizer, dtype)


def _tokenised(lines: list[str], tokenizer: Any, dtype: np.dtype) -> Iterator[np.ndarray | None]:
    # Byte-level tokenizers mark a word by the space before it, also the first of a paragraph that others precede.
    texts = [f" {line}" for line in lines if line]
    plain = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    found = iter(tokenizer(texts, **plain, truncation=False, verbose=False)["input_ids"] if texts else ())
    for line in lines:
        yield np.array(next(found), dtype) if line else None


def _lines(path: Path) -> Iterator[str]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            while line := file.readline(AT_ONCE // 4):
                if "\0" in line:
                    raise BadInput(f"{path} is not text: it holds zero bytes")
                yield line.strip()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text in UTF-8: {error.reason}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path} cannot be unpacked: {error}") from None
