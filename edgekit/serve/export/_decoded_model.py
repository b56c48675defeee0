"""A bundle's model file with the graphs of `_box_graph` joined to it, checked against the boxes of the bundle.

Everything happens in a child process, because an interpreter may crash on a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.core import subprocesses
from edgekit.core.errors import ConversionError, EdgekitError
from edgekit.runner import boxes, telemetry
from edgekit.runner import bundle as bundles
from edgekit.runner.backends import byte_inputs, installed_interpreters
from edgekit.runner.backends.base import match_tensors
from edgekit.runner.backends.openvino import compile_model
from edgekit.runner.box_heads import MIN_PROBABILITY, sigmoid32
from edgekit.runner.bundle import Bundle
from edgekit.runner.bundle.manifest import Manifest
from edgekit.runner.model import Model, open_model
from edgekit.serve.export import _box_graph
from edgekit.serve.export._subjects import ExportedBundle

FILES = {"onnx": ("model.onnx",), "openvino": ("model.xml", "model.bin")}
LIMIT_S = 600.0
MAX_PIXELS, MAX_SCORE = 0.5, 1e-3
"""How far a side of a box (in pixels) and a probability may differ from those of the bundle."""
METADATA_KEY = byte_inputs.METADATA_KEY
"""The beginning of the metadata keys that describe the input and the outputs of the bundle's own file."""
CHECKED_POINTS = 100
"""The number of boxes, those with the highest probability, that are compared for each golden sample."""
Run = Callable[[np.ndarray], list[np.ndarray]]


class DecodedModel(NamedTuple):
    """The joined model by file names, its output's shape, and the largest differences on the golden samples."""

    files: dict[str, bytes]
    shape: tuple[int, ...]
    interpreter: str
    pixels: float
    score: float


def build(subject: ExportedBundle) -> DecodedModel:
    """Join a detector's file with its preprocess steps and its decoding, and check it with the golden samples.

    Raises
    ------
    ConversionError
        The graphs cannot be joined, the interpreter cannot run the result, or it gives other boxes than the bundle.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-export-") as home:
        folder = Path(home)
        (folder / "subject.edge.zip").write_bytes(subject.data)
        try:
            facts = subprocesses.call(f"{__name__}:build_in_child", {"home": home}, folder, LIMIT_S)
        except EdgekitError as error:
            raise ConversionError(f"{subject.path}: {error}") from None
        except subprocesses.ChildDied as died:
            what = f"no answer within {LIMIT_S:.0f} s" if died.ended.timed_out else died.ended.describe("its process")
            raise ConversionError(f"{subject.path}: the file with its decoding cannot be made: {what}") from None
        files = {name: (folder / name).read_bytes() for name in FILES[subject.manifest.target]}
    decoded = DecodedModel(files, tuple(facts["shape"]), facts["interpreter"], facts["pixels"], facts["score"])
    if not (decoded.pixels <= MAX_PIXELS and decoded.score <= MAX_SCORE):
        raise ConversionError(
            f"{subject.path}: with its decoding, {decoded.interpreter} gives other boxes than the bundle: they differ "
            f"by up to {decoded.pixels:.3g} pixels and {decoded.score:.3g} in their probability; export the bundle of "
            "another target"
        )
    return decoded


def build_in_child(home: str) -> dict[str, Any]:
    """Write the joined files into the folder, in the child process, and return how they compare with the bundle."""
    telemetry.disable()
    folder = Path(home)
    bundle = bundles.read(folder / "subject.edge.zip")
    target = bundle.manifest.target
    model = open_model(bundle)
    try:
        (_join_onnx if target == "onnx" else _join_openvino)(bundle, folder)
        run, interpreter = _open(folder / FILES[target][0], target)
        comparisons = [_compare(model, raw, run) for raw in model.golden()[0]]
    except EdgekitError:
        raise
    except Exception as error:  # interpreters share no base class for their errors
        reason = " ".join(str(error).split())[:300]
        raise ConversionError(f"the file with its decoding cannot be made or run: {reason}") from None
    shapes, pixels, scores = zip(*comparisons, strict=True)
    return {"shape": shapes[0], "interpreter": interpreter, "pixels": max(pixels), "score": max(scores)}


def _graphs(bundle: Bundle) -> tuple[Any, Any]:
    """Return the graph in front of the model, and the one behind it."""
    manifest = bundle.manifest
    files = bundle.model_files().values()
    takes_bytes = any(byte_inputs.byte_encoder(data, manifest.inputs) is not None for data in files)
    return _box_graph.input_graph(manifest, takes_bytes), _box_graph.output_graph(manifest)


def _join_onnx(bundle: Bundle, folder: Path) -> None:
    import onnx

    (content,) = bundle.model_files().values()
    model = onnx.load_model_from_string(content)
    opset = max(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    if opset < _box_graph.OLDEST_OPSET:
        raise ConversionError(
            f"its file has opset {opset}, but the decoding needs {_box_graph.OLDEST_OPSET} or later; export the "
            "network again with a later opset"
        )
    first, last = _graphs(bundle)
    graph = model.graph
    weights = {each.name for each in graph.initializer}
    model_input = next(each for each in graph.input if each.name not in weights)
    positions = match_tensors([[{model_input.name}], [{each.name} for each in graph.output]], *_specs(bundle.manifest))
    joints = [(_box_graph.MODEL_INPUT, model_input.name)]
    for index, position in enumerate(positions.results):
        joints.append((graph.output[position].name, _box_graph.model_output(index)))
    links = [onnx.helper.make_node("Identity", [source], [result], name=f"{result}.joint") for source, result in joints]
    nodes = [*first.graph.node, links[0], *graph.node, *links[1:], *last.graph.node]
    for field, values in (
        (graph.node, nodes),
        (graph.initializer, [*graph.initializer, *first.graph.initializer, *last.graph.initializer]),
        (graph.input, [*first.graph.input, *(each for each in graph.input if each.name in weights)]),
        (graph.output, list(last.graph.output)),
        (graph.value_info, []),  # their shapes may have a named batch axis, but its length is fixed now
        (model.metadata_props, [each for each in model.metadata_props if not each.key.startswith(METADATA_KEY)]),
    ):
        copies = [type(each).FromString(each.SerializeToString()) for each in values]
        del field[:]
        field.extend(copies)
    model.ir_version = max(model.ir_version, _box_graph.IR_VERSION)
    onnx.checker.check_model(model)
    (folder / FILES["onnx"][0]).write_bytes(model.SerializeToString(deterministic=True))


def _join_openvino(bundle: Bundle, folder: Path) -> None:
    import openvino

    core, files = openvino.Core(), bundle.model_files()
    (graph,), (weights,) = ([data for name, data in files.items() if name.endswith(end)] for end in (".xml", ".bin"))
    model = core.read_model(graph, weights)
    first, last = (core.read_model(each.SerializeToString(), b"") for each in _graphs(bundle))
    names = [[port.get_names() for port in ports] for ports in (model.inputs, model.outputs)]
    positions = match_tensors(names, *_specs(bundle.manifest))
    _replace(model.inputs[positions.sources[0]], first.get_results()[0].input_value(0))
    by_name = {port.get_any_name(): port for port in last.inputs}
    for index, position in enumerate(positions.results):
        _replace(by_name[_box_graph.model_output(index)], model.get_results()[position].input_value(0))
    joined = openvino.Model(last.get_results(), first.get_parameters(), bundle.manifest.name)
    joined.validate_nodes_and_infer_types()
    openvino.save_model(joined, folder / FILES["openvino"][0], compress_to_fp16=False)


def _replace(port: Any, source: Any) -> None:
    """Let everything that reads `port` read `source` instead."""
    for each in port.get_target_inputs():
        each.replace_source_output(source)


def _specs(manifest: Manifest) -> tuple[Any, Any]:
    return manifest.inputs, manifest.outputs


def _open(path: Path, target: str) -> tuple[Run, str]:
    """Open the joined file as other programs do, and return how to run it and the name of the interpreter."""
    name = installed_interpreters(target)[0]
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        version = onnxruntime.__version__
        return lambda x: session.run(None, {session.get_inputs()[0].name: x}), f"ONNX Runtime {version}"
    import openvino

    compiled = compile_model(openvino.Core(), path, threads=1)
    version = openvino.__version__.partition("-")[0]
    return lambda x: list(compiled([x]).values()), f"OpenVINO {version}"


def _compare(model: Model, raw: np.ndarray, run: Run) -> tuple[list[int], float, float]:
    """Return the shape of the output, and the largest differences in pixels and in probability from the bundle."""
    picture = raw.astype(np.float32) / np.float32(255)
    picture = np.repeat(picture, 3, axis=2) if picture.shape[2] == 1 else picture
    outputs = run(np.ascontiguousarray(picture.transpose(2, 0, 1)[None]))
    (decoded,) = outputs
    expected = model.execute(model.prepare(raw))
    rows = decoded[0].T[: len(expected)]
    decoder = boxes.Decoder(model.manifest.raw.shape[:2], len(expected))
    sides = np.clip(expected[:, :4] * decoder.reaches + decoder.places, 0, decoder.limits)
    centres, spans = (sides[:, :2] + sides[:, 2:]) / 2, np.maximum(sides[:, 2:] - sides[:, :2], 0)
    scores, decoded_scores = (
        np.maximum(each, np.float32(MIN_PROBABILITY)) for each in (sigmoid32(expected[:, 4:]), rows[:, 4:])
    )
    best = np.argsort(-scores.max(axis=1), kind="stable")[:CHECKED_POINTS]
    pixels = np.abs(rows[:, :2] - centres) + np.abs(rows[:, 2:4] - spans) / 2
    return list(decoded.shape), float(pixels[best].max()), float(np.abs(decoded_scores - scores).max())
