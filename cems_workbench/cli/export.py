"""`export`: a config in another format, with its evidence card."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.measuring import MetricOption
from cems_workbench.cli.next_command import say_next, words_of
from cems_workbench.cli.options import PRESETS, SetOption, chosen_config, print_table, read_evidence
from cems_workbench.cli.terminal import put, say
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from cems_workbench.config import EvidenceCard
    from cems_workbench.jobs.exporting import Export, ExportedRanking


class Form(StrEnum):
    """The formats of an exported config."""

    yaml = "yaml"
    json = "json"
    toml = "toml"
    env = "env"
    reranker_env = "reranker-env"
    ace_env = "ace-env"
    mem0 = "mem0"
    engram = "engram"
    python = "python"


def export_command(
    config: Annotated[Path, typer.Argument(help=f"A config file in any of these formats, or a preset: {PRESETS}.")],
    format: Annotated[
        Form,
        typer.Option(
            "--format",
            help="Output format; env is the .env of CEMS, reranker-env that of the memory agent, ace-env that of ACE; mem0 is Python, "
            "engram the constants of its source.",
        ),
    ] = Form.yaml,
    changes: SetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write to this file instead of stdout.")
    ] = None,
    card: Annotated[
        Path | None,
        typer.Option(
            "--card",
            metavar="FILE",
            help="Evidence card (default: NAME.card.json next to the config, if there is one).",
        ),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence",
            metavar="FILE",
            help="Compare on this evidence file how the reader of the exported file ranks with how the config itself ranks.",
        ),
    ] = None,
    metric: MetricOption = None,
) -> None:
    """Convert a config to another format.

    Every key is written; parameters that the format cannot express are listed in comments.
    """
    from cems_workbench.config import card_path
    from cems_workbench.jobs.exporting import exported, with_figures

    chosen = chosen_config(None, config, changes)
    own = None if changes and card is None else _card(config, card)
    export = exported(chosen, format.value, own)
    if evidence is not None:
        rankings = [_measured(export, evidence, metric)]
        for ranking in rankings:
            print_ranking(ranking, err=out is None)
        if own is not None:
            export, _, own = with_figures(chosen, format.value, own, lambda _: rankings)
    if out is None:
        put(export.text)
        return
    write_text(out, export.text)
    if format is Form.json and own is not None:  # JSON has no comments
        write_text(card_path(out), own.to_json())
    if evidence is not None:
        say_next(words_of("evaluate", evidence, options=["--config", str(config), *_set_options(changes)]))
    elif format in (Form.yaml, Form.json, Form.toml):
        say_next(words_of("export", out, options=["--format", "env"]))
    else:
        say_next(words_of("export", config, options=_set_options(changes)))


def _set_options(changes: Sequence[str] | None) -> list[str]:
    return [word for text in changes or () for word in ("--set", text)]


def _measured(export: Export, evidence: Path, metric: Sequence[str] | None) -> ExportedRanking:
    """Both rankings on the judged queries of an evidence file. Raises InputError."""
    from cems_workbench.evaluation.metrics import parse_measures
    from cems_workbench.jobs.evaluation import labelled_file, refuse_nothing
    from cems_workbench.jobs.exporting import measured

    read = read_evidence(evidence)
    measures = parse_measures(" ".join(metric or ("nDCG@10", "hit@5")), read.header.relevant_from)
    batch = labelled_file(read, None).batch
    refuse_nothing(batch.queries, evidence)
    return measured(export, batch, measures)


def print_ranking(ranking: ExportedRanking, err: bool = False) -> None:
    """Print the measures of a config here and as the reader of its export ranks, a row each, and their limits."""
    export = ranking.export
    rows = [
        [
            str(row.measure),
            row.baseline,
            row.value,
            f"{row.difference:+.4f}",
            f"{row.low:+.4f} to {row.high:+.4f}",
            row.p,
        ]
        for row in ranking.differences
    ]
    title = f"{export.config.name} as {export.reader} reads the {export.form} file, on {ranking.queries} ({len(ranking.here.qids)})"
    print_table(["measure", "here", "as read", "difference", "95 % interval", "p"], rows, title, err=err)
    if not export.lost:
        say("read back it is the same config", err=err)
        return
    say(f"{len(export.lost)} parameters are lost: {', '.join(path for path, _, _ in export.lost)}", err=err)
    for line in ranking.incomplete:
        say(f"warning: {line}", err=True)
    if ranking.lacking:
        say("its figure is of what is there; Tune → Export gathers what it lacks and measures it on that", err=True)


def _card(config: Path, card: Path | None) -> EvidenceCard | None:
    """The named card, or the one next to the config; after `--set` the evidence no longer applies."""
    from cems_workbench.config import card_path, read_card

    card_file = card_path(config)
    if card is None and not (config.is_file() and card_file.is_file()):
        return None
    return read_card(card or card_file)
