"""What `training.precision: auto` is here: it changes the bits of a training, and so it is settled before the key."""

from __future__ import annotations

from edgekit.core.config import TrainingOptions
from edgekit.runner import cpu

BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16")
"""Instruction sets with multiply-adds of bfloat16: without one, bfloat16 is slower than float32."""


def resolve_precision(options: TrainingOptions, device: str) -> TrainingOptions:
    """The options with `auto` settled: by this processor's instruction sets, or by the GPU. `device` is no `auto`."""
    if options.precision != "auto":
        return options
    return options.model_copy(update={"precision": "bfloat16" if _is_there(device) else "float32"})


def _is_there(device: str) -> bool:
    if device == "cuda":
        import torch

        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and not set(BFLOAT16_INSTRUCTIONS).isdisjoint(cpu.instruction_sets())
