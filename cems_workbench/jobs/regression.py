"""Regression check: a changed config compared with its previous version, on committed evidence, for CI and a pre-commit hook.

The previous version is the same file at a commit of its repository (`git show`). A measure for which either config lacks evidence counts as
failed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from cems_workbench.evaluation.verdict import Verdict
from cems_workbench.jobs.evaluation import LabelledEvidence, evaluate_configs, labelled_file, refuse_nothing

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
