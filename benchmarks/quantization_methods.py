"""What methods of the quantizers win beside the plain files: equalisation, clipping, corrections of biases and errors.

    python -m benchmarks.quantization_methods CONFIG MODEL OUT [--only FILE,…]    # MODEL: a folder with model.json

NNCF and ai-edge-quantizer make each file. It answers the validation split, and is held against the first of its group,
which is edgekit's own. A difference is that of pairs in points, with the interval of Tango 1998 at 95 %. SNR is that
of the answers against the float network's. `methods.md` in OUT holds the table. Cross-layer equalisation needs brevitas
beside the workbook. A method that fails has its reason in its row, the others go on, and then the exit code is 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ablation.results import difference
from edgekit import data
from edgekit.core import tasks
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.models import store
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets import evaluate
from edgekit.targets.fold_batchnorm import fold_batchnorms
from edgekit.targets.jobs import Files, input_layout, output_layout
from edgekit.targets.openvino.convert import FILES as OPENVINO
from edgekit.targets.openvino.convert import convert as to_openvino
from edgekit.targets.tflite.convert import FILE as TFLITE
from edgekit.targets.tflite.convert import float_model
from edgekit.targets.tflite.recipes import IN_4_BITS
from edgekit.workbook.plan import load_plan, make_importable

CALIBRATION = 200
HEAD = "| file | method | accuracy | beside the first, pp | SNR, dB |\n|---|---|---:|---:|---:|"

DENSE = "FULLY_CONNECTED"

Make = Callable[["Subject", Path], Files]


@dataclass(frozen=True)
class Subject:
    """A network and its calibration samples, (n, C, H, W) or (n, F) float32."""

    model: Path
    calibration: np.ndarray

    def samples(self) -> Any:
        """One by one, for NNCF."""
        import nncf

        return nncf.Dataset([self.calibration[place : place + 1] for place in range(len(self.calibration))])


def openvino_int8(
    *, fast: bool = True, equalize: bool = False, smooth: dict[str, float] | None = None, **advanced: Any
) -> Make:
    """NNCF's 8 bits from the samples' extremes, with its advanced parameters.

    `fast` picks the bias correction, `equalize` comes before NNCF, and `smooth` has SmoothQuant's strengths. NNCF
    computes that for `ModelType.TRANSFORMER` alone, whatever the network is.
    """

    def make(subject: Subject, out: Path) -> Files:
        import nncf
        from nncf.quantization.range_estimator import RangeEstimatorParametersSet

        given = {"disable_bias_correction": True, **advanced}
        if smooth:
            given["smooth_quant_alphas"] = nncf.AdvancedSmoothQuantParameters(**smooth)
        parameters = nncf.AdvancedQuantizationParameters(
            activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX, **given
        )

        def change(model: Any) -> Any:
            return nncf.quantize(
                equalized(subject) if equalize else model,
                subject.samples(),
                preset=nncf.QuantizationPreset.MIXED,
                subset_size=len(subject.calibration),
                model_type=nncf.ModelType.TRANSFORMER if smooth else None,
                fast_bias_correction=fast,
                advanced_parameters=parameters,
            )

        return _openvino(subject, out, change)

    return make


def equalized(subject: Subject) -> Any:
    """The network after cross-layer equalisation by brevitas (Nagel et al. 2019), as OpenVINO's model."""
    import openvino
    import torch
    from brevitas.fx import symbolic_trace  # type: ignore[import-not-found, unused-ignore]
    from brevitas.graph.equalize import EqualizeGraph  # type: ignore[import-not-found, unused-ignore]

    module, _ = store.load(subject.model)
    changed, regions = EqualizeGraph(iterations=20, return_regions=True).apply(symbolic_trace(fold_batchnorms(module)))
    print(f"brevitas equalised {len(regions)} regions", flush=True)
    example = torch.from_numpy(subject.calibration[:1])
    return openvino.convert_model(changed, example_input=example, input=list(example.shape))


def openvino_dense(**methods: bool) -> Make:
    """Dense layers in 4 bits by NNCF, one scale a channel."""

    def make(subject: Subject, out: Path) -> Files:
        import nncf

        dataset = {"dataset": subject.samples(), "subset_size": len(subject.calibration)} if methods else {}
        mode = nncf.CompressWeightsMode.INT4_SYM
        return _openvino(
            subject,
            out,
            lambda model: nncf.compress_weights(model, mode=mode, group_size=-1, all_layers=True, **dataset, **methods),
        )

    return make


def _openvino(subject: Subject, out: Path, change: Callable[[Any], Any]) -> Files:
    import openvino

    files = to_openvino(subject.model, "fp32", None, out)
    model = openvino.Core().read_model(str(out / OPENVINO[0])).clone()
    openvino.save_model(change(model), str(out / "changed.xml"), compress_to_fp16=False)
    for name in OPENVINO:
        (out / f"changed{Path(name).suffix}").replace(out / name)
    return files


def tflite_int4(algorithm: str) -> Make:
    """Convolutions and dense layers in 4 bits by that algorithm, all else int8 from the samples' extremes."""

    def make(subject: Subject, out: Path) -> Files:
        from ai_edge_quantizer import calibrator, qtyping, recipe, recipe_manager
        from ai_edge_quantizer.utils import qsv_utils

        made = recipe_manager.RecipeManager()
        made.load_quantization_recipe(recipe.static_wi8_ai8())
        for kind in IN_4_BITS["int4"]:
            name = qtyping.TFLOperationName[kind]
            made.add_static_config(".*", name, activation_num_bits=8, weight_num_bits=4, algorithm_key=algorithm)
        content, _ = float_model(subject.model)
        ranges = calibrator.Calibrator(content, num_threads=1, qsv_update_func=qsv_utils.min_max_update)
        ranges.calibrate(_given(subject, content), made)
        return _tflite(subject, _maker(content, made).quantize(ranges.get_model_qsvs()), out)

    return make


def tflite_dense(algorithm: str) -> Make:
    """Dense layers in 4 bits by that algorithm, embeddings plainly, all else int8 under the range of each call."""

    def make(subject: Subject, out: Path) -> Files:
        from ai_edge_quantizer import qtyping, recipe, recipe_manager

        made = recipe_manager.RecipeManager()
        made.load_quantization_recipe(recipe.dynamic_wi8_afp32())
        for kind in IN_4_BITS["int4_dense"]:
            name = qtyping.TFLOperationName[kind]
            made.add_dynamic_config(".*", name, num_bits=4, **({"algorithm_key": algorithm} if kind == DENSE else {}))
        content, _ = float_model(subject.model)
        maker = _maker(content, made)
        found = maker.calibrate(_given(subject, content)) if maker.need_calibration else None
        return _tflite(subject, maker.quantize(found), out)

    return make


def _maker(content: bytes, recipes: Any) -> Any:
    from ai_edge_quantizer import quantizer

    maker = quantizer.Quantizer(content)
    maker.load_quantization_recipe(recipes.get_quantization_recipe())
    return maker


def _given(subject: Subject, content: bytes) -> dict[str, list[dict[str, np.ndarray]]]:
    """The calibration samples by the names of the file's signature."""
    from ai_edge_litert.interpreter import Interpreter

    [(signature, ends)] = Interpreter(model_content=content).get_signature_list().items()
    [name] = ends["inputs"]
    rows = subject.calibration
    rows = rows.transpose(0, 2, 3, 1) if rows.ndim == 4 else rows
    return {signature: [{name: rows[place : place + 1]} for place in range(len(rows))]}


def _tflite(subject: Subject, made: Any, out: Path) -> Files:
    from ai_edge_litert.interpreter import Interpreter

    content = bytes(made.quantized_model)
    (out / TFLITE).write_bytes(content)
    interpreter = Interpreter(model_content=content)
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()
    layout = input_layout(subject.calibration.shape[1:], "NHWC")
    return Files((TFLITE,), (_spec(source, layout),), (_spec(result, output_layout(tuple(result["shape"]))),), ())


def _spec(detail: Any, layout: str) -> TensorSpec:
    return TensorSpec(detail["name"], tuple(map(int, detail["shape"])), np.dtype(detail["dtype"]).name, layout)


def groups() -> dict[str, dict[str, Make]]:
    """Of each kind of file its methods, edgekit's own first."""
    from ai_edge_quantizer.algorithm_manager import AlgorithmName

    return {
        "int8-openvino": {
            "plain": openvino_int8(),
            "channel alignment": openvino_int8(disable_channel_alignment=False),
            "as a transformer": openvino_int8(smooth={"matmul": -1}),
            "SmoothQuant, dense layers": openvino_int8(smooth={"matmul": 0.5}),
            "SmoothQuant, convolutions": openvino_int8(smooth={"matmul": 0.5, "convolution": 0.5}),
            "cross-layer equalisation": openvino_int8(equalize=True),
            "fast bias correction": openvino_int8(disable_bias_correction=False),
            "bias correction": openvino_int8(disable_bias_correction=False, fast=False),
        },
        "int4_dense-openvino": {
            "plain": openvino_dense(),
            "AWQ": openvino_dense(awq=True),
            "scale estimation": openvino_dense(scale_estimation=True),
            "GPTQ": openvino_dense(gptq=True),
        },
        "int4-tflite": {
            "OCTAV": tflite_int4(AlgorithmName.OCTAV),
            "plain": tflite_int4(AlgorithmName.MIN_MAX_UNIFORM_QUANT),
            "MSE": tflite_int4(AlgorithmName.MSE),
        },
        "int4_dense-tflite": {
            "plain": tflite_dense(AlgorithmName.MIN_MAX_UNIFORM_QUANT),
            "OCTAV": tflite_dense(AlgorithmName.OCTAV),
            "MSE": tflite_dense(AlgorithmName.MSE),
            "GPTQ": tflite_dense(AlgorithmName.GPTQ),
            "OSCAR": tflite_dense(AlgorithmName.OSCAR),
        },
    }


def compare(config: Path, model: Path, out: Path, only: Sequence[str] = ()) -> tuple[str, int]:
    """The table of those kinds of file, or of all, and how many methods failed; each of these has its reason there."""
    known = groups()
    if unknown := set(only) - set(known):
        raise ConfigError(f"--only: got {', '.join(sorted(unknown))}; each must be one of {', '.join(known)}")
    plan = load_plan(config)
    make_importable(plan)
    preprocess = store.load(model)[1].preprocess
    found = data.load(plan.data)
    if found.task != "classification":
        raise ConfigError(f"task: got {found.task}; this pairs right and wrong answers of classes")
    inputs = evaluate.network_inputs(found.validation.x, preprocess)
    subject = Subject(model, evaluate.network_inputs(evaluate.spread(found.calibration, CALIBRATION), preprocess))
    exact = evaluate.torch_outputs(model, inputs)
    task = tasks.named(found.task)
    lines, failed = [HEAD], 0
    print(HEAD, flush=True)
    for name in only or known:
        first: np.ndarray | None = None
        for place, (method, make) in enumerate(known[name].items()):
            folder = out / name / method.replace(", ", "-").replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            try:
                files = make(subject, folder)
                outputs = evaluate.file_outputs(name, name.partition("-")[2], folder, files, inputs)
                right = np.asarray(task.score_samples(outputs, inputs, found.validation.y)).astype(bool)
                first = right if place == 0 else first
                cells: tuple[str, ...] = (f"{right.mean():.2%}", _beside(first, right), f"{_snr(exact, outputs):.1f}")
            except Exception as error:  # a quantizer's own refusal is what the row says
                cells, failed = (_why(error), "", ""), failed + 1
            lines.append(f"| {name} | {method} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    text = "\n".join(lines)
    (out / "methods.md").write_text(text + "\n")
    return text, failed


def _why(error: Exception) -> str:
    said = (str(error).splitlines() or [""])[0][:90].replace("|", "/")
    return f"{type(error).__name__}: {said}"


def _beside(first: np.ndarray | None, right: np.ndarray) -> str:
    if first is None or first is right:
        return ""
    found = difference(first, right)
    return f"{found.pp:+.2f} ({found.low_pp:+.2f} to {found.high_pp:+.2f})"


def _snr(exact: np.ndarray, outputs: np.ndarray) -> float:
    return float(10 * np.log10((exact**2).sum() / ((exact - outputs.reshape(exact.shape)) ** 2).sum()))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("config", "model", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--only", default="", metavar="FILE,…", help="kinds of file, such as int8-openvino")
    given = parser.parse_args(arguments)
    try:
        _, failed = compare(given.config, given.model, given.out, list(filter(None, given.only.split(","))))
    except (EdgekitError, OSError) as error:
        raise SystemExit(str(error)) from None
    if failed:
        raise SystemExit(f"{failed} of the methods failed; their rows say why")


if __name__ == "__main__":
    main()
