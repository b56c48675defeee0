"""Shorten the .xml of an IR by removing what no reader needs: indentation, inferable shapes, names and remarks.

A device stores the text and parses it at every start. OpenVINO writes the shape and type of every port at both ends of
every edge, long names of layers, and how the model was made. Its reader infers the shapes again and needs the types of
output ports only (`xml_deserialize_util.cpp`), so these stay. Constants with the same bytes become one layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

DECLARATION = b'<?xml version="1.0"?>'
PORTS = ("Parameter", "Result")
SIDES = ("from-layer", "to-layer")
OPSET = "opset"
"""The prefix of OpenVINO's own operator sets. For other layers, the shapes may not be inferable, so they stay."""
REMARKS = {"OpenVINO Runtime", "Runtime_version", "conversion_parameters", "legacy_frontend", "nncf", "optimization"}
"""Remarks about how the model was made. Others, such as `runtime_options`, may be needed to compile the model."""
ARITHMETIC = {"Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "FakeQuantize"}
CONVOLUTIONS = {"Convolution", "GroupConvolution"}
ONES, ZEROS = re.compile("1(,1)*"), re.compile("0(,0)*")
DEFAULTS = {
    "auto_broadcast": (re.compile("numpy"), ARITHMETIC),
    "auto_pad": (re.compile("explicit"), CONVOLUTIONS),
    "strides": (ONES, CONVOLUTIONS),
    "dilations": (ONES, CONVOLUTIONS),
    "pads_begin": (ZEROS, CONVOLUTIONS),
    "pads_end": (ZEROS, CONVOLUTIONS),
}
"""The default of each attribute, and the layers for which the default was checked in OpenVINO's source."""
NUMBERS = re.compile(r"-?[0-9]+(, -?[0-9]+)+")
MADE_OF = "fused_names"
"""The remark that lists the layers from which a layer was made. Other remarks, such as `decompression`, are needed."""


def shorten(content: bytes) -> bytes:
    """Return the same model in fewer bytes, with the same layers, edges, numbers and names of inputs and outputs.

    Inner layers get numbers as names. The .bin beside the file does not change, and equal files give equal bytes.
    """
    net = ElementTree.fromstring(content)
    for graph in _graphs(net):
        _merge_constants(graph)
        _name_by_index(graph)
        _shorten_ports(graph)
        for layer in _layers(graph):
            _shorten_attributes(layer)
    _number_by_use(net)
    _drop_remarks(net)
    for each in net.iter():
        each.text = (each.text or "").strip() or None
        each.tail = None
    text = ElementTree.tostring(net, encoding="utf-8").removeprefix(b"<?xml version='1.0' encoding='utf-8'?>\n")
    return DECLARATION + text.replace(b" />", b"/>")  # in values, ">" is written as "&gt;"


def shorten_file(path: Path) -> None:
    """Shorten an .xml file in place."""
    path.write_bytes(shorten(path.read_bytes()))


def _graphs(net: Element) -> Iterator[Element]:
    """Yield the model and the bodies of If, Loop and TensorIterator."""
    return (each for each in net.iter() if each.find("layers") is not None)


def _layers(graph: Element) -> list[Element]:
    return list(graph.iterfind("layers/layer"))


def _edges(graph: Element) -> list[Element]:
    return list(graph.iterfind("edges/edge"))


def _merge_constants(graph: Element) -> None:
    """Merge constants that have the same bytes, shape, type and remarks into the first of them."""
    layers, [holder] = _layers(graph), graph.iterfind("layers")
    first: dict[bytes, str] = {}
    replacements: dict[str, str] = {}
    named = _result_sources(graph)
    for layer in layers:
        if layer.get("type") != "Const" or (layer.get("id", ""), _out(layer)) in named:
            continue
        key = _without_names(layer)
        if key in first:
            replacements[layer.get("id", "")] = first[key]
            holder.remove(layer)
        first.setdefault(key, layer.get("id", ""))
    for edge in _edges(graph):
        source = edge.get("from-layer", "")
        edge.set("from-layer", replacements.get(source, source))


def _without_names(layer: Element) -> bytes:
    """Return the text of a constant without its names, so that constants can be compared.

    The numbers of their ports do not matter, because every constant has one port with the same number.
    """
    copied = ElementTree.fromstring(ElementTree.tostring(layer))
    del copied.attrib["id"], copied.attrib["name"]
    for port in copied.iterfind("output/port"):
        port.attrib.pop("names", None)
    _drop_made_of(copied)
    for each in copied.iter():
        each.text, each.tail = (each.text or "").strip(), None
    return ElementTree.tostring(copied)


def _out(layer: Element) -> str:
    port = layer.find("output/port")
    return "" if port is None else port.get("id", "")


def _result_sources(graph: Element) -> set[tuple[str, str]]:
    """Return the layer and port that give each result of the model. These ports have the names of the outputs."""
    results = {layer.get("id") for layer in _layers(graph) if layer.get("type") == "Result"}
    return {
        (edge.get("from-layer", ""), edge.get("from-port", ""))
        for edge in _edges(graph)
        if edge.get("to-layer") in results
    }


def _name_by_index(graph: Element) -> None:
    port_names = {layer.get("name") for layer in _layers(graph) if layer.get("type") in PORTS}
    for index, layer in enumerate(_layers(graph)):
        if layer.get("type") not in PORTS:
            name = str(index)
            while name in port_names:  # an input may be called "3"
                name += "_"
            layer.set("name", name)


def _number_by_use(net: Element) -> None:
    """Give shorter numbers to layers with more edges. Layers inside bodies stay, because port maps refer to them."""
    used = Counter(edge.get(side, "") for edge in _edges(net) for side in SIDES)
    by_use = sorted((layer.get("id", "") for layer in _layers(net)), key=lambda number: -used[number])
    numbers = {number: str(index) for index, number in enumerate(by_use)}
    for owner, name in (*((each, "id") for each in _layers(net)), *((e, side) for e in _edges(net) for side in SIDES)):
        owner.set(name, numbers[owner.get(name, "")])


def _shorten_ports(graph: Element) -> None:
    named = _result_sources(graph)
    for layer in _layers(graph):
        _drop_made_of(layer)
        for port in layer.iterfind("input/port"):
            port.attrib.pop("precision", None)
        for port in layer.iterfind("output/port"):
            if layer.get("type") != "Parameter" and (layer.get("id", ""), port.get("id", "")) not in named:
                port.attrib.pop("names", None)
        for port in (*layer.iterfind("input/port"), *layer.iterfind("output/port")):
            _drop_made_of(port)
            if layer.get("version", "").startswith(OPSET):
                for side in port.findall("dim"):
                    port.remove(side)


def _shorten_attributes(layer: Element) -> None:
    data = layer.find("data")
    if data is None or not layer.get("version", "").startswith(OPSET):
        return
    for name, value in list(data.items()):
        if NUMBERS.fullmatch(value):
            value = value.replace(" ", "")
            data.set(name, value)
        default, kinds = DEFAULTS.get(name, (None, set()))
        if default is not None and layer.get("type") in kinds and default.fullmatch(value):
            del data.attrib[name]
    if not data.attrib and not len(data):
        layer.remove(data)


def _drop_made_of(owner: Element) -> None:
    for info in owner.findall("rt_info"):
        for each in [one for one in info if one.get("name", "").startswith(MADE_OF)]:
            info.remove(each)
        if not len(info):
            owner.remove(info)


def _drop_remarks(net: Element) -> None:
    for info in net.findall("rt_info"):
        for each in [one for one in info if one.get("name", one.tag) in REMARKS]:
            info.remove(each)
        if not len(info):
            net.remove(info)
