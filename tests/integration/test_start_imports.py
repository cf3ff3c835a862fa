"""What a command may not load: each takes longer to import than a command of the sample's size takes to answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_LOADED = {
    "search": (
        *(
            "chromadb",
            "pandas",
            "pyarrow",
            "scipy",
            "streamlit",
            "plotly",
            "torch",
            "transformers",
            "optuna",
            "tiktoken",
        ),
        *(
            "httpx",
            "ollama",
            "tenacity",
            "rapidfuzz",
            "jinja2",
            "pg_text_search",
            "cems_workbench.formats",
        ),
        *(
            "cems_workbench.analysis.why.counterfactual",
            "cems_workbench.evaluation.comparison",
            "cems_workbench.tuning",
        ),
        *("cems_workbench.sources.source", "cems_workbench.cli.tune", "cems_workbench.config.evidence_card"),
    ),
    "export": ("numpy", "duckdb", "pandas", "pyarrow", "rich", "cems_workbench.pipeline", "cems_workbench.store"),
}


@pytest.mark.models
@pytest.mark.parametrize("command", NOT_LOADED)
def test_a_command_loads_nothing_that_it_does_not_use(command: str, store: Path) -> None:
    arguments = {
        "search": ["search", "idempotency keys", "--preset", "cems", "--store", str(store)],
        "export": ["export", "workbench"],
    }[command]
    script = (
        "import sys; from cems_workbench.__main__ import main\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "CEMS_WORKBENCH_SERVE": "off"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stderr.splitlines()[-1].split())
    assert "cems_workbench.config.model" in loaded
    assert not loaded & set(NOT_LOADED[command])
