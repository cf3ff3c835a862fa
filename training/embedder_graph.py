"""The network of all-MiniLM-L6-v2 as ONNX graphs without weights, which the workbench fills from the packaged safetensors.

    python -m training.embedder_graph

Ids (B, L) of one length in, the last layer's vectors (B, L, 384) out: nothing is padded, so there is no mask. Attention, the layer
norms and the GELU are onnxruntime's fused operators, with the exact GELU that the model was trained with. Each weight is declared with
its shape and as lying elsewhere; `cems_workbench.models.minilm_embedder` gives all of them when it opens the graph. In the second graph the
matrices are int8, and what they are multiplied with is rounded to 8 bits as it runs: by the largest value of a text, and what a GELU gave
by the largest of each wordpiece, since those of a few wordpieces are many times those of the others. Its attention is of single
operators, with Softmax as a function, because the fused one gives other last digits on other processors. Beside it stands by which factors
large values are moved into the matrices, from texts of the sample store.

Source: Devlin et al. 2018 (BERT); Wang et al. 2020 (MiniLM); Xiao et al. 2023 (SmoothQuant); onnxruntime's contrib operators.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from cems_workbench import formats
from cems_workbench.models.minilm_embedder import (
    EIGHT_BIT_GRAPH,
    EVENING,
    GRAPH,
    HEADS,
    INNER,
    LAYERS,
    POSITIONS,
    WEIGHTS,
    WIDTH,
    WORDPIECES,
    MiniLMEmbedder,
    local_embedder,
    matrices,
    open_session,
)
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import PACKAGED_ID, packaged_minilm
from cems_workbench.store.text_rule import searched_text
from training import softmax

FUSED = "com.microsoft"
EPSILON = 1e-12
TYPES = 2
SWAP = [0, 2, 1, 3]
"""The axes of (texts, wordpieces, heads, width of one), which swaps heads and wordpieces, and back."""
LEAST = 1e-3
"""Nothing is divided by less: what is that small before a matrix counts for nothing behind it."""
SAMPLE = Path(__file__).parents[1] / "sample_data"
SMOOTHING_SHARE = 0.6
"""The share of a large activation that is moved into the weights."""
EVERY = 4
"""Of the sample's memories each fourth is read."""


def network(*, eight_bits: bool = False) -> bytes:
    """The graph, serialised."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    places = tensors_in(packaged_weights())

    def weight(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        if name in places:
            begin, end = places[name]
            for key, value in (("location", WEIGHTS), ("offset", begin), ("length", end - begin)):
                tensor.external_data.add(key=key, value=str(value))
        else:
            tensor.external_data.add(key="location", value="given by the program")
        weights.append(tensor)
        return name

    def node(kind: str, inputs: list[str], output: str, domain: str = FUSED, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

    def multiplied(read: str, of: str, rows: int, columns: int, output: str) -> str:
        # As torch writes it: (out, in).
        return node("FusedMatMul", [read, weight(f"{of}.weight", columns, rows)], output, transB=1)

    def evened(read: str, name: str, rows: int) -> str:
        return node("Mul", [read, weight(name + "_even", rows)], name + "_evened", domain="")

    def rounded(read: str, name: str, rows: int, columns: int, output: str, bias: str = "") -> str:
        given = [read, weight(name, rows, columns, kind=TensorProto.INT8), weight(name + "_scale", columns)]
        return node("DynamicQuantizeMatMul", given + (["", bias] if bias else []), output)

    def rounded_by_row(read: str, name: str, rows: int, columns: int, output: str) -> str:
        read = evened(read, name, rows)
        highest = node("ReduceMax", [read], name + "_highest", "", axes=[-1], keepdims=1)
        largest = node("Max", [highest, "least"], name + "_largest", domain="")
        level = node("Mul", [read, node("Reciprocal", [largest], name + "_level", "")], name + "_leveled", domain="")
        return node("Mul", [rounded(level, name, rows, columns, name + "_product"), largest], output, domain="")

    def attention(read: str, of: str, at: str) -> str:
        parts = [f"{of}attention.self.{part}" for part in ("query", "key", "value")]
        bias = node("Concat", [weight(f"{part}.bias", WIDTH) for part in parts], at + "qkv_bias", "", axis=0)
        if not eight_bits:
            projected = [multiplied(read, part, WIDTH, WIDTH, part) for part in parts]
            return node("MultiHeadAttention", [*projected, bias], at + "attended", num_heads=HEADS)
        together = rounded(evened(read, at + "qkv", WIDTH), at + "qkv", WIDTH, 3 * WIDTH, at + "projected", bias)
        nodes.append(helper.make_node("Split", [together], parts, axis=-1))
        query, key, value = (
            node("Transpose", [node("Reshape", [part, "by_head"], part + "_split", "")], part + "_heads", "", perm=SWAP)
            for part in parts
        )
        near = node("FusedMatMul", [query, key], at + "near", transB=1, alpha=(WIDTH / HEADS) ** -0.5)
        nodes.append(softmax.called(near, at + "shares"))
        heads = node("MatMul", [at + "shares", value], at + "heads", domain="")
        together = node("Transpose", [heads], at + "together", domain="", perm=SWAP)
        return node("Reshape", [together, "by_text"], at + "attended", domain="")

    def bent(read: str, of: str, at: str) -> str:
        bias = weight(of + "intermediate.dense.bias", INNER)
        if not eight_bits:
            return node(
                "BiasGelu", [multiplied(read, of + "intermediate.dense", WIDTH, INNER, at + "wide"), bias], at + "bent"
            )
        name = at + "widen"
        return node("Gelu", [rounded(evened(read, name, WIDTH), name, WIDTH, INNER, at + "wide", bias)], at + "bent")

    def normed(added: str, read: str, norm: str, output: str) -> str:
        summed = node("Add", [added, read], norm + "_summed", domain="")
        given = [summed, weight(norm + ".weight", WIDTH), weight(norm + ".bias", WIDTH)]
        return node("LayerNormalization", given, output, "", epsilon=EPSILON)

    def biased(added: str, of: str) -> str:
        return node("Add", [added, weight(of + ".bias", WIDTH)], of + "_biased", domain="")

    if eight_bits:
        weights.append(helper.make_tensor("least", TensorProto.FLOAT, [], [LEAST]))
        weights.append(helper.make_tensor("by_head", TensorProto.INT64, [4], [0, 0, HEADS, WIDTH // HEADS]))
        weights.append(helper.make_tensor("by_text", TensorProto.INT64, [3], [0, 0, WIDTH]))
    weights.append(helper.make_tensor("first_row", TensorProto.INT32, [], [0]))
    begin = "embeddings."
    words = node("Gather", [weight(begin + "word_embeddings.weight", WORDPIECES, WIDTH), "ids"], "word_vectors", "")
    place = [weight(begin + "position_embeddings.weight", POSITIONS, WIDTH), "places_read"]
    kind = [weight(begin + "token_type_embeddings.weight", TYPES, WIDTH), "first_row"]
    placed = [node("Gather", place, "place_vectors", ""), node("Gather", kind, "type_vector", "")]
    summed = node("Add", [words, node("Add", placed, "placed", "")], "summed", "")
    norm = [weight(begin + f"LayerNorm.{part}", WIDTH) for part in ("weight", "bias")]
    read = node("LayerNormalization", [summed, *norm], "read", "", epsilon=EPSILON)
    for layer in range(LAYERS):
        at, of = f"layer{layer}.", f"encoder.layer.{layer}."
        attended, mix, narrow = attention(read, of, at), of + "attention.output.dense", of + "output.dense"
        mixed = (
            rounded(attended, at + "mix", WIDTH, WIDTH, at + "mixed", weight(mix + ".bias", WIDTH))
            if eight_bits
            else biased(multiplied(attended, mix, WIDTH, WIDTH, at + "mixed"), mix)
        )
        read = normed(mixed, read, of + "attention.output.LayerNorm", at + "first")
        wide = bent(read, of, at)
        narrowed = (
            rounded_by_row(wide, at + "narrow", INNER, WIDTH, at + "narrowed")
            if eight_bits
            else multiplied(wide, narrow, INNER, WIDTH, at + "narrowed")
        )
        read = normed(
            biased(narrowed, narrow), read, of + "output.LayerNorm", at + "second" if layer < LAYERS - 1 else "vectors"
        )
    given = [
        helper.make_tensor_value_info("ids", TensorProto.INT32, ["texts", "wordpieces"]),
        helper.make_tensor_value_info("places_read", TensorProto.INT32, ["wordpieces"]),
    ]
    found = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["texts", "wordpieces", WIDTH])]
    graph = helper.make_graph(nodes, "all-MiniLM-L6-v2", given, found, weights)
    opsets = [helper.make_opsetid("", softmax.OPSET), helper.make_opsetid(FUSED, 1)]
    if eight_bits:
        opsets.append(softmax.opset())
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def packaged_weights() -> Path:
    """The safetensors file of the package."""
    return Path(packaged_minilm() or "") / WEIGHTS


def tensors_in(weights: Path) -> dict[str, tuple[int, int]]:
    """Where in a safetensors file each tensor begins and ends."""
    with weights.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    spans = {name: tensor["data_offsets"] for name, tensor in header.items() if name != "__metadata__"}
    return {name: (8 + size + begin, 8 + size + end) for name, (begin, end) in spans.items()}


def largest() -> dict[str, Float32]:
    """By matrix of the 8-bit graph the largest absolute value of each thing it is multiplied with, in single precision."""
    embedder = local_embedder(PACKAGED_ID)
    assert isinstance(embedder, MiniLMEmbedder)
    graph = onnx.load_from_string(GRAPH.read_bytes())
    read = {"layer0.qkv": "read"} | {f"layer{layer + 1}.qkv": f"layer{layer}.second" for layer in range(LAYERS - 1)}
    for layer in range(LAYERS):
        read |= {f"layer{layer}.widen": f"layer{layer}.first", f"layer{layer}.narrow": f"layer{layer}.bent"}
    graph.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in read.values())
    session = open_session(graph.SerializeToString(), packaged_weights())
    texts = [searched_text(memory) for parsed in formats.read_path(SAMPLE) for memory in parsed.memories][::EVERY]
    found = {name: np.zeros(0, np.float32) for name in read}
    for text in texts:
        values = session.run(
            list(read.values()), embedder.network.feed([embedder.wordpieces([text])[0][: embedder.room]])
        )
        for name, value in zip(read, values, strict=True):
            large = np.abs(value[0]).max(axis=0)
            found[name] = np.maximum(found[name], large) if len(found[name]) else large
    return found


def evening() -> dict[str, Float32]:
    """By matrix the factors that even out what it is multiplied with, mean 1: by how large both become (SmoothQuant)."""
    found = {}
    large = largest()
    for name, matrix in matrices(packaged_weights()):
        if name in large:
            weights = np.maximum(np.abs(matrix).max(axis=1), 1e-5)
            even = np.maximum(large[name], 1e-4) ** SMOOTHING_SHARE / weights ** (1 - SMOOTHING_SHARE)
            found[name] = (even / np.exp(np.log(even).mean())).astype(np.float32)
    return found


if __name__ == "__main__":
    GRAPH.parent.mkdir(exist_ok=True)
    for graph, eight_bits in ((GRAPH, False), (EIGHT_BIT_GRAPH, True)):
        print(f"{graph.name}: {graph.write_bytes(network(eight_bits=eight_bits)):,} bytes")
    np.savez(EVENING, **evening())  # type: ignore[arg-type]
    print(f"{EVENING.name}: {EVENING.stat().st_size:,} bytes")
