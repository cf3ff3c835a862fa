"""`gather` and `fill-scores`: the evidence of a query set in one portable file, and reranker scores that it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from cems_workbench.cli.measuring import ConfigsChoice, LimitOption, PerQueryProjectOption, SeedOption
from cems_workbench.cli.options import (
    AblateOption,
    ConfigChoice,
    JsonOption,
    StoreOption,
    filled_resources,
    progress_bar,
    read_evidence,
    settings_for,
)
from cems_workbench.cli.terminal import put_json, say, say_next, unused, words_of


def gather_command(
    query_set: str,
    out: Path | None = None,
    *,
    choice: ConfigChoice,
    per_query_project: PerQueryProjectOption = False,
    judged: bool = False,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Gather the evidence of a query set into one file.

    An interrupted gather resumes if the same command is run again.
    """
    chosen = choice.read()
    from cems_workbench.jobs.query_set_evidence import (
        QuerySelection,
        gather_evidence,
        gather_query_set,
        queries_named,
        sample_queries,
    )

    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        queries, judgments = queries_named(query_set, resources, judged)
        queries = sample_queries(queries, limit, seed)
        asked = {query.qid for query in queries}
        judgments = [row for row in judgments if row.qid in asked]
        if out is None:
            selection = QuerySelection(query_set, tuple(queries), per_query_project)
            if selection.without_project:
                say(f"note: {selection.without_project}", err=True)
            report = gather_evidence(chosen, selection, judgments, resources, progress)
        else:
            report = gather_query_set(
                out,
                queries,
                judgments,
                chosen,
                resources,
                query_set=query_set,
                only_project=per_query_project,
                progress=progress,
            )
        notices = resources.store.notices
    values: dict[str, Any] = {
        "evidence": str(report.path),
        "queries": len(queries),
        "finished_before": report.finished_before,
        "gathered": report.gathered,
        "left_out": [str(error) for error in report.left_out],
        "seconds": round(report.seconds, 3),
        "content_hash": report.content_hash,
        "notices": list(notices),
    }
    if as_json:
        put_json(values)
    else:
        say(f"{report.path}: evidence of {report.finished_before + report.gathered} of {len(queries)} queries")
        say(f"{report.gathered} gathered now in {report.seconds:.1f} s, {report.finished_before} already finished")
        say(f"content hash {report.content_hash}")
        for error in report.left_out:
            say(f"left out: {error}")
        if asked & {row.qid for row in judgments}:
            say_next(words_of("evaluate", report.path, options=["--losses"]))
        else:  # nothing to measure on
            say_next(words_of("tune", report.path, options=["--without-labels", "--out", unused("tuned.yaml")]))
    if report.left_out:
        raise typer.Exit(2)


@dataclass(frozen=True)
class GatheredConfigs(ConfigsChoice):
    """The configs of a command on an evidence file."""

    preset: list[str] | None = None


def fill_scores_command(
    evidence: Path,
    choice: GatheredConfigs,
    ablate: AblateOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add missing reranker scores to an evidence file.

    Scores the pairs of query and memory that the configs' rerankers read and the file lacks. If interrupted, finished scores are
    kept. Models and score cache are those of the store that the evidence was gathered from.
    """
    from cems_workbench.jobs.evaluation import labelled_file
    from cems_workbench.jobs.scoring import resources_of, score_evidence

    read = read_evidence(evidence)
    configs = [chosen for chosen, _ in choice.read(read.header, ablate)]
    judged = labelled_file(read, None).batch.qids or None
    with progress_bar(as_json) as progress, resources_of(read, settings_for(store)) as resources:
        report = score_evidence(read, configs, resources, progress, judged)
    if as_json:
        said = {name: getattr(report, name) for name in ("queries", "pairs", "content_hash")}
        put_json({"evidence": str(report.path), **said, "failed": dict(report.failed)})
    else:
        say(f"{report.path}: {report.pairs} pairs of {report.queries} queries scored")
        say(f"content hash {report.content_hash}")
        for why, count in report.failed.items():
            say(f"not scored: {count} pairs: {why}")
        again = ["--ablate", ablate] if ablate else []
        say_next(words_of("evaluate", evidence, options=[*choice.words(), *again]))
    if report.failed:
        raise typer.Exit(2)
