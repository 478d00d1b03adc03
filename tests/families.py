"""Tiny random models of every encoder family that transformers knows, and whether each can be walked.

A family counts when transformers can both classify sequences and fill masks with it: that is what an encoder does.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from paredown import AdaptiveModel
from paredown.encoders.walk import Walk
from paredown.errors import CannotWalk
from paredown.plan import Plan
from paredown.registry import answers
from tests.placement import copied

EXACT = "exact"
EVERY_TOKEN = "exact while every token stays"  # tokens cannot be dropped on the way
LARGEST = 3_000_000  # parameters; a family that cannot be made this small is left out
COMMITTED = Path(__file__).parent.parent / "docs" / "families.json"

SMALL: dict[str, Any] = {  # whichever of these a family's config has
    **dict.fromkeys(("hidden_size", "d_model", "dim", "emb_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "num_layers", "encoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_heads", "encoder_attention_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "encoder_ffn_dim"), 37),
    **dict.fromkeys(("initializer_range", "init_std"), 0.1),  # large enough for attention to matter
    **dict.fromkeys(("sliding_window", "local_attention"), 8),  # shorter than the texts, so that it matters
    **{"vocab_size": 99, "head_dim": 8, "max_position_embeddings": 128, "num_labels": 3},
    **{"bos_token_id": 0, "cls_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "sep_token_id": 2},
}
DECODER = {"decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 37, "max_position_embeddings": 64}
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}  # as published
OWN: dict[str, dict[str, Any]] = {  # what a family needs beyond that; None: must not be set
    "bart": DECODER,
    "mbart": DECODER,
    "mvp": DECODER,
    "deberta": DEBERTA,
    "deberta-v2": DEBERTA | {"position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    "esm": {"position_embedding_type": "rotary", "token_dropout": True, "mask_token_id": 4},
    "funnel": {"num_hidden_layers": None, "block_sizes": [2, 2], "d_head": 8, "n_head": 4, "d_inner": 37},
    "longformer": {"attention_window": 8},
    "luke": {"entity_vocab_size": 9, "entity_emb_size": 8},
    "mobilebert": {"true_hidden_size": 32, "intra_bottleneck_size": 32},
    "perceiver": {"num_latents": 8, "d_latents": 32, "num_self_attends_per_block": 4, "num_cross_attention_heads": 4},
    "reformer": {"axial_pos_embds": False, "is_decoder": False, "attn_layers": ["local"] * 4, "feed_forward_size": 37},
    "roc_bert": {"pronunciation_vocab_size": 9, "shape_vocab_size": 9}
    | {"pronunciation_embed_dim": 8, "shape_embed_dim": 8},
    "squeezebert": {f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention", "intermediate", "output")},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}


def families() -> list[str]:
    return sorted(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.keys() & MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys())


def tiny_config(family: str, **changes: Any) -> PreTrainedConfig:
    """A config some thousand times smaller than the family's own."""
    cls = CONFIG_MAPPING[family]
    known = cls()
    small = {name: value for name, value in SMALL.items() if hasattr(known, name)}
    wanted = {**small, **OWN.get(family, {}), **changes}
    return cls(**{name: value for name, value in wanted.items() if value is not None})


def tiny(family: str, auto: Any = AutoModelForSequenceClassification, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random model in eval mode; the same seed gives the same weights."""
    attention = {name: changes.pop(name) for name in ("attn_implementation",) if name in changes}
    torch.manual_seed(seed)
    return auto.from_config(tiny_config(family, **changes), **attention).eval()


def check_size(family: str) -> None:
    """Before it is made: some families cannot be made small, and fill the memory."""
    with torch.device("meta"):
        parameters = AutoModelForSequenceClassification.from_config(tiny_config(family)).num_parameters()
    if parameters > LARGEST:
        raise ValueError(f"its smallest model has {parameters:,} parameters")


def verdict(family: str) -> str:
    """How well the family is walked, or why it is refused."""
    try:
        check_size(family)
        model = tiny(family)
    except Exception as error:  # a config that cannot be shrunk fails in as many ways as there are families
        return f"no tiny model: {error}"
    try:
        return EXACT if Walk(model).drops_tokens else EVERY_TOKEN
    except CannotWalk as error:
        return str(error).removeprefix(f"{family}: ")


def survey() -> dict[str, str]:
    return {family: verdict(family) for family in families()}


def committed() -> dict[str, Any]:
    return json.loads(COMMITTED.read_text())


def walked(*verdicts: str) -> list[str]:
    """The families that the committed survey says can be walked; the tests are parametrised over them."""
    return [
        family for family, verdict in committed()["families"].items() if verdict in (verdicts or (EXACT, EVERY_TOKEN))
    ]


def adaptive(
    family: str,
    kind: str = "single_label",
    head: Any = "pooler",
    tokenizer: Any = None,
    plan: Plan | str | None = None,
    seed: int = 0,
    **changes: Any,
) -> AdaptiveModel:
    """A tiny model with heads and an error probability, random but varied: rows leave at different layers."""
    made, chance = _adopted(family, kind, head, seed, **{"num_labels": outputs(kind), **changes})
    torch.set_rng_state(chance)
    model = copied(made)
    model.tokenizer, model.plan = tokenizer, Plan.of(plan)
    return model


@lru_cache(64)  # adopting an encoder takes five times as long as copying the model
def _adopted(family: str, kind: str, head: Any, seed: int, **changes: Any) -> tuple[AdaptiveModel, torch.Tensor]:
    """A model to be copied, and the state that chance was left in."""
    of_kind = answers.make(kind)
    model = AdaptiveModel(tiny(family, getattr(transformers, of_kind.auto_class), seed, **changes), None, of_kind)
    if head is not None:
        model.grow_heads(head)
        model.grow_error_probability()
        assert model.error_probability is not None
        with torch.no_grad():
            for index, module in enumerate((*model.heads.values(), model.error_probability)):
                for parameter in module.parameters():
                    # Heads half alike agree now and then, so that rules which wait for agreement can leave too.
                    alike, own = (torch.Generator().manual_seed(seed + part) for part in (0, 1 + index))
                    noise = torch.randn(parameter.shape, generator=alike) + torch.randn(parameter.shape, generator=own)
                    parameter.copy_(1.5 * noise * parameter.shape[-1] ** -0.5)
    return model.eval(), torch.get_rng_state()


def outputs(kind: str) -> int:
    """How many logits an answer of this kind has; three where the data would decide."""
    return {"regression": 1, "span": 2}.get(kind, len(answers.make(kind).outputs) or 3)


def batch(vocabulary: int, lengths: list[int], width: int | None = None, seed: int = 0) -> dict[str, torch.Tensor]:
    """Rows of random tokens of these lengths, padded on the right with token 1."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, min(vocabulary, 99), (len(lengths), width or max(lengths)), generator=generator)
    mask = torch.arange(ids.shape[1]) < torch.tensor(lengths).unsqueeze(1)
    return {"input_ids": ids.masked_fill(~mask, 1), "attention_mask": mask.long()}


def version() -> str:
    return transformers.__version__
