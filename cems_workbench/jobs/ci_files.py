"""CI files that run `ci check` on pull requests and commits: a GitHub workflow and a pre-commit hook.

Names are quoted for the shell; what a pull request controls (the name of its base) reaches the shell as a variable, never as script text.

Source: docs.github.com, "Workflow syntax" and "Security hardening: script injection"; pre-commit.com, "Repository local hooks".
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import parse_no_loss
from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE

WORKFLOW = PurePosixPath(".github/workflows/memory-retrieval.yml")
HOOKS = PurePosixPath(".pre-commit-config.yaml")
HOOK_ID = "memory-retrieval"
MARKDOWN, JUNIT, HTML = "memory-retrieval.md", "memory-retrieval.xml", "memory-retrieval.html"


@dataclass(frozen=True, slots=True)
class Gate:
    """What `ci check` checks: paths relative to the repository, and the asserted measures."""

    evidence: PurePosixPath
    config: PurePosixPath
    no_loss: tuple[str, ...]
    asserted: tuple[str, ...] = ()
    install: str = "cems-workbench"
    """What pip installs."""
    tolerance: float | None = None
    """The tolerated loss; None is the default of verdicts."""

    def __post_init__(self) -> None:
        """Raises InputError for values that do not fit on one line of a script."""
        for text in (str(self.evidence), str(self.config), *self.no_loss, *self.asserted, self.install):
            if not text.isprintable() or "${{" in text:
                raise InputError(f"{text!r} cannot be used in a workflow: only printable characters, without ${{{{")

    def command(self, *further: str) -> str:
        """The `ci check` command for a shell; `further` is appended unquoted."""
        words = ["cems-workbench", "ci", "check", str(self.evidence), "--config", str(self.config)]
        words += [word for text in self.no_loss for word in ("--fail-on-regression", text)]
        words += [word for text in self.asserted for word in ("--assert", text)]
        if self.tolerance is not None or any(parse_no_loss(text).level is None for text in self.no_loss):
            words += ["--tolerance", f"{DEFAULT_TOLERANCE if self.tolerance is None else self.tolerance:g}"]
        return " ".join([shlex.join(words), *further])


def workflow(gate: Gate) -> str:
    """A workflow that comments gains and losses of a config on its pull request, and fails where it loses more than tolerated.

    Where that cannot be told (exit code 3) the job warns.
    """
    paths = json.dumps([str(gate.config), str(gate.evidence), str(WORKFLOW)], ensure_ascii=False)
    check = gate.command('--against "origin/$BASE"', "--markdown", MARKDOWN, "--junit", JUNIT, "--html", HTML)
    return f"""\
# Written by `cems-workbench ci init`. Change it as you like; it is not written again unless you ask.
# A pull request that changes the config of memory retrieval is held against its base branch, on the evidence file that is committed:
# no model runs, no store and no secret is needed.
name: Memory retrieval

on:
  pull_request:
    paths: {paths}

permissions:
  contents: read
  pull-requests: write

jobs:
  retrieval:
    runs-on: ubuntu-latest
    timeout-minutes: 15
    steps:
      - uses: actions/checkout@v4
        with:
          fetch-depth: 0
          lfs: true
          persist-credentials: false
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: |
          python -m pip install {shlex.quote(gate.install)}
      - name: Hold the config against the base branch
        env:
          BASE: ${{{{ github.base_ref }}}}
        run: |
          code=0
          {check} || code=$?
          # 3: cannot tell, the queries are too few. That is a warning here; delete these four lines to let it fail.
          if [ "$code" = 3 ]; then
            echo "::warning title=Memory retrieval::Cannot tell whether the config loses; the summary says how many queries would tell."
            code=0
          fi
          exit "$code"
      - name: Summary
        if: always()
        run: |
          if [ -f {MARKDOWN} ]; then cat {MARKDOWN} >> "$GITHUB_STEP_SUMMARY"; fi
      - name: Comment
        if: always() && github.event.pull_request.head.repo.full_name == github.repository
        env:
          GH_TOKEN: ${{{{ github.token }}}}
          NUMBER: ${{{{ github.event.pull_request.number }}}}
        run: |
          if [ -f {MARKDOWN} ]; then gh pr comment "$NUMBER" --edit-last --create-if-none --body-file {MARKDOWN}; fi
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: memory-retrieval
          path: memory-retrieval.*
          if-no-files-found: ignore
"""


def hook(gate: Gate) -> str:
    """A pre-commit hook that compares a changed config with that of the last commit.

    It prints the verdict; one that cannot tell does not stop the commit.
    """
    entry = json.dumps(gate.command("--against", "HEAD", "--cannot-tell", "pass"), ensure_ascii=False)
    return f"""\
repos:
  - repo: local
    hooks:
      - id: {HOOK_ID}
        name: Memory retrieval loses nothing
        entry: {entry}
        language: system
        files: {json.dumps(_pattern(gate.config), ensure_ascii=False)}
        pass_filenames: false
        verbose: true
"""


def _pattern(path: PurePosixPath) -> str:
    """A regular expression that matches exactly this path."""
    return "^" + "".join(c if c.isalnum() or c in "/_-" or not c.isascii() else f"\\{c}" for c in str(path)) + "$"


def written(existing: str | None, text: str, path: PurePosixPath, force: bool) -> str:
    """The text to write. Raises InputError if the file exists with other content, unless forced."""
    if existing is not None and existing != text and not force:
        raise InputError(f"{path} exists: --force replaces it, --print shows the new text")
    return text


def names(sequence: Sequence[PurePosixPath]) -> str:
    """Paths in a sentence."""
    return " and ".join(map(str, sequence))
