"""Torch's attention, by the kernels that take every shape as it comes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# cuDNN makes a plan for every new shape, which takes longer than many layers, and shapes change all the time.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def without_plans(device: torch.device) -> AbstractContextManager[None]:
    """A context in which nothing on this device asks cuDNN for attention."""
    return sdpa_kernel(KERNELS) if device.type == "cuda" else nullcontext()
