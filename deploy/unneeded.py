"""What an image leaves out of the wheels. tests/deploy/test_root.py starts what is left, on bundles of every target."""

from __future__ import annotations

EVERYWHERE = (
    "bin",  # commands that the wheels bring: benchmark_app, f2py
    *(f"**/*.{suffix}" for suffix in ("pyi", "pxd", "pyx", "c", "h", "hpp", "a", "cmake", "pc")),  # for compilers
    "**/tests",
    "**/__pycache__",
)
"""Patterns below the folder of packages; removed after those of a part."""

OF = {
    "numpy": ("numpy/f2py", "numpy/_core/include", "numpy/_core/lib", "numpy/_pyinstaller"),
    "ai-edge-litert": (
        "ai_edge_litert/aot",  # compilers for neural processors, and what writes models
        "ai_edge_litert/tools",
        "ai_edge_litert/vendors",
        "ai_edge_litert/_pywrap_litert_converter.so",
        "ai_edge_litert/libLiteRt.so",  # the other interface, CompiledModel; the runner opens an Interpreter
        "ai_edge_litert/libLiteRtWebGpuAccelerator.so",
        "ai_edge_litert/schema_py_generated.py",
    ),
    "openvino": (
        "openvino/cmake",
        "openvino/include",
        "openvino/tools",
        "openvino/torch",
        "openvino/libs/cache.json",  # tuned kernels of Intel's GPU
        "openvino/libs/libopenvino_intel_[gn]pu_plugin.so",  # their drivers are not in the image either
        # Readers of formats that the runner does not open; those of OpenVINO's own and of ONNX stay.
        *(f"openvino/libs/libopenvino_{name}_frontend.so*" for name in ("gguf", "jax", "paddle", "pytorch")),
        *(f"openvino/libs/libopenvino_{name}_frontend.so*" for name in ("tensorflow", "tensorflow_lite")),
        *(f"openvino/frontend/{name}" for name in ("jax", "paddle", "pytorch", "tensorflow")),
    ),
    "onnxruntime": (
        "onnxruntime/backend",
        "onnxruntime/datasets",
        "onnxruntime/quantization",
        "onnxruntime/tools",
        "onnxruntime/transformers",
        "onnxruntime/capi/libonnxruntime.so*",  # for programs in C; the module for Python has its own copy inside
    ),
}
"""By the name of a file in `deploy/requirements`."""
