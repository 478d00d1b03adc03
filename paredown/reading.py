"""How rows were read in training: what a bundle remembers, so that other rows are read in the same way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from paredown.errors import BadSetting


@dataclass(frozen=True)
class Reading:
    """None: nobody said."""

    max_length: int | None = None  # tokens of a row, or of a window of a long text; longer rows are cut
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    header: bool | None = None  # whether the first line of csv and tsv names the columns
    label_separator: str | None = None  # between the labels of a row

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 1:
            raise BadSetting(f"max_length must be at least 1, not {self.max_length}")

    def over(self, other: Reading) -> Reading:
        """What is said here, and of the rest what the other says. The columns of the texts belong together."""
        own = {name: value for name, value in asdict(self).items() if value is not None}
        rest = asdict(other)
        if self.text_column is not None or self.pair_column is not None:
            rest |= {"text_column": None, "pair_column": None}
        return Reading(**rest | own)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Any) -> Reading:
        types = {"max_length": int, "header": bool}
        known = {field.name: types.get(field.name, str) for field in fields(cls)}
        if not isinstance(data, dict) or any(type(value) is not known.get(name) for name, value in data.items()):
            raise BadSetting(f"how rows are read is an object of {', '.join(known)}, not {data!r:.80}")
        return cls(**data)
