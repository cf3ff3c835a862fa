"""`evaluate`: measures of configs on an evidence file, without store or model, or on a query set of the store."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.builtin import DEFAULT_PRESET, preset_names
from cems_workbench.cli.gather import LimitOption, PerQueryProjectOption, SeedOption
from cems_workbench.cli.losses import LossesCutoffOption, LossesOption, LossesShownOption, print_losses
from cems_workbench.cli.named_evidence import NamesArgument, evidence_files, gathered_evidence
from cems_workbench.cli.next_command import flat, repeated, request_options, say_next, unused, words_of
from cems_workbench.cli.options import (
    AblateOption,
    ConfigsOption,
    JsonOption,
    PresetsOption,
    SetOption,
    StoreOption,
    chosen_config,
    given_options,
    print_table,
    progress_bar,
    read_evidence,
    settings_for,
)
from cems_workbench.cli.terminal import put_json, say, say_wrapped
from cems_workbench.errors import InputError, StoreError
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from cems_workbench.analysis.losses_of_set import LossCollector, Losses, LostMemory
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.assertions import Assertion, CannotTell, Outcome
    from cems_workbench.evaluation.batch import LabelledBatch, Rankings
    from cems_workbench.evaluation.evaluate import Evaluation
    from cems_workbench.evaluation.evidence_file import EvidenceSet, Header
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.evaluation.metrics import Measure
    from cems_workbench.evaluation.relevance_sources import RelevanceSources
    from cems_workbench.evaluation.verdict import Verdict
    from cems_workbench.jobs.evaluation import StreamedConfigs

CHECK_FAILED, CANNOT_TELL = 1, 3
"""Exit codes: something asserted does not hold; nothing failed, but a verdict cannot tell."""
Options = Sequence[tuple[str, str]]
"""Command line options with their values that name a config for `fill-scores`."""
MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", metavar="MEASURE", help="A measure, such as nDCG@10; repeatable (default: a full report)."
    ),
]
GradeOption = Annotated[
    int | None,
    typer.Option("--grade", metavar="N", help="Lowest grade that counts as relevant (default: that of the query set)."),
]
JudgeKindOption = Annotated[
    str | None,
    typer.Option(
        "--judge-kind", metavar="human|model", help="Use only judgments of people or of models (default: people first)."
    ),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        min=0,
        metavar="X",
        help="Tolerated loss, in units of the measure (default: 0.01; with p<N: 0).",
    ),
]
CannotTellOption = Annotated[
    str | None,
    typer.Option(
        "--cannot-tell",
        metavar="pass|fail",
        help="What a verdict that cannot tell counts as (default: exit with 3).",
    ),
]


def evaluate_command(
    evidence: NamesArgument,
    config: ConfigsOption = None,
    preset: PresetsOption = None,
    changes: SetOption = None,
    metric: MetricOption = None,
    grade: GradeOption = None,
    judge_kind: JudgeKindOption = None,
    run_out: Annotated[
        Path | None, typer.Option("--run-out", metavar="FILE", help="Write the rankings as a TREC run.")
    ] = None,
    asserted: Annotated[
        list[str] | None,
        typer.Option("--assert", metavar="[TYPE:]MEASURE>=N", help="Exit with 1 unless this bound holds; repeatable."),
    ] = None,
    ablate: AblateOption = None,
    losses: LossesOption = False,
    cutoff: LossesCutoffOption = None,
    shown: LossesShownOption = None,
    compare_judges: Annotated[
        bool,
        typer.Option(
            "--compare-judges",
            help="Also score the rankings by cosine threshold, model judge and people, side by side.",
        ),
    ] = False,
    per_query_project: PerQueryProjectOption = False,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure configs on judged queries.

    Evidence files need neither store nor model; large ones are streamed.
    """
    from cems_workbench.analysis.losses_of_set import DEFAULT_K, SHOWN, LossCollector, stream_words
    from cems_workbench.evaluation.assertions import check, parse_assertion
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.evaluation.verdict import verdicts_on_evaluations
    from cems_workbench.jobs.evaluation import (
        evaluate_configs,
        labelled_file,
        measured_losses,
        refuse_nothing,
        streamed,
    )
    from cems_workbench.jobs.traced_sets import traced_header

    def wanted(relevant_from: int) -> tuple[tuple[Measure, ...], list[Assertion]]:
        least = relevant_from if grade is None else grade
        parsed = [parse_assertion(text, least) for text in asserted or ()]
        return chosen_measures(metric, least, [assertion.measure for assertion in parsed]), parsed

    wanted(1)  # report invalid arguments before gathering
    check_judge_kind(judge_kind)
    if not losses and (cutoff is not None or shown is not None):
        raise InputError("--cutoff and --show are for --losses")
    k, rows = DEFAULT_K if cutoff is None else cutoff, SHOWN if shown is None else shown
    paths = evidence_files(evidence, gathering=per_query_project or limit is not None)
    if paths is not None and streamed(paths):
        if compare_judges:
            raise InputError(
                "--compare-judges reads the results of every query, which evidence of this size or of several files does not keep"
            )
        with EvidenceStream(paths) as stream:
            measures, assertions = wanted(stream.header.relevant_from)
            configs = configs_for(stream.header, config, preset, changes, ablate)
            least = stream.header.relevant_from if grade is None else grade
            counted = LossCollector([chosen for chosen, _ in configs], least, k) if losses else None
            found = _streamed(stream, configs, measures, judge_kind, seed, run_out, as_json, counted)
            lost = None if counted is None else stream_words(counted, stream, rows)
        outcomes = [check(assertion, evaluation) for evaluation in found.evaluations for assertion in assertions]
        verdicts = verdicts_on_evaluations(found.evaluations, found.found.overlaps)
        if as_json:
            put_json(
                verdicts_json(verdicts)
                | _losses_json(lost)
                | {"evaluations": found.to_json()}
                | asserted_json(outcomes)
            )
        else:
            print_verdicts(verdicts)
            if lost is not None:
                print_losses(lost, _remarks(found.evaluations))
            for evaluation in found.evaluations:
                print_evaluation(evaluation)
                say(f"content hash {found.content_hash}")
                if found.found.answered:
                    say(f"lists {found.found.answered}")
            print_asserted(outcomes)
            say_next(*_next_commands(paths, configs, lost, external=stream.external))
        exit_unless_all_hold(outcomes)
        return
    read = None if paths is None else read_evidence(paths[0])
    header = traced_header(settings_for(store).store, evidence[0]) if read is None else read.header
    configs = configs_for(header, config, preset, changes, ablate)
    _refuse_runs(run_out, configs)
    named = [(chosen.name, chosen) for chosen, _ in configs]
    if read is not None:
        relevant_from = read.header.relevant_from
        measures, assertions = wanted(relevant_from)
        of_file = labelled_file(read, judge_kind)
        with progress_bar(as_json) as progress:
            measured, _ = evaluate_configs(named, lambda _: of_file, measures, seed=seed, progress=progress)
    else:
        with gathered_evidence(evidence[0], judge_kind, per_query_project, (limit, seed), store, as_json) as (
            source,
            relevant_from,
        ):
            measures, assertions = wanted(relevant_from)
            measured, _ = evaluate_configs(named, source, measures, seed=seed)
    least = relevant_from if grade is None else grade
    evaluations, batches = [row.evaluation for row in measured], [row.batch for row in measured]
    refuse_nothing(evaluations[0].qids, evidence[0])
    if run_out is not None:
        _write_run(run_out, batches[0], evaluations[0])
    outcomes = [check(assertion, evaluation) for evaluation in evaluations for assertion in assertions]
    views = _relevance_sources(batches, evaluations) if compare_judges else []
    verdicts = verdicts_on_evaluations(evaluations)
    lost = measured_losses(measured, least, k, rows) if losses else None
    if as_json:
        values = (
            verdicts_json(verdicts)
            | _losses_json(lost)
            | {"evaluations": [row.to_json() for row in measured]}
            | asserted_json(outcomes)
        )
        put_json(values | ({"honest": [view.to_json() for view in views]} if compare_judges else {}))
    else:
        print_verdicts(verdicts)
        if lost is not None:
            print_losses(lost, _remarks(evaluations))
        for row in measured:
            print_evaluation(row.evaluation)
            say(f"content hash {row.content_hash}")
            if row.answered:
                say(f"lists {row.answered}")
        told = [
            (row.labelled.evidence.path, row.evaluation, options)
            for row, (_, options) in zip(measured, configs, strict=True)
        ]
        for line in score_lines(told, store):
            say(line)
        for view in views:
            for table in view.tables():
                print_table(table.columns, table.rows, table.title)
            for line in view.warnings:
                say(f"warning: {line}")
        print_asserted(outcomes)
        own = measured[0].labelled.evidence
        if own.external:
            again = repeated("--losses") if lost is None else _why_traced(lost, own, evidence[0], store)
            say_next(again)
        elif paths is not None:
            say_next(*_next_commands(paths, configs, lost, measured[0].labelled.evidence, store))
        else:
            gathered = words_of("gather", evidence[0], options=["--judged", "--out", unused(f"{evidence[0]}.evidence")])
            gathered += [
                *flat(option for option in configs[0][1] if option[0] != "--ablate"),
                *given_options(store=store),
            ]
            say_next(*_next_commands([], configs, lost, measured[0].labelled.evidence, store), gathered)
    exit_unless_all_hold(outcomes)


def _next_commands(
    files: Sequence[Path],
    configs: Sequence[tuple[PipelineConfig, Options]],
    lost: Losses | None,
    evidence: EvidenceSet | None = None,
    store: Path | None = None,
    *,
    external: bool = False,
) -> list[list[str] | None]:
    """Where memories are lost; then why the first of the largest loss is. Files are also compared under another config, which external
    traces do not have."""
    if lost is None:
        return [repeated("--losses"), None if external else _comparison(files, configs)]
    if external:
        return []
    why = None if evidence is None else _why_lost(lost, evidence, configs[0], store)
    return [why, _comparison(files, configs)]


def _comparison(files: Sequence[Path], configs: Sequence[tuple[PipelineConfig, Options]]) -> list[str] | None:
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


def _why_lost(
    lost: Losses, evidence: EvidenceSet, measured: tuple[PipelineConfig, Options], store: Path | None
) -> list[str] | None:
    """`why` of a memory that the first config loses where it loses most; None without the store that the evidence is of."""
    from cems_workbench.jobs.tuning import store_of
    from cems_workbench.pipeline.gather import Request

    row, (chosen, named) = _first_lost(lost), measured
    options = [option for option in named if option[0] != "--ablate"]
    if row is None or len(options) < len(named) or (not options and chosen.name not in preset_names()):
        return None
    if not options:
        options = [("--preset", chosen.name)]
    try:
        with store_of(evidence, settings_for(store)) as opened:
            if opened is None or opened.memories.get(row.memory_id) is None:
                return None
            place = [] if opened.path.resolve() == settings_for(None).store.resolve() else ["--store", str(opened.path)]
    except StoreError:  # locked: the sentence stands without a command
        return None
    query = next(query for query in evidence.queries if query.qid == row.qid)
    request = Request(
        query.query, query.project, query.as_of, evidence.header.only_project and query.project is not None
    )
    asked = request_options(request)
    return words_of("why", row.query, row.memory_id, options=[*asked, *flat(options), *place])


def _first_lost(lost: Losses) -> LostMemory | None:
    """The first memory that the first config loses where it loses most; None if it loses none."""
    first = lost.maps[0]
    most = max(first.branches, key=lambda branch: first.branches[branch], default=None)
    return None if most is None else next(iter(first.rows_of(most)), None)


def _why_traced(lost: Losses, evidence: EvidenceSet, name: str, store: Path | None) -> list[str] | None:
    """`why` of a memory that external traces lose, for the recorded stages of its query."""
    from cems_workbench.pipeline.gather import Request

    row = _first_lost(lost)
    if row is None:
        return None
    query = next(query for query in evidence.queries if query.qid == row.qid)
    asked = request_options(Request(query.query, query.project, query.as_of))
    return words_of("why", row.query, row.memory_id, options=["--evidence", name, *asked, *given_options(store=store)])


def _streamed(
    stream: EvidenceStream,
    configs: Sequence[tuple[PipelineConfig, Options]],
    measures: Sequence[Measure],
    judges: str | None,
    seed: int,
    run_out: Path | None,
    quiet: bool,
    counted: LossCollector | None = None,
) -> StreamedConfigs:
    """Measure the configs on a stream; the run is written as it is computed, and losses are counted."""
    from cems_workbench.evaluation.report import run_lines
    from cems_workbench.jobs.evaluation import evaluate_streamed
    from cems_workbench.platform.atomic_write import write_atomically

    _refuse_runs(run_out, configs)
    named = [(chosen.name, chosen) for chosen, _ in configs]
    with progress_bar(quiet) as progress:
        if run_out is None:
            return evaluate_streamed(stream, named, measures, judges, seed=seed, each=counted, progress=progress)
        try:
            with write_atomically(run_out) as part, part.open("w", encoding="utf-8", newline="\n") as file:

                def each(batch: LabelledBatch, found: Sequence[Rankings]) -> None:
                    file.write(run_lines(batch, found[0]))
                    if counted is not None:
                        counted(batch, found)

                return evaluate_streamed(stream, named, measures, judges, seed=seed, each=each, progress=progress)
        except (OSError, ValueError) as error:
            raise InputError(f"{run_out}: cannot be written: {error}") from None


def _refuse_runs(run_out: Path | None, configs: Sequence[object]) -> None:
    """Raise InputError if one run is to be written for several configs."""
    if run_out is not None and len(configs) > 1:
        raise InputError(f"--run-out holds one run, and there are {len(configs)} configs")


def configs_for(
    header: Header | None,
    files: Sequence[Path] | None,
    presets: Sequence[str] | None,
    changes: Sequence[str] | None,
    ablate: str | None,
) -> list[tuple[PipelineConfig, Options]]:
    """The named configs, or the default one, and their ablations, each with the options that name it for `fill-scores`.

    The default is the config that a file with this header was gathered with, and for a query set (None) the default preset.
    """
    from cems_workbench.evaluation.ablation import ablations

    configs = chosen_configs(files, presets, changes) or [_default(header, changes)]
    named = [[("--config", str(path))] for path in files or ()] + [[("--preset", name)] for name in presets or ()]
    further = [("--set", text) for text in changes or ()] + ([("--ablate", ablate)] if ablate else [])
    return [
        (variant, [*options, *further])
        for chosen, options in zip(configs, named or [[]], strict=True)
        for variant in (ablations(ablate, chosen) if ablate else [chosen])
    ]


def score_lines(measured: Iterable[tuple[Path, Evaluation, Options]], store: Path | None = None) -> list[str]:
    """The commands that add the missing reranker scores of evaluations, one per evidence file."""
    from cems_workbench.evaluation.batch import UNSCORED

    options: dict[Path, list[tuple[str, str]]] = {}
    for path, evaluation, named in measured:
        if UNSCORED in evaluation.rankings.needs:
            options.setdefault(path, []).extend(named)
    return [score_line(path, named, store) for path, named in options.items()]


def score_line(evidence: Path, named: Options, store: Path | None = None) -> str:
    """The command, quoted for a shell, that adds the missing scores of a file for the configs that these options name."""
    words = [word for option in dict.fromkeys(named) for word in option]
    where = [] if store is None else ["--store", str(store)]
    command = shlex.join(["python", "-m", "cems_workbench", "fill-scores", str(evidence), *words, *where])
    return f"score them: {command}"


def _remarks(evaluations: Iterable[Evaluation]) -> set[str]:
    return {line for evaluation in evaluations for line in evaluation.remarks}


def _losses_json(losses: Losses | None) -> dict[str, Any]:
    """The losses as plain values, where they were asked for."""
    return {} if losses is None else {"losses": losses.to_json()}


def asserted_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Outcomes of the assertions, as plain values."""
    return {"assertions": [_asserted(outcome) for outcome in outcomes]}


def _asserted(outcome: Outcome) -> dict[str, Any]:
    verdict = {} if outcome.verdict is None else {"verdict": outcome.verdict.kind}
    return {"holds": outcome.holds, "line": outcome.line} | verdict


def verdicts_json(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The verdicts, as plain values; nothing without any."""
    return {"verdicts": [one.to_json() for one in verdicts]} if verdicts else {}


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print the sentence of each verdict; it comes before every table."""
    for one in verdicts:
        say_wrapped(one.sentence)


def print_asserted(outcomes: Sequence[Outcome]) -> None:
    """Print the outcome of each assertion but those of verdicts, whose sentences are printed first."""
    for outcome in outcomes:
        if outcome.verdict is None:
            say(outcome.line)


def exit_unless_all_hold(outcomes: Sequence[Outcome]) -> None:
    """Exit with 1 if an assertion does not hold, and with 3 if otherwise a verdict cannot tell."""
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(CHECK_FAILED)
    if any(outcome.undecided for outcome in outcomes):
        raise typer.Exit(CANNOT_TELL)


def check_cannot_tell(chosen: str | None) -> CannotTell | None:
    """What --cannot-tell says. Raises InputError unless it is pass or fail."""
    if chosen is None:
        return None
    if chosen == "pass":
        return "pass"
    if chosen == "fail":
        return "fail"
    raise InputError(f"--cannot-tell {chosen}: expected pass or fail")


def check_judge_kind(kind: str | None) -> None:
    """Raise InputError unless --judge-kind is human or model."""
    if kind not in (None, "human", "model"):
        raise InputError(f"--judge-kind {kind}: expected human or model")


def _default(header: Header | None, changes: Sequence[str] | None) -> PipelineConfig:
    """The config that a file was gathered with; the default preset for a query set."""
    from cems_workbench.config import parse_assignment, with_values

    if header is None:
        return chosen_config(None, None, changes)
    return with_values(header.config, dict(parse_assignment(text) for text in changes or ()), "--set")


def chosen_configs(
    files: Sequence[Path] | None, presets: Sequence[str] | None, changes: Sequence[str] | None
) -> list[PipelineConfig]:
    """The named configs with the changes applied, each under a unique name."""
    from cems_workbench.jobs.catalogue import with_unique_names

    chosen = [chosen_config(None, path, changes) for path in files or ()]
    chosen += [chosen_config(name, None, changes) for name in presets or ()]
    return with_unique_names(chosen)


def chosen_measures(names: Sequence[str] | None, grade: int, further: Sequence[Measure] = ()) -> tuple[Measure, ...]:
    """The named measures, or those of a full report, and the further ones. A name may hold several, separated by spaces."""
    from cems_workbench.evaluation.metrics import parse_measures, standard_measures

    wanted = parse_measures(" ".join(names), grade) if names else standard_measures(grade)
    return tuple(dict.fromkeys([*wanted, *further]))


def print_evaluation(evaluation: Evaluation) -> None:
    """Print the measures of a config, overall and by query type, with its remarks."""
    from cems_workbench.evaluation.evaluate import number, stale_lines

    rows = [
        [str(row.measure), number(row.mean), f"{row.low:.3f} to {row.high:.3f}", f"{row.worst:.3f} to {row.best:.3f}"]
        for row in evaluation.summaries
    ]
    columns = ["measure", "mean", "95 % interval", "unjudged: worst to best"]
    print_table(columns, rows, f"{evaluation.config.name}: {len(evaluation.qids)} queries")
    by_type = evaluation.by_type()
    if len(by_type) > 1:
        names = [str(measure) for measure in evaluation.measures]
        print_table(
            ["type", "queries", *names],
            [[kind, row["queries"], *(row[name] for name in names)] for kind, row in by_type.items()],
        )
    say_wrapped(evaluation.relevance)
    for line in stale_lines([evaluation]):
        say_wrapped(line)
    say_wrapped(cost_line(evaluation))
    for line in evaluation.remarks:
        say(line)


def cost_line(evaluation: Evaluation) -> str:
    """The recorded cost of gathering, and the pairs that the config's reranker reads."""
    pace = evaluation.cost.get("ms_per_query")
    said = f"{evaluation.cost['llm_calls']:.0f} LLM calls, {evaluation.cost['reranked']:.0f} pairs reranked"
    if pace is None:
        return said
    cached = f" ({evaluation.from_cache})" if evaluation.from_cache else ""
    later = f", without {evaluation.scored_later}" if evaluation.scored_later else ""
    return f"{pace:.0f} ms/query when it was gathered{cached}{later}, {said}"


def _relevance_sources(batches: Sequence[LabelledBatch], evaluations: Sequence[Evaluation]) -> list[RelevanceSources]:
    from cems_workbench.evaluation.relevance_sources import relevance_sources

    return [relevance_sources(batch, evaluation) for batch, evaluation in zip(batches, evaluations, strict=True)]


def _write_run(path: Path, batch: LabelledBatch, evaluation: Evaluation) -> None:
    from cems_workbench.evaluation.report import trec_run

    try:
        text = trec_run(batch, evaluation)
    except ValueError as error:
        raise InputError(f"{path}: cannot be written: {error}") from None
    write_text(path, text)
