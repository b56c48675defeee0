"""An ONNX Runtime as it may be after an update: slow, wrong, without end or crashing."""

from __future__ import annotations

from pathlib import Path

SPOILT = {
    "wrong answers on this device": "run(self, bound); [found] = bound.get_outputs(); "
    "found.update_inplace(found.numpy() + 9)",
    "crashed (SIGSEGV)": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "did not end within": "import time; time.sleep(600)",
    "onnxruntime failed while running the model": "return bytearray(1 << 50)",
    "too slow on this device": "import time; time.sleep(0.02); run(self, bound)",
}
"""What its call of a model does, by what `edgerun watch` then reports of a release that was valid before."""

OTHER = """import onnxruntime
run = onnxruntime.InferenceSession.run_with_iobinding
def other(self, bound):
    {body}
onnxruntime.InferenceSession.run_with_iobinding = other
"""
"""The runner calls models of one input and one output so."""


def spoil(folder: Path, reason: str) -> str:
    """The folder, which spoils ONNX Runtime in each Python that has it in PYTHONPATH."""
    (folder / "sitecustomize.py").write_text(OTHER.format(body=SPOILT[reason]))
    return str(folder)
