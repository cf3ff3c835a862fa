"""Page and command line share evidence, searches and hold-out looks: one can resume what the other started."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.cli import main
from cems_workbench.cli import tune as tune_command
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.jobs import query_set_evidence
from cems_workbench.ui.kit import session
from tests.sample import store_with_set

from .pages import OpenPage, all_html, captions, checked
from .tune_page import set_tune_state, tune_state_of

pytestmark = [pytest.mark.models]
QUERIES, CONFIGS, WAIT = 24, 30, 60
SPACE = ("lists.vector.weight", "fusion.score_blend")


@pytest.fixture(scope="module")
def gathered_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set "few" of some of its answered queries, gathered for preset cems by the command."""
    store = store_with_set(sample_store, tmp_path_factory.mktemp("gathered"), "few", QUERIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["cems_workbench", "evaluate", "few", "--preset", "cems", "--store", str(store), "--json"]
        )
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return store


@pytest.fixture
def small_store(gathered_store: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(gathered_store, tmp_path / "store"))


@pytest.fixture
def page(open_page: OpenPage, small_store: Path) -> AppTest:
    """The Tune page on the small set, with two weights to search; what the command gathered is there."""
    opened = tune_page(open_page, small_store)
    assert not [button for button in opened.button if button.key == "tune:gather"]
    opened.selectbox(key="tune:group_by").select("query")
    opened.number_input(key="tune:trials").set_value(CONFIGS)
    opened.multiselect(key="tune:paths").set_value(list(SPACE))
    return checked(opened.run())


def tune_page(open_page: OpenPage, store: Path) -> AppTest:
    """The Tune page on the small set."""
    opened = open_page(store).switch_page("pages/tune.py").run()
    return checked(opened.selectbox(key="tune:set").select("few").run())


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[PipelineConfig]:
    """The configs that were replayed on a whole query set, as it happens."""
    asked: list[PipelineConfig] = []
    real = LabelledBatch.rankings

    def counted(self: LabelledBatch, config: Any, *arguments: Any) -> Any:
        asked.append(config)
        return real(self, config, *arguments)

    monkeypatch.setattr(LabelledBatch, "rankings", counted)
    return asked


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run `python -m cems_workbench ARGUMENTS` within this process: exit code and output."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["cems_workbench", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out

    return run


def searched(page: AppTest) -> AppTest:
    """The page with the result of the search that is set up."""
    page.button(key="tune:start").click().run()
    running = tune_state_of(page).running
    if running is not None:
        running.wait(WAIT)
    return checked(page.run())


def shelf(store: Path) -> Path:
    """The one evidence file of the page."""
    (file,) = (store / "evidence").glob("*.evidence")
    return file


def tuning(evidence: Path, out: Path) -> tuple[str | Path, ...]:
    """The command that asks for the search that the page is set to."""
    space = [argument for path in SPACE for argument in ("--space", path)]
    return (
        "tune",
        evidence,
        "--out",
        out,
        "--preset",
        "cems",
        *space,
        "--trials",
        str(CONFIGS),
        "--group-by",
        "query",
        "--json",
    )


@contextmanager
def page_closed() -> Iterator[None]:
    """While the app does not hold its store, as when it is not running."""
    session.resources().close()
    session.resources.clear()
    yield


@pytest.mark.thorough
def test_a_search_of_the_page_is_gone_on_with_by_the_command(
    page: AppTest,
    small_store: Path,
    command: Callable[..., tuple[int, str]],
    replays: list[PipelineConfig],
    tmp_path: Path,
) -> None:
    result = searched(page)
    assert "configs of 2 parameters" in all_html(result)
    assert len(replays) > CONFIGS
    replays.clear()
    code, out = command(*tuning(shelf(small_store), tmp_path / "best.yaml"))
    assert code == 0
    assert len(replays) <= 2, "the scores of the page are known; baseline and proposal are replayed, for what they lack"
    assert f"{json.loads(out)['validation']['tuned']:.3f}" in all_html(result)


@pytest.mark.thorough
def test_a_search_of_the_command_that_was_cut_off_is_gone_on_with_by_the_page(
    page: AppTest,
    small_store: Path,
    command: Callable[..., tuple[int, str]],
    replays: list[PipelineConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def pressing(quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
        yield lambda label, done, total: signal.raise_signal(signal.SIGINT) if done == 20 else None

    with monkeypatch.context() as patch:
        patch.setattr(tune_command, "progress_bar", pressing)
        code, out = command(*tuning(shelf(small_store), tmp_path / "best.yaml"))
    assert code == 130 and json.loads(out)["trials"] == 19
    tried = set(replays)
    replays.clear()
    assert "configs of 2 parameters" in all_html(searched(page))
    assert len(tried) >= 19 and len(tried & set(replays)) <= 2, (
        "but for what is proposed and what it began with, none again"
    )


@pytest.mark.thorough
def test_the_command_searches_on_the_labels_that_the_page_searched_on(
    page: AppTest,
    small_store: Path,
    command: Callable[..., tuple[int, str]],
    replays: list[PipelineConfig],
    tmp_path: Path,
) -> None:
    from cems_workbench.records import Judgment, ParsedInput

    store = session.resources().store
    query = store.query_sets.queries("few")[0]
    unjudged = sorted(store.memories.read())[0]
    store.add(ParsedInput("later", "jsonl", judgments=[Judgment(query.qid, unjudged, 3, "ada", "human")]))
    searched(checked(page.run()))
    replays.clear()
    code, _ = command(*tuning(shelf(small_store), tmp_path / "best.yaml"))
    assert code == 0
    assert len(replays) <= 2


def test_looks_at_the_sealed_queries_are_one_count(
    page: AppTest, small_store: Path, command: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    opening = (*tuning(shelf(small_store), tmp_path / "best.yaml"), "--open-holdout")
    page = searched(page)
    page = checked(page.button(key="tune:open").click().run())
    assert "Look 1 at these sealed queries" in captions(page)
    assert json.loads(command(*opening)[1])["looks"] == 2, "the app holds the store; its look is known all the same"
    set_tune_state(page, next_view="Set up")
    page = searched(checked(page.run()))
    page = checked(page.button(key="tune:open").click().run())
    assert "Look 3 at these sealed queries" in captions(page)
    with page_closed():
        assert json.loads(command(*opening)[1])["looks"] == 4
        assert json.loads(command(*opening)[1])["looks"] == 5


@pytest.mark.thorough
def test_evaluate_measures_on_the_evidence_that_the_page_gathered(
    open_page: OpenPage,
    sample_store: Path,
    command: Callable[..., tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_store = store_with_set(sample_store, tmp_path, "few", QUERIES)
    page = tune_page(open_page, small_store)
    checked(page.button(key="tune:gather").click().run())
    evidence = shelf(small_store)
    searches: list[str] = []
    real = query_set_evidence.gather

    def counted(request: Any, *arguments: Any) -> Any:
        searches.append(request.query)
        return real(request, *arguments)

    monkeypatch.setattr(query_set_evidence, "gather", counted)
    with page_closed():
        of_set = command("evaluate", "few", "--preset", "cems", "--store", small_store, "--json")
        of_some = command("evaluate", "few", "--preset", "cems", "--limit", "5", "--store", small_store, "--json")
        assert (of_set[0], of_some[0]) == (0, 0)
        assert not searches, "every query was searched for the page"
        of_file = command("evaluate", evidence, "--preset", "cems", "--json")
        measured = [json.loads(out)["evaluations"][0]["measures"] for _, out in (of_set, of_file)]
        assert measured[0] == measured[1]
        assert len(json.loads(of_some[1])["evaluations"][0]["per_query"]) == 5
