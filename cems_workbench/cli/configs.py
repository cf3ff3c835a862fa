"""`export` and `config-history`: a config in another format with its evidence card, and the saved configs of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cems_workbench.cli.measuring import MetricOption
from cems_workbench.cli.options import (
    JsonOption,
    SetOption,
    StoreOption,
    account,
    chosen_config,
    given_options,
    open_existing_store,
    print_table,
    read_evidence,
)
from cems_workbench.cli.terminal import first_search, put, put_json, say, say_next, unused, words_of
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from cems_workbench.config import EvidenceCard
    from cems_workbench.jobs.exporting import Export, ExportedRanking
    from cems_workbench.store import ConfigRecord, Store


def export_command(
    config: Path,
    format: Literal["yaml", "json", "toml", "env", "reranker-env", "ace-env", "mem0", "engram", "python"] = "yaml",
    changes: SetOption = None,
    out: Path | None = None,
    card: Path | None = None,
    evidence: Path | None = None,
    metric: MetricOption = None,
) -> None:
    """Convert a config to another format.

    Every key is written; parameters that the format cannot express are listed in comments.
    """
    from cems_workbench.config import card_path
    from cems_workbench.jobs.exporting import exported, with_figures

    chosen = chosen_config(None, config, changes)
    own = None if changes and card is None else _card(config, card)
    export = exported(chosen, format, own)
    if evidence is not None:
        rankings = [_measured(export, evidence, metric)]
        for ranking in rankings:
            print_ranking(ranking, err=out is None)
        if own is not None:
            export, _, own = with_figures(chosen, format, own, lambda _: rankings)
    if out is None:
        put(export.text)
        return
    write_text(out, export.text)
    if format == "json" and own is not None:  # JSON has no comments
        write_text(card_path(out), own.to_json())
    if evidence is not None:
        say_next(words_of("evaluate", evidence, options=["--config", str(config), *_set_options(changes)]))
    elif format in ("yaml", "json", "toml"):
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


def config_history_command(
    number: int | None = None,
    out: Path | None = None,
    add: Path | None = None,
    why: str = "",
    author: str | None = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List, show, restore or add the store's saved configs.

    The list has the latest first, with author, time and reason.
    """
    if add is not None and (number is not None or out is not None):
        raise InputError("--add saves a config: give neither an ID nor --out")
    if out is not None and number is None:
        raise InputError("--out restores a config: name its ID")
    with open_existing_store(store) as opened:
        if add is not None:
            _add(opened, add, why, author)
            say_next(words_of("config-history", options=given_options(store=store)))
        elif number is not None:
            _show_or_restore(opened, number, out, as_json)
            if out is not None:
                say_next(first_search(opened, given_options(config=out, store=store)))
        else:
            history = opened.configs.history()
            _list(history, as_json)
            if not as_json and history:
                options = ["--out", unused("restored.yaml"), *given_options(store=store)]
                say_next(words_of("config-history", str(history[0].id), options=options))
            elif not as_json:
                options = ["--judged", "--out", unused("all.evidence"), *given_options(store=store)]
                say_next(words_of("gather", "all", options=options) if opened.judgments.read() else None)


def _add(store: Store, path: Path, why: str, author: str | None) -> None:
    from cems_workbench.config import card_path, read_card
    from cems_workbench.jobs.catalogue import keep_config

    config = chosen_config(None, path, None)
    card_file = card_path(path)
    card = read_card(card_file) if path.is_file() and card_file.is_file() else None
    base = card.baseline if card else None
    record = keep_config(store, config, author=author or _account(), why=why, base=base, card=card)
    say(f"kept as config {record.id}: {record.name}" + ("" if card else ", without an evidence card"))


def _show_or_restore(store: Store, number: int, out: Path | None, as_json: bool) -> None:
    from cems_workbench.config import card_path, export_config, nested
    from cems_workbench.config.forms.files import SUFFIXES
    from cems_workbench.jobs.catalogue import restored_config

    record = store.configs.get(number)
    restored = restored_config(record, store)
    for warning in restored.warnings:
        say(f"warning: {' '.join(warning.split())}", err=True)
    if out is None and as_json:
        return put_json(_row(record) | {"config": nested(restored.config), "card": record.card})
    text = export_config(restored.config, SUFFIXES.get(out.suffix.lower(), "yaml") if out else "yaml", restored.card)
    if out is None:
        return put(text)
    write_text(out, text)
    if restored.card is not None:
        write_text(card_path(out), restored.card.to_json())


def _list(records: list[ConfigRecord], as_json: bool) -> None:
    if as_json:
        return put_json([_row(record) for record in records])
    if not records:
        return say("no config is saved yet; --add CONFIG saves one")
    columns = ["id", "name", "made from", "by", "when (UTC)", "evidence", "why"]
    rows = [
        [
            str(record.id),
            record.name,
            record.base,
            record.author,
            f"{record.saved_at:%Y-%m-%d %H:%M}",
            "card" if record.card else None,
            record.why or None,
        ]
        for record in records
    ]
    print_table(columns, rows)


def _row(record: ConfigRecord) -> dict[str, object]:
    said = {name: getattr(record, name) for name in ("id", "name", "base", "author", "why")}
    return said | {"saved_at": record.saved_at.isoformat(), "evidence": record.card is not None}


def _account() -> str:
    if (name := account()) is None:
        raise InputError("--author: name who saves it")
    return name
