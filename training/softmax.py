"""Softmax as a function, for graphs whose numbers must be the same on every processor: their nodes workbench.Softmax call it.

    python -m training.softmax

plain.onnx calls the operator. onnxruntime adds there in an order that depends on the registers: with AVX-512 in 16 sums of each 16th
value, of which the two halves are added, then neighbours, three times. ordered.onnx does that with matrix products, whose sums every
processor with fused multiply-add forms one value after the other, so its results are those of plain.onnx with AVX-512 to the last digit
(onnxruntime 1.32), in two to three times the time. Its serialised form is appended to that of a graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cems_workbench.models.device import SOFTMAX

DOMAIN = "workbench"
OPSET = 17
LANES = 16
BLOCK = 256
"""Values that onnxruntime's matrix product adds in one go; a further block begins with the sums of the one before."""
MOST = 512
"""Values of a row: both networks read no more wordpieces."""


def called(read: str, output: str) -> onnx.NodeProto:
    """A node that calls the function over the last axis."""
    return helper.make_node("Softmax", [read], [output], domain=DOMAIN)


def opset() -> onnx.OperatorSetIdProto:
    """What a graph that calls the function imports."""
    return helper.make_opsetid(DOMAIN, 1)


def plain() -> bytes:
    """The operator itself, serialised."""
    return _function([helper.make_node("Softmax", ["x"], ["y"], axis=-1)])


def ordered() -> bytes:
    """The sums of AVX-512 in products of matrices, serialised."""
    nodes: list[onnx.NodeProto] = []

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(name: str, value: Any) -> str:
        return node("Constant", [], name, value=numpy_helper.from_array(np.asarray(value), name))

    least, last, rows = constant("least", [0]), constant("last", [-1]), constant("rows", [0])
    lane = node(
        "Tile",
        [constant("each", np.eye(LANES, dtype=np.float32)), constant("times", [BLOCK // LANES, 1])],
        "lane",
    )
    highest = node("ReduceMax", ["x"], "highest", axes=[-1], keepdims=1)
    powers = node("Exp", [node("Sub", ["x", highest], "below")], "powers")
    begin, sums = 0, ""
    while begin < MOST:
        end = min(begin + BLOCK - LANES * bool(sums), MOST)
        at = f"_{begin}"
        ends = [constant("begin" + at, [begin]), constant("end" + at, [end])]
        read = node("Slice", [powers, *ends, last], "part" + at)
        if sums:
            read = node("Concat", [sums, read], "read" + at, axis=-1)
        length = node("Shape", [read], "length" + at, start=-1)
        sums = node("MatMul", [read, node("Slice", [lane, least, length, rows], "lane" + at)], "sums" + at)
        begin = end
    halves = np.vstack([np.eye(LANES // 2, dtype=np.float32)] * 2)
    neighbours = [np.repeat(np.eye(size, dtype=np.float32), 2, axis=0) for size in (4, 2, 1)]
    for i, added in enumerate((halves, *neighbours)):
        sums = node("MatMul", [sums, constant(f"added_{i}", added)], f"fewer_{i}")
    # Not 1 / sums: onnxruntime would make one division of that and the product.
    node("Mul", [powers, node("Reciprocal", [sums], "share")], "y")
    return _function(nodes)


def _function(nodes: list[onnx.NodeProto]) -> bytes:
    model = onnx.ModelProto()
    model.functions.append(
        helper.make_function(DOMAIN, "Softmax", ["x"], ["y"], nodes, [helper.make_opsetid("", OPSET)])
    )
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    SOFTMAX.mkdir(exist_ok=True)
    for name, made in (("plain.onnx", plain()), ("ordered.onnx", ordered())):
        print(f"{name}: {(SOFTMAX / name).write_bytes(made):,} bytes")
