"""Convert PyTorch networks to OpenVINO IR. NNCF quantizes the converted graph to int8, unless QAT has already done so.

For `w8`, NNCF compresses the weights of every convolution and dense layer, and the arithmetic stays in float. Images
are NCHW. Layers with generated names are renamed, because the counters in these names differ between processes. The
names of inner layers are finally replaced by numbers (`slim_xml`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core.errors import ConversionError
from edgekit.models.files.openvino import port_name
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets import float_ops, fold_preprocess, jobs, layers, model_file
from edgekit.targets.jobs import MINMAX, ConvertedFiles, Quantization, input_layout, output_layout
from edgekit.targets.openvino import graph as operator_graph
from edgekit.targets.openvino import rewrites, slim_xml
from edgekit.targets.ranges import OUTSIDE

if TYPE_CHECKING:
    from edgekit.targets.step import NetworkStep

PRECISIONS = ("fp32", "fp16", "int8", "w8", "int4_dense")
FILES = ("model.xml", "model.bin")


def convert(
    model_folder: Path,
    precision: str,
    calibration: np.ndarray | None,
    out: Path,
    nncf_folder: Path | None = None,
    quantization: Quantization = MINMAX,
    fold: bool = False,
) -> ConvertedFiles:
    """Write `model.xml` and `model.bin` into `out`; `calibration` is (n, C, H, W) or (n, F), float32.

    With `nncf_folder`, the int8 model keeps the ranges that QAT learned, and `calibration` is not used. With `fold`,
    the file takes the bytes of a raw sample if the preprocess steps are affine.
    """
    import openvino

    qat = precision == "int8" and nncf_folder is not None
    source_file = model_file.read(model_folder)
    names = model_file.tensor_names(model_folder)
    if source_file is None:
        model, input_shape, input_names = _from_torch(model_folder, nncf_folder if qat else None)
        layout = input_layout(input_shape, "NCHW")
    else:
        model = source_file.convert("openvino", names)
        input_names = tuple(port_name(port, names) for port in model.inputs) if names else ("input",)
        layout = ""
        if not names:
            shape = tuple(model.input(0).get_shape())
            layout = source_file.layout(shape)
            calibration = None if calibration is None else source_file.arrange(calibration, shape)
    _name_ports(model, input_names)
    sources = jobs.inputs_in_order([_spec(port) for port in model.inputs], names)
    finished = source_file is not None and source_file.is_quantized
    if precision == "int8" and not qat and not finished:
        float_layers = layers.read_layers(model_folder, quantization.keep_float)
        tail = layers.float_tail(model_folder)
        model = _quantize(model, sources, calibration, quantization, float_layers, tail)
    elif precision == "w8":
        import nncf

        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
    elif precision == "int4_dense" and not finished:
        model = _dense_in_4_bits(model)
    if precision == "int8" and not finished:
        rewrites.drop_relus(model)
    if precision == "int8":
        rewrites.separate_scales(model)
    folding = ""
    if fold:
        model, folding = rewrites.take_raw_bytes(model, fold_preprocess.model_affine(model_folder), layout, precision)
    name_layers(model)
    _name_ports(model, input_names)
    out.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, str(out / FILES[0]), compress_to_fp16=precision == "fp16")
    sources, results = (
        jobs.inputs_in_order([_spec(port) for port in model.inputs], names),
        tuple(map(_spec, model.outputs)),
    )
    results = results if source_file is None else source_file.needed.in_task_order(results)
    if not names:
        sources = (replace(sources[0], layout=layout),)
    still_float = float_ops.openvino(out / FILES[0], finished) if precision == "int8" else ()
    debris = layers.rows_or_none("openvino: redundant operators", lambda: operator_graph.read(out / FILES[0]))
    slim_xml.shorten_file(out / FILES[0])  # last, because the lists above contain names of layers
    return ConvertedFiles(FILES, sources, results, still_float, debris=debris, folding=folding)


def _from_torch(model_folder: Path, nncf_folder: Path | None) -> tuple[Any, tuple[int, ...], tuple[str, ...]]:
    """Return the converted network, the shape of its samples, and the names of its inputs in its own order."""
    from edgekit.models import store
    from edgekit.models.reparameterize import deployment_network
    from edgekit.models.several_inputs import export_inputs
    from edgekit.targets.torch_graph import fold_batchnorms, plain_attention

    module, spec = store.load(model_folder)
    network, arguments, names = export_inputs(deployment_network(module, spec), store.zero_sample(spec))
    if nncf_folder is None:
        network = fold_batchnorms(network)
    else:
        from edgekit.models import quantized

        network = quantized.rebuild(model_folder, nncf_folder)
    shapes = [list(each.shape) for each in arguments]
    example, shape = (arguments, shapes) if len(arguments) > 1 else (arguments[0], shapes[0])
    with plain_attention():
        return _convert_network(network, example, shape), spec.input_shape, names


def _convert_network(network: Any, example: Any, shape: Any) -> Any:
    """Convert a PyTorch network to an `openvino.Model`.

    TensorFlow is hidden meanwhile, because OpenVINO first asks it, if it is imported, whether the network is one of its
    own. On Python 3.13 that fails: `exec("del tensorflow")` does not see what an earlier `exec` has bound (PEP 667).
    """
    import openvino

    tensorflow = sys.modules.pop("tensorflow", None)
    try:
        return openvino.convert_model(network, example_input=example, input=shape)
    finally:
        if tensorflow is not None:
            sys.modules["tensorflow"] = tensorflow


def _quantize(
    model: Any,
    sources: Sequence[TensorSpec],
    calibration: np.ndarray | None,
    quantization: Quantization,
    float_layers: Sequence[layers.WeightedLayer],
    tail: Sequence[layers.WeightedLayer],
) -> Any:
    """Quantize with NNCF, by default with ranges from the samples' extremes and without bias correction.

    NNCF's own defaults average the extremes and correct biases, which costs the reference networks 6 to 13 dB on digits
    (ResNet-8: top-1 agreement 0.81 instead of 0.92). Its overflow fix stays on, because older x86 processors need it.
    """
    import nncf

    if calibration is None:
        raise ConversionError("openvino int8: no calibration samples")
    parts = dict(zip([each.name for each in sources], jobs.input_parts(calibration, sources), strict=True))
    samples = nncf.Dataset(
        range(len(calibration)), lambda index: {name: part[index : index + 1] for name, part in parts.items()}
    )
    float_names = layers.matching_operators(float_layers, _constants(model), "openvino")
    if tail:
        begins = layers.matching_operators(tail, _constants(model), "openvino")
        float_names += _with_followers(model, begins)
    # the preset of the simulation in the quantize stage; NNCF's own default makes every activation symmetric
    preset = nncf.QuantizationPreset.MIXED
    advanced = nncf.AdvancedQuantizationParameters(
        disable_bias_correction=not quantization.bias_correction,
        activations_range_estimator_params=_ranges(quantization.ranges),
    )
    return nncf.quantize(
        model,
        samples,
        preset=preset,
        subset_size=len(calibration),
        fast_bias_correction=True,
        ignored_scope=nncf.IgnoredScope(names=float_names) if float_names else None,
        advanced_parameters=advanced,
    )


def _with_followers(model: Any, names: Sequence[str]) -> list[str]:
    """Return the named operators and all that use their results, without constants and results."""
    edges = [
        (op.get_friendly_name(), [each.get_node().get_friendly_name() for each in op.input_values()])
        for op in model.get_ordered_ops()
        if op.get_type_name() != "Result"
    ]
    return layers.with_followers(names, ((name, inputs, [name]) for name, inputs in edges))


def _dense_in_4_bits(model: Any) -> Any:
    """Store the weights of dense layers in 4 bits with a scale for each channel, and all others in int8.

    The arithmetic stays in float. Only OpenVINO's kernels of dense layers unpack 4-bit weights.
    """
    import nncf

    constants = _constants(model)
    if not any(op.get_type_name() == "MatMul" and op.get_friendly_name() in constants for op in model.get_ops()):
        raise ConversionError(
            "openvino int4_dense: the network has no dense layer, and no other weights can be 4 bits here; leave "
            "int4_dense out of convert.precisions"
        )
    return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT4_SYM, group_size=-1, all_layers=True)


def _ranges(kind: str) -> Any:
    """Return NNCF's parameters for a kind of ranges.

    NNCF has no percentiles over all samples. The outermost of the samples' percentiles is used, because their average
    (MEAN_QUANTILE) clips half of the samples: 15 dB instead of 27 for a depthwise network on digits.
    """
    from nncf.quantization import range_estimator as nncf

    if kind == "minmax":
        return nncf.RangeEstimatorParametersSet.MINMAX
    quantile = nncf.StatisticsType.QUANTILE
    low, high = (
        nncf.StatisticsCollectorParameters(quantile, outermost, quantile_outlier_prob=OUTSIDE)
        for outermost in (nncf.AggregatorType.MIN, nncf.AggregatorType.MAX)
    )
    return nncf.RangeEstimatorParameters(low, high)


def _constants(model: Any) -> dict[str, np.ndarray]:
    """Return the weights of each operator by its name, (output channels, weights of one channel)."""
    weights = {}
    for op in model.get_ordered_ops():
        kind = op.get_type_name()
        source = op.input_value(1).get_node() if kind in float_ops.OPENVINO_WEIGHTED else None
        while source is not None and source.get_type_name() in ("Convert", "Reshape"):
            source = source.input_value(0).get_node()
        if source is not None and source.get_type_name() == "Constant":
            array = source.get_data().reshape(op.input_value(1).get_shape())
            groups = int(kind.startswith("Group"))  # with groups: (groups, channels of a group, …)
            if "Backprop" in kind or (kind == "MatMul" and not op.get_attributes()["transpose_b"]):
                array = array.swapaxes(groups, groups + 1)  # the file has the input channels first
            channels = array.shape[0] * (array.shape[1] if groups else 1)
            weights[op.get_friendly_name()] = array.reshape(channels, -1)
    return weights


def name_layers(model: Any) -> None:
    """Give layers names that depend on the network only.

    Names that begin with `__module` come from the network and stay. All other layers are named after their kind and
    position. The model gets a fixed name, because its generated name counts the models that the process has created.
    """
    model.set_friendly_name("Model0")
    for position, op in enumerate(model.get_ordered_ops()):
        if not op.get_friendly_name().startswith("__module"):
            op.set_friendly_name(f"{op.get_type_name()}_{position}")


def _name_ports(model: Any, names: Sequence[str]) -> None:
    """Name the inputs, in the model's own order, and the outputs, in place."""
    several = len(model.outputs) > 1
    outputs = ((port, f"output_{index}" if several else "output") for index, port in enumerate(model.outputs))
    for port, name in (*zip(model.inputs, names, strict=True), *outputs):
        port.get_node().set_friendly_name(name)
        port.get_tensor().set_names({name})


def _spec(port: Any) -> TensorSpec:
    dtype = np.dtype(port.get_element_type().to_dtype()).name
    return TensorSpec(port.get_any_name(), tuple(port.get_shape()), dtype, output_layout(port.get_shape()))


def write_step(step: NetworkStep, out: Path) -> list[Path]:
    """Write `model.xml` and `model.bin` for a network's step, with the step's names; return their paths."""
    import openvino

    example = step.example
    model = _convert_network(step.network, example, [list(each.shape) for each in example])
    name_layers(model)
    for ports, names in ((model.inputs, step.inputs), (model.outputs, step.outputs)):
        for port, name in zip(ports, names, strict=True):
            port.get_node().set_friendly_name(name)
            port.get_tensor().set_names({name})
    openvino.save_model(model, str(out / FILES[0]), compress_to_fp16=False)
    slim_xml.shorten_file(out / FILES[0])
    return [out / name for name in FILES]
