"""`report`: a comparison, or why a memory is missing, as one HTML file for readers without the app."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.evaluate import (
    GradeOption,
    JudgeKindOption,
    MetricOption,
    ToleranceOption,
    check_judge_kind,
    chosen_measures,
    configs_for,
)
from cems_workbench.cli.gather import PerQueryProjectOption, SeedOption
from cems_workbench.cli.named_evidence import NamesArgument, evidence_files, labelled_evidence
from cems_workbench.cli.next_command import config_options, say_next, words_of
from cems_workbench.cli.options import (
    AskedInFull,
    ConfigChoice,
    ConfigsOption,
    CutoffOption,
    SetOption,
    StoreOption,
    given_options,
    grouped,
    open_existing_store,
    preset_help,
    progress_bar,
)
from cems_workbench.cli.terminal import say
from cems_workbench.cli.why import LabelledOption, MissingArgument, QueryArgument, explained, next_commands
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.evidence_file import Header

group = typer.Typer(name="report", help="Write a comparison or an explanation as one HTML file.", no_args_is_help=True)
OutOption = Annotated[Path, typer.Option("--out", metavar="FILE", help="The HTML file to write.")]
RedactOption = Annotated[bool, typer.Option("--redact", help="Leave out texts (queries, titles, contents); ids stay.")]


@group.command("compare")
def compare_command(
    evidence: NamesArgument,
    out: OutOption,
    config: ConfigsOption = None,
    preset: Annotated[
        list[str] | None,
        typer.Option("--preset", metavar="NAME", help=preset_help("none: name at least two configs; repeatable")),
    ] = None,
    changes: SetOption = None,
    metric: MetricOption = None,
    sort_by: Annotated[
        str | None,
        typer.Option("--sort-by", metavar="MEASURE", help="Sort queries by this measure (default: nDCG@10)."),
    ] = None,
    grade: GradeOption = None,
    judge_kind: JudgeKindOption = None,
    tolerance: ToleranceOption = None,
    shown: Annotated[
        int,
        typer.Option("--show", metavar="N", min=0, max=200, help="Number of queries to show, largest losses first."),
    ] = 10,
    redact: RedactOption = False,
    per_query_project: PerQueryProjectOption = False,
    seed: SeedOption = 0,
    store: StoreOption = None,
) -> None:
    """Report a comparison of configs with the first one.

    Means, differences, and the queries that lost most.
    """
    from cems_workbench.analysis.losses_of_set import LossCollector, stream_words
    from cems_workbench.evaluation.comparison import compare
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE
    from cems_workbench.jobs.evaluation import (
        evaluate_configs,
        evaluate_streamed,
        losses_if_any,
        refuse_nothing,
        streamed,
    )
    from cems_workbench.report.comparison import comparison_report, streamed_report

    if len(config or ()) + len(preset or ()) < 2:
        raise InputError("report compare needs at least two configs: --config A --config B (files, or presets by name)")
    check_judge_kind(judge_kind)
    tolerated = DEFAULT_TOLERANCE if tolerance is None else tolerance

    def configs_of(header: Header | None) -> list[PipelineConfig]:
        return [one for one, _ in configs_for(header, config, preset, changes, None)]

    paths = evidence_files(evidence, gathering=per_query_project)
    if paths is not None and streamed(paths):
        with EvidenceStream(paths) as stream:
            configs = configs_of(stream.header)
            least = stream.header.relevant_from if grade is None else grade
            measures = chosen_measures(metric, least)
            with progress_bar() as progress:
                counted = LossCollector(configs, least)
                found = evaluate_streamed(
                    stream,
                    [(one.name, one) for one in configs],
                    measures,
                    judge_kind,
                    seed=seed,
                    each=counted,
                    progress=progress,
                ).found
            page = streamed_report(
                found.compared(seed),
                stream,
                found.answered,
                datetime.now(UTC),
                by=sort_by,
                shown=shown,
                redact=redact,
                seed=seed,
                judges=judge_kind,
                losses=stream_words(counted, stream) if counted.relevant else None,
                tolerance=tolerated,
            )
    else:
        labelled, least = labelled_evidence(
            evidence[0], configs_of, judge_kind, store, False, only_project=per_query_project
        )
        measures = chosen_measures(metric, least if grade is None else grade)
        refuse_nothing(next(iter(labelled.values())).batch.queries, evidence[0])
        measured, _ = evaluate_configs([(one.name, one) for one in labelled], labelled.get, measures, seed=seed)
        page = comparison_report(
            compare([row.evaluation for row in measured], seed=seed),
            [row.labelled for row in measured],
            datetime.now(UTC),
            by=sort_by,
            shown=shown,
            redact=redact,
            seed=seed,
            judges=judge_kind,
            losses=losses_if_any(measured),
            tolerance=tolerated,
        )
    _write(out, page)
    options = ["--losses", *config_options(config, preset, changes), *given_options(store=store)]
    say_next(words_of("evaluate", *evidence, options=options))


@group.command("why")
@grouped
def why_command(
    query: QueryArgument,
    memory_id: MissingArgument,
    out: OutOption,
    choice: ConfigChoice,
    asked: AskedInFull,
    cutoff: CutoffOption = None,
    labelled: LabelledOption = False,
    redact: RedactOption = False,
    store: StoreOption = None,
) -> None:
    """Report why a memory is missing, and what would return it. Nothing is changed.

    It searches the store: of an external trace, `why --evidence SET` names the stage.
    """
    from cems_workbench.report.investigation import investigation_report

    found = explained(query, memory_id, choice, asked, cutoff, labelled, store, quiet=False)
    with open_existing_store(store) as opened:
        memory = opened.memories.get(found.why.path.memory_id)
    trace = found.answer.trace
    _write(out, investigation_report(found.why, trace, datetime.now(UTC), memory=memory, redact=redact))
    say(found.cause)
    assert found.answer.request is not None
    say_next(*next_commands(found.why, found.answer.request, found.answer.off, choice.words(store)))


def _write(out: Path, page: str) -> None:
    write_text(out, page)
    say(f"wrote {out}, {len(page.encode()) / 1e3:.0f} kB")
