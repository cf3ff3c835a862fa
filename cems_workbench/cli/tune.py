"""`tune`, `export` and `config-history`: a better config, searched on judged queries, in another format, and the saved ones of a store."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from cems_workbench.builtin import default_preset
from cems_workbench.cli.measuring import (
    GradeOption,
    MetricOption,
    NameArgument,
    Options,
    PerQueryProjectOption,
    evidence_files,
    labelled_evidence,
    score_command,
)
from cems_workbench.cli.options import (
    ConfigChoice,
    JsonOption,
    SetOption,
    StoreOption,
    TargetOption,
    account,
    chosen_config,
    chosen_target,
    filled_resources,
    given_options,
    open_existing_store,
    present,
    print_table,
    progress_bar,
    read_evidence,
    settings_for,
)
from cems_workbench.cli.terminal import first_search, flat, put, put_json, repeated, say, say_next, unused, words_of
from cems_workbench.errors import InputError, StoreLockedError, counted
from cems_workbench.platform import start_up
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.progress import Cancelled
from cems_workbench.results import Report, Table
from cems_workbench.serve.wire import INTERRUPTED

if TYPE_CHECKING:
    from cems_workbench.config import EvidenceCard
    from cems_workbench.config.forms.targets import System
    from cems_workbench.jobs.exporting import Export, ExportedRanking
    from cems_workbench.jobs.tuning import SearchResult
    from cems_workbench.store import ConfigRecord, Store
    from cems_workbench.tuning.tune import Trial, Watch


def export_command(
    config: Path | None = None,
    format: str | None = None,
    changes: SetOption = None,
    out: Path | None = None,
    card: Path | None = None,
    evidence: Path | None = None,
    metric: MetricOption = None,
    chroma: Path | None = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a config to another format, or write the store's memories as a collection of Chroma.

    YAML has what differs from the preset that the config's name begins with, other formats every key; parameters that the format cannot
    express are listed in comments.
    """
    if (config is None) == (chroma is None):
        raise InputError("name a config to convert, or --chroma DIR for the memories of the store")
    if config is None:
        from cems_workbench.jobs.chroma_export import export_chroma

        assert chroma is not None
        with progress_bar(as_json) as progress, filled_resources(store) as resources:
            found = export_chroma(resources.store, resources.embedder, chroma, progress)
        return present(found, as_json, words_of("import", chroma, options=["--store", unused("other")]))
    from cems_workbench.config import card_path
    from cems_workbench.config.forms.files import form_for
    from cems_workbench.config.forms.targets import system_behind
    from cems_workbench.jobs.exporting import exported, with_figures

    chosen = chosen_config(None, config, changes, store)
    own = None if changes and card is None else _card(config, card)
    form = format or form_for(out)
    export = exported(chosen, form, own)
    if export.instead:
        say(f"note: {export.instead}", err=True)
    if (system := system_behind(chosen)) is not None and system.needs:
        from cems_workbench.pipeline.mismatches import lacking

        for line in lacking(chosen, settings_for(store).store):
            say(f"warning: {line}", err=True)
    if evidence is not None:
        ranking = _measured(export, evidence, metric)
        if as_json and out is not None:
            put_json(ranking.to_json())
        else:
            print_ranking(ranking, err=out is None)
        if own is not None:
            export, _, own = with_figures(chosen, form, own, lambda _: [ranking])
    if out is None:
        put(export.text)
        return
    write_text(out, export.text)
    if form == "json" and own is not None:  # JSON has no comments
        write_text(card_path(out), own.to_json())
    if as_json:
        return
    if evidence is not None:
        say_next(words_of("evaluate", evidence, options=given_options(config=config, changes=changes)))
    elif form in ("yaml", "json", "toml"):
        system = system_behind(chosen)
        say_next(words_of("export", out, options=["--format", system.form if system else "python"]))
    else:
        say_next(words_of("export", config, options=given_options(changes=changes)))


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
    rows = []
    for row in ranking.differences:
        by, interval = f"{row.difference:+.4f}", f"{row.low:+.4f} to {row.high:+.4f}"
        rows.append([str(row.measure), row.baseline, row.value, by, interval, row.p])
    title = f"{export.config.name} as {export.reader} reads the {export.form} file, on {ranking.queries} ({len(ranking.here.qids)})"
    print_table(["measure", "here", "as read", "difference", "95 % interval", "p"], rows, title, err=err)
    lost = f"{counted(len(export.lost), 'parameters')} lost: {', '.join(path for path, _, _ in export.lost)}"
    say(lost if export.lost else "read back it is the same config", err=err)
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
    given, then = given_options(store=store), None
    with open_existing_store(store) as opened:
        if add is not None:
            _add(opened, add, why, author)
            say_next(words_of("config-history", options=given))
        elif number is not None:
            _show_or_restore(opened, number, out, as_json)
            if out is not None:
                say_next(first_search(opened, given_options(config=out, store=store)))
        else:
            if history := opened.configs.history():
                restored = ["--out", unused("restored.yaml"), *given]
                then = words_of("config-history", str(history[0].id), options=restored)
            elif opened.judgments.read():
                then = words_of("gather", "all", options=["--judged", "--out", unused("all.evidence"), *given])
            present(_listed(history), as_json, then)


def _add(store: Store, path: Path, why: str, author: str | None) -> None:
    from cems_workbench.jobs.catalogue import keep_config

    config = chosen_config(None, path, None)
    card = _card(path, None)
    base = card.baseline if card else None
    if (name := author or account()) is None:
        raise InputError("--author: name who saves it")
    record = keep_config(store, config, author=name, why=why, base=base, card=card)
    say(f"kept as config {record.id}: {record.name}" + ("" if card else ", without an evidence card"))


def _show_or_restore(store: Store, number: int, out: Path | None, as_json: bool) -> None:
    from cems_workbench.config import card_path, export_config, nested
    from cems_workbench.config.forms.files import form_for
    from cems_workbench.jobs.catalogue import restored_config

    record = store.configs.get(number)
    restored = restored_config(record, store)
    for warning in restored.warnings:
        say(f"warning: {' '.join(warning.split())}", err=True)
    if out is None and as_json:
        return put_json(_row(record) | {"config": nested(restored.config), "card": record.card})
    text = export_config(restored.config, form_for(out), restored.card)
    if out is None:
        return put(text)
    write_text(out, text)
    if restored.card is not None:
        write_text(card_path(out), restored.card.to_json())


def _listed(records: list[ConfigRecord]) -> Report:
    columns = ("id", "name", "made from", "by", "when (UTC)", "evidence", "why")
    rows = (
        (
            *(str(one.id), one.name, one.base, one.author, f"{one.saved_at:%Y-%m-%d %H:%M}"),
            *("card" if one.card else None, one.why or None),
        )
        for one in records
    )
    return Report(
        lines=() if records else ["no config is saved yet; --add CONFIG saves one"],
        tables=[Table(columns, tuple(rows))],
        values=list(map(_row, records)),
    )


def _row(record: ConfigRecord) -> dict[str, object]:
    said = {name: getattr(record, name) for name in ("id", "name", "base", "author", "why")}
    return said | {"saved_at": record.saved_at.isoformat(), "evidence": record.card is not None}


def tune_command(
    evidence: NameArgument,
    out: Path,
    trials: int = 200,
    metric: list[str] | None = None,
    guard: list[str] | None = None,
    space: list[str] | None = None,
    group_by: Literal["project", "session", "type", "query"] | None = None,
    folds: int = 5,
    holdout: float = 0.2,
    open_holdout: bool = False,
    *,
    choice: ConfigChoice,
    target: TargetOption = None,
    grade: GradeOption = None,
    per_query_project: PerQueryProjectOption = False,
    seed: int = 0,
    store: StoreOption = None,
    without_labels: bool = False,
    html: Path | None = None,
    as_json: JsonOption = False,
) -> None:
    """Search for a better config than the baseline.

    The baseline is --preset or --config, for a set of explained answers at first the config that replays them. Ctrl-C keeps the best config
    so far; the same command resumes the search.
    """
    if without_labels and open_holdout:
        raise InputError("--open-holdout: without labels nothing is sealed")
    from cems_workbench.api.tuning import TuningReport
    from cems_workbench.cli.measuring import default_config
    from cems_workbench.jobs.traced_sets import traced_header

    named = choice.preset or choice.config
    header = None if named else traced_header(settings_for(store).store, str(evidence))
    baseline = choice.read(store) if header is None else default_config(header, choice.changes)
    from cems_workbench.jobs import tuning
    from cems_workbench.jobs.exporting import write_proposal
    from cems_workbench.tuning.objective import parse_goal

    within, judged = per_query_project, not without_labels
    labelled, least = labelled_evidence(
        evidence, lambda header: [baseline], None, store, as_json, only_project=within, judged=judged
    )
    of_baseline = labelled[baseline]
    read = of_baseline.evidence
    relevant_from = least if grade is None else grade
    goal = parse_goal(metric or ["nDCG@10"], guard or (), 1 if without_labels else relevant_from)
    if without_labels:
        data = tuning.unlabelled_data(baseline, read.header.query_set, read)
    else:
        data = tuning.TuningData(baseline, read.header.query_set, of_baseline, least)
    if read.answered and not as_json:
        say(f"lists {read.answered}")
    sealed = 0.0 if without_labels else holdout
    system = chosen_target(target, baseline)
    settings: dict[str, Any] = {"folds": folds, "sealed": sealed, "trials": trials, "seed": seed}
    planned = tuning.planned_search(data, goal, space or (), group_by=group_by, system=system, **settings)
    if system and not space and not as_json:
        say(f"runs in {system.title}, which has {', '.join(axis.path for axis in planned.plan.space.axes)}")
    for line in (*tuning.no_program(system, baseline), *data.batch.mismatches, *planned.beyond):
        say(f"warning: {line}", err=True)
    start_up.freeze()
    with _interruptible() as interrupted, progress_bar(as_json) as progress:

        def watching(name: str) -> Watch:
            def watch(done: int, total: int, best: Trial) -> None:
                progress(name, done, total)
                if interrupted():
                    raise Cancelled

            return watch

        result = tuning.run_search(planned, watching)
        if without_labels and of_baseline.grades.judgments and not result.tuned.search.cancelled:
            from cems_workbench.jobs.unlabelled import by_judgments

            sealing = tuning.SearchSettings(planned.group_by, folds, holdout, trials, seed)
            try:
                result = by_judgments(
                    result, of_baseline, sealing, relevant_from, lambda name: watching(f"{name}, judged")
                )
            except (InputError, Cancelled) as refusal:
                say(f"not compared with judgments: {str(refusal) or 'interrupted'}", err=True)
    if open_holdout and not result.tuned.search.cancelled and planned.sealed:
        result = _with_open_holdout(result, store)
    rankings = write_proposal(result, out, tuning.card_of(result))
    if html is not None:
        from cems_workbench.report.tuning import tuning_report

        with progress_bar(as_json) as progress:
            page = tuning_report(tuning.with_stability(result, progress), datetime.now(UTC))
        write_text(html, page)
    report = TuningReport(result)
    if as_json:
        put_json(report.to_json() | {"as_read": [ranking.to_json() for ranking in rankings]})
    else:
        present(report)
        for ranking in rankings:
            if ranking.export.lost:
                print_ranking(ranking)
        say_next(*_next_commands(result, evidence, out, _config_options(choice, store), store, system))
    if result.tuned.search.cancelled:
        raise typer.Exit(INTERRUPTED)


def _next_commands(
    result: SearchResult, evidence: str, out: Path, baseline: Options, store: Path | None, system: System | None
) -> list[list[str]]:
    """The rest of an interrupted search; the scores that the proposal lacks, and the search again; how the proposal differs on each query,
    and its export; without a proposal, where it loses."""
    from cems_workbench.config import difference, load_config
    from cems_workbench.evaluation.batch import UNSCORED

    proposed, judged = result.tuned.config, bool(result.planned.data.evidence.judgments)
    place = [] if evidence_files([evidence]) else given_options(store=store)
    if result.tuned.search.cancelled:
        return [repeated()]
    if any(UNSCORED in needs for config, needs in result.needs if config is not result.planned.plan.space.baseline):
        if load_config(out) == proposed:
            return [score_command(result.planned.data.evidence.path, [("--config", str(out))], store), repeated()]
        say(f"{out} does not hold the whole proposal; write it as YAML (--out NAME.yaml) to score for it", err=True)
    if not difference(result.tuned.plan.space.baseline, proposed) or load_config(out) != proposed:
        return [words_of("evaluate", evidence, options=["--losses", *flat(baseline), *place])] if judged else []
    plain = flat(option for option in baseline if option[0] != "--set")  # --set would change the proposal too
    compared = words_of("compare", evidence, options=[*plain, "--config", str(out), *place])
    exported = words_of("export", out, options=["--format", system.form if system else "yaml"])
    return [compared, exported] if judged else [exported]


def _config_options(choice: ConfigChoice, store: Path | None) -> Options:
    default = choice.preset or default_preset(settings_for(store).preset)[0]
    chosen = ("--config", str(choice.config)) if choice.config else ("--preset", default)
    return [chosen, *(("--set", text) for text in choice.changes or ())]


def _with_open_holdout(result: SearchResult, store: Path | None) -> SearchResult:
    """Score the sealed hold-out. The look is counted in the store of the evidence, or next to the file without a store."""
    from cems_workbench.jobs.tuning import looks_at, open_holdout, store_of

    data, settings = result.planned.data, settings_for(store)
    try:
        with store_of(data.evidence, settings) as opened:
            return open_holdout(result, looks_at(data, opened, account() or ""))
    except StoreLockedError as error:
        say(f"warning: {' '.join(str(error).split())}: the look is counted next to the evidence file", err=True)
        return open_holdout(result, looks_at(data, None))


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Record Ctrl-C instead of raising, so that the current trial is finished and kept."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
