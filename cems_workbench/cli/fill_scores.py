"""`fill-scores`: missing reranker scores, added to an evidence file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.evaluate import configs_for
from cems_workbench.cli.next_command import config_options, say_next, words_of
from cems_workbench.cli.options import (
    AblateOption,
    ConfigsOption,
    JsonOption,
    SetOption,
    StoreOption,
    preset_help,
    progress_bar,
    read_evidence,
    settings_for,
)
from cems_workbench.cli.terminal import put_json, say

FAILED = 2


def fill_scores_command(
    evidence: Annotated[Path, typer.Argument(help="An evidence file.")],
    config: ConfigsOption = None,
    preset: Annotated[
        list[str] | None,
        typer.Option("--preset", metavar="NAME", help=preset_help("the config the file was gathered with; repeatable")),
    ] = None,
    changes: SetOption = None,
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
    configs = [chosen for chosen, _ in configs_for(read.header, config, preset, changes, ablate)]
    judged = labelled_file(read, None).batch.qids or None
    with progress_bar(as_json) as progress, resources_of(read, settings_for(store)) as resources:
        report = score_evidence(read, configs, resources, progress, judged)
    if as_json:
        put_json(
            {
                "evidence": str(report.path),
                "queries": report.queries,
                "pairs": report.pairs,
                "failed": dict(report.failed),
                "content_hash": report.content_hash,
            }
        )
    else:
        say(f"{report.path}: {report.pairs} pairs of {report.queries} queries scored")
        say(f"content hash {report.content_hash}")
        for why, count in report.failed.items():
            say(f"not scored: {count} pairs: {why}")
        again = ["--ablate", ablate] if ablate else []
        say_next(words_of("evaluate", evidence, options=[*config_options(config, preset, changes), *again]))
    if report.failed:
        raise typer.Exit(FAILED)
