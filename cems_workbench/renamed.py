"""Renamed names: the present name of everything that users may have stored or typed under an older one.

The tables are data, one row a name, and they are only ever added to: config files, evidence, bundles, links and scripts of earlier
versions stay readable. `config.renamed` applies the parameters and values to a config. A row that is used is reported once a process:
on stderr by a command, in `reported()` for a page.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

PARAMETERS: Mapping[str, str] = {
    "lists.vector.prefetch": "lists.vector.first_stage_factor",
    "lists.lexical.prefetch": "lists.lexical.first_stage_factor",
    "lists.pool": "lists.candidate_set",
    "lists.origin": "lists.answered_by",
    "lists.coarse_multiplier": "lists.first_stage_factor",
    "fusion.multi_query_boost": "fusion.multi_list_boost",
    "rerank.input_limit": "rerank.depth",
    "rerank.score_span": "rerank.score_window",
    "rerank.tail": "rerank.below_depth",
    "rerank.reads": "rerank.text_source",
    "rerank.question_before": "rerank.prepend_question",
}
"""Present path of a config parameter, or of a section, by its old path; only the last part of a path changes.

Digests and evidence use the old names (`config.original_names.original_values`), so that what was kept under them is still found.
"""

PARAMETER_VALUES: Mapping[str, Mapping[str, str]] = {
    "lists.answered_by": {"store": "workbench"},
    "fusion.method": {"score_sum": "combsum", "score_max": "combmax"},
}
"""Present value of a config parameter by its old value, by the parameter's present path."""

PRESETS: Mapping[str, str] = {"cems_0_9": "cems_head"}
"""Present name of a preset by its old one."""

OLD_KEYS = frozenset(old.rpartition(".")[2] for old in PARAMETERS) | {
    old for values in PARAMETER_VALUES.values() for old in values
}
"""A config text without any of these has no old name."""

COMMANDS: Mapping[str, str] = {"embed": "reindex", "score": "fill-scores"}
"""Present command by the old one: `"embed": "reindex"`. Commands of a group in full: `"report figures": "report plots"`."""

_QUERY = {"--only-project": "--restrict-to-project", "--expand": "--variant", "--off": "--without-variant"}
_LABELS = {"--to": "--format", "--set": "--query-set", "--kind": "--judge-kind"}
_NO_LOSS = {"--assert-no-loss": "--fail-on-regression"}

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "agreement": {"--set": "--query-set"},
    "calibrate": {"--judges": "--judge-kind"},
    "ci check": _NO_LOSS,
    "ci init": _NO_LOSS,
    "compare": {"--judges": "--judge-kind", "--queries": "--show", **_NO_LOSS},
    "config-history": {"--by": "--author"},
    "dataset": _LABELS,
    "doctor": {"--rescue": "--recover-to"},
    "drift": {"--k": "--cutoff", "--queries": "--show"},
    "evaluate": {"--judges": "--judge-kind", "--project-only": "--per-query-project", "--honest": "--compare-judges"},
    "export": {"--to": "--format"},
    "fidelity": {"--as-chosen": "--keep-config", "--queries": "--show"},
    "gather": {"--project-only": "--per-query-project"},
    "import": {"--set": "--query-set"},
    "judgments": _LABELS,
    "report compare": {"--judges": "--judge-kind", "--by": "--sort-by", "--queries": "--show"},
    "report why": {**_QUERY, "--k": "--cutoff"},
    "sample": {"--set": "--query-set", "--by": "--strategy"},
    "search": _QUERY,
    "watch": _NO_LOSS,
    "why": {**_QUERY, "--k": "--cutoff"},
}
"""Present option by the old one, by the present command: `"sample": {"--by": "--strategy"}`; a group's command is `"report compare"`."""

LIST_OPTIONS: Mapping[str, Mapping[str, str]] = {
    command: {"--metrics": "--metric"} for command in ("ci check", "compare", "evaluate", "export", "report compare")
}
"""As OPTIONS, where the old option took several values with spaces between and the present one is repeated:
`"evaluate": {"--metrics": "--metric"}`."""

ENTRY_POINT_GROUPS: Mapping[str, str] = {"cems_workbench.list_sources": "cems_workbench.retrievers"}
"""Present group of entry points by the old one."""

log = logging.getLogger(__name__)
_reported: dict[str, None] = {}


def report(old: str, new: str) -> None:
    """Warn that a name is an old one, once a process; a command shows the line on stderr."""
    report_line(f"{old} is now {new}; the old name still works")


def report_line(line: str) -> None:
    """As `report`, in other words."""
    if line not in _reported:
        _reported[line] = None
        log.warning(line)


def reported() -> tuple[str, ...]:
    """The lines so far, for the notices of a page."""
    return tuple(_reported)


def forget() -> None:
    """Report each old name again: this process runs another command."""
    _reported.clear()


def old_groups(group: str) -> tuple[str, ...]:
    """The older names of a group of entry points."""
    return tuple(old for old, new in ENTRY_POINT_GROUPS.items() if new == group)


def present_arguments(arguments: Sequence[str], groups: Iterable[str] = ()) -> list[str]:
    """A command line with the present names of its command and options; `groups` are the commands that have commands.

    Values are left alone, as is everything after `--`.
    """
    length = 2 if arguments and arguments[0] in groups else 1
    words, rest = list(arguments[:length]), list(arguments[length:])
    if any(word.startswith("-") for word in words):
        return list(arguments)
    command = " ".join(words)
    if command in COMMANDS:
        report(command, COMMANDS[command])
        command = COMMANDS[command]
        words = command.split()
    return [*words, *_present_options(command, rest)]


def _present_options(command: str, arguments: Sequence[str]) -> list[str]:
    options, lists = OPTIONS.get(command, {}), LIST_OPTIONS.get(command, {})
    present: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            return [*present, argument, *remaining]
        option, equals, value = argument.partition("=")
        if option in options:
            report(f"{command} {option}", options[option])
            present.append(f"{options[option]}{equals}{value}")
        elif option in lists:
            report(f"{command} {option}", f"{lists[option]}, repeatable")
            values = (value if equals else next(remaining, "")).split()
            present += [part for value in values or [""] for part in (lists[option], value)]
        else:
            present.append(argument)
    return present
