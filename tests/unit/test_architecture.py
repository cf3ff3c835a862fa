"""The directions of imports, and the purity of replay, read from the source (docs/internals/architecture.md, "Layers")."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "cems_workbench"

LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "builtin",
        "command_words",
        "errors",
        "extensions",
        "platform",
        "progress",
        "records",
        "results",
        "settings",
    ),
    ("config", "models", "store", "formats", "sources"),
    ("pipeline",),
    ("evaluation",),
    ("analysis", "tuning"),
    ("jobs",),
    ("report",),
    ("serve",),
    ("ui", "cli", "api", "mcp"),
    ("pages", "app"),
    ("training",),
    ("benchmarks",),
)
"""Lowest first; a module imports from its own layer and those below. A new module at the top level has to be placed here."""

NEVER: tuple[tuple[str, str, str], ...] = (
    ("config", "store", "the config knows nothing of the store"),
    ("config", "models", "the config knows nothing of models"),
    ("config", "formats", "the config knows nothing of formats"),
    ("config", "records", "the config knows nothing of memories"),
    ("store", "formats", "the store keeps records, whatever file they came from"),
    ("formats", "store", "a reader gives records, whoever keeps them"),
    ("formats", "config", "a reader gives records, whatever is done with them"),
    ("formats", "models", "a reader gives records, whatever is done with them"),
    ("models", "store", "a model knows nothing of the store"),
    ("sources", "store", "a source gives records, whoever keeps them"),
    ("store", "sources", "the store keeps records, whatever system they came from"),
    ("sources", "models", "a source is asked with vectors, whoever made them"),
    ("sources", "config", "a source is opened with arguments"),
    ("models", "config", "a model is configured by arguments"),
    ("pipeline", "formats", "the pipeline reads records and bundles"),
    ("pipeline", "settings", "replay and gather take what they need as arguments"),
    ("cli", "ui", "the command line needs no browser"),
    ("ui", "cli", "the page needs no command line"),
    ("api", "ui", "a script needs no browser"),
    ("api", "cli", "a script needs no command line"),
    ("ui", "api", "pages call what the API calls"),
    ("mcp", "ui", "an agent needs no browser"),
    ("mcp", "cli", "an agent needs no command line"),
    ("ui", "mcp", "a page needs no agent"),
    ("api", "mcp", "a script needs no agent"),
)

STAGE_IMPORTS = (
    "config",
    "records",
    "pipeline.table",
    "pipeline.evidence",
    "pipeline.fusion_methods",
    "pipeline.list_sources",
    "pipeline.nested",
    "pipeline.reading",
    "pipeline.recorded",
    "pipeline.stages",
)

PURE = sorted(
    [
        *(
            ROOT / PACKAGE / "pipeline" / f"{name}.py"
            for name in (
                "replay",
                "missing_evidence",
                "table",
                "evidence",
                "list_sources",
                "nested",
                "reading",
                "recorded",
                "supersession",
            )
        ),
        *(ROOT / PACKAGE / "pipeline" / "fusion_methods").glob("*.py"),
        *(ROOT / PACKAGE / "pipeline" / "stages").glob("*.py"),
    ]
)
IMPURE_MODULES = {
    "time",
    "random",
    "secrets",
    "uuid",
    "os",
    "io",
    "pathlib",
    "shutil",
    "tempfile",
    "socket",
    "subprocess",
    "threading",
    "multiprocessing",
    "asyncio",
    "urllib",
    "http",
    "httpx",
    "requests",
    "duckdb",
    "chromadb",
    "bm25s",
    "torch",
    "sentence_transformers",
    "transformers",
    "streamlit",
    "logging",
}
IMPURE_CALLS = {"open", "input", "print", "eval", "exec", "__import__"}
IMPURE_ATTRIBUTES = {
    "now",
    "utcnow",
    "today",
    "read_text",
    "write_text",
    "read_bytes",
    "write_bytes",
    "random",
    "default_rng",
    "environ",
}

HEAVY = (
    "torch",
    "sentence_transformers",
    "transformers",
    "chromadb",
    "duckdb",
    "bm25s",
    "streamlit",
    "plotly",
    "pandas",
    "sklearn",
    "mcp",
)
SQL = re.compile(
    r"\b(SELECT\b.+\bFROM|INSERT\s+(OR\s+\w+\s+)?INTO|DELETE\s+FROM|UPDATE\b.+\bSET|CREATE\s+TABLE)\b", re.DOTALL
)


OUTSIDE = ("pages", "app", "training", "benchmarks")
"""Ours, and not in the package."""
LIBRARIES = ("cems_trace", "pg_text_search")
"""Packages of `plugins/` that import nothing of this project, and that it may import."""
FEATURES = (
    "workbench_audit",
    "workbench_explanations",
    "workbench_fidelity",
    "workbench_inspect",
    "workbench_recorder",
    "workbench_supersession",
    "workbench_transcripts",
)
"""Packages of `plugins/` with a feature of their own: analysis, commands, views. They stand above all layers and import any of them."""
STANDS_ON = {
    "workbench_audit": ("workbench_supersession", "workbench_transcripts"),
    "workbench_explanations": ("workbench_recorder", "workbench_tools"),  # reads recorded calls, and runs as spans
    "workbench_transcripts": ("workbench_tools",),  # reads answers from spans
}
"""Features that use what others compute."""
PUBLIC = (
    "config.sections",
    "errors",
    "extensions",
    "formats",
    "pipeline.lexical_engines",
    "pipeline.text_pieces",
    "platform",
    "progress",
    "records",
    "sources",
    "store.claims",
    "store.filter",
    "store.query_sets",
    "store.schema",
    "store.search.entries",
    "store.search.stop_lists",
    "store.search.tokenizer",
    "store.team",
    "store.text_rule",
)
"""What the other packages of `plugins/` import of the core: the public modules of docs/internals/extending.md."""


TAG = re.compile(r"</?[a-zA-Z]")
MARKUP_HOMES = ("kit/html.py", "kit/charts.py")
"""Where the two elements around stylesheets and scripts stand, and the line breaks of Plotly's texts."""


@dataclass(frozen=True)
class Import:
    """One import of a module of this project; `target` is dotted below the package, or begins with one of `OUTSIDE`."""

    file: Path
    line: int
    target: str

    @property
    def place(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def sources() -> list[Path]:
    folders = [ROOT / PACKAGE, *(ROOT / name for name in OUTSIDE)]
    return sorted([*(file for folder in folders for file in folder.rglob("*.py")), ROOT / "app.py"])


def unit(file: Path) -> str:
    """The part of the house a file belongs to: `config`, `pipeline`, `records`, `pages`, ..."""
    parts = file.relative_to(ROOT).parts
    return Path(parts[1]).stem if parts[0] == PACKAGE else Path(parts[0]).stem


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(file: Path) -> Iterator[Import]:
    """Every import of this project in the file, lazy ones within functions and those for type checking included."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: imports are absolute here"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == PACKAGE or name.startswith(f"{PACKAGE}."):
                yield Import(file, node.lineno, name.removeprefix(PACKAGE).lstrip("."))
            elif name.split(".")[0] in OUTSIDE:
                yield Import(file, node.lineno, name)


def layer(name: str) -> int:
    for height, names in enumerate(LAYERS):
        if name in names:
            return height
    raise AssertionError(f"{name} stands in no layer; place it in LAYERS of {Path(__file__).name}")


@cache
def all_imports() -> list[Import]:
    """Made by the first test that asks: every worker collects this file, and one runs it."""
    return [found for file in sources() for found in imports(file)]


@pytest.fixture(scope="module", autouse=True)
def _trees_are_let_go() -> Iterator[None]:
    """They are hundreds of thousands of objects, which the tests after these would have collected again and again."""
    yield
    parsed.cache_clear()


def test_imports_point_one_way() -> None:
    wrong = []
    for found in all_imports():
        here = unit(found.file)
        there = found.target.split(".")[0]
        if here in ("__init__", "__main__") or there in ("", "__version__", "PLUGINS", "trace"):
            continue
        if layer(there) > layer(here):
            wrong.append(f"{found.place}: {here} imports {found.target}, which stands above it")
    assert not wrong, "\n".join(wrong)


def module_name(file: Path) -> str:
    """Dotted, as it is imported: `cems_workbench.pipeline.replay`; a package by its folder's name."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_modules(file: Path, modules: Collection[str]) -> set[str]:
    """Which of `modules` the file imports, lazily too, unless for type checking alone. A package it stands in is not counted."""
    tree = parsed(file)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names: list[str] = []
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [member if member in modules else node.module or "" for member in members]
    return {name for name in names if name in modules and name != module_name(file)}


def cycles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """One cycle for each of the modules at which a walk down the imports comes back to where it has been, as the way round."""
    done: set[str] = set()
    rounds: list[list[str]] = []

    def walk(module: str, way: list[str]) -> None:
        if module in way:
            rounds.append([*way[way.index(module) :], module])
        elif module not in done:
            for target in sorted(graph[module]):
                walk(target, [*way, module])
            done.add(module)

    for module in sorted(graph):
        walk(module, [])
    return rounds


def test_no_module_imports_one_that_leads_back_to_it() -> None:
    """The package, the pages, the benchmarks and the training; lazy imports count as much as those at the head."""
    files = {module_name(file): file for file in sources()}
    graph = {name: imported_modules(file, files.keys()) for name, file in files.items()}
    assert graph[f"{PACKAGE}.pipeline.gather"], "the walk sees the imports at all"
    wrong = [" -> ".join(way) for way in cycles(graph)]
    assert not wrong, "these import each other, so they are one module, or what they share is a third:\n" + "\n".join(
        wrong
    )


def plugins() -> dict[str, list[Import]]:
    """The imports of each package of `plugins/`, of the core and of other packages there."""
    folder = ROOT / "plugins"
    names = sorted(found.name for found in folder.iterdir() if (found / "__init__.py").is_file())
    return {
        name: [
            Import(file, node.lineno, target)
            for file in sorted((folder / name).rglob("*.py"))
            for node in ast.walk(parsed(file))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for target in [
                f"{node.module}.{one.name}" if isinstance(node, ast.ImportFrom) else one.name for one in node.names
            ]
            if target.split(".")[0] in (PACKAGE, *names) and target.split(".")[0] != name
        ]
        for name in names
    }


def allowed(name: str) -> tuple[str, ...]:
    """The beginnings of the modules that a package of `plugins/` may import besides its own."""
    features = (PACKAGE, *LIBRARIES, *STANDS_ON.get(name, ()))
    return features if name in FEATURES else tuple(f"{PACKAGE}.{public}." for public in PUBLIC)


def test_plugins_import_public_modules_alone_and_the_core_no_plugin() -> None:
    found = plugins()
    assert set(LIBRARIES) <= found.keys()
    wrong = [
        f"{one.place}: {one.target}"
        for name, imports_of in found.items()
        for one in imports_of
        if name in LIBRARIES or not f"{one.target}.".startswith(allowed(name))
    ]
    names = found.keys() - set(LIBRARIES)
    wrong += [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.module}"
        for file in (ROOT / PACKAGE).rglob("*.py")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in names
        and file
        != ROOT / PACKAGE / "__init__.py"  # the Python API has a feature's functions, imported when they are asked for
    ]
    assert not wrong, "\n".join(wrong)


def test_a_cycle_is_seen() -> None:
    assert cycles({"a": ["b"], "b": ["c"], "c": ["b"], "d": ["a"]}) == [["b", "c", "b"]]
    assert cycles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_neighbours_that_do_not_know_each_other(subtests: pytest.Subtests) -> None:
    for here, there, why in NEVER:
        with subtests.test(here=here, there=there):
            wrong = [
                found.place
                for found in all_imports()
                if unit(found.file) == here and found.target.split(".")[0] == there
            ]
            assert not wrong, f"{here} must not import {there} ({why}): {', '.join(wrong)}"


def test_stages_import_only_config_and_the_row_types() -> None:
    wrong = [
        f"{found.place}: {found.target}"
        for found in all_imports()
        if found.file.parent == ROOT / PACKAGE / "pipeline" / "stages" and not found.target.startswith(STAGE_IMPORTS)
    ]
    assert not wrong, "a stage reads its config and the candidate table, nothing else:\n" + "\n".join(wrong)


def test_pages_hold_no_formula() -> None:
    """Nothing that ranks is reached past replay: no stage, no table of candidates."""
    wrong = [
        f"{found.place}: {found.target}"
        for found in all_imports()
        if unit(found.file) in ("pages", "app")
        and found.target.startswith(
            ("pipeline.stages", "pipeline.table", "pipeline.replay.single_table", "pipeline.replay.to_table")
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_pages_and_ui_hold_no_sql_and_no_database() -> None:
    wrong = []
    for file in sources():
        if unit(file) not in ("pages", "app", "ui"):
            continue
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value):
                wrong.append(f"{file.relative_to(ROOT)}:{node.lineno}: SQL")
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(module.split(".")[0] in ("duckdb", "chromadb", "bm25s") for module in modules):
                wrong.append(f"{file.relative_to(ROOT)}: {modules[0]}")
    assert not wrong, "\n".join(wrong)


def test_one_function_opens_database_files() -> None:
    opening = {file.stem for file in (ROOT / PACKAGE).rglob("*.py") if "duckdb.connect(" in file.read_text("utf-8")}
    assert opening == {"duckdb_file"}, "a database file may be a stranger's: store/duckdb_file.py opens it as data"


def test_html_stands_in_templates_which_escape_every_value() -> None:
    """No page writes a tag or escapes by hand: one forgotten escape would be a hole."""
    wrong = []
    folder = ROOT / PACKAGE / "ui"
    features = (file for name in FEATURES for file in (ROOT / "plugins" / name).rglob("*.py"))
    for file in sorted([*folder.rglob("*.py"), *features, *(ROOT / "pages").glob("*.py"), ROOT / "app.py"]):
        place = str(file.relative_to(folder)) if file.is_relative_to(folder) else file.name
        tree = parsed(file)
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and node not in docstrings else None
            if isinstance(text, str) and TAG.search(text) and place not in MARKUP_HOMES:
                wrong.append(f"{place}:{node.lineno}: a tag in {text[:40]!r}; it belongs in ui/templates/")
            modules = [node.module] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if "html" in modules:
                wrong.append(f"{place}:{node.lineno}: a template escapes by itself")
    assert not wrong, "\n".join(wrong)


def test_every_chart_has_an_alternative_text() -> None:
    calls = [
        (file, node)
        for file in sources()
        if unit(file) == "ui"
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "plotly_chart"
    ]
    assert calls
    without = [(file.name, node.lineno) for file, node in calls if "alt" not in {key.arg for key in node.keywords}]
    assert not without, "who cannot see the chart is told nothing of it"


def test_replay_reads_no_clock_no_file_and_throws_no_dice(subtests: pytest.Subtests) -> None:
    for file in PURE:
        with subtests.test(file=file.stem):
            wrong = []
            for node in ast.walk(parsed(file)):
                if isinstance(node, ast.Import):
                    wrong += [alias.name for alias in node.names if alias.name.split(".")[0] in IMPURE_MODULES]
                elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in IMPURE_MODULES:
                    wrong.append(node.module or "")
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                    wrong.append(f"{node.func.id}() in line {node.lineno}")
                elif isinstance(node, ast.Attribute) and node.attr in IMPURE_ATTRIBUTES:
                    wrong.append(f".{node.attr} in line {node.lineno}")
            assert not wrong, f"{file.relative_to(ROOT)} must stay pure: {', '.join(wrong)}"


def test_the_purity_check_covers_every_module_that_replay_loads() -> None:
    loaded = loaded_by("cems_workbench.pipeline.replay")
    ours = {name for name in loaded if name.startswith(f"{PACKAGE}.pipeline.")}
    checked = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in PURE}
    # bundle reads and writes files, and stands beside replay: the package offers both.
    assert ours - checked == {f"{PACKAGE}.pipeline.bundle"}


@cache
def loaded_by(module: str) -> set[str]:
    """The modules in memory after importing one, in a fresh interpreter."""
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_replay_loads_no_model_and_no_store() -> None:
    loaded = loaded_by("cems_workbench.pipeline.replay")
    unwanted = sorted(
        set(HEAVY) & loaded | {name for name in loaded if name.startswith((f"{PACKAGE}.store", f"{PACKAGE}.models"))}
    )
    assert not unwanted, f"cems_workbench.pipeline.replay loads {', '.join(unwanted)}"


@pytest.mark.parametrize(
    "module",
    ["cems_workbench.cli", "cems_workbench.settings", "cems_workbench.jobs.factory", "cems_workbench.jobs.diagnosis"],
)
def test_starting_up_loads_nothing_heavy(module: str) -> None:
    """The first page and `--help` appear before torch, Chroma and DuckDB are read from disk."""
    unwanted = sorted(set(HEAVY) & loaded_by(module))
    assert not unwanted, f"{module} loads {', '.join(unwanted)}"


def test_the_first_page_loads_what_it_draws(tmp_path: Path) -> None:
    """The page of a store with a memory, drawn in a fresh process; the background loads models two seconds later."""
    code = """
import os, sys
from pathlib import Path
from streamlit.testing.v1 import AppTest
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store
with Store.open(Path(os.environ["CEMS_WORKBENCH_STORE"])) as store:
    store.add(ParsedInput("tea", "test", (Memory(id="m", content="tea"),)))
before = set(sys.modules)
page = AppTest.from_file("app.py", default_timeout=60).run()
print(*(set(sys.modules) - before))
assert not page.exception and page.text_input(key="inspect:query")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CEMS_WORKBENCH_STORE": str(tmp_path / "store")}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    loaded = set(run.stdout.split())
    assert f"{PACKAGE}.ui.inspect.toolbar" in loaded
    later = ("analysis", "evaluation", "formats", "tuning", "jobs.background", "pipeline.gather", "ui.inspect.views")
    unwanted = {name for name in loaded if name.startswith(tuple(f"{PACKAGE}.{part}" for part in later))}
    unwanted |= loaded & {"chromadb", "onnxruntime", "tokenizers", "torch", "plotly", "rapidfuzz"}
    assert not unwanted, f"the first page loads {', '.join(sorted(unwanted))}"


def test_doctor_loads_nothing_that_ranks() -> None:
    loaded = loaded_by(f"{PACKAGE}.jobs.diagnosis")
    later = ("analysis.why", "analysis.edited_evidence", "tuning", "pipeline.gather", "formats")
    unwanted = {name for name in loaded if name.startswith(tuple(f"{PACKAGE}.{part}" for part in later))}
    unwanted |= loaded & {"onnxruntime", "tokenizers", "rapidfuzz"}
    assert not unwanted, f"doctor loads {', '.join(sorted(unwanted))}"


def test_postgresqls_text_search_is_imported_only_in_functions() -> None:
    """By what a config asks for; the modules over it import it at their head, and are imported in functions themselves."""
    over = ("store.search.postgres", "pipeline.lexical_engines.ts_rank_cd")
    lazy = ("pg_text_search", *(f"{PACKAGE}.{name}" for name in over))
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (ROOT / PACKAGE).rglob("*.py")
        if not module_name(file).startswith(lazy)
        for node in parsed(file).body
        if isinstance(node, ast.ImportFrom)
        and any(f"{node.module}.{alias.name}".startswith(lazy) for alias in node.names)
    ]
    assert not wrong, ", ".join(wrong)


def test_the_command_line_starts_without_the_pipeline() -> None:
    """A command imports what it works with when it runs: what its module imports, every command waits for."""
    loaded = loaded_by(f"{PACKAGE}.cli")
    unwanted = {"numpy", "pydantic"} & loaded | {
        name
        for name in loaded
        if re.match(rf"{PACKAGE}\.(pipeline|analysis|evaluation|tuning|store|models|runs)\b", name)
    }
    assert not unwanted, f"{PACKAGE}.cli loads {', '.join(sorted(unwanted))}"
