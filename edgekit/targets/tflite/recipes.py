"""What ai-edge-quantizer is to do with each operator, for precisions that no recipe of its own makes.

`int4` stores the weights of convolutions and dense layers in 4 bits; all else is int8. `int16x8` has int8 weights under
int16 activations. `int4_dense` is the `dynamic` of other layers, with dense layers and embeddings in 4 bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

IN_4_BITS = {"int4": ("CONV_2D", "FULLY_CONNECTED"), "int4_dense": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP")}
"""Operators of which LiteRT has kernels with 4-bit weights; of depthwise and transposed convolutions it has none."""
UNCALIBRATED = ("w8", "dynamic", "int4_dense")
CALIBRATED = ("int8", "int16x8", "int4")
LONGEST_SCOPE = 10_000  # what ai-edge-quantizer looks at of an operator's name


def calibrated(precision: str, in_float: Sequence[str]) -> Any:
    """For all operators but those whose output tensors are named.

    4-bit weights are clipped where that costs least (OCTAV: Sakr et al. 2022, "Optimal Clipping and Magnitude-aware
    Differentiation for Improved Quantization-aware Training"); for int8 ones the whole range serves as well.
    """
    from ai_edge_quantizer import algorithm_manager, qtyping, recipe, recipe_manager

    made = recipe_manager.RecipeManager()
    made.load_quantization_recipe(recipe.static_wi8_ai16() if precision == "int16x8" else recipe.static_wi8_ai8())
    for kind in IN_4_BITS.get(precision, ()):
        made.add_static_config(
            ".*",
            qtyping.TFLOperationName[kind],
            activation_num_bits=8,
            weight_num_bits=4,
            algorithm_key=algorithm_manager.AlgorithmName.OCTAV,
        )
    for name in in_float:
        made.add_quantization_config(
            f"^{re.escape(f'{name};'[:LONGEST_SCOPE])}$",
            qtyping.TFLOperationName.ALL_SUPPORTED,
            algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE,
        )
    return made.get_quantization_recipe()


def uncalibrated(precision: str) -> Any:
    """For all operators; under `dynamic` and `int4_dense` activations are quantized by the range of each call."""
    from ai_edge_quantizer import qtyping, recipe, recipe_manager

    if precision == "w8":
        return recipe.weight_only_wi8_afp32()
    made = recipe_manager.RecipeManager()
    made.load_quantization_recipe(recipe.dynamic_wi8_afp32())
    for kind in IN_4_BITS.get(precision, ()):
        made.add_dynamic_config(".*", qtyping.TFLOperationName[kind], num_bits=4)
    return made.get_quantization_recipe()
