"""Made questions with candidates, in as many supports as wanted."""

from __future__ import annotations

import random

from paredown.tasks import Choices

WORDS = ["bridge", "town", "built", "xyz", "qq"]


def made_choices(number: int, supports: int = 3, seed: int = 0, candidates: int = 4) -> list[Choices]:
    """The right candidate is the one by the river; a support names it."""
    draw = random.Random(seed)
    found = []
    for place in range(number):
        options = draw.sample([f"{one} {other}" for one in WORDS for other in WORDS], draw.randint(2, candidates))
        label = draw.randrange(len(options))
        options[label] = f"river {draw.choice(WORDS)}"
        texts = [" ".join(draw.choices(["who", "and", "of", "what"], k=draw.randint(3, 9))) for _ in range(supports)]
        at = draw.randrange(supports)
        texts[at] += f" the {options[label]}"
        found.append(Choices(f"c{place}", "\n".join(texts), "what town", tuple(options), label))
    return found
