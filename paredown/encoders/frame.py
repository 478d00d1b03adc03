"""What a tokenizer puts around two texts, so that their tokens can be cut before they become a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paredown.errors import BadSetting


@dataclass(frozen=True)
class Frame:
    """What a tokenizer puts before, between and after two texts, and the type ids of each part."""

    special: tuple[list[int], list[int], list[int]]
    types: tuple[list[int], list[int], list[int]] | None  # of the special tokens; None: the family has none
    text_types: tuple[int, int] = (0, 1)

    @classmethod
    def of(cls, tokenizer: Any) -> Frame:
        probe = tokenizer("a", "b")
        part = probe.sequence_ids()
        if 0 not in part or 1 not in part:
            raise BadSetting("the tokenizer reads the texts 'a' and 'b' as no tokens, so its pairs cannot be made")
        first, second = part.index(0), part.index(1)
        ends = [slice(0, first), slice(first + part.count(0), second), slice(second + part.count(1), None)]
        special = tuple(probe["input_ids"][end] for end in ends)
        if "token_type_ids" not in probe:
            return cls(special, None)
        types = probe["token_type_ids"]
        return cls(special, tuple(types[end] for end in ends), (types[first], types[second]))

    def __len__(self) -> int:
        return sum(map(len, self.special))

    def around(self, one: list[int], other: list[int]) -> dict[str, list[int]]:
        """A row of two texts."""
        before, between, after = self.special
        ids = {"input_ids": before + one + between + other + after}
        if self.types is not None:
            before, between, after = self.types
            first, second = ([kind] * len(text) for kind, text in zip(self.text_types, (one, other)))
            ids["token_type_ids"] = before + first + between + second + after
        return ids
