"""Files of the wheels that an image leaves out. tests/deploy/test_root.py runs the rest on bundles of every target."""

from __future__ import annotations

EVERYWHERE = (
    "bin",  # commands such as benchmark_app and f2py
    *(f"**/*.{suffix}" for suffix in ("pyi", "pxd", "pyx", "c", "h", "hpp", "a", "cmake", "pc")),  # for compilers
    "**/tests",
    "**/__pycache__",
)
"""Patterns for all packages, applied after those in `OF`."""

OF = {
    "numpy": ("numpy/f2py", "numpy/_core/include", "numpy/_core/lib", "numpy/_pyinstaller"),
    "ai-edge-litert": (
        "ai_edge_litert/aot",  # compilers for neural processors, and writers of model files
        "ai_edge_litert/tools",
        "ai_edge_litert/vendors",
        "ai_edge_litert/_pywrap_litert_converter.so",
        "ai_edge_litert/libLiteRt.so",  # for the CompiledModel interface; the runner uses Interpreter
        "ai_edge_litert/libLiteRtWebGpuAccelerator.so",
        "ai_edge_litert/schema_py_generated.py",
    ),
    "openvino": (
        "openvino/cmake",
        "openvino/include",
        "openvino/tools",
        "openvino/torch",
        "openvino/libs/cache.json",  # tuned kernels for Intel GPUs
        "openvino/libs/libopenvino_intel_[gn]pu_plugin.so",  # the image has no drivers for these devices
        # Readers of formats that the runner does not open. Those for OpenVINO IR and ONNX stay.
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
        "onnxruntime/capi/libonnxruntime.so*",  # for C programs; the Python module contains its own copy
    ),
}
"""Patterns for each part, by the name of its file in `deploy/requirements`."""
