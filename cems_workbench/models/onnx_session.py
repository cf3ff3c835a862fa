"""onnxruntime sessions of the packaged networks: one text or pair per thread, and sums that no processor saturates."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

SATURATION_GRAPH = Path(__file__).parent / "weights" / "minilm_embedder" / "saturation.onnx"
"""One product of 8-bit matrices whose weights are all 127; training/embedder_graph.py writes it."""
SATURATION_SIZE = 16


def session_options() -> Any:
    """`onnxruntime.SessionOptions` for a session on one thread, because texts and pairs run in parallel; without log output.

    A processor without VNNI sums products of 8 bits in 16, with saturation, unless precise mode is on. With VNNI that
    mode gives the same sums in 2.5 times the time (onnxruntime 1.32), so it is on only where they saturate.
    Source: `kOrtSessionOptionsAvx2PrecisionMode` of onnxruntime.
    """
    options = _options()
    if saturates():
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


@cache
def saturates() -> bool:
    """Whether sums of 8-bit products are wrong on this processor without precise mode; one small product is computed, once."""
    return not sums_are_exact(_options())


def sums_are_exact(options: Any) -> bool:
    """Whether a session with these options sums the largest products of 8 bits without saturation."""
    import onnxruntime

    session = onnxruntime.InferenceSession(SATURATION_GRAPH.read_bytes(), options, providers=["CPUExecutionProvider"])
    largest = np.full((SATURATION_SIZE, SATURATION_SIZE), 255, np.uint8)
    sums = session.run(["sums"], {"read": largest})[0]
    return bool((sums == 255 * 127 * SATURATION_SIZE).all())


def _options() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options
