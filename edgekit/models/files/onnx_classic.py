"""Classic models of scikit-learn, XGBoost and LightGBM as ONNX: reduce their outputs to a tensor of scores.

skl2onnx and onnxmltools write two outputs: the label, and the probabilities, often as a ZipMap, which is a list of
{class: probability}. edgekit needs one output, a tensor of scores, from which the runner makes the label. The label and
the ZipMap are therefore removed from the graph when a file is read. The class of the largest score is then compared
with the label on random samples, because ONNX Runtime negates the scores of support vector machines with two classes
and no probabilities. The number of scores is also taken from a run of the model, because the shapes that converters
declare are not always right. The operators of these models belong to the domain `ai.onnx.ml`, which only ONNX Runtime
runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edgekit.core.errors import ModelError
from edgekit.models.files.onnx_batch import unused_name
from edgekit.runner.backends.onnxruntime import runtime_errors

DOMAIN = "ai.onnx.ml"
CLASS_LABELS = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
PASSING = ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten")
"""Operators that do not change the values."""
LABELS, FLOATS = (6, 7, 8), (1, 10, 11)
"""ONNX's numbers of data types: int32, int64 and string; float32, float16 and float64."""
SHOWN = 3
SCALES = (0.1, 1.0, 10.0, 100.0)
SAMPLES_PER_SCALE = 250
MAX_TIES = 0.01
"""The largest share of samples for which the class of the largest score may differ from the label.

The two differ at ties, because scikit-learn does not use the scores to break them. Ties are between probabilities or,
in support vector machines of several classes, between votes.
"""
CLEAR_MARGIN = 1e-5
"""If the two largest scores differ by less than this, relative to them, rounding in float32 may change their order."""


@dataclass(frozen=True)
class ClassicModel:
    """A model whose only output is its scores.

    `changes` describes what was changed. `classes` are the labels that the file names, in the order of its scores, or
    none. `operators` are its remaining operators of the domain `ai.onnx.ml`.
    """

    content: bytes
    changes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    @property
    def is_regressor(self) -> bool:
        """Whether its values come from an operator for regression."""
        return not self.classes and any(name.endswith("Regressor") for name in self.operators)

    @property
    def refusal(self) -> str:
        """The reason why only ONNX Runtime can run the model; empty if other runtimes can run it too."""
        if not self.operators:
            return ""
        more = f" and {len(self.operators) - SHOWN} more" if len(self.operators) > SHOWN else ""
        return f"only ONNX Runtime runs {', '.join(self.operators[:SHOWN])}{more} ({DOMAIN}); leave this target out"


@lru_cache(maxsize=4)
def read(content: bytes, two_classes: bool = False) -> ClassicModel:
    """Read a model and remove its label and its ZipMap; the bytes are the same if nothing has to change.

    Parameters
    ----------
    two_classes
        Convert a single probability to the scores of both classes, even if the file names no classes.

    Raises
    ------
    ModelError
        The model predicts several labels at once, or its scores do not determine its label.
    """
    model = _parse(content)
    changes, classes = _remove_label(model)
    is_corrected = False
    if _is_classic(model.graph) and len(model.graph.output) == 1:
        columns = _columns(model)
        is_corrected = _declare_columns(model, columns)
        if columns == 1 and (two_classes or len(classes) == 2):
            changes += _add_second_column(model, has_classes=bool(classes))
    if changes:
        _drop_unused(model.graph)
        changes += _align_with_label(content, model, classes)
    if changes or is_corrected:
        content = bytes(model.SerializeToString(deterministic=True))
    operators = sorted({node.op_type for node in model.graph.node if node.domain == DOMAIN})
    return ClassicModel(content, tuple(changes), classes, tuple(operators))


def _remove_label(model: Any) -> tuple[list[str], tuple[str, ...]]:
    """Remove label and ZipMap, in place; return a description of the changes, and the names of the classes."""
    graph, makers = model.graph, _makers(model.graph)
    if not _is_classic(graph):
        return [], ()
    kinds = {each.name: each.type.tensor_type.elem_type for each in graph.output}
    zips = [each for each in graph.output if _is_zip(makers.get(each.name))]
    labels = [each for each in graph.output if kinds[each.name] in LABELS]
    floats = [each for each in graph.output if kinds[each.name] in FLOATS]
    if len(zips) + len(floats) != 1 or len(labels) > 1 or len(graph.output) != 1 + len(labels):
        return [], ()
    classes = _classes(graph, [*labels, *zips, *floats], makers)
    if not (zips or labels):
        return [], classes
    for label in labels:
        sides = [side.dim_value for side in label.type.tensor_type.shape.dim]
        _check_single(label.name, sides[1] if len(sides) == 2 else 1)
    scores = _zipmap_input(model, makers[zips[0].name], len(classes)) if zips else floats[0]
    removed = [f"its label ({labels[0].name})"] if labels else []
    removed += ["its ZipMap"] if zips else []
    output = type(scores)()
    output.CopyFrom(scores)
    del graph.output[:]
    graph.output.append(output)
    verb = "was" if len(removed) == 1 else "were"
    return [f"{' and '.join(removed)} {verb} removed; its output is {output.name}, {_use(classes)}"], classes


def _check_single(name: str, labels: int) -> None:
    """Raise ModelError if the output `name` holds several labels for each sample."""
    if labels > 1:
        raise ModelError(
            f"its output {name} holds {labels} labels for each sample, but a bundle answers with one; "
            f"convert a separate model for each label"
        )


def _use(classes: tuple[str, ...]) -> str:
    """Describe what the runner does with the remaining scores."""
    return "of which the runner makes the label" if classes else "which is the answer itself, without a label"


def _is_classic(graph: Any) -> bool:
    return any(node.domain == DOMAIN for node in graph.node)


def _is_zip(node: Any) -> bool:
    return node is not None and node.op_type == "ZipMap" and node.domain == DOMAIN


def _zipmap_input(model: Any, zipmap: Any, classes: int) -> Any:
    """Return the input of a ZipMap as an output (n, classes)."""
    from onnx import TensorProto, helper

    sides = model.graph.input[0].type.tensor_type.shape.dim
    batch = (sides[0].dim_value or sides[0].dim_param or None) if len(sides) else None
    return helper.make_tensor_value_info(zipmap.input[0], TensorProto.FLOAT, [batch, classes or None])


def _classes(graph: Any, outputs: Iterable[Any], makers: dict[str, Any]) -> tuple[str, ...]:
    """Return the class names of the node that is nearest to the outputs; empty if no node has any."""
    constants = {each.name: each for each in graph.initializer}
    queue = [each.name for each in outputs]
    visited = set(queue)
    for name in queue:
        node = makers.get(name)
        if node is None:
            continue
        if classes := _class_names_of(node, constants):
            return classes
        new = [each for each in node.input if each not in visited]
        visited.update(new)
        queue += new
    return ()


def _class_names_of(node: Any, constants: dict[str, Any]) -> tuple[str, ...]:
    """Return the class labels in a node's attributes, or the constant labels among which the node selects."""
    from onnx import numpy_helper

    if node.op_type == "ArrayFeatureExtractor" and node.input[0] in constants:
        values = numpy_helper.to_array(constants[node.input[0]]).ravel()
        return tuple(_text(value) for value in values) if len(values) > 1 and values.dtype.kind in "iuOSU" else ()
    attributes = {each.name: each for each in node.attribute}
    for name in CLASS_LABELS:
        if name in attributes and (values := [*attributes[name].strings, *attributes[name].ints]):
            return tuple(map(_text, values))
    return ()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _add_second_column(model: Any, has_classes: bool) -> list[str]:
    """Convert the single score of two classes to two columns, in place, and return a description of the change.

    A score that is not a probability is treated as a margin only if the file itself names its two classes.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    output = graph.output[0]
    if output.type.tensor_type.elem_type != TensorProto.FLOAT:
        return []
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    used |= {each.name for each in graph.initializer}
    is_probability = _is_probability(output.name, _makers(graph))
    if not (is_probability or has_classes):
        return []
    both, other, one = (unused_name(f"{output.name}_{suffix}", used) for suffix in ("both", "other", "one"))
    if is_probability:
        graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), one))
        graph.node.append(helper.make_node("Sub", [one, output.name], [other]))
        change = "its single probability p was converted to the probabilities of its two classes, [1 - p, p]"
    else:
        graph.node.append(helper.make_node("Sub", [output.name, output.name], [other]))
        change = "its single margin z was converted to the logits of its two classes, [0, z]"
    graph.node.append(helper.make_node("Concat", [other, output.name], [both], axis=1))
    sides = output.type.tensor_type.shape.dim
    batch = (sides[0].dim_value or sides[0].dim_param or None) if len(sides) else None
    new_output = helper.make_tensor_value_info(both, TensorProto.FLOAT, [batch, 2])
    del graph.output[:]
    graph.output.append(new_output)
    return [change]


def _columns(model: Any) -> int:
    """Return how many scores the model gives for a sample of zeros, which may differ from what the file declares.

    0 if the model does not run.
    """
    answers = _answers(model.SerializeToString(), np.zeros(1))
    if answers is None:
        return 0
    scores = answers[0][0]
    return int(scores.size) if scores.shape in ((1, scores.size), (scores.size,)) else 0


def _answers(content: bytes, scales: np.ndarray) -> list[list[Any]] | None:
    """Return all outputs for one random sample of each scale; None if the model does not run.

    The samples are the same for every model, and are run one at a time because some converters fix the batch at one.
    """
    import onnxruntime

    random = np.random.default_rng(0)
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        [source] = session.get_inputs()
        shape = [1, *source.shape[1:]]
        if not all(isinstance(side, int) for side in shape):
            return None
        samples = [(scale * random.normal(size=shape)).astype(np.float32) for scale in scales]
        return [session.run(None, {source.name: sample}) for sample in samples]
    except runtime_errors():  # the same error is raised again where the model is opened
        return None


def _declare_columns(model: Any, columns: int) -> bool:
    """Correct the number of columns that the output declares, in place; return whether it was wrong."""
    sides = model.graph.output[0].type.tensor_type.shape.dim
    if not columns or len(sides) != 2 or sides[1].dim_value == columns:
        return False
    sides[1].dim_value = columns
    return True


def _align_with_label(content: bytes, model: Any, classes: tuple[str, ...]) -> list[str]:
    """Compare the class of the largest score with the label of the unchanged model, `content`, on random samples.

    The scores of two classes are negated, in place, if they always give the opposite of the label. Returns a
    description of what was changed or observed. Raises ModelError if class and label differ for more samples than ties
    explain.
    """
    scales = np.repeat(SCALES, SAMPLES_PER_SCALE)
    before, after = _answers(content, scales), _answers(model.SerializeToString(), scales)
    outputs = _parse(content).graph.output
    position = next((at for at, each in enumerate(outputs) if each.type.tensor_type.elem_type in LABELS), None)
    if position is None:
        return []
    if before is None or after is None:
        return ["its scores were not compared with its label, because the model does not run on random samples"]
    labels = np.stack([np.asarray(each[position]).ravel() for each in before])
    _check_single(outputs[position].name, labels.shape[1])
    scores = np.stack([np.asarray(each[0], np.float64).ravel() for each in after])
    if len(classes) < 2 or scores.shape[1] != len(classes):
        return []
    is_clear, differ = _compare_classes(scores, labels[:, 0], classes)
    if not differ.any():
        return []
    if len(classes) == 2 and differ[is_clear].all():
        return [_negate(model)]
    return [_ties(differ, "random samples")]


def compare_labels(
    content: bytes, samples: Sequence[dict[str, np.ndarray]], scores: np.ndarray, classes: tuple[str, ...]
) -> str:
    """Compare the class of the largest recorded score with the label of the unchanged model, `content`.

    Parameters
    ----------
    samples
        Inputs of the model by name, one sample each.
    scores
        The recorded scores (n, classes) for these samples.

    Returns
    -------
    str
        A description of the comparison. Empty if the model has no label, or its scores are not those of its classes.

    Raises
    ------
    ModelError
        Class and label differ for more samples than ties explain.
    """
    import onnxruntime

    label = next((each for each in _parse(content).graph.output if each.type.tensor_type.elem_type in LABELS), None)
    if label is None or len(classes) < 2 or scores.shape[1:] != (len(classes),):
        return ""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        labels = np.array([np.ravel(session.run([label.name], sample)[0])[0] for sample in samples])
    except runtime_errors() as error:
        return f"not compared with its scores, because the unchanged model does not run: {' '.join(str(error).split())}"
    _, differ = _compare_classes(scores, labels, classes)
    if not differ.any():
        return f"the class of the largest score, for each of the {len(differ)} golden samples"
    return _ties(differ, "golden samples")


def _compare_classes(scores: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Compare the class of the largest score of each sample with its label.

    Returns two masks (n,): the samples of which one score is clearly the largest, and those among them for which the
    class of that score is not the label.
    """
    largest = np.sort(scores, axis=1)[:, -2:]
    is_clear = largest[:, 1] - largest[:, 0] > CLEAR_MARGIN * np.abs(largest).max(axis=1)
    own = np.array([_text(label) for label in labels])
    return is_clear, is_clear & (np.array(classes)[scores.argmax(axis=1)] != own)


def _ties(differ: np.ndarray, what: str) -> str:
    """Describe the differences if ties explain them; raise ModelError otherwise."""
    finding = f"the class of its largest score differs from its label for {differ.sum()} of {len(differ)} {what}"
    if differ.sum() <= math.ceil(MAX_TIES * len(differ)):
        return f"{finding}, because the model breaks ties differently; the runner goes by the score"
    raise ModelError(
        f"{finding}, so the scores do not decide; wrap the classifier in sklearn.calibration.CalibratedClassifierCV, "
        "or train one that has predict_proba, and convert it again"
    )


def _negate(model: Any) -> str:
    """Negate the scores, in place, and return a description of the change."""
    from onnx import helper

    graph = model.graph
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    output = graph.output[0]
    name = unused_name(f"{output.name}_negated", used)
    graph.node.append(helper.make_node("Neg", [output.name], [name]))
    change = f"its scores ({output.name}) were negated, because their order was the opposite of its label"
    output.name = name
    return change


def _parse(content: bytes) -> Any:
    import onnx

    return onnx.load_model_from_string(content)


def _is_probability(name: str, makers: dict[str, Any]) -> bool:
    """Return whether a score comes from a sigmoid.

    The transformation LOGISTIC of a regressor with one target does not count, because ONNX Runtime ignores it.
    """
    node = makers.get(name)
    while node is not None and node.op_type in PASSING:
        node = makers.get(node.input[0])
    return node is not None and bool(node.op_type == "Sigmoid")


def _makers(graph: Any) -> dict[str, Any]:
    return {name: node for node in graph.node for name in node.output}


def _drop_unused(graph: Any) -> None:
    """Remove the nodes and constants that the outputs do not need, in place."""
    needed = {each.name for each in graph.output}
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        if needed.isdisjoint(node.output):
            del graph.node[index]
        else:
            needed.update(_inputs(node))
    for index in reversed(range(len(graph.initializer))):
        if graph.initializer[index].name not in needed:
            del graph.initializer[index]
    produced = {name for node in graph.node for name in node.output}
    for index in reversed(range(len(graph.value_info))):
        if graph.value_info[index].name not in produced:
            del graph.value_info[index]


def _inputs(node: Any) -> Iterator[str]:
    """Yield the names of the inputs of a node, and of the graphs inside it."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            yield from (each.name for each in inner.output)
            for one in inner.node:
                yield from _inputs(one)


def several_outputs_advice(model: Any) -> str:
    """Return advice for a classic model that still has several outputs; empty for other models."""
    if not _is_classic(model.graph):
        return ""
    if len(model.graph.output) > 1:
        return "; convert it again with options={'zipmap': False}, and no output beside the label and the probabilities"
    return ""
