"""How to train for adaptivity. One folder per method with its card; importing this package registers them all."""

from paredown.methods.alternating import Alternating
from paredown.methods.auto import Auto
from paredown.methods.elastic_pretrain import ElasticPretrain
from paredown.methods.finetune import Finetune
from paredown.methods.joint import Joint
from paredown.methods.module_replacing import ModuleReplacing
from paredown.methods.self_distill import SelfDistill
from paredown.methods.token_gate import TokenGate
from paredown.methods.token_policy import TokenPolicy
from paredown.methods.two_stage import TwoStage

__all__ = [
    "Alternating",
    "Auto",
    "ElasticPretrain",
    "Finetune",
    "Joint",
    "ModuleReplacing",
    "SelfDistill",
    "TokenGate",
    "TokenPolicy",
    "TwoStage",
]
