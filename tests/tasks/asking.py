"""Made questions, and two tokenizers that cut texts in different ways: word pieces with type ids, bytes without."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerFast

from paredown.answers import Kind, Question
from paredown.tasks import HotpotQA

ODD = [
    "naïve",
    "cafe\u0301",
    "東京",
    "🙂🙂",
    "ﬁne",
    "Straße",
    "x" * 120,
    "a\u200bb",
    "½",
    "İstanbul",
    "don't",
    "50,000",
]
SPACES = [" ", " ", " ", "  ", "\n", "\t", "\u00a0"]


def word_pieces() -> Any:
    letters = sorted(set(string.ascii_lowercase + string.digits + string.punctuation + "ßıñ東京🙂½—"))
    words = "what who the of and river bridge town built".split()
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]", "[unused3]"]
    pieces = [*marks, *words, *letters, *[f"##{letter}" for letter in letters]]
    return BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})


def raw_bytes() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: place for place, piece in enumerate(["<s>", "<pad>", "</s>", *alphabet])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        cls_token="<s>",
        sep_token="</s>",
        model_input_names=names,
    )


def made_questions(number: int, words: int, seed: int = 0) -> list[Question]:
    """Contexts of plain and odd words, every one with two answers that are whole words."""
    draw = random.Random(seed)
    found = []
    for place in range(number):
        context, edges = "", []
        for _ in range(draw.randint(words // 2, words)):
            plain = "".join(draw.choices(string.ascii_letters, k=draw.randint(1, 9)))
            word = draw.choice(ODD) if draw.random() < 0.15 else plain
            edges.append((len(context), len(context) + len(word)))
            context += word + draw.choice(SPACES)
        firsts = [draw.randrange(len(edges) - 3) for _ in range(2)]
        spans = tuple((edges[first][0], edges[first + draw.randint(0, 2)][1]) for first in firsts)
        answers = tuple(context[start:end] for start, end in spans)
        found.append(Question(f"q{place}", "  Who built the bridge of the town?", context, answers, spans))
    return found


def hotpot_records(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """HotpotQA's records. The question's first word tells the type; a sentence that begins with `the` is support, and
    the word that follows it in the first paragraph is the answer."""
    draw = random.Random(seed)
    found = []
    for place in range(number):
        answer = draw.choice(["river", "bridge", "town"])
        question, said = draw.choice([("what?", answer), ("what?", answer), ("who?", "yes"), ("of?", "no")])
        context, facts = [], []
        for title in ("x", "y"):
            sentences = [[draw.choice(["who", "and", "of"]) for _ in range(draw.randint(2, 5))] for _ in range(3)]
            chosen = draw.randrange(3)
            sentences[chosen][:0] = ["the", answer if title == "x" else "built"]
            facts.append([title, chosen])
            context.append([title, [" ".join(words) + "." for words in sentences]])
        asked = {"_id": f"h{seed}-{place}", "question": question, "answer": said}
        found.append({**asked, "supporting_facts": facts, "context": context})
    return found


def hotpot_questions(number: int, seed: int = 0) -> list[Question]:
    return [HotpotQA()._asked(record) for record in hotpot_records(number, seed)]


def decoded(kind: Kind, rows: Sequence[Any], logits: Sequence[Any], **settings: Any) -> list[Any]:
    """A prediction for every question that rows are windows of, from the logits of each."""
    kind = kind.but(**settings)
    groups = kind.by_unit(rows)
    return [kind.decode([rows[at] for at in group], [logits[at] for at in group], ()) for group in groups]
