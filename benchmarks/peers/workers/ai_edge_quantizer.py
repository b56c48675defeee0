"""Runs in ai-edge-quantizer's environment: each stock recipe of int8, its calibration as it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer import quantizer, recipe

from benchmarks.peers import given
from benchmarks.peers.given import Given

RECIPES = ("static_wi8_ai8", "dynamic_wi8_afp32", "weight_only_wi8_afp32")


def work(to: Given) -> list[dict[str, Any]]:
    """One file for each recipe."""

    def quantized(path: Path, name: str) -> None:
        maker = quantizer.Quantizer(str(to.tflite))
        maker.load_quantization_recipe(getattr(recipe, name)())
        found = maker.calibrate(samples(to)) if maker.need_calibration else None
        path.write_bytes(maker.quantize(found).quantized_model)

    return [
        given.made(
            to, f"ai_edge_quantizer-{name}.tflite", f"recipe.{name}", lambda path, name=name: quantized(path, name)
        )
        for name in RECIPES
    ]


def samples(to: Given) -> dict[str, list[dict[str, Any]]]:
    """Calibration samples by signature and argument."""
    interpreter = Interpreter(model_path=str(to.tflite))
    [(signature, ends)] = interpreter.get_signature_list().items()
    [argument] = ends["inputs"]
    x = to.samples_for(interpreter.get_input_details()[0]["shape"][1:].tolist())
    return {signature: [{argument: x[place : place + 1]} for place in range(len(x))]}


if __name__ == "__main__":
    given.answer(work)
