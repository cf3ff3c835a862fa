"""What users stored or typed under an older name is read as under the present one, and said once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cems_workbench import renamed
from cems_workbench.config import field_specs
from cems_workbench.config.renamed import old_names, present_assignment, present_path, present_values


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Some rows of each kind, and nothing reported yet."""
    monkeypatch.setattr(renamed, "COMMANDS", {"embed": "reindex", "report figures": "report plots"})
    monkeypatch.setattr(renamed, "OPTIONS", {"sample": {"--by": "--strategy"}, "report plots": {"--k": "--cutoff"}})
    monkeypatch.setattr(renamed, "LIST_OPTIONS", {"evaluate": {"--metrics": "--metric"}})
    monkeypatch.setattr(renamed, "_reported", {})
    for name, table in {
        "PARAMETERS": {"rerank.wide": "rerank.depth", "lists.pond": "lists.candidate_set"},
        "PARAMETER_VALUES": {"rerank.depth": {"many": "all"}},
    }.items():
        monkeypatch.setattr(f"cems_workbench.config.renamed.{name}", table)
    present_path.cache_clear()
    yield
    present_path.cache_clear()


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("typed", "present"),
    [
        ("embed --store x", "reindex --store x"),
        ("report figures --k 3", "report plots --cutoff 3"),
        ("sample --by=random --by x", "sample --strategy=random --strategy x"),
        ("search --by x", "search --by x"),
        ("sample -- --by", "sample -- --by"),
        ("sample", "sample"),
        ("--version", "--version"),
        ("report", "report"),
    ],
)
def test_old_command_line_names_become_present_ones(typed: str, present: str) -> None:
    assert renamed.present_arguments(typed.split(), groups=("report",)) == present.split()


@pytest.mark.usefixtures("rows")
def test_option_of_several_values_becomes_a_repeated_one() -> None:
    present = ["evaluate", "--metric", "P@5", "--metric", "nDCG@10", "x"]
    assert renamed.present_arguments(["evaluate", "--metrics", "P@5 nDCG@10", "x"]) == present
    assert renamed.present_arguments(["evaluate", "--metrics=P@5 nDCG@10", "x"]) == present


@pytest.mark.usefixtures("rows")
def test_old_name_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        renamed.present_arguments(["embed"])
    assert [record.getMessage() for record in caplog.records] == ["embed is now reindex; the old name still works"]
    assert renamed.reported() == ("embed is now reindex; the old name still works",)


@pytest.mark.usefixtures("rows")
def test_nested_values_get_present_names_in_their_order() -> None:
    old = {"rerank": {"backend": "none", "wide": "many"}, "lists": {"pond": {"size": 3}}, "x": 1}
    new = {"rerank": {"backend": "none", "depth": "all"}, "lists": {"candidate_set": {"size": 3}}, "x": 1}
    assert present_values(old) == new and list(present_values(old)["rerank"]) == ["backend", "depth"]
    assert present_values(new) == new
    assert old_names(old) == [
        ("rerank.wide", "rerank.depth"),
        ("rerank.wide: many", "rerank.depth: all"),
        ("lists.pond", "lists.candidate_set"),
    ]
    assert old_names(new) == []


@pytest.mark.usefixtures("rows")
def test_both_names_of_a_parameter_leave_the_old_one_as_unknown() -> None:
    assert present_values({"rerank": {"wide": 1, "depth": 2}}) == {"rerank": {"wide": 1, "depth": 2}}


@pytest.mark.usefixtures("rows")
def test_assignment_to_an_old_path_below_a_section() -> None:
    assert present_assignment("lists.pond.size", 3) == ("lists.candidate_set.size", 3)
    assert renamed.reported() == ("lists.pond.size is now lists.candidate_set.size; the old name still works",)


def test_tables_lead_to_present_parameters() -> None:
    paths = {spec.path for spec in field_specs()}
    sections = {path.rsplit(".", depth)[0] for path in paths for depth in range(1, path.count(".") + 1)}
    for old, new in renamed.PARAMETERS.items():
        assert new in paths | sections and old not in paths | sections
        assert old.rpartition(".")[0] == new.rpartition(".")[0]
    for path, values in renamed.PARAMETER_VALUES.items():
        allowed = {spec.path: spec for spec in field_specs()}[path].choices
        assert set(values.values()) <= set(allowed) and not set(values) & set(allowed)


def test_tables_of_the_command_line_name_present_commands() -> None:
    from typer.main import get_command

    from cems_workbench.cli.main import commands

    known = {}
    for name, command in get_command(commands).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        known |= {f"{name} {inner}": one for inner, one in below.items()} if below else {name: command}
    for old, new in renamed.COMMANDS.items():
        assert new in known and old not in known
    for table in (renamed.OPTIONS, renamed.LIST_OPTIONS):
        for name, options in table.items():
            present = {option for param in known[name].params for option in param.opts}
            assert set(options.values()) <= present and not set(options) & present, name
