"""`evaluate`, `compare`, `drift` and `calibrate`: configs on judged queries, against each other and on other evidence."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.builtin import DEFAULT_PRESET, preset_names
from cems_workbench.cli.measuring import (
    CannotTellOption,
    ComparedConfigs,
    ConfigsChoice,
    JudgeKindOption,
    LimitOption,
    Measured,
    Measuring,
    NameArgument,
    NamesArgument,
    Options,
    PerQueryProjectOption,
    ToleranceOption,
    asserted_json,
    check_cannot_tell,
    check_judge_kind,
    configs_for,
    exit_unless_all_hold,
    labelled_evidence,
    measured,
    print_asserted,
    print_verdicts,
    verdicts_json,
)
from cems_workbench.cli.options import (
    AblateOption,
    ConfigOption,
    JsonOption,
    SetOption,
    StoreOption,
    given_options,
    present,
    preset_help,
    print_parts,
    read_evidence,
    settings_for,
)
from cems_workbench.cli.terminal import flat, put_json, repeated, request_options, say, say_next, unused, words_of
from cems_workbench.errors import InputError, StoreError

if TYPE_CHECKING:
    from cems_workbench.analysis.losses_of_set import Losses, LostMemory
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.assertions import Assertion, NoLoss
    from cems_workbench.evaluation.evidence_file import EvidenceSet, Header

MAX_ROWS = 100
"""`analysis.losses_of_set.MAX_ROWS`, which is not loaded for a list of options."""


def evaluate_command(
    evidence: NamesArgument,
    choice: ConfigsChoice,
    how: Measuring,
    run_out: Annotated[
        Path | None, typer.Option("--run-out", metavar="FILE", help="Write the rankings as a TREC run.")
    ] = None,
    asserted: Annotated[
        list[str] | None,
        typer.Option("--assert", metavar="[TYPE:]MEASURE>=N", help="Exit with 1 unless this bound holds; repeatable."),
    ] = None,
    ablate: AblateOption = None,
    losses: Annotated[
        bool,
        typer.Option(
            "--losses",
            help="Say first which stage loses the relevant memories, and which ones; with several configs, what they save and break.",
        ),
    ] = False,
    cutoff: Annotated[
        int | None,
        typer.Option(
            "--cutoff",
            metavar="RANK",
            min=1,
            help="With --losses: a memory below this rank counts as lost (default: 10).",
        ),
    ] = None,
    shown: Annotated[
        int | None,
        typer.Option(
            "--show",
            metavar="N",
            min=0,
            max=MAX_ROWS,
            help="With --losses: memories to list of each branch (default: 10).",
        ),
    ] = None,
    compare_judges: Annotated[
        bool,
        typer.Option(
            "--compare-judges",
            help="Also score the rankings by cosine threshold, model judge and people, side by side.",
        ),
    ] = False,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure configs on judged queries.

    Evidence files need neither store nor model; large ones are streamed.
    """
    from cems_workbench.analysis.losses_of_set import DEFAULT_K, SHOWN
    from cems_workbench.evaluation.assertions import check, parse_assertion
    from cems_workbench.evaluation.labelling.judge_calibration import relevance_sources
    from cems_workbench.evaluation.verdict import verdicts_on_evaluations

    def assertions(least: int) -> list[Assertion]:
        return [parse_assertion(text, least) for text in asserted or ()]

    if not losses and (cutoff is not None or shown is not None):
        raise InputError("--cutoff and --show are for --losses")
    k, rows = DEFAULT_K if cutoff is None else cutoff, SHOWN if shown is None else shown
    with measured(
        evidence,
        choice,
        how,
        as_json,
        further=lambda least: [one.measure for one in assertions(least)],
        ablate=ablate,
        limit=limit,
        count_losses=k if losses else None,
        run_out=run_out,
    ) as found:
        if compare_judges and not found.rows:
            raise InputError(
                "--compare-judges reads the results of every query, which evidence of this size or of several files does not keep"
            )
        lost = found.losses(rows)
    outcomes = [check(one, of) for of in found.evaluations for one in assertions(found.relevant_from)]
    overlaps = () if found.streamed is None else found.streamed.found.overlaps
    verdicts = verdicts_on_evaluations(found.evaluations, overlaps)
    views = [relevance_sources(row.batch, row.evaluation) for row in found.rows] if compare_judges else []
    if as_json:
        values: dict[str, Any] = verdicts_json(verdicts) | ({"losses": lost.to_json()} if lost else {})
        values |= {"evaluations": found.to_json()} | asserted_json(outcomes)
        put_json(values | ({"honest": [view.to_json() for view in views]} if compare_judges else {}))
    else:
        print_verdicts(verdicts)
        if lost is not None:
            said = {line for evaluation in found.evaluations for line in evaluation.remarks}
            remarks = [line for line in lost.remarks if line not in said]
            print_parts((*lost.sentences, *lost.mistakes), lost.tables, remarks)
        for evaluation, (content_hash, answered) in zip(found.evaluations, found.of_evidence(), strict=True):
            answers = [f"lists {answered}"] if answered else []
            print_parts((), evaluation.tables, (*evaluation.notes, f"content hash {content_hash}", *answers))
        for line in found.score_lines():
            say(line)
        for view in views:
            print_parts((), view.tables(), [f"warning: {line}" for line in view.warnings])
        print_asserted(outcomes)
        say_next(*_next_commands(found, evidence[0], lost))
    exit_unless_all_hold(outcomes)


def _next_commands(found: Measured, name: str, lost: Losses | None) -> list[list[str] | None]:
    """Where memories are lost; then why the first of the largest loss is. Files are also compared under another config, which external
    traces do not have; a query set is gathered into a file."""
    evidence, store = found.evidence, found.store
    if found.external:
        why = None if lost is None or evidence is None else _why_traced(lost, evidence, name, store)
        return [repeated("--losses") if lost is None else why]
    if lost is None:
        first: list[str] | None = repeated("--losses")
    else:
        first = None if evidence is None else _why_lost(lost, evidence, found.configs[0], store)
    if found.files:
        return [first, _comparison(found.files, found.configs)]
    gathered = words_of("gather", name, options=["--judged", "--out", unused(f"{name}.evidence")])
    options = flat(option for option in found.configs[0][1] if option[0] != "--ablate")
    return [first, [*gathered, *options, *given_options(store=store)]]


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


def compare_command(
    evidence: NamesArgument,
    choice: ComparedConfigs,
    how: Measuring,
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
    as_json: JsonOption = False,
) -> None:
    """Compare configs with the first one, query by query.

    The verdict on each comes first: pass, fail, or cannot tell. Evidence files need neither store nor model.
    """
    from cems_workbench.evaluation.assertions import check_no_loss, parse_no_loss, verdicts_first
    from cems_workbench.jobs.evaluation import MAX_QUERIES_PRINTED

    def guards(least: int) -> list[NoLoss]:
        return [parse_no_loss(text, least) for text in no_loss or ()]

    choice.require_two("compare")
    decided = check_cannot_tell(cannot_tell)
    with measured(
        evidence, choice, how, as_json, further=lambda least: [guard.measure for guard in guards(least)]
    ) as found:
        comparison = found.comparison
    guarded = guards(found.relevant_from)
    outcomes = [outcome for guard in guarded for outcome in check_no_loss(comparison, guard, tolerance, decided)]
    verdicts = verdicts_first(comparison, outcomes, tolerance)
    if as_json:
        per_query = len(comparison.evaluations[0].qids) <= MAX_QUERIES_PRINTED
        values = verdicts_json(verdicts) | comparison.to_json(per_query) | {"content_hash": found.content_hash}
        put_json(values | asserted_json(outcomes))
    else:
        print_verdicts(verdicts)
        gathered = f"gathered with {found.header.config.name}; content hash {found.content_hash}"
        print_parts(comparison.changed(shown), comparison.tables, (*comparison.notes, gathered))
        for line in found.score_lines():
            say(line)
        print_asserted(outcomes)
        options = [*choice.words(), *given_options(store=how.store)]
        say_next(
            words_of("evaluate", *evidence, options=["--losses", *options]),
            words_of("report compare", *evidence, options=["--out", unused("compare.html"), *options]),
        )
    exit_unless_all_hold(outcomes)


def drift_command(
    before: Annotated[Path, typer.Argument(help="An evidence file.")],
    after: Annotated[
        Path, typer.Argument(help="An evidence file of the same queries, gathered at another time or in another way.")
    ],
    config: ConfigOption = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help=preset_help("the config the first file was gathered with")),
    ] = None,
    changes: SetOption = None,
    cutoff: Annotated[
        int, typer.Option("--cutoff", metavar="K", min=1, help="Number of top results per query to compare.")
    ] = 10,
    shown: Annotated[
        int, typer.Option("--show", metavar="N", min=0, help="Number of queries to list, largest change first.")
    ] = 10,
    least: Annotated[
        float | None,
        typer.Option("--assert-overlap", metavar="X", min=0, max=1, help="Exit with 1 if the mean overlap is below X."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which queries' results changed, and how much.

    Measures change, not quality: no judgments are used.
    """
    from cems_workbench.analysis.drift import drift
    from cems_workbench.api.evidence import DriftReport

    read = read_evidence(before)
    chosen, _ = configs_for(read.header, [config] if config else None, [preset] if preset else None, changes, None)[0]
    later = read_evidence(after)
    found = drift(read, later, chosen, cutoff)
    present(DriftReport(found, min(shown, found.changed)), as_json, titled=True)
    if not as_json:
        options = given_options(preset, config, changes)
        if later.judgments:
            say_next(words_of("evaluate", after, options=["--losses", *options]))
        elif found.queries:
            say_next(words_of("search", found.queries[0].query, options=options))
    if least is not None and found.overlap < least:
        say(f"FAILED: mean overlap {found.overlap:.4f} is below {least}", err=True)
        raise typer.Exit(1)


DEFAULT_PROBABILITY = 0.5


class FitMethod(StrEnum):
    """How the probabilities are fitted."""

    LOGISTIC = "logistic"
    ISOTONIC = "isotonic"


def calibrate_command(
    evidence: NameArgument,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A config file, instead of a preset.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help=preset_help("the config the file was gathered with; for a query set the default preset"),
        ),
    ] = None,
    changes: SetOption = None,
    signal: Annotated[
        str | None,
        typer.Option(
            "--signal",
            metavar="NAME",
            help="Only this signal, with its reliability table: vector, lexical, reranker, judge, margin, agreement.",
        ),
    ] = None,
    method: Annotated[FitMethod, typer.Option("--method", help="How probabilities are fitted.")] = FitMethod.LOGISTIC,
    probability: Annotated[
        float,
        typer.Option("--probability", metavar="P", help="Lowest probability of an answer at which to return results."),
    ] = DEFAULT_PROBABILITY,
    judge_kind: JudgeKindOption = None,
    per_query_project: PerQueryProjectOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Calibrate the abstain signals on judged queries, some of them without an answer.

    Prints each signal's threshold as a config assignment; changes nothing.
    """
    from cems_workbench.jobs.evaluation import calibrations, refuse_nothing
    from cems_workbench.tuning.calibration import CALIBRATION_COLUMNS, calibration_table

    check_judge_kind(judge_kind)

    def configs_of(header: Header | None) -> list[PipelineConfig]:
        named = configs_for(header, [config] if config else None, [preset] if preset else None, changes, None)
        return [named[0][0]]

    labelled, least = labelled_evidence(
        evidence, configs_of, judge_kind, store, as_json, only_project=per_query_project
    )
    chosen, of_config = next(iter(labelled.items()))
    batch = of_config.batch
    refuse_nothing(batch.qids, evidence)
    group_by, found, refused = calibrations(batch, chosen, least, signal, method.value, probability)
    if not found:
        raise InputError(next(iter(refused.values())))
    if as_json:
        put_json(
            {
                "config": chosen.name,
                "group_by": group_by,
                "calibrations": [one.to_json() for one in found],
                "without": refused,
            }
        )
        return
    tables = [calibration_table(found, group_by), *([found[0].table] if signal is not None else [])]
    print_parts((), tables, (CALIBRATION_COLUMNS, *(f"left out: {line}" for line in refused.values())))
    for one in found:
        say(f"--set {one.setting}" if one.setting else f"abstain.{one.signal}: {one.without}")
    usable = [one for one in found if one.setting]
    if usable:
        best = max(usable, key=lambda one: one.auroc)
        options = given_options(preset, config, [*(changes or ()), str(best.setting)], store)
        say_next(words_of("evaluate", evidence, options=options))
