"""How the packaged networks are run by onnxruntime: one text or pair on one thread, and with sums that no processor cuts off."""

from __future__ import annotations

from typing import Any


def session_options() -> Any:
    """`onnxruntime.SessionOptions` for a session on one thread, as texts and pairs share the threads, not one of them; quiet.

    A processor without VNNI sums products of 8 bits in 16, and cuts off what is more, unless precise mode is on; with VNNI that
    changes nothing. Source: `kOrtSessionOptionsAvx2PrecisionMode` of onnxruntime.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    return options
