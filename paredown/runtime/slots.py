"""Slots: tokens in another order, where rows of about one length are padded to it, to be computed together.

A call of a product takes as long as some thousand scores of a short row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Run = tuple[int, int, int]  # first token, rows and length of neighbouring rows of one length
TOGETHER = 8  # rows at most: few numbers occur, for each of which oneDNN makes a kernel
GRID = 4  # what lengths are rounded up to, for the same reason
CALL = 3000  # scores, of every attention head, that take as long as a call more
HIDDEN = -1e30  # is added to the scores of padding


@dataclass(frozen=True, eq=False)
class Slots:
    token: Tensor  # [slots] which token each holds; padding holds a row's last one, so that rows do not know each other
    slot: Tensor  # [tokens] where each token is
    runs: list[tuple[Run, Tensor | None]]  # and what hides their padding, [rows, 1, 1, length]


def slots_of(lengths: Tensor, calls: int) -> Slots | None:
    """For rows of these lengths; None where that is not less than so many calls."""
    known = lengths.tolist()
    order = sorted((row for row, length in enumerate(known) if length), key=known.__getitem__)
    groups = [group for at in range(0, len(order), TOGETHER) for group in _alike(order[at : at + TOGETHER], known)]
    if len(groups) >= calls:
        return None
    sizes = [(len(group), _size(group, known)) for group in groups]
    rows = torch.tensor(order)
    width = torch.tensor([size for number, size in sizes for _ in range(number)])
    end, long = width.cumsum(0), lengths[rows]
    owner = torch.arange(len(rows)).repeat_interleave(width)
    within = torch.arange(len(owner)) - (end - width)[owner]
    real = within < long[owner]
    token = (lengths.cumsum(0) - lengths)[rows][owner] + torch.minimum(within, long[owner] - 1)
    slot = torch.empty(int(lengths.sum()), dtype=torch.long)
    slot[token[real]] = real.nonzero().squeeze(1)
    return Slots(token, slot, list(_runs(sizes, torch.zeros(len(real)).masked_fill_(~real, HIDDEN))))


def _alike(rows: Sequence[int], lengths: Sequence[int]) -> Iterator[Sequence[int]]:
    """Rows, the shortest first, in as many groups as are worth a call each."""
    middle = len(rows) // 2
    parts = rows[:middle], rows[middle:]
    if middle and _scores(rows, lengths) > sum(_scores(part, lengths) for part in parts) + CALL:
        for part in parts:
            yield from _alike(part, lengths)
    else:
        yield rows


def _scores(rows: Sequence[int], lengths: Sequence[int]) -> int:
    return len(rows) * _size(rows, lengths) ** 2


def _size(rows: Sequence[int], lengths: Sequence[int]) -> int:
    shortest, longest = lengths[rows[0]], lengths[rows[-1]]
    return longest if shortest == longest else -(-longest // GRID) * GRID


def _runs(sizes: Sequence[tuple[int, int]], hidden: Tensor) -> Iterator[tuple[Run, Tensor | None]]:
    start = 0
    for rows, length in sizes:
        added = hidden[start : start + rows * length]
        yield (start, rows, length), added.view(rows, 1, 1, length) if bool(added.any()) else None
        start += rows * length
