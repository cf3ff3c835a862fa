"""State of the Inspect page: the request, undo and redo, the command line that it writes, the default preset, the catalogue of views."""

from __future__ import annotations

import shlex
import subprocess
import sys
import zlib
from base64 import urlsafe_b64encode
from datetime import UTC, date, datetime
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules

import pytest
import streamlit
import typer
from hypothesis import given
from hypothesis import strategies as st
from strategies import configs
from typer.testing import CliRunner

from cems_workbench.builtin import DEFAULT_PRESET
from cems_workbench.cli.main import commands
from cems_workbench.cli.options import chosen_config
from cems_workbench.config import PipelineConfig, parse_assignment, preset, preset_names, with_values
from cems_workbench.pipeline.gather import Request
from cems_workbench.records import Query
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.share import ADDRESS, search_command
from cems_workbench.ui.inspect.state import DRAG_S, MAX_STEPS, History, Setting
from cems_workbench.ui.kit import address
from cems_workbench.ui.kit.address import packed, unpacked, written
from cems_workbench.ui.kit.views import View, views_in

TYPED = with_values(preset("cems").config, {"expansion.backend": "manual"})
WHOLE = Request("who pays", "harbor/api", datetime(2026, 8, 1, 14, 30, tzinfo=UTC), True, ("who is billed", "payer"))


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A new session."""
    values: dict[str, object] = {}
    monkeypatch.setattr(streamlit, "session_state", values)
    return values


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pages that were switched to."""
    seen: list[str] = []
    monkeypatch.setattr(streamlit, "switch_page", lambda page, query_params: seen.append(page))
    return seen


def test_the_door_shows_the_very_request_that_was_given(pages: list[str]) -> None:
    state.open_in_inspect(WHOLE, TYPED)
    assert state.present_request() == WHOLE
    assert state.present_config() == TYPED
    assert pages == ["pages/inspect.py"]


def test_the_door_leaves_nothing_of_another_request(pages: list[str]) -> None:
    state.open_in_inspect(WHOLE, TYPED)
    state.switch_variants(Request("who pays"), frozenset({1}))
    state.open_in_inspect(Request("who pays"), TYPED)
    assert state.present_request() == Request("who pays")
    assert state.variants_off(Request("who pays")) == frozenset()


def test_the_door_pins_a_baseline_and_leaves_a_pinned_one_without(pages: list[str]) -> None:
    qmd = preset("qmd").config
    state.open_in_inspect(WHOLE, TYPED, ("qmd", qmd))
    state.open_in_inspect(WHOLE, TYPED)
    assert state.present().baseline == state.Baseline("qmd", qmd)


def test_the_config_that_the_door_sets_can_be_undone(pages: list[str]) -> None:
    before = state.present_config()
    state.open_in_inspect(WHOLE, TYPED)
    state.undo()
    assert state.present_config() == before


def test_a_config_that_the_door_sets_is_counted_against_its_own_preset(pages: list[str]) -> None:
    tuned = with_values(preset("engram_head").config, {"assembly.limit": 10}).model_copy(update={"name": "tuned"})
    for config, base, changes in (
        (preset("recollection").config, "recollection", []),
        (tuned, "engram_head", ["assembly.limit"]),
        (TYPED, "cems", ["expansion.backend"]),
    ):
        state.open_in_inspect(WHOLE, config)
        assert state.present().preset == base and state.present_config() == config
        assert [path for path, _, _ in state.changed_parameters()] == changes
    state.reset()
    assert state.present_config() == preset("cems").config
    state.undo()
    state.undo()
    assert state.present().preset == "engram_head"


def test_the_moment_of_a_stored_query_counts_until_another_day_is_chosen(session: dict[str, object]) -> None:
    moment = datetime(2026, 8, 1, 14, 30, tzinfo=UTC)
    state.choose_query(Query("q1", "who pays", as_of=moment))
    assert session[state.AS_OF] == date(2026, 8, 1)
    assert state.written_request().as_of == moment
    session[state.AS_OF] = date(2026, 8, 2)
    assert state.written_request().as_of == datetime(2026, 8, 2, tzinfo=UTC)


def test_further_queries_are_searched_only_where_the_config_has_them_typed() -> None:
    state.write_request(WHOLE)
    request = state.present_request()
    assert request is not None and request.variants == ()
    assert state.written_request().variants == WHOLE.variants
    state.use_config(TYPED)
    assert state.present_request() == WHOLE


def test_an_address_is_read_back_as_it_was_written(session: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    state.write_request(WHOLE)
    state.open_setting(Setting("recollection", TYPED))
    state.switch_variants(WHOLE, frozenset({2}))
    given = written(ADDRESS)
    assert given["query"] == ["who pays"] and given["off"] == ["2"]
    assert given["set"][0].startswith("z."), "many parameters differ"
    session.clear()
    assert address.read(ADDRESS, given, whole=False) == ""
    assert state.present_request() == WHOLE and state.present().setting == Setting("recollection", TYPED)
    assert state.variants_off(WHOLE) == {2} and written(ADDRESS) == given
    assert state.present().history == History(), "nothing to undo on a page just opened"
    state.apply({"fusion.k": 7})
    changed = state.present_config()
    assert address.read(ADDRESS, {}, whole=True) == ""
    assert written(ADDRESS) == {} and state.present_request() is None, "Back to the first entry"
    state.undo()
    assert state.present_config() == changed


def test_what_an_address_says_wrongly_is_left_out_in_one_line() -> None:
    given = {"set": ["fusion.k=31", "fusion.k=-3", "gone=1"], "preset": ["lost"], "query": ["tea"], "utm": ["1"]}
    said = address.read(ADDRESS, {**given, "k": ["0"], "as_of": ["then"], "section": ["x"]}, whole=False)
    assert state.present_config() == with_values(state.preset_config(), {"fusion.k": 31})
    assert state.written_request() == Request("tea")
    for part in ("no preset lost", "fusion.k: -3 is not allowed", "gone", "as_of=then", "section=x", "k=0", "utm"):
        assert part in said, said
    assert "\n" not in said and said.startswith("Left out of this address: ")
    whole = packed([f"fusion.k={n}" for n in range(99)])
    assert unpacked("set", whole)[-1] == "fusion.k=98"
    bomb = "z." + urlsafe_b64encode(zlib.compress(b"a" * 10_000_000)).decode()
    for cut in (whole[0][:-9], "z.", "z.ä", bomb):
        assert "the whole of what was copied" in address.read(ADDRESS, {"set": [cut]}, whole=False)


def test_what_a_stored_query_searches_as_given_goes_with_its_text_alone() -> None:
    given = Query("q", "who pays", searched="payer", engine_queries={"lexical": "pays"})
    state.choose_query(given)
    asked = state.present_request()
    assert asked is not None and (asked.searched, asked.engine_queries) == ("payer", {"lexical": "pays"})
    streamlit.session_state[state.QUERY] = "who else"
    assert state.present_request() == Request("who else")
    streamlit.session_state[state.QUERY] = "who pays"
    state.write_request(asked)
    assert state.present_request() == asked
    state.update(given=None)
    assert state.present_request() == Request("who pays")
    state.choose_query(Query("r", "who pays", wordings=("payer",)))
    again = state.present_request()
    assert state.present_config().expansion.backend == "none"
    assert again is not None and again.variants == ("payer",)


START = Setting("cems", preset("cems").config)


def at_k(k: int) -> Setting:
    return Setting("cems", with_values(START.config, {"fusion.k": k}))


def test_a_drag_of_one_slider_is_one_step() -> None:
    history = History()
    settings = [START, *(at_k(k) for k in (59, 58, 57, 56))]
    for i, (before, now) in enumerate(pairwise(settings)):
        history = history.after(before, now, "fusion.k", i * DRAG_S)
    assert history.past == (START,)
    assert history.undone(settings[-1])[1] == START


def test_moved_to_and_fro_there_is_nothing_to_undo_and_later_or_another_move_is_a_step_of_its_own() -> None:
    once = History().after(START, at_k(30), "fusion.k", 0.0)
    assert once.after(at_k(30), START, "fusion.k", 0.5).past == ()
    assert once.after(at_k(30), at_k(20), "fusion.k", DRAG_S + 0.1).past == (START, at_k(30))
    applied = once.after(at_k(30), at_k(20), None, 0.1)
    assert applied.after(at_k(20), START, "filter.min_score", 0.2).past == (START, at_k(30), at_k(20))


def test_a_slider_moved_right_after_an_undo_does_not_join_the_step_before() -> None:
    history = History().after(START, at_k(30), "fusion.k", 0.0).after(at_k(30), at_k(20), "gap.ratio", 0.1)
    history, setting = history.undone(at_k(20))
    history = history.after(setting, at_k(10), "fusion.k", 0.2)
    assert history.past == (START, at_k(30))


def test_the_oldest_steps_are_forgotten_past_the_depth() -> None:
    history = History()
    for k in range(1, MAX_STEPS + 11):
        history = history.after(at_k(k), at_k(k + 1), None, float(k))
    assert len(history.past) == MAX_STEPS
    assert history.past[0] == at_k(11)


@given(st.lists(st.sampled_from(["set", "undo", "redo"]), max_size=40))
def test_undo_and_redo_walk_one_line_of_settings(acts: list[str]) -> None:
    """After any operations, the settings in order are the undo steps, the current one, the redo steps; a change drops the redo steps."""
    history, now, line, place = History(), START, [START], 0
    for turn, act in enumerate(acts):
        if act == "set":
            new = at_k(turn + 1)
            history, now = history.after(now, new, None, float(turn)), new
            line, place = [*line[: place + 1], new], place + 1
        elif act == "undo":
            history, now = history.undone(now)
            place = max(0, place - 1)
        else:
            history, now = history.redone(now)
            place = min(len(line) - 1, place + 1)
        assert [*history.past, now, *reversed(history.future)] == line
        assert now == line[place]


def read(command: str) -> tuple[PipelineConfig, dict[str, list[str]], str]:
    """The config, the options and the query that the shell would hand to `search`."""
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "cems_workbench", "search"]
    options: dict[str, list[str]] = {}
    rest = words[4:]
    while rest and rest[0] != "--" and rest[0].startswith("--"):
        name, separator, value = rest.pop(0).partition("=")
        options.setdefault(name, []).append(value if separator or name == "--only-project" else rest.pop(0))
    rest = rest[1:] if rest[0] == "--" else rest
    assert len(rest) == 1
    changes = dict(parse_assignment(text) for text in options.get("--set", ()))
    return with_values(preset(options["--preset"][0]).config, changes), options, rest[0]


@given(configs(), st.sampled_from(preset_names()), st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_every_config_and_query_comes_back(config: PipelineConfig, name: str, query: str) -> None:
    query = query.replace("\0", "x")
    found, _, words = read(search_command(Request(query), name, config))
    assert with_values(found, {"name": config.name}) == config
    assert words == query


def test_everything_that_was_asked_is_in_the_command() -> None:
    moment = datetime(2026, 9, 1, 12, 30, tzinfo=UTC)
    request = Request("--now; rm -rf '$HOME'", "org/a b", None, True, ("--x", "it's"))
    config = with_values(preset("cems").config, {"expansion.backend": "manual", "rerank.query": 'what\'s "up"\n🚀'})
    command = search_command(request, "cems", config, as_of=moment, off=(2, 1), store=Path("/tmp/a store"))
    found, options, query = read(command)
    assert found == config
    assert query == request.query
    assert options["--project"] == ["org/a b"]
    assert "--only-project" in options
    assert options["--as-of"] == ["2026-09-01T12:30:00+00:00"]
    assert options["--variant"] == ["--x", "it's"]
    assert options["--without-variant"] == ["1", "2"]
    assert options["--store"] == ["/tmp/a store"]
    assert "--set expansion.backend=manual" in command


@pytest.mark.parametrize(
    "text", ["null", "true", "no", "12", "1e3", "~", "", "a: b", "#x", "\u0085", "\u2028", "\x7f", "'"]
)
def test_texts_that_yaml_would_read_otherwise_come_back(text: str) -> None:
    config = with_values(preset("cems").config, {"rerank.instruction": text})
    assert read(search_command(Request("q"), "cems", config))[0] == config


TAKES_A_PRESET = {
    "search",
    "replay",
    "audit",
    "leak",
    "forgotten",
    "why",
    "blame",
    "memory",
    "what-if",
    "gather",
    "fill-scores",
    "evaluate",
    "compare",
    "power",
    "drift",
    "calibrate",
    "fidelity",
    "promise",
    "tune",
    "watch",
    "doctor",
    "import",
}


@pytest.mark.parametrize("named", [None, *preset_names(), "cmes"])
def test_the_page_and_a_command_begin_with_the_same_preset(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str | None
) -> None:
    monkeypatch.delenv("CEMS_WORKBENCH_PRESET") if named is None else monkeypatch.setenv("CEMS_WORKBENCH_PRESET", named)
    page = state._initial()
    assert chosen_config(None, None, None) == page.config
    assert page.preset == (named if named in preset_names() else DEFAULT_PRESET)
    assert (page.config_error or "") in capsys.readouterr().err


def test_every_command_with_a_preset_states_the_choices_and_the_default() -> None:
    group = typer.main.get_command(commands)
    options = {
        name: parameter.help or ""
        for name, command in group.commands.items()  # type: ignore[attr-defined]
        for parameter in command.params
        if parameter.name == "preset"
    }
    assert options.keys() == TAKES_A_PRESET
    for name, said in options.items():
        assert all(choice in said for choice in preset_names()), name
        assert "(default: " in said
    assert CliRunner().invoke(commands, ["export", "--help"]).output.count("memory_agent_messages") == 1


def view(title: str, place: int) -> View:
    return View(title, place, draw=lambda context: None)


def test_views_stand_at_their_places() -> None:
    assert list(views_in("inspect.views", view("First", 5), view("Last", 20), view("Middle", 10))) == [
        "First",
        "Middle",
        "Last",
    ]
    assert view("Why is it missing?", 1).name == "why-is-it-missing"


@pytest.mark.parametrize(("other", "what"), [(view("Same", 2), "title"), (view("Other", 1), "place")])
def test_two_views_of_one_title_or_place_are_an_error(other: View, what: str) -> None:
    with pytest.raises(ValueError, match=f"two views have the same {what}"):
        views_in("inspect.views", view("Same", 1), other)


@pytest.mark.parametrize("section", ["inspect.views", "inspect.tools"])
def test_catalogue_lists_every_record_once_in_the_order_of_places(section: str) -> None:
    package = f"cems_workbench.ui.{section}"
    modules = [import_module(f"{package}.{module.name}") for module in iter_modules(import_module(package).__path__)]
    given = [getattr(module, "VIEW", ()) for module in modules]
    records = [view for each in given for view in (each if isinstance(each, tuple) else [each])]
    listed = list(views_in(section).values())
    assert [view for view in listed if view in records] == sorted(records, key=lambda view: view.place)
    assert len({view.title for view in listed}) == len({view.place for view in listed}) == len(listed)
    assert all(view.title and callable(view.draw) for view in listed)


def test_the_page_is_imported_without_its_views_and_tools() -> None:
    script = (
        "import sys; import cems_workbench.ui.inspect.page; "
        "print([name for name in sys.modules if name.startswith(('cems_workbench.ui.inspect.views', 'cems_workbench.ui.inspect.tools'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
