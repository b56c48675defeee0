"""The contract of an interpreter, held against every interpreter of `edgekit/runner/backends/`."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import backends
from edgekit.runner.backends import INTERPRETERS
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.bundle.manifest_rules import TARGETS
from edgekit.runner.errors import BackendError, InputError

from .conftest import LABELS, NHWC, SCORES, ModelFiles, onnx_model, reference, samples

INSTALLED = [
    pytest.param(name, marks=pytest.mark.needs(package=each.package, required_in_ci=name != "tflite_runtime"))
    for name, each in INTERPRETERS.items()
]


def prepared(model: ModelFiles, raw: np.ndarray) -> np.ndarray:
    x = (raw / 255.0).astype(np.float32)[None]
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if model.input.layout == "NCHW" else x


def opened(name: str, models: dict[str, ModelFiles], threads: int = 1) -> tuple[Any, ModelFiles]:
    model = models[INTERPRETERS[name].targets[0]]
    return backends.open_backend(
        model.target, model.files, (model.input,), (model.output,), threads, interpreter=name
    ), model


def test_every_target_has_an_interpreter_and_none_is_foreign() -> None:
    assert {target for each in INTERPRETERS.values() for target in each.targets} == set(TARGETS)


@pytest.mark.parametrize("name", INTERPRETERS)
def test_it_says_what_it_is_without_importing_the_interpreter(name: str) -> None:
    code = (
        "import sys\n"
        f"from edgekit.runner.backends import INTERPRETERS, {INTERPRETERS[name].file}\n"
        f"assert isinstance(INTERPRETERS[{name!r}].is_installed, bool)\n"
        "heavy = {'ai_edge_litert', 'tflite_runtime', 'openvino', 'onnxruntime'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", INSTALLED)
def test_it_scores_as_the_reference_does(name: str, models: dict[str, ModelFiles]) -> None:
    backend, model = opened(name, models)
    images = samples()
    scores = np.concatenate([backend.run(prepared(model, image)) for image in images])
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, reference(images), atol=model.atol)
    assert len(set(scores.argmax(axis=1).tolist())) > 1  # a constant answer would prove little
    assert (backend.name, backend.version) == (name, metadata.version(INTERPRETERS[name].distribution))


@pytest.mark.parametrize("name", INSTALLED)
def test_results_belong_to_the_caller(name: str, models: dict[str, ModelFiles]) -> None:
    backend, model = opened(name, models)
    x, y = (prepared(model, image) for image in samples(2))
    first = backend.run(x)
    kept, untouched = first.copy(), x.copy()
    second = backend.run(y)
    assert (first == kept).all()
    assert (x == untouched).all()
    first[...] = 1e9
    assert (backend.run(y) == second).all()


@pytest.mark.parametrize("name", INSTALLED)
def test_read_only_and_two_models_at_once(name: str, models: dict[str, ModelFiles]) -> None:
    (one, model), (other, _) = opened(name, models), opened(name, models, threads=2)
    x, y = (prepared(model, image) for image in samples(2))
    x.flags.writeable = False
    expected = one.run(x)
    other.run(y)
    np.testing.assert_allclose(one.run(x), expected, atol=0)
    np.testing.assert_allclose(other.run(x), expected, atol=1e-5)


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("bad", [(1, 1, 1, 1), (8, 8), "float64", "batch"])
def test_an_array_that_does_not_fit_is_refused(name: str, bad: Any, models: dict[str, ModelFiles]) -> None:
    backend, model = opened(name, models)
    x = prepared(model, samples(1)[0])
    wrong = (
        x.astype(np.float64)
        if bad == "float64"
        else np.repeat(x, 2, 0)
        if bad == "batch"
        else np.zeros(bad, np.float32)
    )
    with pytest.raises(InputError, match="the model takes float32"):
        backend.run(wrong)


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("change", [lambda x: x[:, :1, :1, :1], lambda x: x.astype(np.float64)], ids=["shape", "type"])
def test_the_model_itself_takes_nothing_stretched_or_cast(
    name: str, change: Any, models: dict[str, ModelFiles]
) -> None:
    backend, model = opened(name, models)
    with pytest.raises((InputError, ValueError, RuntimeError)):
        backend.invoke(change(prepared(model, samples(1)[0])))


@pytest.mark.parametrize("name", INSTALLED)
def test_what_is_no_model_is_refused(name: str, models: dict[str, ModelFiles]) -> None:
    model = models[INTERPRETERS[name].targets[0]]
    garbage = dict.fromkeys(model.files, b"this is no model")
    with pytest.raises(BackendError, match=name):
        backends.open_backend(model.target, garbage, (model.input,), (model.output,), interpreter=name)
    with pytest.raises(BackendError, match="model files"):
        backends.open_backend(model.target, {"weights.dat": b""}, (model.input,), (model.output,), interpreter=name)


@pytest.mark.parametrize("name", INSTALLED)
def test_a_model_that_is_not_what_the_bundle_says_is_refused(name: str, models: dict[str, ModelFiles]) -> None:
    model = models[INTERPRETERS[name].targets[0]]
    ten = TensorSpec("scores", (1, 10), "float32", "NC")
    with pytest.raises(BackendError, match=r"output.*\[1, 3\].*\[1, 10\]"):
        backends.open_backend(model.target, model.files, (model.input,), (ten,), interpreter=name)
    integer = TensorSpec("input", model.input.shape, "int8", model.input.layout)
    with pytest.raises(BackendError, match=r"input.*float32.*int8"):
        backends.open_backend(model.target, model.files, (integer,), (model.output,), interpreter=name)


@pytest.mark.parametrize("key", ["tflite", "tflite-int8", "openvino", "onnx"])
def test_open_backend_takes_the_preferred_interpreter(key: str, models: dict[str, ModelFiles]) -> None:
    model = models[key]
    backend = backends.open_backend(model.target, model.files, (model.input,), (model.output,))
    assert backend.name == {"tflite": "litert", "openvino": "openvino", "onnx": "onnxruntime"}[model.target]
    assert backend.run(prepared(model, samples(1)[0])).shape == (1, len(LABELS))


@pytest.mark.parametrize("name", [name for name, each in INTERPRETERS.items() if not each.is_installed])
def test_an_absent_interpreter_names_its_pip_line(name: str, models: dict[str, ModelFiles]) -> None:
    model = models[INTERPRETERS[name].targets[0]]
    with pytest.raises(
        BackendError, match=f"{name} is not installed; run: .*pip install {INTERPRETERS[name].distribution} "
    ):
        backends.open_backend(model.target, model.files, (model.input,), (model.output,), interpreter=name)


def test_no_interpreter_at_all_names_the_preferred_one(models: dict[str, ModelFiles], tmp_path: Path) -> None:
    code = (
        "import sys\nsys.path[:] = [entry for entry in sys.path if 'site-packages' not in entry] + [sys.argv[1]]\n"
        "from edgekit.runner.backends import open_backend\n"
        "try:\n    open_backend('tflite', {}, None, None)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    numpy_only = tmp_path / "site"
    numpy_only.mkdir()
    for entry in Path(np.__file__).parents[1].glob("numpy*"):
        (numpy_only / entry.name).symlink_to(entry)
    root = str(Path(backends.__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", code, str(numpy_only)], capture_output=True, text=True, cwd=root)
    message = (
        f"MissingInterpreterError no interpreter for tflite models is installed; run: {sys.executable} -m pip install"
    )
    assert done.stdout.startswith(f"{message} ai-edge-litert "), done.stderr


@pytest.mark.parametrize(
    ("target", "options", "error", "word"),
    [
        ("tensorrt", {}, BackendError, "tensorrt"),
        ("tflite", {"interpreter": "openvino"}, BackendError, "litert, tflite_runtime"),
        ("tflite", {"interpreter": "_tflite"}, BackendError, "litert, tflite_runtime"),
        ("onnx", {"threads": 0}, InputError, "threads"),
        ("onnx", {"threads": True}, InputError, "threads"),
    ],
)
def test_a_wrong_choice_says_what_there_is(
    target: str, options: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word):
        backends.open_backend(target, {}, (NHWC,), (SCORES,), **options)


def bare_int8(model: bytes, x: np.ndarray) -> np.ndarray:
    """What somebody would write by hand around the interpreter, in float64."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    source, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    scale, zero_point = source["quantization"]
    whole = np.clip(np.rint(x.astype(np.float64) / scale) + zero_point, -128, 127).astype(np.int8)
    interpreter.set_tensor(source["index"], whole)
    interpreter.invoke()
    scale, zero_point = result["quantization"]
    return (interpreter.get_tensor(result["index"]).astype(np.float64) - zero_point) * scale


def test_integer_tensors_are_converted_by_their_own_scale(models: dict[str, ModelFiles]) -> None:
    model = models["tflite-int8"]
    backend = backends.open_backend("tflite", model.files, (model.input,), (model.output,))
    images = samples()
    scores = np.concatenate([backend.run(prepared(model, image)) for image in images])
    expected = np.concatenate([bare_int8(model.files["model.tflite"], prepared(model, image)) for image in images])
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    np.testing.assert_allclose(scores, reference(images), atol=model.atol)


def test_integer_inputs_saturate_instead_of_wrapping(models: dict[str, ModelFiles]) -> None:
    model = models["tflite-int8"]
    backend = backends.open_backend("tflite", model.files, (model.input,), (model.output,))
    brightest, blinding = (np.full(NHWC.shape, value, np.float32) for value in (1.0, 1e6))
    assert (backend.run(blinding) == backend.run(brightest)).all()
    assert (backend.run(-blinding) == backend.run(np.zeros(NHWC.shape, np.float32))).all()


def test_a_published_int8_model_runs_as_in_a_bare_script(shared: Path) -> None:
    data = (shared / "models" / "pretrainedResnet_quant.tflite").read_bytes()
    source, result = TensorSpec("x", (1, 32, 32, 3), "int8", "NHWC"), TensorSpec("y", (1, 10), "int8", "NC")
    backend = backends.open_backend("tflite", {"model.tflite": data}, (source,), (result,))
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.integers(0, 256, source.shape).astype(np.float32)
        scores = backend.run(x)
        np.testing.assert_allclose(scores, bare_int8(data, x), atol=1e-6)
        assert scores.sum() == pytest.approx(1.0, abs=0.05)  # it ends in a softmax


def test_a_model_with_two_outputs_is_refused() -> None:
    import onnx

    model = onnx.load_from_string(onnx_model())
    model.graph.output.append(onnx.helper.make_tensor_value_info("mean", onnx.TensorProto.FLOAT, (1, 4)))
    source = TensorSpec("input", (1, 1, 8, 8), "float32", "NCHW")
    with pytest.raises(BackendError, match="2 outputs"):
        backends.open_backend("onnx", {"model.onnx": model.SerializeToString()}, (source,), (SCORES,))


@pytest.mark.parametrize(
    ("line", "exactly"),
    [
        ("flags\t\t: fpu sse2 avx2 avx512_vnni", True),
        ("flags\t\t: fpu avx_vnni avx2", True),
        ("flags\t\t: fpu sse2 avx2\nmodel name\t: avx_vnni", False),
        ("Features\t: fp asimd", False),
    ],
)
def test_what_the_processor_says_of_its_sums(
    line: str, exactly: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With VNNI ONNX Runtime needs no other kernels, which take twice as long there."""
    from edgekit.runner.backends import onnxruntime

    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n")
    monkeypatch.setattr(onnxruntime, "CPUINFO", str(tmp_path / "cpuinfo"))
    assert onnxruntime.has_vnni.__wrapped__() is exactly


@pytest.mark.parametrize("layers", [1, 2])
def test_products_of_large_integers_are_summed_exactly(layers: int) -> None:
    """255 · 127 twice is beyond 16 bits: where a processor sums pairs in them, ONNX Runtime must be configured not to.

    Two layers share a zero point, and for such a graph it has no other kernels.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    size = 64
    constants = {
        "one": np.float32(1), "zero": np.uint8(0), "none": np.int8(0), "coarse": np.float32(1e4), "half": np.uint8(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["d"]),
    ]
    for n in range(layers):
        constants[f"weight{n}"] = np.full((size, 8), 127, np.int8)
        nodes += [
            helper.make_node("DequantizeLinear", [f"weight{n}", "one", "none"], [f"w{n}"]),
            helper.make_node("MatMul", ["d", f"w{n}"], [f"z{n}"]),
            helper.make_node("QuantizeLinear", [f"z{n}", "coarse", "half"], [f"r{n}"]),
            helper.make_node("DequantizeLinear", [f"r{n}", "coarse", "half"], [f"y{n}"]),
        ]
    nodes.append(helper.make_node("Sum", [f"y{n}" for n in range(layers)], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, n)) for name, n in (("x", size), ("y", 8))]
    values = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    specs = (TensorSpec("x", (1, size), "float32", "NC"),), (TensorSpec("y", (1, 8), "float32", "NC"),)
    backend = backends.open_backend("onnx", {"model.onnx": model.SerializeToString()}, *specs, 1)
    expected = layers * round(size * 255 * 127 / 1e4) * 1e4
    assert backend.run(np.full((1, size), 255, np.float32)).tolist() == [[expected] * 8]
