"""An IR is the same model after what no reader needs is gone from its .xml."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from edgekit.models import store
from edgekit.targets import evaluate, profile
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.locate import first_divergence
from edgekit.targets.openvino import convert, slim_xml
from tests.targets import slim_models

PORTED = ("condition", "loop", "several ends", "names like numbers")
MODELS = (*PORTED, "stateful", "arithmetic")
CALLS = 4


def saved(name: str, folder: Path) -> tuple[bytes, bytes]:
    """The .xml as OpenVINO writes it, and the .bin."""
    import openvino

    if name in PORTED:
        model = openvino.Core().read_model(slim_models.onnx_model(name), b"")
    else:
        model = getattr(slim_models, name)()
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=name == "several ends")
    return (folder / "model.xml").read_bytes(), (folder / "model.bin").read_bytes()


def opened(xml: bytes, weights: bytes) -> Any:
    import openvino

    return openvino.Core().read_model(xml, weights)


def answers(model: Any) -> list[np.ndarray]:
    """Of some calls of one request, for a state that lasts."""
    import openvino

    request = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    ports = []
    for port in model.inputs:
        shape = tuple(side.get_length() if side.is_static else 2 for side in port.partial_shape)
        ports.append((min(port.get_names()), shape, "bool" if "bool" in port.element_type.to_string() else "float32"))
    found = []
    for seed in range(CALLS):
        request.infer(slim_models.random_inputs(ports, seed))
        found += [request.get_output_tensor(place).data.copy() for place in range(len(model.outputs))]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_what_a_file_may_hold_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    xml, weights = saved(name, tmp_path)
    short = slim_xml.shorten(xml)
    before, after = opened(xml, weights), opened(short, weights)
    for one, other in zip((*before.inputs, *before.outputs), (*after.inputs, *after.outputs), strict=True):
        assert one.get_names() == other.get_names() and one.partial_shape == other.partial_shape
    found = answers(before)
    assert all(np.array_equal(one, other) for one, other in zip(found, answers(after), strict=True))
    assert len({one.tobytes() for one in found}) > 1
    assert len(short) < 0.8 * len(xml) and slim_xml.shorten(short) == short == slim_xml.shorten(xml)


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_keeps_its_attributes(name: str, tmp_path: Path) -> None:
    xml, weights = saved(name, tmp_path)

    def layers(content: bytes) -> list[tuple[str, str]]:
        ops = opened(content, weights).get_ordered_ops()
        kinds = [op for op in ops if op.get_type_name() not in ("Constant", "If", "Loop")]
        return [(op.get_type_name(), str(op.get_attributes())) for op in kinds]

    assert sorted(layers(slim_xml.shorten(xml))) == sorted(layers(xml))


def test_a_number_that_names_an_input_names_no_layer(tmp_path: Path) -> None:
    xml, weights = saved("names like numbers", tmp_path)
    named = [op.get_friendly_name() for op in opened(slim_xml.shorten(xml), weights).get_ops()]
    assert len(set(named)) == len(named)


def test_the_attributes_of_a_compressed_constant_stay(tmp_path: Path) -> None:
    xml, _ = saved("several ends", tmp_path)
    assert b"decompression" in xml and b"decompression" in slim_xml.shorten(xml)


def test_what_is_asked_for_when_a_model_is_compiled_stays(tmp_path: Path) -> None:
    import openvino

    model = slim_models.arithmetic()
    model.set_rt_info("8.0", ["runtime_options", "ACTIVATIONS_SCALE_FACTOR"])
    model.set_rt_info("somewhere", ["conversion_parameters", "input_model"])
    openvino.save_model(model, tmp_path / "model.xml", compress_to_fp16=False)
    xml = (tmp_path / "model.xml").read_bytes()
    assert b"somewhere" in xml and b"Runtime" in xml
    short = slim_xml.shorten(xml)
    assert b"ACTIVATIONS_SCALE_FACTOR" in short and b"somewhere" not in short and b"Runtime" not in short


def test_shapes_stay_where_a_layer_is_of_no_known_set() -> None:
    xml = (
        b'<?xml version="1.0"?>\n<net name="n" version="11">\n<layers>'
        b'<layer id="0" name="a" type="Const" version="opset1">'
        b'<data element_type="f32" shape="3" offset="0" size="12"/>'
        b'<output><port id="0" precision="FP32"><dim>3</dim></port></output></layer>'
        b'<layer id="1" name="b" type="Own" version="extension"><data auto_pad="explicit" sides="1, 2"/>'
        b'<output><port id="0" precision="FP32"><dim>7</dim></port></output></layer>'
        b"</layers><edges/></net>"
    )
    short = slim_xml.shorten(xml)
    assert b"<dim>7</dim>" in short and b"<dim>3</dim>" not in short and b'auto_pad="explicit" sides="1, 2"' in short


@pytest.fixture(scope="module", params=convert.PRECISIONS)
def both(
    request: Any, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ConvertedFiles, Path, Path]:
    """A network's file as OpenVINO leaves it, and as it ships, each in its folder."""
    inputs = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)
    home = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slim_xml, "shorten_file", lambda path: None)
        files = convert.convert(tiny_folder, request.param, inputs, home / "long")
    assert convert.convert(tiny_folder, request.param, inputs, home / "short") == files
    return files, home / "long", home / "short"


def test_a_network_gives_the_same_bits_from_fewer_bytes(both: tuple[ConvertedFiles, Path, Path]) -> None:
    files, *folders = both
    inputs = np.random.default_rng(1).normal(size=(20, 3, 8, 8)).astype(np.float32)
    for batch in (1, 4):
        long, short = (evaluate.file_outputs("it", "openvino", each, files, inputs, batch) for each in folders)
        assert np.array_equal(long, short) and len(np.unique(long)) > 20
    (long_xml, long_bin), (short_xml, short_bin) = (
        [(folder / name).read_bytes() for name in convert.FILES] for folder in folders
    )
    assert long_bin == short_bin and len(short_xml) < 0.6 * len(long_xml)
    assert b"__module" in long_xml and b"__module" not in short_xml


def test_tools_that_look_into_a_file_take_the_short_one(
    both: tuple[ConvertedFiles, Path, Path], tiny_folder: Path
) -> None:
    files, long, short = both
    inputs = np.random.default_rng(1).normal(size=(8, 3, 8, 8)).astype(np.float32)
    kinds = [
        {(row["operator"], row["calls"]) for row in profile.measure("openvino", each, files, inputs[:1], 5, 120.0)}
        for each in (long, short)
    ]
    assert kinds[0] == kinds[1] != set()
    if short.parent.name.startswith("fp32"):
        module, spec = store.load(tiny_folder)
        module.get_parameter("deep.0.weight").data.mul_(-1)
        store.save(short.parent / "wrong", module, spec)
        found = first_divergence.find(short.parent / "wrong", "openvino", short, files, inputs, "fp32")
        assert found.layer == "deep.0", found.message


def test_a_convolution_says_only_what_is_not_the_default(tmp_path: Path) -> None:
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter([1, 2, 9, 9], np.float32, name="x")
    weights = np.random.default_rng(0).normal(size=(3, 2, 3, 3)).astype(np.float32)
    plain = ops.convolution(x, weights, [1, 1], [0, 0], [0, 0], [1, 1])
    other = ops.convolution(x, weights, [2, 1], [1, 0], [0, 1], [1, 2])
    openvino.save_model(openvino.Model([plain, other], [x], "m"), tmp_path / "model.xml", compress_to_fp16=False)
    xml, weights_file = (tmp_path / "model.xml").read_bytes(), (tmp_path / "model.bin").read_bytes()
    short = slim_xml.shorten(xml)
    written = [each for each in short.split(b"<layer ") if b'type="Convolution"' in each]
    attributes = sorted(each.partition(b"<data")[2].partition(b"/>")[0] for each in written)
    assert [b"strides" in each for each in attributes] == [False, True] and b'dilations="1,2"' in attributes[1]
    sides = [[list(port.shape) for port in opened(each, weights_file).outputs] for each in (xml, short)]
    assert sides[0] == sides[1] == [[1, 3, 7, 7], [1, 3, 4, 6]]
    assert all(map(np.array_equal, answers(opened(xml, weights_file)), answers(opened(short, weights_file))))


def test_the_layers_with_most_edges_have_the_shortest_numbers(tmp_path: Path) -> None:
    xml, _ = saved("arithmetic", tmp_path)
    net = ElementTree.fromstring(slim_xml.shorten(xml))
    ends = [edge.get(side) for edge in net.iterfind("edges/edge") for side in ("from-layer", "to-layer")]
    counts = [ends.count(str(place)) for place in range(len(net.findall("layers/layer")))]
    assert counts == sorted(counts, reverse=True) and counts[0] > counts[-1]
