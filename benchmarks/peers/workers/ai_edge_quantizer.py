"""Runs in ai-edge-quantizer's environment: every stock recipe for int8, with its default calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe

from benchmarks.peers import worker_protocol
from benchmarks.peers.worker_protocol import WorkerJob

RECIPES = ("static_wi8_ai8", "dynamic_wi8_afp32", "weight_only_wi8_afp32")


def work(job: WorkerJob) -> list[dict[str, Any]]:
    """Make one file for each recipe."""

    def quantized(path: Path, name: str) -> None:
        maker = quantizer.Quantizer(str(job.tflite))
        maker.load_quantization_recipe(getattr(recipe, name)())
        calibration = maker.calibrate(samples(job)) if maker.need_calibration else None
        path.write_bytes(maker.quantize(calibration).quantized_model)

    return [
        worker_protocol.make_file(
            job, f"ai_edge_quantizer-{name}.tflite", f"recipe.{name}", lambda path, name=name: quantized(path, name)
        )
        for name in RECIPES
    ]


def samples(job: WorkerJob) -> dict[str, list[dict[str, Any]]]:
    """Return the calibration samples by signature and argument."""
    interpreter = Interpreter(model_path=str(job.tflite))
    [(signature, tensors)] = interpreter.get_signature_list().items()
    [argument] = tensors["inputs"]
    x = job.samples_for(interpreter.get_input_details()[0]["shape"][1:].tolist())
    return {signature: [{argument: x[position : position + 1]} for position in range(len(x))]}


if __name__ == "__main__":
    worker_protocol.run_worker(work)
