"""`fidelity`: the workbench's results compared with a real system's, query by query."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cems_workbench.cli.main import Command
from cems_workbench.cli.measuring import ConfigsChoice, chosen_configs, finish
from cems_workbench.cli.options import (
    AsOfOption,
    JsonOption,
    StoreOption,
    chosen_config,
    filled_resources,
    given_options,
    parse_as_of,
    present,
    print_parts,
    print_rows,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.options import queries_of as queries_of
from cems_workbench.cli.terminal import put_json, repeated, say, say_next, unused, words_of
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.assertions import Bound
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.progress import Progress
    from cems_workbench.records import Query, Recording
    from workbench_fidelity.fidelity import FidelitySetting, MeasuredFidelity
    from workbench_fidelity.lists import WhichLists
    from workbench_fidelity.nearest import Nearest


@dataclasses.dataclass(frozen=True)
class AgreeingConfigs(ConfigsChoice):
    """The configs that are compared with a real system."""

    preset: list[str] | None = None


def fidelity_command(
    answers: list[Path] | None = None,
    recorded: list[str] | None = None,
    ask: str | None = None,
    query_set: str | None = None,
    *,
    choice: AgreeingConfigs,
    store: StoreOption = None,
    data: Path | None = None,
    chunks: str | None = None,
    keep_config: bool = False,
    lists: str | None = None,
    as_list: list[str] | None = None,
    own_searches: bool = False,
    repeat: Path | None = None,
    tolerance: float | None = None,
    depth: int = 10,
    query: str | None = None,
    as_of: AsOfOption = None,
    asserted: list[str] | None = None,
    explain: bool = False,
    nearest: bool = False,
    out: Path | None = None,
    trials: int | None = None,
    scores: int | None = None,
    shown: int = 20,
    order: str = "departing",
    as_json: JsonOption = False,
) -> None:
    """Compare a config's results with a real system's. Reports the share of queries with the same order, set and first
    result, the overlap, and the difference of scores."""
    from cems_workbench.config import dump_config, preset_names
    from cems_workbench.evaluation.assertions import asserted_json
    from workbench_fidelity.fidelity import (
        BASE_PRESET,
        ORDERS,
        ask_server,
        asked_queries,
        bad_rows,
        by_setting,
        explained,
        kept_recording,
        lexical_lists,
        measure_fidelity,
        read_answers,
        require_usable,
        setting_for,
    )
    from workbench_fidelity.lists import WHICH_LISTS
    from workbench_fidelity.nearest import MAX_SCORES, find_nearest, lists_for
    from workbench_fidelity.parameters import MAX_CONFIGS

    sources = len(answers or ()) + len(recorded or ()) + (ask is not None)
    of_nearest = [
        name for name, given in (("--out", out), ("--trials", trials), ("--scores", scores)) if given is not None
    ]
    for wrong, refusal in (
        (
            sources == 0,
            "name a file of answers, a query set of the store with --recorded SET, or a server with --ask ADDRESS",
        ),
        (data and ask is not None, "--ask: its memories are those of a store; name a --store, not a --data folder"),
        (query_set and ask is None, "--query-set says what a server is asked; name one with --ask ADDRESS"),
        (data and recorded, "--recorded: a --data folder keeps no answers; name a --store"),
        (data and store, "name a --data folder or a --store, not both"),
        (order not in ORDERS, f"--order: {order!r} is not one of {', '.join(ORDERS)}"),
        (lists not in (None, *WHICH_LISTS), f"--lists: {lists!r} is not one of {', '.join(WHICH_LISTS)}"),
        (nearest and sources > 1, "--nearest: name one file of answers, query set or server"),
        (nearest and (explain or repeat), f"--nearest: it takes no {'--explain' if explain else '--repeat'}"),
        (of_nearest and not nearest, f"{', '.join(of_nearest)}: only with --nearest"),
        (repeat and sources > 1, "--repeat: name the one file of answers that it repeats"),
    ):
        if wrong:
            raise InputError(refusal)
    which: WhichLists = next((name for name in WHICH_LISTS if name == lists), "own")
    chosen_lists = _chosen_lists(as_list or ())
    bounds = [_bound(text) for text in asserted or ()]
    moment = parse_as_of(as_of)
    recordings = [read_answers(path) for path in answers or ()]
    second = None if repeat is None else read_answers(repeat)
    for recording in (*recordings, *([second] if second else [])):
        require_usable(recording)
        if line := bad_rows(recording):
            say(line, err=True)
    changes = choice.changes
    chosen = chosen_configs(choice.config, choice.preset, changes)
    if not chosen and recorded and not (nearest or answers or ask):
        chosen = _explained_configs(recorded, changes, store)
    if not chosen:
        chosen = [chosen_config(name, None, changes) for name in (preset_names() if nearest else [BASE_PRESET])]
    measured = []
    result: Nearest | None = None
    with progress_bar(as_json) as progress, source_of(data, store, chunks, chosen, progress) as (resources, known):
        recordings += [kept_recording(resources.store, name) for name in recorded or ()]
        if ask is not None:
            answered = ask_server(ask, queries_of(resources.store, query_set), progress)
            for error in answered.errors:
                say(f"left out: {error}", err=True)
            recordings.append(dataclasses.replace(answered, errors=()))
            require_usable(recordings[-1])
        known_lists = lexical_lists(recordings)
        if nearest and lists is None:
            which = lists_for(recordings[0])

        def setting_of(one: Recording, config: PipelineConfig) -> FidelitySetting:
            return setting_for(
                one,
                config,
                as_chosen=keep_config,
                which_lists=which,
                chosen_lists=chosen_lists,
                own_searches=own_searches,
                own_limit=any(change.partition("=")[0].strip() == "assembly.limit" for change in changes or ()),
                tolerance=tolerance,
                depth=depth,
            )

        def asked(setting: FidelitySetting) -> tuple[Query, ...]:
            return asked_queries(setting.recording, known, moment, query, setting)

        if nearest:
            result = find_nearest(
                recordings[0],
                chosen,
                lambda config: setting_of(recordings[0], config),
                asked,
                resources,
                progress,
                known_lists,
                most_configs=trials or MAX_CONFIGS,
                most_scores=MAX_SCORES if scores is None else scores,
            )
            measured.append(result.reported[1])
        else:
            for setting in [setting_of(one, config) for one in recordings for config in chosen]:
                measured.append(measure_fidelity(setting, asked(setting), resources, progress, known_lists, second))
        if explain:
            measured = [dataclasses.replace(one, explained=explained(one, progress)) for one in measured]
    outcomes = [bound.outcome(one.fidelity.value(bound.name), one.setting.name) for one in measured for bound in bounds]
    if result is not None and out is not None:
        write_text(out, dump_config(result.config, "\n".join(result.lines)))
    if as_json:
        plain = {"settings": [one.to_json() for one in measured]} if result is None else result.to_json()
        put_json(plain | asserted_json(outcomes))
    elif result is not None:
        present(result)
        if out is not None:
            say(f"wrote {out}: {result.config.name}")
        print_parts((one.line for one in outcomes), (), ())
        say_next(_apply_nearest(result, out, data, store))
    else:
        if len(measured) > 1:
            print_rows(by_setting(measured))
        for one in measured:
            present(dataclasses.replace(one, shown=shown, order=order))
        print_parts((one.line for one in outcomes), (), ())
        if not any(one.differences for one in measured):
            say_next(_search_of(measured[0], given_options(store=store)) if data is None else None)
        elif sources == 1 and not explain and repeat is None:
            say_next(repeated("--nearest"), repeated("--explain"))
        elif not explain:
            say_next(repeated("--explain"))
    finish(outcomes)


def _explained_configs(
    recorded: Sequence[str], changes: Sequence[str] | None, store: Path | None
) -> list[PipelineConfig]:
    """The configs that replay the sets of explained answers, with the changes; none if one of the sets is another."""
    from cems_workbench.config import parse_assignment, with_values
    from cems_workbench.jobs.traced_sets import is_external, traced_header

    headers = [traced_header(settings_for(store).store, name) for name in recorded]
    own = [one.config for one in headers if one is not None and not is_external(one)]
    values = dict(map(parse_assignment, changes or ()))
    found = [with_values(config, values, source="--set") for config in dict.fromkeys(own)]
    return found if len(own) == len(recorded) else []


def _apply_nearest(result: Nearest, out: Path | None, data: Path | None, store: Path | None) -> list[str] | None:
    """To write the nearest config; then to search with it, where there is a store."""
    if out is None:
        return repeated("--out", unused("nearest.yaml"))
    return None if data is not None else _search_of(result.reported[1], given_options(config=out, store=store))


def _search_of(measured: MeasuredFidelity, options: Sequence[str]) -> list[str] | None:
    text = next((answer.query for answer in measured.setting.recording.answers if answer.query), None)
    return None if text is None else words_of("search", text, options=options)


def _bound(text: str) -> Bound:
    from cems_workbench.evaluation.assertions import parse_bound
    from workbench_fidelity.measures import MEASURES

    bound = parse_bound(text, "same_order>=0.93")
    if bound.name not in MEASURES or bound.scope is not None:
        raise InputError(f'--assert "{text}": {bound.name} is no measure of fidelity; allowed: {", ".join(MEASURES)}')
    return bound


def _chosen_lists(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for text, (name, _, source) in zip(texts, pairs, strict=True):
        if not name or not source:
            raise InputError(f"--as-list {text!r}: must be NAME=SOURCE, such as keyword=sparse")
    return {name: source for name, _, source in pairs}


@contextmanager
def source_of(
    data: Path | None, store: Path | None, chunks: str | None, configs: Sequence[PipelineConfig], progress: Progress
) -> Iterator[tuple[Resources, Mapping[str, Query]]]:
    """The memories that are searched, and the queries by qid: those of a folder, or of the store."""
    if data is not None:
        from cems_workbench.config.forms.targets import system_behind
        from workbench_fidelity.fidelity import CHUNK_RULE, store_of_folder

        wanted = [system.texts for config in configs if (system := system_behind(config)) is not None]
        texts = wanted[0] if wanted and all(one == wanted[0] for one in wanted) else {}
        rule = chunks or texts.get("chunks", CHUNK_RULE)
        with store_of_folder(data, settings_for(None), progress, rule, title=texts.get("title", True)) as source:
            yield source
        return
    with filled_resources(store) as resources:
        yield resources, {query.qid: query for query in resources.store.queries.read()}


def promise_command(
    before: Path,
    after: Path,
    config: Path,
    preset: str | None = None,
    data: Path | None = None,
    chunks: str | None = None,
    metric: str = "nDCG@10",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the gain that a tuned config predicts with that of the system, recorded before and after it was set.
    Exits with 1 if they differ by more than 0.001."""
    from cems_workbench.evaluation.grades import agreed_grades
    from cems_workbench.evaluation.metrics import parse_measure
    from workbench_fidelity.fidelity import asked_queries, measure_fidelity, read_answers, require_usable, setting_for
    from workbench_fidelity.promise import before_tuning, promise_of

    measure, tuned = parse_measure(metric), chosen_config(None, config, None, store)
    untuned = before_tuning(tuned) if preset is None else chosen_config(preset, None, None, store)
    if untuned is None:
        raise InputError(f"--preset: {config} is of no system's preset by its name; name the one that ran before")
    recordings = [read_answers(path) for path in (before, after)]
    for recording in recordings:
        require_usable(recording)
    with progress_bar(as_json) as progress, source_of(data, store, chunks, [tuned], progress) as (resources, known):
        settings = [setting_for(one, under) for one, under in zip(recordings, (untuned, tuned), strict=True)]
        measured = [
            measure_fidelity(one, asked_queries(one.recording, known, setting=one), resources, progress)
            for one in settings
        ]
        promise = promise_of((measured[0], measured[1]), agreed_grades(resources.store.judgments.read()), measure)
    present(promise, as_json)
    if not promise.kept:
        raise typer.Exit(1)


COMMAND = Command("fidelity", fidelity_command, place=175)
PROMISE = Command("promise", promise_command, place=176)
