"""The packaged cross-encoder: what holds of it whatever its weights are, and that it can tell an answer from another text."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cems_workbench.errors import ModelError
from cems_workbench.models import minilm_judge
from cems_workbench.models.device import Way
from cems_workbench.models.minilm_judge import FILES, FOLDER, MODEL_ID, NETWORK, RECORDED, MiniLMJudge, available
from cems_workbench.models.protocol import PairScore

pytestmark = pytest.mark.models
QUERY = "where does the service run"
ANSWER = "The service runs in the Frankfurt cluster."
TEXTS = [
    ANSWER,
    "Redis keeps the sessions.",
    "",
    "サービスはクラスターで動く",
    "lunch is at noon " * 20,
    "🚀 \x00 \ud800",
    "ü" * 90,
]


@pytest.fixture(scope="module")
def judge() -> Iterator[MiniLMJudge]:
    if not available():
        pytest.skip("this checkout has no weights of the packaged cross-encoder")
    yield MiniLMJudge(threads=2)


def test_a_text_that_answers_the_query_is_above_one_that_does_not(judge: MiniLMJudge) -> None:
    for query, answer, other in (
        (QUERY, ANSWER, "Redis keeps the sessions."),
        (
            "what does Ann drink in the morning?",
            "Ann: I start every day with green tea.",
            "Ann: my brother lives in Oslo.",
        ),
    ):
        good, bad = judge.score(query, [answer, other])
        assert good.raw is not None and bad.raw is not None
        assert good.raw > bad.raw


def test_a_pair_has_its_score_whatever_stands_beside_it_and_in_what_order(judge: MiniLMJudge) -> None:
    """Exactly: in a batch the activations' 8 bits would be shared out by the largest value of all its pairs."""
    together = dict(zip(TEXTS, judge.score(QUERY, TEXTS), strict=True))
    shuffled = random.Random(7).sample(TEXTS, len(TEXTS))
    assert dict(zip(shuffled, judge.score(QUERY, shuffled), strict=True)) == together
    assert {text: judge.score(QUERY, [text])[0] for text in TEXTS} == together


def test_the_optimised_network_gives_the_scores_of_the_model_to_the_last_digit(
    judge: MiniLMJudge, copied: Path
) -> None:
    """With Softmax as this processor has it, which is that of the model."""
    assert minilm_judge.recorded_digest(FOLDER) == minilm_judge.digest_of(FOLDER)
    (copied / RECORDED).unlink()  # with AVX2 the operator's scores are not those recorded
    optimised = minilm_judge.loaded(copied, [Way(precise=True)])
    (copied / NETWORK).unlink()
    model, query = MiniLMJudge(copied), optimised.ids(QUERY)
    assert model.score(QUERY, TEXTS) == [optimised.pair(query, text) for text in TEXTS]
    assert model.cache_model(QUERY) == judge.cache_model(QUERY)


def test_scores_say_so_where_a_processor_gives_others_than_those_recorded(copied: Path) -> None:
    kept = json.loads((copied / RECORDED).read_text())
    kept["pairs"][-1][2] += 0.1
    (copied / RECORDED).write_text(json.dumps(kept))
    other = MiniLMJudge(copied)
    assert [score.detail for score in other.score(QUERY, [ANSWER, "word " * 600])] == [
        {"inexact": True},
        {"truncated": True, "inexact": True},
    ]
    assert str(other.agreement) == "this processor computes other numbers than those recorded, by up to 0.1"


def test_threads_may_share_it(judge: MiniLMJudge) -> None:
    fresh = MiniLMJudge(threads=1)
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: fresh.score(QUERY, TEXTS), range(4)))
    assert runs == [judge.score(QUERY, TEXTS)] * 4


def test_equal_texts_are_read_once(judge: MiniLMJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    pair = minilm_judge.Weights.pair

    def counted(weights: minilm_judge.Weights, query: list[int], text: str) -> PairScore:
        read.append(text)
        return pair(weights, query, text)

    monkeypatch.setattr(minilm_judge.Weights, "pair", counted)
    first, second, third = judge.score(QUERY, [ANSWER, "lunch", ANSWER])
    assert first == third != second
    assert sorted(read) == sorted([ANSWER, "lunch"])


@pytest.mark.parametrize(("text", "cut"), [("word " * 200, False), ("word " * 600, True), ("日本" * 400, True)])
def test_a_text_longer_than_the_model_reads_says_so(judge: MiniLMJudge, text: str, cut: bool) -> None:
    (score,) = judge.score(QUERY, [text])
    assert score.raw is not None
    assert score.detail == ({"truncated": True} if cut else None)


def test_what_lies_past_the_limit_changes_nothing(judge: MiniLMJudge) -> None:
    long = f"{ANSWER} " * 80
    first, longer = judge.score(QUERY, [long, f"{long} {ANSWER}"])
    assert first == longer


@pytest.mark.parametrize("query", ["x" * 5000, "word " * 1000, "日本" * 2500, "", "  ", "\ud800", "ünïcödé"])
def test_any_query_leaves_room_for_the_text(judge: MiniLMJudge, query: str) -> None:
    scores = judge.score(query, TEXTS)
    assert all(score.raw is not None and score.error is None for score in scores)
    assert len({score.raw for score in scores}) > 1


def test_a_query_that_is_cut_says_so(judge: MiniLMJudge) -> None:
    assert judge.score("word " * 1000, [ANSWER])[0].detail == {"truncated": True}


def test_nothing_to_score_is_no_error(judge: MiniLMJudge) -> None:
    assert judge.score(QUERY, []) == []


def test_label_names_the_model_and_where_it_is_from(judge: MiniLMJudge) -> None:
    assert judge.label == f"cross-encoder {MODEL_ID} (packaged with the workbench)"


def test_the_scale_is_that_of_its_calibration(judge: MiniLMJudge) -> None:
    kept = json.loads((FOLDER / "calibration.json").read_text())
    assert (judge.scale.threshold, list(judge.scale.bands)) == (kept["threshold"], kept["bands"])


@pytest.fixture
def copied(judge: MiniLMJudge, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "weights"))


def test_the_cache_key_is_of_the_weights_and_not_of_the_query(judge: MiniLMJudge, copied: Path) -> None:
    key = judge.cache_model(QUERY)
    assert key == judge.cache_model("another") == MiniLMJudge(copied).cache_model(QUERY)
    (copied / "tokenizer.json").write_text((copied / "tokenizer.json").read_text() + "\n")
    assert MiniLMJudge(copied).cache_model(QUERY) != key


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_is_one_line_at_once(copied: Path, name: str) -> None:
    (copied / name).unlink()
    assert not available(copied)
    with pytest.raises(ModelError, match=f"{MODEL_ID} is not in this checkout: no {name}"):
        MiniLMJudge(copied)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", b"\x00\xff" * 99]
)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_broken_is_one_line_when_it_is_needed(copied: Path, name: str, content: bytes) -> None:
    (copied / name).write_bytes(content)
    broken = MiniLMJudge(copied)
    for ask in (lambda: broken.score(QUERY, TEXTS), lambda: broken.cache_model(QUERY), lambda: broken.scale):
        with pytest.raises(ModelError, match=f"^{MODEL_ID} cannot be loaded: .+") as caught:
            ask()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "kept",
    [
        [],
        {"threshold": 0},
        {"threshold": 0, "bands": [1, 2]},
        {"threshold": 0, "bands": [1, 2, 3]},
        {"threshold": "x", "bands": [3, 2, 1]},
        {"threshold": float("nan"), "bands": [3, 2, 1]},
    ],
)
def test_a_calibration_that_is_none_is_refused(kept: object) -> None:
    with pytest.raises(ValueError, match=r"calibration\.json needs"):
        minilm_judge.calibrated(kept)


def test_the_weights_are_in_the_checkout_and_stay_under_25_megabytes() -> None:
    assert available()
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 25e6
