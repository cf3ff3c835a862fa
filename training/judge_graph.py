"""The network of `workbench/minilm-judge` as a graph that onnxruntime runs without changing it, over the weights in model.onnx.

    python -m training.judge_graph

onnxruntime optimises model.onnx at each load, a tenth of a second, and copies its 24 MB. Here that is done once, with the mask left out
(each pair is read alone, unpadded) and zero points too (all are 0), which changes no score; Softmax calls a function (training/softmax.py).
Attention multiplies the heads where they lie, instead of copies in another order, and asks no input for its shape: 228 nodes instead of
288 and 0.95 of the time.
A large tensor is named by its place in model.onnx, from where onnxruntime maps it. `training.export` writes it too.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cems_workbench.models.device import Way, session_options
from cems_workbench.models.minilm_judge import FOLDER, MADE_OF, MODEL, NETWORK, digest_of, samples_of
from training import softmax

LEAST_MAPPED = 20_000
"""Bytes of a tensor from which it stays in model.onnx."""
IR_VERSION = 8
"""The first with functions."""
ZERO_POINT = {"MatMulIntegerToFloat": 5, "DynamicQuantizeMatMul": 3}
"""By operator which input is the zero point of its weights."""


def network(model: Path) -> bytes:
    """The graph, serialised. Raises ValueError for zero points that are not 0."""
    made = optimised(model)
    graph = made.graph
    source = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        place = ZERO_POINT.get(node.op_type, -1)
        if place >= 0 and node.input[place]:
            if np.any(numpy_helper.to_array(constants[node.input[place]])):
                raise ValueError(f"{node.input[place]} is not 0")
            node.input[place] = ""
        if node.op_type == "Softmax" and source[node.input[0]].op_type == "Add":
            node.input[0] = source[node.input[0]].input[0]
        if node.op_type == "Softmax":
            node.CopyFrom(softmax.called(node.input[0], node.output[0]))
    join_heads(graph)
    made.opset_import.append(softmax.opset())
    made.ir_version = IR_VERSION
    prune(graph)
    contents = model.read_bytes()
    for tensor in graph.initializer:
        if len(tensor.raw_data) >= LEAST_MAPPED:
            begin = contents.index(tensor.raw_data)
            for key, value in (("location", MODEL), ("offset", begin), ("length", len(tensor.raw_data))):
                tensor.external_data.add(key=key, value=str(value))
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
    return bytes(made.SerializeToString())


def join_heads(graph: onnx.GraphProto) -> None:
    """Have each attention multiply (tokens, heads, width of a head) with strides, for the one text that a run has."""
    source = {output: node for node in graph.node for output in node.output}
    reader = {read: node for node in graph.node for read in node.input}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in [node for node in graph.node if node.op_type == "Softmax"]:
        alike, mixed = source[node.input[0]], reader[node.output[0]]
        turned = [source[read] for read in (*alike.input, mixed.input[1])]
        query, key, value = (transpose.input[0] for transpose in turned)
        if "by_head" not in constants:
            inner = constants[source[source[query].input[0]].input[-1]].dims[0]  # the bias's
            width = numpy_helper.to_array(constants[source[source[query].input[1]].input[-1]]).item()
            for name, sizes in (("by_head", [-1, inner // width, width]), ("joined", [1, -1, inner])):
                constants[name] = numpy_helper.from_array(np.array(sizes), name)
                graph.initializer.append(constants[name])
        for part in (query, key, value):
            source[part].input[1] = "by_head"
        scale = next(each.f for each in alike.attribute if each.name == "alpha")
        pair, scores = [query, key], [mixed.input[0], value]
        alike.CopyFrom(_product(pair, alike.output, alpha=scale, transB=1, transBatchA=1, transBatchB=1))
        mixed.CopyFrom(_product(scores, mixed.output, alpha=1.0, transBatchB=1))
        back = reader[mixed.output[0]]
        back.CopyFrom(helper.make_node("Transpose", back.input, back.output, perm=[1, 0, 2]))
        reader[back.output[0]].input[1] = "joined"


def _product(inputs: list[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("FusedMatMul", inputs, outputs, domain="com.microsoft", **attributes)


def optimised(model: Path) -> onnx.ModelProto:
    """What onnxruntime makes of a model, with operators for every processor."""
    import onnxruntime

    options = session_options(Way())
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as scratch:
        options.optimized_model_filepath = str(Path(scratch) / "optimised.onnx")
        onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def prune(graph: onnx.GraphProto) -> None:
    """Remove nodes and initializers that no output needs."""
    needed, kept = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(node.input)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(initializers)


def write_network(folder: Path) -> None:
    """Write network.onnx, and which files it was made of."""
    (folder / NETWORK).write_bytes(network(folder / MODEL))
    kept = {"digest": digest_of(folder), "samples": samples_of(folder)}
    (folder / MADE_OF).write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    write_network(FOLDER)
    print(f"{NETWORK}: {(FOLDER / NETWORK).stat().st_size:,} bytes")
