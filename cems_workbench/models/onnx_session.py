"""onnxruntime sessions of the packaged networks: one text or pair per thread, and sums that no processor saturates."""

from __future__ import annotations

from typing import Any


def session_options() -> Any:
    """`onnxruntime.SessionOptions` for a session on one thread, because texts and pairs run in parallel; without log output.

    A processor without VNNI sums products of 8 bits in 16, with saturation, unless precise mode is on; with VNNI that
    changes nothing. Source: `kOrtSessionOptionsAvx2PrecisionMode` of onnxruntime.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options
