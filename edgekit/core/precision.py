"""Resolve `training.precision: auto` for this machine.

This is done before the cache key is computed, because the precision affects the result of a training.
"""

from __future__ import annotations

from edgekit.core.config import TrainingOptions
from edgekit.runner import cpu

BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16")
"""Instruction sets that can multiply and add bfloat16. Without one of them, bfloat16 is slower than float32."""


def resolve_precision(options: TrainingOptions, device: str) -> TrainingOptions:
    """Return the options with `auto` replaced, depending on the processor's instruction sets or on the GPU.

    `device` is the resolved device, not `auto`.
    """
    if options.precision != "auto":
        return options
    return options.model_copy(update={"precision": "bfloat16" if _has_bfloat16(device) else "float32"})


def _has_bfloat16(device: str) -> bool:
    if device == "cuda":
        import torch

        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and not set(BFLOAT16_INSTRUCTIONS).isdisjoint(cpu.instruction_sets())
