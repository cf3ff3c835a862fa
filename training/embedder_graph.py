"""The network of all-MiniLM-L6-v2 as ONNX graphs without weights, which the workbench fills from the packaged safetensors.

    python -m training.embedder_graph

Ids (B, L) of one length in, the last layer's vectors (B, L, 384) out: nothing is padded, so there is no mask. Attention, the layer
norms and the GELU are onnxruntime's fused operators, with the exact GELU that the model was trained with. Each weight is declared with
its shape and as lying elsewhere; `cems_workbench.models.minilm_embedder` gives all of them when it opens the graph. In the second graph the
matrices are int8, and what they are multiplied with is rounded to 8 bits as it runs: by the largest value of a text, and what a GELU gave
by the largest of each wordpiece, since those of a few wordpieces are many times those of the others. Beside it stands how large the values
become that each matrix is multiplied with, in texts of the sample store.

Source: Devlin et al. 2018 (BERT); Wang et al. 2020 (MiniLM); Xiao et al. 2023 (SmoothQuant); onnxruntime's contrib operators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cems_workbench import formats
from cems_workbench.models.local_embedder import local_embedder
from cems_workbench.models.minilm_embedder import (
    ACTIVATION_RANGES,
    EIGHT_BIT_GRAPH,
    GRAPH,
    HEADS,
    INNER,
    LAYERS,
    POSITIONS,
    WIDTH,
    WORDPIECES,
    MiniLMEmbedder,
    open_session,
)
from cems_workbench.models.onnx_session import SATURATION_GRAPH, SATURATION_SIZE
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import PACKAGED_ID
from cems_workbench.records import indexed_text

FUSED = "com.microsoft"
EPSILON = 1e-12
LEAST = 1e-3
"""Nothing is divided by less: what is that small before a matrix counts for nothing behind it."""
SAMPLE = Path(__file__).parents[1] / "sample_data"
EVERY = 4
"""Of the sample's memories each fourth is read."""


def network(*, eight_bits: bool = False) -> bytes:
    """The graph, serialised."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="given by the program")
        weights.append(tensor)
        return name

    def node(kind: str, inputs: list[str], output: str, domain: str = FUSED, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

    def product(read: str, name: str, rows: int, columns: int, output: str, *, even: bool = False) -> str:
        if not eight_bits:
            return node("MatMul", [read, weight(name, rows, columns)], output, domain="")
        return rounded(evened(read, name, rows) if even else read, name, rows, columns, output, name + "_bias")

    def evened(read: str, name: str, rows: int) -> str:
        return node("Mul", [read, weight(name + "_even", rows)], name + "_evened", domain="")

    def rounded(read: str, name: str, rows: int, columns: int, output: str, bias: str = "") -> str:
        given = [read, weight(name, rows, columns, kind=TensorProto.INT8), weight(name + "_scale", columns)]
        return node("DynamicQuantizeMatMul", given + (["", weight(bias, columns)] if bias else []), output)

    def rounded_by_row(read: str, name: str, rows: int, columns: int, output: str) -> str:
        read = evened(read, name, rows)
        highest = node("ReduceMax", [read], name + "_highest", "", axes=[-1], keepdims=1)
        largest = node("Max", [highest, "least"], name + "_largest", domain="")
        level = node("Mul", [read, node("Reciprocal", [largest], name + "_level", "")], name + "_leveled", domain="")
        return node("Mul", [rounded(level, name, rows, columns, name + "_product"), largest], output, domain="")

    def attention(read: str, at: str) -> str:
        if not eight_bits:
            return node(
                "Attention",
                [read, weight(at + "qkv", WIDTH, 3 * WIDTH), weight(at + "qkv_bias", 3 * WIDTH)],
                at + "attended",
                num_heads=HEADS,
            )
        projected = product(read, at + "qkv", WIDTH, 3 * WIDTH, at + "projected", even=True)
        parts = [at + part for part in ("query", "key", "value")]
        nodes.append(helper.make_node("Split", [projected], parts, axis=-1))
        return node("MultiHeadAttention", parts, at + "attended", num_heads=HEADS)

    def bent(wide: str, at: str) -> str:
        if eight_bits:
            return node("Gelu", [wide], at + "bent")
        return node("BiasGelu", [wide, weight(at + "widen_bias", INNER)], at + "bent")

    def normed(added: str, read: str, at: str, norm: str, output: str) -> str:
        scale, shift = weight(at + norm, WIDTH), weight(f"{at}{norm}_bias", WIDTH)
        summed = node("Add", [added, read], f"{at}{norm}_summed", domain="")
        return node("LayerNormalization", [summed, scale, shift], output, "", epsilon=EPSILON)

    def biased(added: str, name: str) -> str:
        return node("Add", [added, weight(name + "_bias", WIDTH)], name + "_biased", domain="")

    if eight_bits:
        weights.append(helper.make_tensor("least", TensorProto.FLOAT, [], [LEAST]))
    words = node("Gather", [weight("words", WORDPIECES, WIDTH), "ids"], "word_vectors", domain="")
    places = node("Gather", [weight("places", POSITIONS, WIDTH), "places_read"], "place_vectors", domain="")
    summed = node("Add", [words, places], "summed", domain="")
    read = node(
        "LayerNormalization", [summed, weight("norm", WIDTH), weight("norm_bias", WIDTH)], "read", "", epsilon=EPSILON
    )
    for layer in range(LAYERS):
        at = f"layer{layer}."
        attended = attention(read, at)
        mixed = product(attended, at + "mix", WIDTH, WIDTH, at + "mixed")
        read = normed(mixed if eight_bits else biased(mixed, at + "mix"), read, at, "norm1", at + "first")
        wide = bent(product(read, at + "widen", WIDTH, INNER, at + "wide", even=True), at)
        narrow = (rounded_by_row if eight_bits else product)(wide, at + "narrow", INNER, WIDTH, at + "narrowed")
        read = normed(
            biased(narrow, at + "narrow"), read, at, "norm2", at + "second" if layer < LAYERS - 1 else "vectors"
        )
    given = [
        helper.make_tensor_value_info("ids", TensorProto.INT32, ["texts", "wordpieces"]),
        helper.make_tensor_value_info("places_read", TensorProto.INT32, ["wordpieces"]),
    ]
    found = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", "wordpieces", WIDTH])]
    graph = helper.make_graph(nodes, "all-MiniLM-L6-v2", given, found, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def saturation() -> bytes:
    """One product of 8-bit matrices with weights of 127, which shows whether a processor saturates sums."""
    weights = numpy_helper.from_array(np.full((SATURATION_SIZE, SATURATION_SIZE), 127, np.int8), "weights")
    given = helper.make_tensor_value_info("read", TensorProto.UINT8, ["rows", SATURATION_SIZE])
    found = helper.make_tensor_value_info("sums", TensorProto.INT32, ["rows", SATURATION_SIZE])
    product = helper.make_node("MatMulInteger", ["read", "weights"], ["sums"])
    graph = helper.make_graph([product], "saturation", [given], [found], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def largest() -> dict[str, Float32]:
    """By matrix of the 8-bit graph the largest absolute value of each thing it is multiplied with, in single precision."""
    embedder = local_embedder(PACKAGED_ID)
    assert isinstance(embedder, MiniLMEmbedder)
    graph = onnx.load_from_string(GRAPH.read_bytes())
    read = {"layer0.qkv": "read"} | {f"layer{layer + 1}.qkv": f"layer{layer}.second" for layer in range(LAYERS - 1)}
    for layer in range(LAYERS):
        read |= {f"layer{layer}.widen": f"layer{layer}.first", f"layer{layer}.narrow": f"layer{layer}.bent"}
    graph.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in read.values())
    session = open_session(graph.SerializeToString(), embedder.network.values)
    texts = [indexed_text(memory) for parsed in formats.read_path(SAMPLE) for memory in parsed.memories][::EVERY]
    found = {name: np.zeros(0, np.float32) for name in read}
    for text in texts:
        values = session.run(
            list(read.values()), embedder.network.feed(embedder.wordpieces([text])[0][: embedder.room])
        )
        for name, value in zip(read, values, strict=True):
            large = np.abs(value[0]).max(axis=0)
            found[name] = np.maximum(found[name], large) if len(found[name]) else large
    return found


if __name__ == "__main__":
    GRAPH.parent.mkdir(exist_ok=True)
    for graph, eight_bits in ((GRAPH, False), (EIGHT_BIT_GRAPH, True)):
        print(f"{graph.name}: {graph.write_bytes(network(eight_bits=eight_bits)):,} bytes")
    print(f"{SATURATION_GRAPH.name}: {SATURATION_GRAPH.write_bytes(saturation()):,} bytes")
    np.savez(ACTIVATION_RANGES, **{name: values.astype(np.float16) for name, values in largest().items()})  # type: ignore[arg-type]
    print(f"{ACTIVATION_RANGES.name}: {ACTIVATION_RANGES.stat().st_size:,} bytes")
