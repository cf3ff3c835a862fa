"""The package's README: its example runs, and loads nothing else of the project."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pg_text_search
from tests.conftest import ROOT

README = Path(str(pg_text_search.__file__)).with_name("README.md").read_text(encoding="utf-8")
LOADED = """
import sys
print(*sorted(name for name in sys.modules if name.startswith("cems_workbench")))
"""


def test_the_example_runs_as_it_says_without_the_rest_of_the_project() -> None:
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example
    ran = subprocess.run(
        [sys.executable, "-c", example[1] + LOADED], cwd=ROOT / "plugins", capture_output=True, text=True, check=True
    )
    *printed, loaded = ran.stdout.splitlines()
    assert printed == [
        "{'move': (1,), 'box': (2,), 'attic': (6,)}",
        "0.0607927106320858",
        "['They move in on the ninth.', 'Moving boxes are in the attic.']",
    ]
    assert loaded == ""
