"""What ai-edge-quantizer is to do with each operator, for each precision with calibrated activations.

`int4` stores the weights of convolutions and dense layers in 4 bits, `int4_dense` those of dense layers alone; all else
is int8. `int16x8` has int8 weights under int16 activations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

IN_4_BITS = {"int4": ("CONV_2D", "FULLY_CONNECTED"), "int4_dense": ("FULLY_CONNECTED",)}
"""Operators of which LiteRT has kernels with 4-bit weights; of depthwise and transposed convolutions it has none."""
CALIBRATED = ("int8", "int16x8", *IN_4_BITS)
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
