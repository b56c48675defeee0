"""Small models of what files may hold: bodies of If and Loop, states, several ends, a free batch, odd names."""

from __future__ import annotations

from typing import Any

import numpy as np

HEAD = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft": 1, "ai.onnx.ml": 3]>'
BODIES = {
    "condition": """named_graph (float[batch, 3] picture, bool[1] flag) => (float[batch, 3] answer)
        <float[1] factor = {2.0}, float[3] shift = {1.0, -2.0, 3.0}> {
            doubled_picture = Mul(picture, factor)
            answer = If (flag) <
                then_branch = then_graph () => (float[batch, 3] then_answer) {
                    then_answer = Add(doubled_picture, shift)
                },
                else_branch = else_graph () => (float[batch, 3] else_answer) {
                    inner_tensor = Neg(doubled_picture)
                    else_answer = Sub(inner_tensor, factor)
                }>
        }""",
    "loop": """named_graph (float[1, 3] picture) => (float[1, 3] answer)
        <int64 count = {4}, bool go = {1}, float[3] shift = {1.0, -2.0, 3.0}> {
            first_tensor = Relu(picture)
            answer = Loop (count, go, first_tensor) <
                body = body_graph (int64 turn, bool going, float[1, 3] carried) => (bool goes_on, float[1, 3] next) {
                    goes_on = Identity(going)
                    shifted_tensor = Add(carried, shift)
                    next = Mul(shifted_tensor, picture)
                }>
        }""",
    "several ends": """named_graph (float[2, 3] a, float[2, 3] b) => (float[2, 3] c, float[2, 6] d)
        <float[1] e = {0.5}, float[1] f = {0.5}, float[3] g = {1.0, 2.0, 3.0}> {
            halved_tensor = Mul(a, e)
            other_half = Mul(b, f)
            c = Add(halved_tensor, other_half)
            scaled_tensor = Mul(b, g)
            d = Concat <axis = 1> (c, scaled_tensor)
        }""",
    "names like numbers": """named_graph (float[2, 3] 0, float[2, 3] 1) => (float[2, 3] 2)
        <float[1] weight = {0.5}> {
            scaled_tensor = Mul(0, weight)
            2 = Add(scaled_tensor, 1)
        }""",
}


def onnx_model(name: str) -> bytes:
    """By its name among `BODIES`."""
    import onnx

    numbers = {"0": "n0", "1": "n1", "2": "n2"} if name == "names like numbers" else {}
    text = BODIES[name]
    for number, word in numbers.items():  # the parser takes no name that begins with a digit
        text = text.replace(f"float[2, 3] {number}", f"float[2, 3] {word}").replace(f"Mul({number}", f"Mul({word}")
        text = text.replace(f", {number})", f", {word})").replace(f" {number} = Add", f" {word} = Add")
    model = onnx.parser.parse_model(HEAD + text)
    back = {word: number for number, word in numbers.items()}
    for each in (*model.graph.input, *model.graph.output):
        each.name = back.get(each.name, each.name)
    for place, node in enumerate(model.graph.node):
        node.name = f"a_long_name_of_an_operator_{place}"
        for names in (node.input, node.output):
            names[:] = [back.get(one, one) for one in names]
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def random_inputs(ports: list[tuple[str, tuple[int, ...], str]], seed: int) -> dict[str, np.ndarray]:
    """Random values for inputs of a name, a shape and a dtype."""
    random = np.random.default_rng(seed)
    return {
        name: np.array([seed % 2 == 0]) if dtype == "bool" else random.normal(size=shape).astype(np.float32)
        for name, shape, dtype in ports
    }


def stateful() -> Any:
    """An `openvino.Model` that sums what it is given, call after call."""
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter([1, 3], np.float32, name="picture")
    x.output(0).set_names({"picture"})
    before = ops.read_value(ops.constant(np.zeros((1, 3), np.float32)), "sum_of_all")
    after = ops.add(before, x)
    kept = ops.assign(after, "sum_of_all")
    result = ops.result(ops.multiply(after, ops.constant(np.float32(0.5))), name="answer")
    result.input_value(0).set_names({"answer"})
    return openvino.Model([result], [kept], [x], "stateful")


def arithmetic() -> Any:
    """An `openvino.Model` with each layer whose attributes are left out, with its default and with another."""
    import openvino
    from openvino import opset13 as ops

    x = ops.parameter([1, 2, 6, 6], np.float32, name="picture")
    x.output(0).set_names({"picture"})
    ones, kernel = np.ones((1, 2, 1, 1), np.float32), np.linspace(-1, 1, 36, dtype=np.float32)
    found = x
    for make in (ops.add, ops.subtract, ops.multiply, ops.divide, ops.maximum, ops.minimum):
        found = make(found, ops.constant(ones))
    found = ops.add(found, x, auto_broadcast="none")
    low, high = ops.constant(np.float32(-1)), ops.constant(np.float32(1))
    found = ops.fake_quantize(found, low, high, low, high, 256)
    weights = ops.constant(kernel.reshape(2, 2, 3, 3))
    for pads, auto in (([1, 1], "explicit"), ([0, 0], "same_upper"), ([0, 0], "valid")):
        found = ops.convolution(found, weights, [1, 1], pads, pads, [1, 1], auto)
    grouped = ops.constant(kernel[:18].reshape(2, 1, 1, 3, 3))
    for auto in ("explicit", "same_lower"):
        found = ops.group_convolution(found, grouped, [1, 1], [1, 1], [1, 1], [1, 1], auto)
    found = ops.max_pool(found, [1, 1], [1, 1], [0, 0], [0, 0], [2, 2])
    result = ops.result(found.output(0), name="answer")
    result.input_value(0).set_names({"answer", "second,name"})
    return openvino.Model([result], [x], "arithmetic")
