"""Dense layers with 4-bit weights for ONNX Runtime: its operator MatMulNBits, made by its own quantizer.

Weights are symmetric in blocks of 32 along the inputs, each with a scale in float32. Activations stay float32 outside;
inside, the kernel rounds them to int8 by blocks. ONNX Runtime has no kernel for convolutions with 4-bit weights: it
unpacks them to float at load.
"""

from __future__ import annotations

import logging
from typing import Any

from edgekit.core.errors import ConversionError

BLOCK = 32
COMPUTE_IN_INT8 = 4
"""`accuracy_level` of the operator."""
DENSE = ("Gemm", "MatMul")


def names(model: Any) -> list[str]:
    """Nodes of an onnx.ModelProto that are dense layers with constant weights; ConversionError if there are none."""
    constants = {one.name for one in model.graph.initializer}
    found = [node.name for node in model.graph.node if node.op_type in DENSE and node.input[1] in constants]
    if not found:
        raise ConversionError(
            "onnx int4_dense: the network has no dense layer, and no other weights can be 4 bits here; leave "
            "int4_dense out of convert.precisions"
        )
    return found


def store(content: bytes) -> bytes:
    """The model with the weights of its float dense layers in 4 bits."""
    import onnx
    from onnxruntime.quantization.onnx_model import ONNXModel

    model = ONNXModel(onnx.load_from_string(content))
    model.replace_gemm_with_matmul()
    maker = _quantizer()(model.model, bits=4, block_size=BLOCK, is_symmetric=True, accuracy_level=COMPUTE_IN_INT8)
    maker.process()
    made: bytes = maker.model.model.SerializeToString(deterministic=True)
    return made


def _quantizer() -> Any:
    """ONNX Runtime's. Its import would turn on the log of the whole process: two lines for each operator."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)  # `basicConfig` does nothing where there is one
    try:
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    finally:
        root.removeHandler(handler)
    return MatMulNBitsQuantizer
