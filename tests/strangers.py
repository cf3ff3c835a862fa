"""Packages of strangers, as pip leaves them in a folder: the package, its metadata, its entry points."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from cems_workbench import extensions
from cems_workbench.sources import address, connect

EntryPoints = Mapping[str, Mapping[str, str]]


def install(site: Path, name: str, entry_points: EntryPoints, package: Path | None = None) -> None:
    """Put a package there, or only the metadata of one."""
    info = site / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [
        line
        for group, entries in entry_points.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    if package is not None:
        shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))


def with_source_kinds(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of sources in this process, with those of the packages in `site`."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(extensions, "_problems", {})
    for cached in (extensions._installed, extensions._declared):
        cached.cache_clear()
    kinds = extensions.Registry(extensions.SOURCES, address.SourceKind, "cems_workbench.sources.kinds", "SOURCE")
    assert kinds.origins
    for cached in (extensions._installed, extensions._declared):
        cached.cache_clear()
    for module in (address, connect):
        monkeypatch.setattr(module, "SOURCE_KINDS", kinds)
