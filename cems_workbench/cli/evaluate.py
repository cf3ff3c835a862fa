"""`gather`, `fill-scores`, `evaluate`, `compare`, `power`, `drift` and `calibrate`: evidence of judged queries, and configs measured on it.

`graph-recall`: what Chroma's graph finds of the nearest memories of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from cems_workbench.builtin import DEFAULT_PRESET, preset_names
from cems_workbench.cli import measuring
from cems_workbench.cli import options as cli
from cems_workbench.cli.terminal import flat, put_json, repeated, request_options, say, say_next, unused, words_of
from cems_workbench.errors import InputError, StoreError, counted
from cems_workbench.results import Report

if TYPE_CHECKING:
    from cems_workbench.analysis.losses_of_set import Losses
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.evidence_file import Header


def gather_command(
    query_set: str,
    out: Path | None = None,
    *,
    choice: cli.ConfigChoice,
    per_query_project: measuring.PerQueryProjectOption = False,
    judged: bool = False,
    limit: measuring.LimitOption = None,
    seed: measuring.SeedOption = 0,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Gather the evidence of a query set into one file.

    An interrupted gather resumes if the same command is run again.
    """
    chosen = choice.read(store)
    from cems_workbench.jobs.query_set_evidence import gather_evidence, selected
    from cems_workbench.pipeline.mismatches import mismatches

    with cli.progress_bar(as_json) as progress, cli.filled_resources(store) as resources:
        selection, judgments = selected(query_set, resources, judged, per_query_project, limit, seed)
        if selection.without_project:
            say(f"note: {selection.without_project}", err=True)
        report = gather_evidence(chosen, selection, judgments, resources, progress, out)
        notices, unfit = resources.store.notices, mismatches(chosen, resources)
    count = len(selection.queries)
    values: dict[str, Any] = {
        "evidence": str(report.path),
        "queries": count,
        "finished_before": report.finished_before,
        "gathered": report.gathered,
        "left_out": [str(error) for error in report.left_out],
        "seconds": round(report.seconds, 3),
        "content_hash": report.content_hash,
        "notices": [*notices, *unfit],
    }
    lines = [
        f"{report.path}: evidence of {report.finished_before + report.gathered} of {count} queries",
        f"{report.gathered} gathered now in {report.seconds:.1f} s, {report.finished_before} already finished",
        f"content hash {report.content_hash}",
        *(f"left out: {error}" for error in report.left_out),
    ]
    then = words_of("tune", report.path, options=["--without-labels", "--out", unused("tuned.yaml")])
    if judgments:
        then = words_of("evaluate", report.path, options=["--losses"])
    cli.present(Report(lines=lines, notes=[f"warning: {line}" for line in unfit], values=values), as_json, then)
    if report.left_out:
        raise typer.Exit(2)


@dataclass(frozen=True)
class GatheredConfigs(measuring.ConfigsChoice):
    """The configs of a command on an evidence file."""

    preset: list[str] | None = None


def fill_scores_command(
    evidence: Path,
    choice: GatheredConfigs,
    ablate: cli.AblateOption = None,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Add missing reranker scores to an evidence file.

    Scores the pairs of query and memory that the configs' rerankers read and the file lacks. If interrupted, finished scores are
    kept. Models and score cache are those of the store that the evidence was gathered from.
    """
    from cems_workbench.jobs.evaluation import labelled_file
    from cems_workbench.jobs.scoring import resources_of, score_evidence

    read = cli.read_evidence(evidence)
    configs = [chosen for chosen, _ in choice.read(read.header, ablate)]
    judged = labelled_file(read, None).batch.qids or None
    with cli.progress_bar(as_json) as progress, resources_of(read, cli.settings_for(store)) as resources:
        report = score_evidence(read, configs, resources, progress, judged)
    lines = [
        f"{report.path}: {report.pairs} pairs of {report.queries} queries scored",
        f"content hash {report.content_hash}",
        *(f"no score for {counted(count, 'pairs')}: {why}" for why, count in report.failed.items()),
    ]
    values = {name: getattr(report, name) for name in ("queries", "pairs", "content_hash")}
    values |= {"evidence": str(report.path), "failed": dict(report.failed)}
    again = ["--ablate", ablate] if ablate else []
    then = words_of("evaluate", evidence, options=[*choice.words(), *again])
    cli.present(Report(lines=lines, values=values), as_json, then)
    if report.failed:
        raise typer.Exit(2)


def evaluate_command(
    evidence: measuring.NamesArgument,
    choice: measuring.ConfigsChoice,
    how: measuring.Measuring,
    run_out: Path | None = None,
    bounds: measuring.BoundsOption = None,
    ablate: cli.AblateOption = None,
    losses: bool = False,
    cutoff: int | None = None,
    shown: int | None = None,
    compare_judges: bool = False,
    limit: measuring.LimitOption = None,
    ids: cli.IdsOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Measure configs on judged queries.

    Evidence files need neither store nor model; large ones are streamed.
    """
    from cems_workbench.analysis.losses_of_set import DEFAULT_K, SHOWN
    from cems_workbench.evaluation.assertions import Asserted
    from cems_workbench.evaluation.labelling.judge_calibration import relevance_sources
    from cems_workbench.evaluation.verdict import verdicts_on_evaluations
    from cems_workbench.jobs.regression import Regression

    asserted = Asserted(bounds=bounds or ())
    if not losses and (cutoff is not None or shown is not None):
        raise InputError("--cutoff and --show are for --losses")
    k, rows = DEFAULT_K if cutoff is None else cutoff, SHOWN if shown is None else shown
    at, further = k if losses else None, asserted.measures
    with measuring.measured(
        evidence, choice, how, as_json, further=further, ablate=ablate, limit=limit, count_losses=at, run_out=run_out
    ) as found:
        if compare_judges and not found.rows:
            raise InputError(
                "--compare-judges reads the results of every query, which evidence of this size or of several files does not keep"
            )
        lost = found.losses(rows)
    views = [relevance_sources(row.batch, row.evaluation) for row in found.rows] if compare_judges else []
    values = ({"losses": lost.to_json()} if lost else {}) | {"evaluations": found.to_json()}
    worse = Regression(
        verdicts=verdicts_on_evaluations(found.evaluations, found.overlaps),
        outcomes=[outcome for one in found.evaluations for outcome in asserted.of_bounds(one)],
        values=values | ({"honest": [view.to_json() for view in views]} if compare_judges else {}),
    )
    if as_json:
        return measuring.decide(worse, as_json)
    cli.print_parts(worse.lines, (), ())
    for line in dict.fromkeys(line for row in found.rows for line in row.batch.mismatches):
        say(f"warning: {line}", err=True)
    if lost is not None:
        remarks = {line for evaluation in found.evaluations for line in evaluation.remarks}
        kept = [] if ids else [row.labelled.evidence for row in found.rows]
        memories = {
            key: one for each in kept for asked in each.evidences.values() for key, one in asked.memories.items()
        }
        queries = {query.qid: query.query for each in kept for query in each.queries}
        notes = [line for line in lost.remarks if line not in remarks]
        if any(row.batch.successors for row in found.rows):
            notes.append("losses are of the judged memories themselves: successors are credited in the measures alone")
        cli.print_parts((*lost.sentences, *lost.mistakes), lost.tables, notes, memories, queries)
    for evaluation, (content_hash, answered) in zip(found.evaluations, found.made_on, strict=True):
        answers = [f"lists {answered}"] if answered else []
        cli.print_parts((), evaluation.tables, (*evaluation.notes, f"content hash {content_hash}", *answers))
    for view in views:
        cli.print_parts((), view.tables(), [f"warning: {line}" for line in view.warnings])
    # What was not measured comes before what was measured says.
    measuring.finish(worse.outcomes, *(found.score_commands() or _next_commands(found, evidence[0], lost)))


def _next_commands(found: measuring.Measured, name: str, lost: Losses | None) -> list[list[str] | None]:
    """Where memories are lost; then why the first of the largest loss is. Files are also compared under another config, which external
    traces do not have; a query set is gathered into a file, one of explained answers is tuned."""
    from cems_workbench.jobs.traced_sets import traced_header

    store = found.how.store
    first = repeated("--losses") if lost is None else _why_lost(lost, found, name) if found.rows else None
    if found.source.external:
        return [first]
    if found.files:
        return [first, _comparison(found.files, found.configs)]
    if lost is not None and (cli.settings_for(store).store / "transcript").is_dir():
        return [first, words_of("ways", name, options=[*flat(found.configs[0][1]), *cli.given_options(store=store)])]
    if traced_header(cli.settings_for(store).store, name) is not None:
        return [first, words_of("tune", name, options=["--out=tuned.yaml", *cli.given_options(store=store)])]
    gathered = words_of("gather", name, options=["--judged", "--out", unused(f"{name}.evidence")])
    options = flat(option for option in found.configs[0][1] if option[0] != "--ablate")
    return [first, [*gathered, *options, *cli.given_options(store=store)]]


def _comparison(files: Sequence[Path], configs: Sequence[tuple[PipelineConfig, measuring.Options]]) -> list[str] | None:
    """`compare` of the configs; of a single one with another preset. None without files, or for ablations, which it does not make."""
    options = [option for _, named in configs for option in named]
    if not files or any(name == "--ablate" for name, _ in options):
        return None
    if len(configs) == 1:
        name = configs[0][0].name
        if not options and name not in preset_names():
            return None
        options = options or [("--preset", name)]
        options += [("--preset", DEFAULT_PRESET if name != DEFAULT_PRESET else "cems")]
    return words_of("compare", *files, options=flat(options))


def _why_lost(lost: Losses, found: measuring.Measured, name: str) -> list[str] | None:
    """`why` of the first memory that the first config loses where it loses most; None if it loses none, or without the store of the
    evidence. Of external traces it is of the recorded stages."""
    from cems_workbench.jobs.traced_sets import traced_header
    from cems_workbench.jobs.tuning import store_of
    from cems_workbench.pipeline.gather import Request

    first, evidence = lost.maps[0], found.rows[0].labelled.evidence
    most = max(first.branches, key=lambda branch: first.branches[branch], default=None)
    row = None if most is None else next(iter(first.rows_of(most)), None)
    if row is None:
        return None
    query = next(query for query in evidence.queries if query.qid == row.qid)
    within = evidence.header.only_project and query.project is not None
    asked = request_options(Request(query.query, query.project, query.as_of, within))
    if evidence.external:
        options = ["--evidence", name, *asked, *cli.given_options(store=found.how.store)]
        return words_of("why", row.query, row.memory_id, options=options)
    chosen, named = found.configs[0]
    ablated = any(option == "--ablate" for option, _ in named)
    if not ablated and traced_header(cli.settings_for(found.how.store).store, name) is not None:
        options = ["--evidence", name, *flat(named), *cli.given_options(store=found.how.store)]
        return words_of("why", row.query, row.memory_id, options=options)
    if ablated or not (named or chosen.name in preset_names()):
        return None
    named = named or [("--preset", chosen.name)]
    try:
        with store_of(evidence, cli.settings_for(found.how.store)) as opened:
            if opened is None or opened.memories.get(row.memory_id) is None:
                return None
            place = (
                [] if opened.path.resolve() == cli.settings_for(None).store.resolve() else ["--store", str(opened.path)]
            )
    except StoreError:  # locked: the sentence stands without a command
        return None
    return words_of("why", row.query, row.memory_id, options=[*asked, *flat(named), *place])


def compare_command(
    evidence: list[str],
    choice: measuring.ComparedConfigs,
    how: measuring.Measuring,
    guards: measuring.Guards,
    shown: int = 10,
    query_set: str | None = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Compare configs with the first one, or two stores, query by query.

    The verdict on each comes first: pass, fail, or cannot tell. Evidence files need neither store nor model. Two stores, one store before
    and after an import, or evidence files of two stores: also what differs, and of each query that is won or lost the cause.
    """
    from cems_workbench.jobs.evaluation import MAX_QUERIES_PRINTED
    from cems_workbench.jobs.regression import got_worse

    if _two_sides(evidence):
        return _compare_sides(evidence, choice, how, guards, shown, query_set, as_json)
    if query_set is not None:
        raise InputError("--query-set is for two stores; name the query set instead of the evidence")
    choice.require_two("compare", evidence)
    asserted = guards.asserted()
    with measuring.measured(evidence, choice, how, as_json, further=asserted.measures) as found:
        comparison = found.comparison
    per_query = len(comparison.evaluations[0].qids) <= MAX_QUERIES_PRINTED
    content_hash, _ = found.made_on[0]
    gathered = f"gathered with {found.source.header.config.name}; content hash {content_hash}"
    worse = replace(
        got_worse(comparison, asserted),
        said=comparison.changed(shown),
        tables=comparison.tables,
        notes=(*comparison.notes, gathered),
        values=comparison.to_json(per_query) | {"content_hash": content_hash},
    )
    options = [*choice.words(), *cli.given_options(store=how.store)]
    losses = words_of("evaluate", *evidence, options=["--losses", *options])
    page = words_of("report compare", *evidence, options=["--out", unused("compare.html"), *options])
    measuring.decide(worse, as_json, *(found.score_commands() or (losses, page)))


def power_command(
    evidence: measuring.NameArgument,
    choice: measuring.ComparedConfigs,
    metric: str = "nDCG@10",
    losses: list[float] | None = None,
    shown: int = 20,
    queue: str | None = None,
    judge_kind: measuring.JudgeKindOption = None,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Show how many queries tell a loss of some size, and which to label first.

    The queries first whose labels can move the difference between two configs most.
    """
    from cems_workbench.evaluation.grades import as_judged
    from cems_workbench.evaluation.labelling.queue import make_queue
    from cems_workbench.evaluation.metrics import parse_measure
    from cems_workbench.evaluation.power import LOSSES, power_of

    choice.require_two("power", [evidence])
    labelled, least = measuring.labelled_evidence(
        evidence,
        lambda header: [one for one, _ in choice.read(header, store=store)[:2]],
        judge_kind,
        store,
        as_json,
        judged=False,
    )
    first, *_ = read = list(labelled.values())
    evidences = [one.evidence.evidences for one in read]
    queries = as_judged(first.evidence.queries, first.grades.answerable)
    judged = parse_measure(metric, least), losses or LOSSES, shown
    found = power_of(queries, evidences, first.grades.grades, [*labelled], *judged)
    options = [*choice.words(), *cli.given_options(store=store)]
    if queue is None:
        then = words_of("compare", evidence, options=options)
        if not measuring.evidence_files([evidence]):
            then = words_of("power", evidence, options=["--queue", "first", *options])
    else:
        with closing(cli.open_existing_store(store)) as opened:
            opened.queues.save(make_queue(queue, found.pairs, "query"))
        then = words_of("app", options=cli.given_options(store=store))
    cli.present(found, as_json, then)


def _two_sides(names: Sequence[str]) -> bool:
    """Whether the names are two stores, or evidence files that are not parts of one set. Raises InputError for a store alone."""
    from cems_workbench.jobs.compare_stores import differing_files, is_store

    stores = [is_store(name) for name in names]
    if any(stores) and not (all(stores) and len(names) == 2):
        other = next((f", and {name} is not one" for name, found in zip(names, stores, strict=True) if not found), "")
        raise InputError(f"compare takes two stores{other}: compare OLD NEW, or STORE@N STORE, the store as it was after import N")
    return any(stores) or differing_files(names)


def _compare_sides(
    names: Sequence[str],
    choice: measuring.ComparedConfigs,
    how: measuring.Measuring,
    guards: measuring.Guards,
    shown: int,
    query_set: str | None,
    as_json: bool,
) -> None:
    """Compare two stores, or evidence files of two, under a config each."""
    from cems_workbench.jobs import compare_stores as job
    from cems_workbench.jobs.query_set_evidence import ALL_QUERIES

    def configs(header: Header | None) -> list[PipelineConfig]:
        chosen = [config for config, _ in choice.read(header, store=how.store)]
        if len(chosen) > 2:
            raise InputError(f"two sides take one config for both or one each; there are {len(chosen)}")
        return chosen

    metrics = " ".join(how.metric) if how.metric else None
    asked = job.Asked(
        query_set or ALL_QUERIES,
        metrics,
        how.grade,
        how.judge_kind,
        how.credit is not None,
        how.per_query_project,
        how.seed,
        guards.asserted(),
        shown,
    )
    with cli.progress_bar(as_json) as progress:
        if job.is_store(names[0]):
            own = configs(None)
            found = job.compare_stores(names[0], names[1], (own[0], own[-1]), cli.settings_for(how.store), asked, progress)
        else:
            files = [cli.read_evidence(Path(name)) for name in names]
            own = [configs(file.header)[-1 if place else 0] for place, file in enumerate(files)]
            found = job.compare_files(files[0], files[1], (own[0], own[1]), asked)
    measuring.decide(found, as_json)


def drift_command(
    before: Path,
    after: Path,
    config: cli.ConfigOption = None,
    preset: str | None = None,
    changes: cli.SetOption = None,
    cutoff: int = 10,
    shown: int = 10,
    least: float | None = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Show which queries' results changed, and how much.

    Measures change, not quality: no judgments are used.
    """
    from cems_workbench.jobs.regression import drifted

    read = cli.read_evidence(before)
    chosen, _ = measuring.configs_for(
        read.header, [config] if config else None, [preset] if preset else None, changes, None
    )[0]
    later, options = cli.read_evidence(after), cli.given_options(preset, config, changes)
    found = drifted(read, later, chosen, cutoff, shown, least)
    if later.judgments:
        then = words_of("evaluate", after, options=["--losses", *options])
    else:
        then = words_of("search", found.values["queries"][0]["query"], options=options)
    measuring.decide(found, as_json, then)


def graph_recall_command(
    query_set: str,
    cutoff: int = 10,
    ef_search: list[int] | None = None,
    per_query_project: measuring.PerQueryProjectOption = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Measure what Chroma's graph finds of the nearest memories.

    Against the exact list, by ef_search, with the relevant memories that it misses. The collection is not changed.
    """
    from cems_workbench.jobs.graph_recall import recall_of_set

    with cli.progress_bar(as_json) as progress, cli.filled_resources(store) as resources:
        found = recall_of_set(query_set, resources, cutoff, ef_search or (), per_query_project, progress)
    graph = ["--set", "lists.vector.index=graph", *cli.given_options(store=store)]
    cli.present(found, as_json, words_of("evaluate", query_set, options=["--losses", *graph]))


DEFAULT_PROBABILITY = 0.5


def calibrate_command(
    evidence: measuring.NameArgument,
    config: Path | None = None,
    preset: str | None = None,
    changes: cli.SetOption = None,
    signal: str | None = None,
    method: Literal["logistic", "isotonic"] = "logistic",
    probability: float = DEFAULT_PROBABILITY,
    judge_kind: measuring.JudgeKindOption = None,
    per_query_project: measuring.PerQueryProjectOption = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Calibrate the abstain signals on judged queries, some of them without an answer.

    Prints each signal's threshold as a config assignment; changes nothing.
    """
    from cems_workbench.jobs.evaluation import calibrations, refuse_nothing
    from cems_workbench.tuning.calibration import CALIBRATION_COLUMNS, calibration_table

    def configs_of(header: Header | None) -> list[PipelineConfig]:
        named = measuring.configs_for(header, [config] if config else None, [preset] if preset else None, changes, None)
        return [named[0][0]]

    labelled, least = measuring.labelled_evidence(
        evidence, configs_of, judge_kind, store, as_json, only_project=per_query_project
    )
    chosen, of_config = next(iter(labelled.items()))
    batch = of_config.batch
    refuse_nothing(batch.qids, evidence)
    group_by, found, refused = calibrations(batch, chosen, least, signal, method, probability)
    if not found:
        raise InputError(next(iter(refused.values())))
    if as_json:
        values = {"config": chosen.name, "group_by": group_by, "calibrations": [one.to_json() for one in found]}
        return put_json(values | {"without": refused})
    tables = [calibration_table(found, group_by), *([found[0].table] if signal is not None else [])]
    cli.print_parts((), tables, (CALIBRATION_COLUMNS, *(f"left out: {line}" for line in refused.values())))
    for one in found:
        say(f"--set {one.setting}" if one.setting else f"abstain.{one.signal}: {one.without}")
    usable = [one for one in found if one.setting]
    if usable:
        best = max(usable, key=lambda one: one.auroc)
        options = cli.given_options(preset, config, [*(changes or ()), str(best.setting)], store)
        say_next(words_of("evaluate", evidence, options=options))
