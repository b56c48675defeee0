"""Classic models as ONNX, of scikit-learn, XGBoost and LightGBM: what a converter puts beside the scores is taken off.

skl2onnx and onnxmltools give two outputs: the label, and the probabilities, often as a ZipMap, which is a list of
{class: probability}. A model here has one output, a tensor of scores, of which the runner makes the label. So the label
and the ZipMap leave the graph when a file is read, after the class of the largest score was compared with the label on
samples: ONNX Runtime negates the scores of support vectors with two classes and no probabilities, and shapes that
converters declare are not always those that come out. Their operators are those of the domain `ai.onnx.ml`, which ONNX
Runtime alone runs.
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
"""Operators behind which a value still is what it was."""
LABELS, FLOATS = (6, 7, 8), (1, 10, 11)
"""Of ONNX: int32, int64 and string; float32, float16 and float64."""
SHOWN = 3
SCALES = (0.1, 1.0, 10.0, 100.0)
SAMPLES_PER_SCALE = 250
MOST_TIES = 0.01
"""Share of samples for which the largest score may be another class than the label: support vectors of several classes
vote, and scikit-learn breaks ties of votes, and of probabilities, otherwise than by the scores."""
CLEAR_MARGIN = 1e-5
"""Of the two largest scores, relative: below it, float32 may order them either way."""


@dataclass(frozen=True)
class ClassicModel:
    """A model's bytes with its scores alone; `changes` says what was done, in words.

    `classes` are the labels that the file names, in the order of its scores; none where it names none. `operators` are
    those of the domain `ai.onnx.ml` that are left.
    """

    content: bytes
    changes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    @property
    def is_regressor(self) -> bool:
        """Whether its values come from an operator for regressions."""
        return not self.classes and any(name.endswith("Regressor") for name in self.operators)

    @property
    def refusal(self) -> str:
        """Why no other interpreter than ONNX Runtime takes it; empty where that is not so."""
        if not self.operators:
            return ""
        more = f" and {len(self.operators) - SHOWN} more" if len(self.operators) > SHOWN else ""
        return f"ONNX Runtime alone runs {', '.join(self.operators[:SHOWN])}{more} ({DOMAIN}); leave this target out"


@lru_cache(maxsize=4)
def read(content: bytes, two_classes: bool = False) -> ClassicModel:
    """The model without its label and its ZipMap; the same bytes where nothing has to change.

    With `two_classes`, a single probability becomes the scores of both classes, even if the file names no classes.
    ModelError where the model predicts several labels at once, or where its scores do not decide its label.
    """
    model = _parsed(content)
    changes, classes = _take_off(model)
    is_corrected = False
    if _is_classic(model.graph) and len(model.graph.output) == 1:
        columns = _columns(model)
        is_corrected = _declare_columns(model, columns)
        if columns == 1 and (two_classes or len(classes) == 2):
            changes += _both_columns(model, named=bool(classes))
    if changes:
        _drop_unused(model.graph)
        changes += _agreeing_with_label(content, model, classes)
    if changes or is_corrected:
        content = bytes(model.SerializeToString(deterministic=True))
    operators = sorted({node.op_type for node in model.graph.node if node.domain == DOMAIN})
    return ClassicModel(content, tuple(changes), classes, tuple(operators))


def _take_off(model: Any) -> tuple[list[str], tuple[str, ...]]:
    """Take label and ZipMap off, in place; what was done, in words, and the names of the classes."""
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
    scores = _unzipped(model, makers[zips[0].name], len(classes)) if zips else floats[0]
    taken = [f"its label ({labels[0].name})"] if labels else []
    taken += ["its ZipMap"] if zips else []
    kept = type(scores)()
    kept.CopyFrom(scores)
    del graph.output[:]
    graph.output.append(kept)
    verb = "was" if len(taken) == 1 else "were"
    said = f"{' and '.join(taken)} {verb} taken off; its output is {kept.name}, {_use(classes)}"
    return [said], classes


def _check_single(name: str, labels: int) -> None:
    """ModelError where the output `name` holds several labels for each sample."""
    if labels > 1:
        raise ModelError(
            f"its output {name} holds {labels} labels for each sample, a bundle answers one; convert a model for each "
            "label by itself"
        )


def _use(classes: tuple[str, ...]) -> str:
    """What the runner does with the scores that are left."""
    return "of which the runner makes the label" if classes else "which stands for itself, without a label"


def _is_classic(graph: Any) -> bool:
    return any(node.domain == DOMAIN for node in graph.node)


def _is_zip(node: Any) -> bool:
    return node is not None and node.op_type == "ZipMap" and node.domain == DOMAIN


def _unzipped(model: Any, zipmap: Any, classes: int) -> Any:
    """What a ZipMap is made from, as an output (n, classes)."""
    from onnx import TensorProto, helper

    sides = model.graph.input[0].type.tensor_type.shape.dim
    batch = (sides[0].dim_value or sides[0].dim_param or None) if len(sides) else None
    return helper.make_tensor_value_info(zipmap.input[0], TensorProto.FLOAT, [batch, classes or None])


def _classes(graph: Any, outputs: Iterable[Any], makers: dict[str, Any]) -> tuple[str, ...]:
    """The classes that the node nearest to the label names; none where no node names any."""
    constants = {each.name: each for each in graph.initializer}
    waiting = [each.name for each in outputs]
    seen = set(waiting)
    for name in waiting:
        node = makers.get(name)
        if node is None:
            continue
        if found := _named_by(node, constants):
            return found
        fresh = [each for each in node.input if each not in seen]
        seen.update(fresh)
        waiting += fresh
    return ()


def _named_by(node: Any, constants: dict[str, Any]) -> tuple[str, ...]:
    """The class labels in a node's attributes, or those that it picks one of."""
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


def _both_columns(model: Any, named: bool) -> list[str]:
    """Make two columns of the single score of two classes, in place, where it is known what that score is; in words.

    A score that is no probability is a margin only where the file itself has named its two classes.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    output = graph.output[0]
    if output.type.tensor_type.elem_type != TensorProto.FLOAT:
        return []
    known = {name for node in graph.node for name in (*node.input, *node.output)}
    known |= {each.name for each in graph.initializer}
    is_probability = _is_probability(output.name, _makers(graph))
    if not (is_probability or named):
        return []
    both, other, one = (unused_name(f"{output.name}_{what}", known) for what in ("both", "other", "one"))
    if is_probability:
        graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), one))
        graph.node.append(helper.make_node("Sub", [one, output.name], [other]))
        said = "its one probability p became the two of its classes, [1 - p, p]"
    else:
        graph.node.append(helper.make_node("Sub", [output.name, output.name], [other]))
        said = "its one margin z became the logits of its two classes, [0, z]"
    graph.node.append(helper.make_node("Concat", [other, output.name], [both], axis=1))
    sides = output.type.tensor_type.shape.dim
    batch = (sides[0].dim_value or sides[0].dim_param or None) if len(sides) else None
    made = helper.make_tensor_value_info(both, TensorProto.FLOAT, [batch, 2])
    del graph.output[:]
    graph.output.append(made)
    return [said]


def _columns(model: Any) -> int:
    """How many scores it really gives for a sample of zeros: a converter's word is not always true. 0: not known."""
    answers = _answers(model.SerializeToString(), np.zeros(1))
    if answers is None:
        return 0
    scores = answers[0][0]
    return int(scores.size) if scores.shape in ((1, scores.size), (scores.size,)) else 0


def _answers(content: bytes, scales: np.ndarray) -> list[list[Any]] | None:
    """All outputs for one random sample of each scale, the same samples for every model; None where it does not run.

    The samples go in one at a time, because some converters fix the batch at one.
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
    except runtime_errors():  # what is wrong with the model shows again where it is opened
        return None


def _declare_columns(model: Any, columns: int) -> bool:
    """Let the one output declare the columns that come out, in place; whether it declared others."""
    sides = model.graph.output[0].type.tensor_type.shape.dim
    if not columns or len(sides) != 2 or sides[1].dim_value == columns:
        return False
    sides[1].dim_value = columns
    return True


def _agreeing_with_label(content: bytes, model: Any, classes: tuple[str, ...]) -> list[str]:
    """Compare the class of the largest score with the label of the unchanged model, `content`, on random samples.

    Scores of two classes that always say the opposite are negated, in place. Returns what was done or seen, in words.
    ModelError where they differ for more samples than ties explain.
    """
    scales = np.repeat(SCALES, SAMPLES_PER_SCALE)
    before, after = _answers(content, scales), _answers(model.SerializeToString(), scales)
    outputs = _parsed(content).graph.output
    place = next((at for at, each in enumerate(outputs) if each.type.tensor_type.elem_type in LABELS), None)
    if place is None:
        return []
    if before is None or after is None:
        return ["its scores were not compared with its label, because the model does not run on random samples"]
    labels = np.stack([np.asarray(each[place]).ravel() for each in before])
    _check_single(outputs[place].name, labels.shape[1])
    scores = np.stack([np.asarray(each[0], np.float64).ravel() for each in after])
    if len(classes) < 2 or scores.shape[1] != len(classes):
        return []
    is_clear, differ = _differing(scores, labels[:, 0], classes)
    if not differ.any():
        return []
    if len(classes) == 2 and differ[is_clear].all():
        return [_negate(model)]
    return [_ties(differ, "random samples")]


def compare_labels(
    content: bytes, samples: Sequence[dict[str, np.ndarray]], scores: np.ndarray, classes: tuple[str, ...]
) -> str:
    """Compare the class of the largest of recorded scores (n, classes) with the label of the unchanged model `content`.

    Returns what was seen, in words; nothing where the model has no label, or its scores are not those of its classes.
    ModelError where they differ for more samples than ties explain.
    """
    import onnxruntime

    label = next((each for each in _parsed(content).graph.output if each.type.tensor_type.elem_type in LABELS), None)
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
    _, differ = _differing(scores, labels, classes)
    if not differ.any():
        return f"the class of the largest score, for each of the {len(differ)} golden samples"
    return _ties(differ, "golden samples")


def _differing(scores: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """For which samples the largest of the scores (n, classes) is clear, and for which of these it is no label's."""
    largest = np.sort(scores, axis=1)[:, -2:]
    is_clear = largest[:, 1] - largest[:, 0] > CLEAR_MARGIN * np.abs(largest).max(axis=1)
    own = np.array([_text(label) for label in labels])
    return is_clear, is_clear & (np.array(classes)[scores.argmax(axis=1)] != own)


def _ties(differ: np.ndarray, what: str) -> str:
    """What was seen, in words, where ties explain it; else ModelError."""
    seen = f"the class of its largest score is not its own label for {differ.sum()} of {len(differ)} {what}"
    if differ.sum() <= math.ceil(MOST_TIES * len(differ)):
        return f"{seen}, because it breaks ties otherwise; the runner takes the score"
    raise ModelError(
        f"{seen}, so the scores do not decide; wrap the classifier in sklearn.calibration.CalibratedClassifierCV, or "
        "train one that has predict_proba, and convert it again"
    )


def _negate(model: Any) -> str:
    """Change the sign of the scores, in place; says so in words."""
    from onnx import helper

    graph = model.graph
    known = {name for node in graph.node for name in (*node.input, *node.output)}
    output = graph.output[0]
    name = unused_name(f"{output.name}_negated", known)
    graph.node.append(helper.make_node("Neg", [output.name], [name]))
    said = f"its scores ({output.name}) were negated, because their order was the opposite of its label"
    output.name = name
    return said


def _parsed(content: bytes) -> Any:
    import onnx

    return onnx.load_model_from_string(content)


def _is_probability(name: str, makers: dict[str, Any]) -> bool:
    """Whether a score comes out of a sigmoid; of a regressor with one target, ONNX Runtime ignores LOGISTIC."""
    node = makers.get(name)
    while node is not None and node.op_type in PASSING:
        node = makers.get(node.input[0])
    return node is not None and bool(node.op_type == "Sigmoid")


def _makers(graph: Any) -> dict[str, Any]:
    return {name: node for node in graph.node for name in node.output}


def _drop_unused(graph: Any) -> None:
    """Remove the nodes and constants that the outputs do not need, in place."""
    needed = {each.name for each in graph.output}
    for place in reversed(range(len(graph.node))):
        node = graph.node[place]
        if needed.isdisjoint(node.output):
            del graph.node[place]
        else:
            needed.update(_taken(node))
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in needed:
            del graph.initializer[place]
    made = {name for node in graph.node for name in node.output}
    for place in reversed(range(len(graph.value_info))):
        if graph.value_info[place].name not in made:
            del graph.value_info[place]


def _taken(node: Any) -> Iterator[str]:
    """What a node takes, and what the graphs inside it do."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            yield from (each.name for each in inner.output)
            for one in inner.node:
                yield from _taken(one)


def several_outputs_advice(model: Any) -> str:
    """What to do about a classic model of several outputs, which is left so; empty elsewhere."""
    if not _is_classic(model.graph):
        return ""
    if len(model.graph.output) > 1:
        return "; convert it again with options={'zipmap': False}, and no output beside the label and the probabilities"
    return ""
