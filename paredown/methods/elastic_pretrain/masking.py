"""Hidden words to guess: drawn anew at every step, single tokens or whole words, never a special token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paredown.errors import BadSetting
from paredown.methods._stage import Batch

MASKED, RANDOM = 0.8, 0.1  # of the chosen tokens: shown as the mask, as any word; the rest is left as it is
CONTINUES = "##"  # WordPiece marks what goes on,
BEGINS = ("Ġ", "▁")  # byte-level BPE and sentencepiece what begins


@dataclass(frozen=True)
class Masking:
    share: float  # of the tokens
    mask: int  # the mask token
    known: Tensor  # the tokens that may be hidden, or shown instead of another
    ordinary: Tensor  # [vocabulary] True for these
    begins: Tensor | None  # [vocabulary] True for tokens that begin a word; None: every token is drawn alone

    @classmethod
    def of(cls, tokenizer: Any, embeddings: Tensor, share: float, whole_words: bool) -> Masking:
        """For a tokenizer and the word embeddings it indexes, on their device."""
        if tokenizer is None or tokenizer.mask_token_id is None:
            raise BadSetting("to hide words a tokenizer with a mask token is needed; this model's has none")
        spelled = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        ordinary = torch.zeros(len(embeddings), dtype=torch.bool)  # it may have more rows than there are tokens
        ordinary[: len(spelled)] = True
        ordinary[tokenizer.all_special_ids] = False
        table = begins(spelled, ~ordinary).to(embeddings.device) if whole_words else None
        ordinary = ordinary.to(embeddings.device)
        return cls(share, tokenizer.mask_token_id, ordinary.nonzero().flatten(), ordinary, table)

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The token ids with some hidden, and which positions to guess, both [rows, tokens]."""
        ids = batch["input_ids"]
        allowed = self.ordinary.to(ids.device)[ids] & batch["attention_mask"].bool()
        luck = torch.rand(ids.shape, device=ids.device)
        if self.begins is not None:  # every token of a word has the luck of its first
            position = torch.arange(ids.shape[1], device=ids.device)
            first = position.where(self.begins.to(ids.device)[ids], 0).cummax(1).values
            luck = luck.gather(1, first)
        least = luck.masked_fill(~allowed, 1.0).amin(1, keepdim=True)
        chosen = allowed & (luck <= least.clamp(min=self.share))  # at least one in every row
        instead = self.known.to(ids.device)[torch.randint(len(self.known), ids.shape, device=ids.device)]
        fate = torch.rand(ids.shape, device=ids.device)
        shown = ids.where(fate >= MASKED + RANDOM, instead)
        shown = shown.masked_fill(fate < MASKED, self.mask)
        return shown.where(chosen, ids), chosen


def begins(spelled: list[str], special: Tensor) -> Tensor:
    """Which tokens begin a word, by the mark that the tokenizer's kind uses; special tokens stand alone."""
    found = special.clone()
    for mark, value in ((CONTINUES, False), *((mark, True) for mark in BEGINS)):
        marked = torch.tensor([token.startswith(mark) and len(token) > len(mark) for token in spelled])
        if bool(marked.any()):
            found[: len(spelled)] |= marked == value
            return found
    raise BadSetting(f"whole words need a tokenizer that marks them by {CONTINUES}, {' or '.join(BEGINS)}")
