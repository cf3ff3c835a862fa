"""The weights of a packaged model.onnx as a weights.pt again, so that training can go on from what ships.

    python -m training.dequantise --out .workbench/training/packaged.pt
    python -m training.train --start .workbench/training/packaged.pt --whole ...

What 8 bits rounded away stays away: a weight is within half a step of its channel of what was trained.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from cems_workbench.models.minilm_judge import FOLDER
from training.export import WORDS, WORDS_8BIT, WORDS_SCALE, fresh

_NODE = re.compile(r"^/?(.*?)/(?:MatMul|Gemm_MatMul)_quant$")


def weights_of(model: Path, shapes: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Every weight that `shapes` names, in single precision; torch's shapes, a matrix being (out, in).

    Raises ValueError with the names when some are not in the file or have another shape.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(model)).graph
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {name: held[name] for name in shapes if name in held}
    if WORDS_8BIT in held:
        found[WORDS] = held[WORDS_8BIT].astype(np.float32) * held[WORDS_SCALE]
    for node in graph.node:
        named = _NODE.match(node.name)
        for given in node.input:
            if named and given.endswith("_quantized") and given in held:
                of = given.removesuffix("_quantized")
                steps = held[given].astype(np.float32) - held[f"{of}_zero_point"]
                found[f"{named[1].replace('/', '.')}.weight"] = (steps * held[f"{of}_scale"]).T
    taken = {name: torch.tensor(np.array(found[name], order="C")) for name in shapes if name in found}
    wrong = [name for name, value in shapes.items() if name not in taken or taken[name].shape != value.shape]
    if wrong:
        raise ValueError(f"not in {model}, or of another shape: {', '.join(wrong)}")
    return taken


def main() -> int:
    """Read, and write the weights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, default=FOLDER / "model.onnx")
    parser.add_argument("--out", type=Path, default=Path(".workbench/training/packaged.pt"))
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    torch.save(weights_of(options.model, fresh().state_dict()), options.out)
    print(options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
