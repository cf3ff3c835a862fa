"""The packaged 8-bit networks on this processor, and on one without VNNI and AVX-512, which qemu-user emulates."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.models import device, minilm_embedder, minilm_judge
from cems_workbench.models.device import TOLERANCE, WAYS, Way, first_agreeing
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID, packaged_minilm

ROOT = Path(__file__).resolve().parents[2]
QEMU = shutil.which("qemu-x86_64")
EMULATED = f"""
import json
from pathlib import Path
from cems_workbench.models import minilm_embedder, minilm_judge
found = [minilm_judge.loaded(minilm_judge.FOLDER).agreement]
found.append(minilm_embedder.loaded(Path({packaged_minilm()!r}), "", {EIGHT_BIT_ID!r}).agreement)
print(json.dumps([[agreement.way.ordered, agreement.way.precise, agreement.error] for agreement in found]))
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_every_way_that_may_run_here_gives_the_recorded_numbers() -> None:
    """At least the slowest, which is that of every processor."""
    for ways in (WAYS, WAYS[-1:]):
        judge = minilm_judge.loaded(minilm_judge.FOLDER, ways).agreement
        assert judge is not None and judge.error is not None and judge.error <= TOLERANCE
        for model_id in (PACKAGED_ID, EIGHT_BIT_ID):
            agreement = minilm_embedder.loaded(Path(packaged_minilm() or ""), model_id, model_id, ways).agreement
            assert agreement is not None and agreement.error is not None and agreement.error <= TOLERANCE


@pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed")
def test_a_processor_without_vnni_gives_the_recorded_numbers() -> None:
    """Issue 66, 2026-11-29: there precise mode was without effect, and a pair scored 3.755 instead of 4.006."""
    run = [str(QEMU), "-cpu", "Haswell", sys.executable, "-c", EMULATED]
    ended = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    for ordered, precise, error in json.loads(ended.stdout.splitlines()[-1]):
        assert (ordered, precise) == (
            True,
            True,
        )  # products saturate in the other ways, so qemu emulates what it should
        assert error <= TOLERANCE


def test_the_first_way_without_an_error_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Way] = []

    def open_in(way: Way) -> Way:
        opened.append(way)
        return way

    def errors(way: Way) -> Iterator[float]:
        yield 0.0 if way.ordered else float("nan")

    assert first_agreeing([b"network"], open_in, errors)[1].way == WAYS[1]
    assert opened == [*WAYS[:2]]
    assert first_agreeing([b"network"], open_in, errors)[1].way == WAYS[1]
    assert opened == [*WAYS[:2], WAYS[1]]
    monkeypatch.setattr(device, "processor", lambda: "another")
    assert first_agreeing([b"network"], open_in, lambda _: [0.0, 0.2])[1] == device.Agreement(WAYS[-1], 0.2)
    assert opened[3:] == [*WAYS]
