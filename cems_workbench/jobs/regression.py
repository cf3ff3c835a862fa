"""Regression check: a changed config compared with its previous version, on committed evidence, for CI and a pre-commit hook.

The previous version is the same file at a commit of its repository (`git show`). A measure for which either config lacks evidence counts as
failed.

CI files that run `ci check` on pull requests and commits: a GitHub workflow and a pre-commit hook.

Names are quoted for the shell; what a pull request controls (the name of its base) reaches the shell as a variable, never as script text.

Source: docs.github.com, "Workflow syntax" and "Security hardening: script injection"; pre-commit.com, "Repository local hooks".
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cems_workbench.config import PipelineConfig, difference, import_config, load_config
from cems_workbench.errors import InputError, one_line
from cems_workbench.evaluation.assertions import (
    CannotTell,
    Outcome,
    check,
    check_no_loss,
    parse_assertion,
    parse_no_loss,
    verdicts_first,
)
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.evaluation.comparison import Comparison, compare
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.metrics import parse_measures, standard_measures
from cems_workbench.evaluation.report import markdown_report
from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE, Verdict
from cems_workbench.jobs.evaluation import LabelledEvidence, evaluate_configs, labelled_file, refuse_nothing

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


GIT_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: each assertion, whether it holds, and its measure."""

    outcomes: tuple[Outcome, ...]
    comparison: Comparison
    content_hash: str
    changes: tuple[tuple[str, object, object], ...]
    """Changed parameters, with their values before and now; empty without a previous config."""
    note: str
    labelled: LabelledEvidence
    """The labelled evidence."""
    verdicts: tuple[Verdict, ...] = ()
    """On what is asserted, against the previous config; their sentences come first."""

    @property
    def holds(self) -> bool:
        """Do all assertions hold?"""
        return all(outcome.holds for outcome in self.outcomes)

    def markdown(self, of: str) -> str:
        """The result as Markdown, for a pull request; `of` names the evidence."""
        decided = {outcome.line: outcome for outcome in self.outcomes if outcome.verdict is not None}
        marks = {"pass": "✅", "fail": "❌", "cannot tell": "❔"}
        lines = [
            f"- {_mark(decided[one.sentence]) if one.sentence in decided else marks[one.kind]} {_code(one.sentence)}"
            for one in self.verdicts
        ]
        lines += [f"- {_mark(outcome)} {_code(outcome.line)}" for outcome in self.outcomes if outcome.verdict is None]
        changed = [f"- {_code(f'{name}: {before} → {now}')}" for name, before, now in self.changes]
        head = ["## Memory retrieval", "", *lines, "", *(["Changed parameters:", "", *changed, ""] if changed else [])]
        return "\n".join(head) + "\n" + markdown_report(self.comparison, of, self.content_hash, self.note, verdicts=())


def _mark(outcome: Outcome) -> str:
    return "✅" if outcome.holds else "❌" if outcome.failed else "❔"


def at_commit(path: Path, commit: str) -> str | None:
    """The text of a file at a commit, None if it did not exist. Raises InputError without git, a repository or the commit."""
    folder = path.resolve().parent
    if commit.startswith("-"):
        raise InputError(f"--against {commit}: expected a branch, tag or commit")
    _git(folder, f"--against {commit}", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    there = _git(folder, str(path), "ls-tree", "--name-only", commit, "--", path.name)
    return _git(folder, str(path), "show", f"{commit}:./{path.name}") if there.strip() else None


def _git(folder: Path, of: str, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 (git itself; a commit never begins with a dash)
            ["git", "-C", str(folder), *arguments],  # noqa: S607 (the caller's git)
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise InputError(f"{of}: git is not installed, or {folder} is not there") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{of}: git takes longer than {GIT_TIMEOUT_S} s") from None
    if done.returncode:
        said = (
            one_line(done.stderr.decode("utf-8", "replace")) or "there is no such commit here (a shallow clone has few)"
        )
        raise InputError(f"{of}: {said.removeprefix('fatal: ')}")
    return done.stdout.decode("utf-8", "replace")


def config_at(path: Path, commit: str) -> PipelineConfig | None:
    """The config in a file at a commit; None if it did not exist. Raises InputError, also for an unreadable config."""
    text = at_commit(path, commit)
    if text is None:
        return None
    return import_config(text, source=f"{commit}:{path}").config


def check_change(
    evidence: EvidenceSet,
    config: Path,
    commit: str | None,
    no_loss: Sequence[str],
    asserted: Sequence[str],
    *,
    metrics: str | None = None,
    tolerance: float | None = None,
    cannot_tell: CannotTell | None = None,
    seed: int = 0,
) -> Checked:
    """Compare the config in a file with the same file at a commit, and with bounds.

    Without a config at that commit, or without a commit, only the bounds are checked; `tolerance` and `cannot_tell` as `check_no_loss`
    takes them. Raises InputError.
    """
    least = evidence.header.relevant_from
    guards = [parse_no_loss(text, least) for text in no_loss]
    bounds = [parse_assertion(text, least) for text in asserted]
    wanted = parse_measures(metrics, least) if metrics else standard_measures(least)
    measures = tuple(dict.fromkeys([*wanted, *(g.measure for g in guards), *(b.measure for b in bounds)]))
    now, before = load_config(config), config_at(config, commit) if commit else None
    named = [(f"{config.name} now", now)]
    note = f"{config.name} at present; " + (f"it is not at {commit}" if commit else "compared with nothing")
    if before is not None:
        named = [(f"{config.name} at {commit}", before), *named]
        note = f"{config.name} at present, compared with {commit}"
    named = [(name, chosen.model_copy(update={"name": name})) for name, chosen in named]
    of_file = labelled_file(evidence, None)
    refuse_nothing(of_file.batch.queries, evidence.path)
    measured, _ = evaluate_configs(named, lambda _: of_file, measures, seed=seed)
    evaluations = [row.evaluation for row in measured]
    comparison = compare(evaluations, seed=seed)
    outcomes = [check(bound, evaluations[-1]) for bound in bounds]
    verdicts: list[Verdict] = []
    if before is not None:
        guarded = [one for guard in guards for one in check_no_loss(comparison, guard, tolerance, cannot_tell)]
        verdicts = verdicts_first(comparison, guarded, tolerance)
        outcomes += guarded
    lacking = missing_score_lines(evaluation.lacking for evaluation in evaluations)
    if lacking and not any(one.unmeasured for one in verdicts):
        outcomes.insert(0, Outcome(False, f"Not measured: {'; '.join(lacking)}.", "everything is in the evidence"))
    changes = tuple(row for row in difference(before, now) if row[0] != "name") if before is not None else ()
    return Checked(tuple(outcomes), comparison, of_file.content_hash, changes, note, of_file, tuple(verdicts))


def _code(text: str) -> str:
    """The text as inline code of Markdown."""
    return f"`` {text.replace('`', chr(39))} ``"
