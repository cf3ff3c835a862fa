"""`compare`: configs against the first one on an evidence file, without store or model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.evaluate import (
    CannotTellOption,
    GradeOption,
    JudgeKindOption,
    MetricOption,
    Options,
    ToleranceOption,
    asserted_json,
    check_cannot_tell,
    check_judge_kind,
    chosen_measures,
    configs_for,
    exit_unless_all_hold,
    print_asserted,
    print_verdicts,
    score_lines,
    verdicts_json,
)
from cems_workbench.cli.gather import PerQueryProjectOption, SeedOption
from cems_workbench.cli.named_evidence import NamesArgument, evidence_files, labelled_evidence
from cems_workbench.cli.next_command import config_options, say_next, unused, words_of
from cems_workbench.cli.options import (
    ConfigsOption,
    JsonOption,
    SetOption,
    StoreOption,
    given_options,
    preset_help,
    print_table,
    progress_bar,
)
from cems_workbench.cli.terminal import put_json, say, say_wrapped
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.comparison import Comparison
    from cems_workbench.evaluation.evidence_file import Header


def compare_command(
    evidence: NamesArgument,
    config: ConfigsOption = None,
    preset: Annotated[
        list[str] | None,
        typer.Option("--preset", metavar="NAME", help=preset_help("none: name at least two configs; repeatable")),
    ] = None,
    changes: SetOption = None,
    metric: MetricOption = None,
    grade: GradeOption = None,
    judge_kind: JudgeKindOption = None,
    no_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on-regression",
            metavar="[TYPE:]MEASURE[ p<N]",
            help="Exit with 1 on a loss against the first config above the tolerance, with 3 if that is uncertain; with p<N, with 1 on a "
            "significant loss; repeatable.",
        ),
    ] = None,
    tolerance: ToleranceOption = None,
    cannot_tell: CannotTellOption = None,
    shown: Annotated[int, typer.Option("--show", metavar="N", min=0, help="Number of changed queries to list.")] = 10,
    per_query_project: PerQueryProjectOption = False,
    seed: SeedOption = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare configs with the first one, query by query.

    The verdict on each comes first: pass, fail, or cannot tell. Evidence files need neither store nor model.
    """
    from cems_workbench.evaluation.assertions import check_no_loss, parse_no_loss, verdicts_first
    from cems_workbench.evaluation.comparison import compare
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.jobs.evaluation import (
        MAX_QUERIES_PRINTED,
        evaluate_configs,
        evaluate_streamed,
        refuse_nothing,
        streamed,
    )

    if len(config or ()) + len(preset or ()) < 2:
        raise InputError("compare needs at least two configs: --config A --config B (files, or presets by name)")
    check_judge_kind(judge_kind)
    decided = check_cannot_tell(cannot_tell)
    paths = evidence_files(evidence, gathering=per_query_project)
    if paths is not None and streamed(paths):
        with EvidenceStream(paths) as stream:
            header, content = stream.header, stream.content_hash
            least = header.relevant_from if grade is None else grade
            guarded = [parse_no_loss(text, least) for text in no_loss or ()]
            measures = chosen_measures(metric, least, [guard.measure for guard in guarded])
            named = [(chosen.name, chosen) for chosen, _ in configs_for(header, config, preset, changes, None)]
            with progress_bar(as_json) as progress:
                found = evaluate_streamed(stream, named, measures, judge_kind, seed=seed, progress=progress)
        comparison = found.found.compared(seed)
        scoring: list[str] = []
    else:
        configs: list[tuple[PipelineConfig, Options]] = []

        def configs_of(header: Header | None) -> list[PipelineConfig]:
            configs.extend(configs_for(header, config, preset, changes, None))
            return [chosen for chosen, _ in configs]

        labelled, relevant_from = labelled_evidence(
            evidence[0], configs_of, judge_kind, store, as_json, only_project=per_query_project
        )
        least = relevant_from if grade is None else grade
        guarded = [parse_no_loss(text, least) for text in no_loss or ()]
        measures = chosen_measures(metric, least, [guard.measure for guard in guarded])
        of_first = labelled[configs[0][0]]
        refuse_nothing(of_first.batch.queries, evidence[0])
        with progress_bar(as_json) as progress:
            measured, _ = evaluate_configs(
                [(chosen.name, chosen) for chosen, _ in configs],
                labelled.get,
                measures,
                seed=seed,
                progress=progress,
            )
        comparison = compare([row.evaluation for row in measured], seed=seed)
        content, header = of_first.content_hash, of_first.evidence.header
        told = [
            (row.labelled.evidence.path, row.evaluation, options)
            for row, (_, options) in zip(measured, configs, strict=True)
        ]
        scoring = score_lines(told, store)
    outcomes = [outcome for guard in guarded for outcome in check_no_loss(comparison, guard, tolerance, decided)]
    verdicts = verdicts_first(comparison, outcomes, tolerance)
    if as_json:
        per_query = len(comparison.evaluations[0].qids) <= MAX_QUERIES_PRINTED
        values = verdicts_json(verdicts) | comparison.to_json(per_query) | {"content_hash": content}
        put_json(values | asserted_json(outcomes))
    else:
        print_verdicts(verdicts)
        _print(comparison, shown, header.config.name)
        for line in scoring:
            say(line)
        say(f"content hash {content}")
        print_asserted(outcomes)
        named_options = [*config_options(config, preset, changes), *given_options(store=store)]
        say_next(
            words_of("evaluate", *evidence, options=["--losses", *named_options]),
            words_of("report compare", *evidence, options=["--out", unused("compare.html"), *named_options]),
        )
    exit_unless_all_hold(outcomes)


def _print_means(comparison: Comparison, gathered_with: str) -> None:
    """A column a config: its means, what the evidence cost, and what its reranker reads."""
    from cems_workbench.evaluation.evaluate import number, stale_lines

    every = comparison.evaluations
    rows: list[list[object]] = [
        [str(measure), *(number(evaluation.summaries[m].mean) for evaluation in every)]
        for m, measure in enumerate(every[0].measures)
    ]
    rows += [
        ["ms/query", *(_whole(evaluation.cost.get("ms_per_query")) for evaluation in every)],
        ["LLM calls", *(_whole(evaluation.cost["llm_calls"]) for evaluation in every)],
        ["pairs reranked", *(_whole(evaluation.cost["reranked"]) for evaluation in every)],
    ]
    print_table(["mean", *(evaluation.config.name for evaluation in every)], rows, f"{len(every[0].qids)} queries")
    said = f"as recorded when the evidence was gathered, with {gathered_with}"
    said += f" ({every[0].from_cache})" if every[0].from_cache else ""
    say_wrapped(every[0].relevance)
    for line in stale_lines(every):
        say_wrapped(line)
    say_wrapped(f"ms/query and LLM calls: {said}; pairs reranked: what each config's reranker reads")


def _signed(value: float) -> str | None:
    return None if math.isnan(value) else f"{value:+.4f}"


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _print(comparison: Comparison, shown: int, gathered_with: str) -> None:
    from cems_workbench.evaluation.comparison import interval_words

    base = comparison.evaluations[0]
    _print_means(comparison, gathered_with)
    said = base.remarks
    for line in said:
        say_wrapped(line)
    columns = [
        "measure",
        base.config.name,
        "value",
        "diff",
        "95 % of diff",
        "p (Holm)",
        "effect",
        "won/lost/same",
    ]
    for compared, evaluation in zip(comparison.compared, comparison.evaluations[1:], strict=True):
        rows = [
            [
                str(difference.measure),
                difference.baseline,
                difference.value,
                f"{difference.difference:+.4f}",
                interval_words(difference.low, difference.high),
                f"{difference.p_holm:.4f}",
                f"{difference.effect:.2f}",
                f"{len(difference.wins)}/{len(difference.losses)}/{difference.ties}",
            ]
            for difference in compared.differences
        ]
        title = f"{compared.name} against {base.config.name}: {len(base.qids)} queries, overlap of results {compared.overlap:.3f}"
        print_table(columns, rows, title)
        kinds = list(compared.differences[0].by_type)
        if len(kinds) > 1:
            by_type = [
                [kind, *(_signed(difference.by_type[kind]) for difference in compared.differences)] for kind in kinds
            ]
            print_table(
                ["difference by type", *(str(difference.measure) for difference in compared.differences)], by_type
            )
        first = compared.differences[0]
        for word, qids in (("better", first.wins), ("worse", first.losses)):
            if qids and shown:
                more = f" and {len(qids) - shown} more" if len(qids) > shown else ""
                say_wrapped(f"{word} by {first.measure}: {', '.join(qids[:shown])}{more}")
        for line in evaluation.remarks:
            if line not in said:
                say_wrapped(line)
