"""`calibrate`: the abstain signals as probabilities that a query has an answer, and the thresholds for one of them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.evaluate import JudgeKindOption, check_judge_kind, configs_for
from cems_workbench.cli.gather import PerQueryProjectOption
from cems_workbench.cli.named_evidence import NameArgument, labelled_evidence
from cems_workbench.cli.next_command import say_next, words_of
from cems_workbench.cli.options import JsonOption, SetOption, StoreOption, given_options, preset_help, print_table
from cems_workbench.cli.terminal import put_json, say, say_wrapped
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.evidence_file import Header
    from cems_workbench.tuning.calibration import Calibration

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
    from cems_workbench.jobs.calibration import calibrations
    from cems_workbench.jobs.evaluation import refuse_nothing

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
    print_calibrations(found, group_by)
    if signal is not None:
        _print_bins(found[0])
    for line in refused.values():
        say_wrapped(f"left out: {line}")
    usable = [one for one in found if one.setting]
    if usable:
        best = max(usable, key=lambda one: one.auroc)
        options = given_options(preset, config, [*(changes or ()), str(best.setting)], store)
        say_next(words_of("evaluate", evidence, options=options))


def print_calibrations(found: list[Calibration], group_by: str) -> None:
    """Print the figures of each signal, what they are, and the thresholds as options."""
    first = found[0]
    rows = [
        [
            one.signal,
            one.answerable,
            one.unanswerable,
            one.missing,
            one.auroc,
            one.brier,
            one.base_brier,
            one.ece,
            one.refused,
            one.wrongly,
        ]
        for one in found
    ]
    print_table(
        ["signal", "answer", "none", "no value", "AUROC", "Brier", "Brier of base", "ECE", "refused", "wrongly"],
        rows,
        f"{first.method}, {first.folds} folds by {group_by}, answering from a probability of {first.probability:g}",
    )
    say_wrapped(
        "answer, none: judged queries with an answer and without; Brier and ECE on the folds left out, the base is the share of answerable "
        "queries as everybody's probability; refused, wrongly: the shares of queries without an answer and with one that the threshold "
        "of the other folds refuses"
    )
    for one in found:
        say(f"--set {one.setting}" if one.setting else f"abstain.{one.signal}: {_without(one)}")


def _without(one: Calibration) -> str:
    if one.threshold is not None:
        return f"every score has a probability of at least {one.probability:g}; leave it off"
    return f"no threshold: no score reaches a probability of {one.probability:g}, or higher ones make an answer no likelier"


def _print_bins(one: Calibration) -> None:
    rows = [
        [
            f"{each.low:g} to {each.high:g}",
            each.queries,
            each.predicted,
            each.observed,
            each.interval[0],
            each.interval[1],
        ]
        for each in one.bins
    ]
    print_table(
        ["probability", "queries", "mean", "with an answer", "low", "high"], rows, f"reliability of {one.signal}"
    )
