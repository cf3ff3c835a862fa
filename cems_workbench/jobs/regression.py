"""Did it get worse: one side against another, as a `Regression` with verdicts and the outcomes of what was asserted; and the
timeline: the measures of configs on a query set over time.

    got_worse       configs against the first of them, on the same queries                         `compare`, `evaluate`
    check_change    a config file against itself at a commit of its repository (`git show`)        `ci check`
    watch           a config of a store against its last measurement in the history                `watch`
    drifted         a config on later evidence against the same on earlier, without judgments      `drift`

A recorded measurement is a side as its card has it (`recorded`): values by query, no results. A measure for which a config lacks
evidence counts as failed.

In the timeline a measurement is a saved experiment, or one of `watch`. Its card records its conditions (`made_with`): if they differ
between two neighbours, the config alone does not explain the difference.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench import __version__
from cems_workbench.analysis.drift import drift
from cems_workbench.builtin import APP_ROOT
from cems_workbench.config import PipelineConfig, difference, dump_config, import_config, load_config, portable_yaml
from cems_workbench.errors import InputError, one_line
from cems_workbench.evaluation.assertions import Asserted, NoLoss, Outcome, asserted_json, asserted_lines
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.evaluation.comparison import Comparison, compare
from cems_workbench.evaluation.evaluate import Evaluation, number
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.metrics import MEASURES, Measure, parse_measures, standard_measures
from cems_workbench.evaluation.report import experiment_card, markdown_report, read_comparison
from cems_workbench.evaluation.verdict import CANNOT_TELL, DEFAULT_TOLERANCE, Verdict, verdict_of_values
from cems_workbench.jobs import evaluation as evaluating
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.query_set_evidence import ensure_evidence, selected
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Result, Table
from cems_workbench.store import ConfigRecord

GIT_TIMEOUT_S = 30


@dataclass(frozen=True, eq=False, repr=False)
class Regression(Result):
    """Whether a side is worse than the one before: verdicts and what was asserted first, then what they rest on."""

    title: str = ""
    verdicts: Sequence[Verdict] = ()
    outcomes: Sequence[Outcome] = ()
    said: Sequence[str] = ()
    """Lines after those of verdicts and outcomes."""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """What --json has besides verdicts and assertions."""
    changes: Sequence[tuple[str, object, object]] = ()
    """Changed parameters, with their values before and now."""
    note: str = ""
    """What was compared with what."""
    comparison: Comparison | None = None
    labelled: evaluating.LabelledEvidence | None = None
    """The evidence, if all sides are on the same."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentence of each verdict, the line of each other outcome, and the rest."""
        return (*(one.sentence for one in self.verdicts), *asserted_lines(self.outcomes), *self.said)

    def to_json(self) -> dict[str, Any]:
        """The verdicts, the values and the assertions."""
        verdicts = {"verdicts": [one.to_json() for one in self.verdicts]} if self.verdicts else {}
        return verdicts | dict(self.values) | asserted_json(self.outcomes)


def got_worse(comparison: Comparison, asserted: Asserted, outcomes: Sequence[Outcome] = ()) -> Regression:
    """The verdicts on every config of a comparison against the first, and what is asserted; `outcomes` are those of
    bounds. Raises InputError for a type without queries."""
    found = [*outcomes, *asserted.of_losses(comparison)]
    return Regression(verdicts=asserted.verdicts(comparison, found), outcomes=found, comparison=comparison)


def check_change(
    evidence: EvidenceSet,
    config: Path,
    commit: str | None,
    asserted: Asserted,
    *,
    metrics: str | None = None,
    seed: int = 0,
) -> Regression:
    """Compare the config in a file with the same file at a commit, and with bounds. Without a config at that commit, or
    without a commit, only the bounds are checked. Raises InputError."""
    least = evidence.header.relevant_from
    wanted = parse_measures(metrics, least) if metrics else standard_measures(least)
    now, before = load_config(config), config_at(config, commit) if commit else None
    configs = [(f"{config.name} now", now)]
    note = f"{config.name} at present; " + (f"it is not at {commit}" if commit else "compared with nothing")
    if before is not None:
        configs = [(f"{config.name} at {commit}", before), *configs]
        note = f"{config.name} at present, compared with {commit}"
    configs = [(name, named(name, chosen)) for name, chosen in configs]
    of_file = evaluating.labelled_file(evidence, None)
    evaluating.refuse_nothing(of_file.batch.queries, evidence.path)
    measures = tuple(dict.fromkeys([*wanted, *asserted.measures(least)]))
    measured, _ = evaluating.evaluate_configs(configs, lambda _: of_file, measures, seed=seed)
    evaluations = [row.evaluation for row in measured]
    comparison, outcomes = compare(evaluations, seed=seed), asserted.of_bounds(evaluations[-1])
    found = Regression(outcomes=outcomes, comparison=comparison)
    if before is not None:
        found = got_worse(comparison, asserted, outcomes)
    lacking = missing_score_lines(evaluation.lacking for evaluation in evaluations)
    if lacking and not any(one.unmeasured for one in found.verdicts):
        unmeasured = Outcome(False, f"Not measured: {'; '.join(lacking)}.", "everything is in the evidence")
        found = replace(found, outcomes=(unmeasured, *found.outcomes))
    changes = () if before is None else tuple(row for row in difference(before, now) if row[0] != "name")
    changed = [{"parameter": name, "before": was, "now": is_now} for name, was, is_now in changes]
    values = {"note": note, "changed": changed, "content_hash": of_file.content_hash, **comparison.to_json()}
    counted = f"{note}: {len(evaluations[0].qids)} queries of {evidence.path.name}"
    said = (
        counted,
        *floor_lines(found.verdicts, evaluations[-1]),
        *(f"changed: {name}: {was} → {is_now}" for name, was, is_now in changes),
    )
    return replace(found, said=said, values=values, changes=changes, note=note, labelled=of_file)


FEW_QUERIES = 100
"""Below so many queries an interval seldom excludes a loss of the usual tolerance."""


def floor_lines(verdicts: Iterable[Verdict], now: Evaluation) -> list[str]:
    """The floors to assert beside verdicts that cannot tell on few queries: what the config reaches at present, rounded down."""
    measured = dict.fromkeys(
        one.measure
        for one in verdicts
        if one.kind == CANNOT_TELL
        and one.queries < FEW_QUERIES
        and not (one.scope or one.unmeasured or np.isnan(now.mean(one.measure)))
    )
    floors = [
        f'--assert "{one}{"<=" if one.lower_is_better else ">="}{np.floor(100 * now.mean(one)) / 100 + 0.01 * one.lower_is_better:.2f}"'
        for one in measured
    ]
    few = f"{len(now.qids)} queries seldom tell; a floor decides beside the verdict"
    return [f"{few}: {' '.join(floors)}"] if floors else []


def markdown(found: Regression, of: str) -> str:
    """What `check_change` found as Markdown, for a pull request; `of` names the evidence."""
    assert found.comparison is not None and found.labelled is not None
    decided = {outcome.line: outcome for outcome in found.outcomes if outcome.verdict is not None}
    marks = {"pass": "✅", "fail": "❌", "cannot tell": "❔"}
    lines = [
        f"- {_mark(decided[one.sentence]) if one.sentence in decided else marks[one.kind]} {_code(one.sentence)}"
        for one in found.verdicts
    ]
    lines += [f"- {_mark(outcome)} {_code(outcome.line)}" for outcome in found.outcomes if outcome.verdict is None]
    changed = [f"- {_code(f'{name}: {before} → {now}')}" for name, before, now in found.changes]
    head = ["## Memory retrieval", "", *lines, "", *(["Changed parameters:", "", *changed, ""] if changed else [])]
    report = markdown_report(found.comparison, of, found.labelled.content_hash, found.note, verdicts=())
    return "\n".join(head) + "\n" + report


def _mark(outcome: Outcome) -> str:
    return "✅" if outcome.holds else "❌" if outcome.failed else "❔"


def _code(text: str) -> str:
    """The text as inline code of Markdown."""
    return f"`` {text.replace('`', chr(39))} ``"


def config_at(path: Path, commit: str) -> PipelineConfig | None:
    """The config in a file at a commit; None if it did not exist. Raises InputError, also for an unreadable config, and without git."""
    folder = path.resolve().parent
    if commit.startswith("-"):
        raise InputError(f"--against {commit}: expected a branch, tag or commit")
    _git(folder, f"--against {commit}", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if not _git(folder, str(path), "ls-tree", "--name-only", commit, "--", path.name).strip():
        return None
    text = _git(folder, str(path), "show", f"{commit}:./{path.name}")
    return import_config(text, source=f"{commit}:{path}").config


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
        said = one_line(done.stderr.decode("utf-8", "replace"))
        said = said or "there is no such commit here (a shallow clone has few)"
        raise InputError(f"{of}: {said.removeprefix('fatal: ')}")
    return done.stdout.decode("utf-8", "replace")


def installed_from() -> str:
    """What pip installs this workbench from: the address and commit of its checkout. Raises InputError if these are not known."""
    try:
        if Path(_git(APP_ROOT, "--install", "rev-parse", "--show-toplevel").strip()) != APP_ROOT.resolve():
            raise InputError("--install: an installed package in somebody's repository is no checkout")
        address = _git(APP_ROOT, "--install", "config", "remote.origin.url").strip()
        commit = _git(APP_ROOT, "--install", "rev-parse", "HEAD").strip()
    except InputError:
        address, commit = "", ""
    host, _, path = address.removeprefix("ssh://").removeprefix("git@").partition(":")
    if path and not path.startswith("//"):  # git@HOST:PATH, which needs a key, is mostly open by https as well
        address = f"https://{host}/{path}"
    if not address.startswith("https://") or "@" in address:
        example = "'git+https://HOST/PROJECT@COMMIT', or a wheel in the repository"
        raise InputError(
            f"--install: say what CI installs the workbench from, such as {example}; this copy is of no https address"
        )
    return f"git+{address}@{commit}"


def watch(
    config: PipelineConfig,
    query_set: str,
    asserted: Asserted,
    resources: Resources,
    progress: Progress = silent,
    *,
    note: str = "",
    seed: int = 0,
) -> Regression:
    """Measure a query set of the store under a config, append it to the history, and compare it with the last measurement of that
    config's name.

    For cron or a scheduler: memories, models and labels change between measurements. Raises InputError for an unknown set, or one without
    measurable queries, and ModelError if an embedder is unavailable.
    """
    least = resources.store.query_sets.relevant_from(query_set)
    selection, judgments = selected(query_set, resources, True)
    evidence = ensure_evidence(config, selection, judgments, resources, progress)
    of_set = evaluating.labelled(evidence, evaluating.agreed(judgments, None), timed=False)
    evaluating.refuse_nothing(of_set.batch.queries, query_set)
    measures = tuple(dict.fromkeys([*standard_measures(least), *asserted.measures(least)]))
    (measured,), _ = evaluating.evaluate_configs([(config.name, config)], lambda _: of_set, measures, seed=seed)
    evaluation = measured.evaluation
    card = experiment_card(compare([evaluation], seed=seed), query_set, measured.content_hash)
    card |= {MADE_KEY: made_with(of_set, config)}
    of_name = (record for record in resources.store.configs.watched() if record.name == config.name)
    before = next((record for record in of_name if (record.card or {}).get("query_set") == query_set), None)
    resources.store.configs.add_watched(config.name, dump_config(config), note, card)
    shown = evaluation.to_json()
    values: dict[str, Any] = {"query_set": query_set, "last": None, "changed": [], "measured": shown, "since": []}
    if before is None or before.card is None:
        title = f"{config.name} on {query_set}, for the first time"
        return Regression(tables=(replace(evaluation.table, title=title),), values=values)
    then, now = recorded(before.card["configs"][-1].get("per_query", {}), evaluation)
    names = f"{config.name} of {before.saved_at:%Y-%m-%d %H:%M}", f"{config.name} now"
    then, now = (replace(one, config=named(name, one.config)) for one, name in zip((then, now), names, strict=True))
    # A card has no results: those with the same values of every measure count as the same.
    same = np.array_equal(then.values, now.values, equal_nan=True)
    comparison = compare([then, now], seed=seed, overlaps=[float(same)])
    told = [_without_values(guard, names, now, asserted) for guard in asserted.guards(least)]
    held = [text for text, outcome in zip(asserted.no_loss, told, strict=True) if outcome is None]
    found = got_worse(comparison, replace(asserted, no_loss=held), [one for one in told if one is not None])
    changed = changed_between(card, before.card) or ()
    since = []
    for row in comparison.compared[0].differences:
        if paired := len(row.wins) + len(row.losses) + row.ties:
            value = {"measure": str(row.measure), "before": row.baseline, "now": row.value}
            since.append(value | {"interval": [number(row.low), number(row.high)], "p": row.p, "queries": paired})
    last = before.saved_at.isoformat(timespec="seconds")
    values |= {"last": last, "changed": list(changed), "since": since}
    table = replace(comparison.table, title=f"{config.name} on {query_set}, since {last}")
    said = (f"changed since: {', '.join(changed) or 'nothing'}",)
    return replace(found, said=said, tables=(table,), notes=tuple(evaluation.remarks), values=values)


def _without_values(guard: NoLoss, names: tuple[str, str], now: Evaluation, asserted: Asserted) -> Outcome | None:
    """What a guard comes to that has no value both times: not held, or without a p a verdict that cannot tell. None for one with values;
    `names` are those of the recorded measurement and of the present."""
    if guard.measure not in now.measures:
        line = f"not held: {guard.scoped} is of all queries together: it has no value of each"
        return Outcome(True, line, str(guard))
    kinds = np.array([guard.query_type in (None, kind) for kind in now.types], dtype=bool)
    if not np.isnan(now.values[kinds, now.measures.index(guard.measure)]).all():
        return None
    if guard.level is not None:
        return Outcome(True, f"not held: {guard.scoped}: no query has a value both times", str(guard))
    tolerance, lacking = asserted.tolerance, missing_score_lines([now.lacking])
    tolerance = DEFAULT_TOLERANCE if tolerance is None else tolerance
    none = verdict_of_values(names[::-1], guard.measure, np.zeros(0), guard.query_type, tolerance, lacking=lacking)
    return guard.decided(none, asserted.cannot_tell)


def recorded(per_query: Mapping[str, Mapping[str, float | None]], now: Evaluation) -> tuple[Evaluation, Evaluation]:
    """A measurement of the history and the present one, as evaluations of the same queries: only values that both have.
    `per_query` are the values of a card by qid and measure. Measures of all queries together, such as AUROC, are left
    out."""
    places = [m for m, one in enumerate(now.measures) if MEASURES[one.family].resampled is None]
    measures: tuple[Measure, ...] = tuple(now.measures[m] for m in places)
    values, summaries = now.values[:, places], tuple(now.summaries[m] for m in places)
    known = [[per_query.get(qid, {}).get(str(one)) for one in measures] for qid in now.qids]
    then = np.array(known, dtype=np.float64).reshape(values.shape)
    missing = np.isnan(then) | np.isnan(values)
    present = replace(now, measures=measures, values=np.where(missing, np.nan, values), summaries=summaries)
    complete = replace(now.rankings, needs={})
    return replace(present, values=np.where(missing, np.nan, then), results=(), rankings=complete), present


def drifted(
    before: EvidenceSet, after: EvidenceSet, config: PipelineConfig, k: int, shown: int, least: float | None = None
) -> Regression:
    """What a config returns differently on two evidence files; `least` is the mean overlap that is asserted. Raises InputError."""
    found = drift(before, after, config, k)
    report = replace(found, shown=min(shown, found.changed))
    outcomes = []
    if least is not None:
        holds = found.overlap >= least
        line = f"{'holds' if holds else 'FAILED'}: mean overlap {found.overlap:.4f} is {'not ' * holds}below {least}"
        outcomes.append(Outcome(holds, line, f"overlap>={least}"))
    said, values = (report.title, *report.lines), report.to_json()
    return Regression(outcomes=outcomes, said=said, tables=report.tables, notes=report.notes, values=values)


MADE_KEY = "made"
"""The key of the conditions in a card."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measure of one config at one time, with its 95 % interval; `changed` names the conditions that differ from the previous point."""

    when: datetime
    name: str
    mean: float
    low: float
    high: float
    queries: int
    changed: tuple[str, ...] | None
    """None for the first, and if one of the two has no conditions."""
    note: str


def made_with(labelled: evaluating.LabelledEvidence, config: PipelineConfig) -> dict[str, str]:
    """The conditions of a measurement of a config on labelled evidence, for its card: hashes, of every parameter of the config, of the
    grades and of the queries that were measured; store and content version, embedder and workbench."""
    header = labelled.evidence.header
    return {
        "memories": f"{header.store_id}/{header.content_version}",
        "embedder": header.embedder,
        "config": _hash(portable_yaml(config.model_copy(update={"name": ""}))),
        "judgments": labelled.grades.digest,
        "queries": _hash("\0".join(labelled.batch.qids)),
        "workbench": __version__,
    }


def changed_between(card: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The names of the conditions that differ between two cards; None if one of them has none, or others."""
    now, then = ((one or {}).get(MADE_KEY) for one in (card, before))
    if not isinstance(now, dict) or not isinstance(then, dict) or now.keys() != then.keys():
        return None
    return tuple(name for name in now if now[name] != then[name])


def query_sets(records: Iterable[ConfigRecord]) -> list[str]:
    """The query sets that were measured, by name."""
    return sorted({str(record.card["query_set"]) for record in records if record.card and "query_set" in record.card})


def measures(records: Iterable[ConfigRecord], query_set: str) -> list[Measure]:
    """The measures of the measurements on a query set, in the order of first use."""
    found: dict[Measure, None] = {}
    for record in records:
        if record.card and record.card.get("query_set") == query_set:
            with suppress(InputError):
                found |= {row.measure: None for row in read_comparison(record.card).figures[-1].summaries}
    return list(found)


def points(records: Iterable[ConfigRecord], query_set: str, measure: Measure) -> list[Point]:
    """The points of a measure on a query set, the earliest first; records of other sets, or without this measure, have none."""
    found, last = [], dict[str, Mapping[str, Any] | None]()
    for record in sorted(records, key=lambda record: (record.saved_at, record.id)):
        try:
            kept = read_comparison(record.card or {})
        except InputError:
            continue
        row = next((row for row in kept.figures[-1].summaries if row.measure == measure), None)
        if kept.query_set != query_set or row is None:
            continue
        changed = changed_between(record.card, last.get(record.name))
        last[record.name] = record.card
        ends = row.mean, row.low, row.high, row.queries
        found.append(Point(record.saved_at, record.name, *ends, changed, record.why))
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
