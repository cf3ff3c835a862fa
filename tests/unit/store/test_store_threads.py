"""The store under several threads, as the app's sessions and its background loading use it."""

from __future__ import annotations

import threading
from pathlib import Path

from cems_workbench.errors import StoreError
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store


def filled(path: Path) -> Store:
    store = Store.open(path)
    store.add(ParsedInput("test", "test", memories=tuple(Memory(id=f"m{i}", content=f"text {i}") for i in range(20))))
    return store


def test_many_threads_read_at_once(tmp_path: Path) -> None:
    problems: list[BaseException] = []
    with filled(tmp_path / "store") as store:

        def read() -> None:
            try:
                for _ in range(150):
                    assert store.memories.count() == 20
                    assert store.content_version == 1
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=read) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []


def test_closing_while_others_read_ends_them_with_a_clear_error(tmp_path: Path) -> None:
    for attempt in range(10):
        store = filled(tmp_path / f"store{attempt}")
        unexpected: list[BaseException] = []
        started = threading.Barrier(5)

        def read(
            store: Store = store, unexpected: list[BaseException] = unexpected, started: threading.Barrier = started
        ) -> None:
            started.wait()
            try:
                while True:
                    store.memories.count()
            except StoreError as error:
                if "closed" not in str(error):
                    unexpected.append(error)
            except BaseException as error:
                unexpected.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        store.close()
        for thread in threads:
            thread.join(20)
        assert unexpected == []
        assert not any(thread.is_alive() for thread in threads)
