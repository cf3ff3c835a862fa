"""What benchmarks/answers.py records besides the command line: the Python API, MCP, the pages under AppTest, and the registries.

Each function of a part yields names and texts, from the store `s` in the present folder. Nothing of the package is imported but
`cems_workbench` itself, whose names are public; app.py is run, `cems_workbench mcp` is asked over standard input and output, and
docs.make_reference says what is registered.
"""

from __future__ import annotations

import inspect
import json
import os
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, get_args, get_type_hints

NOW = "2026-09-01"
FAILING, LOST = "browser eats all the RAM if I leave it open until evening", "m089"
MOVING, STAYING, STALE = "when are we moving house", "m312", "m249"
Answers = Iterator[tuple[str, str]]


# The Python API


def shown(value: Any) -> str:
    """All that a result has: as text, as HTML, its public attributes, and its JSON."""
    import cems_workbench as wb

    parts = [repr(value), str(value)]
    for name in sorted(each for each in dir(value) if not each.startswith("_")):
        with suppress(AttributeError):
            one = getattr(value, name)
            if isinstance(one, wb.Table):
                parts.append(f".{name} {one.title}\n{one.to_pandas().to_csv()}")
            elif isinstance(one, tuple) and one and isinstance(one[0], wb.Table):
                parts.append(f".{name}\n" + "\n".join(f"{each.title}\n{each.to_pandas().to_csv()}" for each in one))
            elif isinstance(one, str | int | float | tuple | list | dict | None):
                parts.append(
                    f".{name} = {json.dumps(one, default=lambda each: type(each).__name__, ensure_ascii=False)}"
                )
            elif callable(one):
                parts.append(f".{name}{signature(one)}")
            else:
                parts.append(f".{name}: {type(one).__name__}")
    if isinstance(value, wb.Result):
        parts += [value.to_pandas().to_csv(), value._repr_html_()]
    if hasattr(value, "to_json"):
        parts.append(json.dumps(value.to_json(), indent=1, ensure_ascii=False, default=str))
    return "\n".join(parts) + "\n"


def signature(function: Callable[..., Any]) -> str:
    """The arguments of a function, as far as they can be read."""
    try:
        return str(inspect.signature(function))
    except ValueError:
        return "(…)"


def asked(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """What a call of the API returns or raises, and what it warns of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            text = shown(call(*arguments, **named))
        except Exception as error:
            text = f"{type(error).__name__}: {error}\n"
    return text + "".join(f"{each.category.__name__}: {each.message}\n" for each in said)


def api_query() -> Answers:
    """One query: search, replay, why, blame, what-if."""
    import cems_workbench as wb

    with wb.open_store("s") as store:
        yield "open_store", asked(lambda: store)
        for preset in ("workbench", "cems"):
            answer = wb.search(store, MOVING, preset, as_of=NOW)
            yield f"search {preset}", shown(answer)
            yield f"journey {preset}", shown(answer.journey(STAYING))
            yield f"side_by_side {preset}", shown(answer.side_by_side({STAYING: 3}))
            yield f"replay {preset}", asked(wb.replay, answer, wb.load_config(preset, {"fusion.k": 20}))
            yield f"why {preset}", asked(wb.why, answer, STAYING, store=store)
            yield f"why without store {preset}", asked(wb.why, answer, STAYING, k=1)
        yield "counterfactual", shown(wb.why(answer, STAYING, store=store, k=3).counterfactual())
        yield "what_if without", asked(wb.what_if, store, answer, without=STALE)
        yield "what_if text", asked(wb.what_if, store, answer, text="We move house on 3 October.", title="Move")
        yield "blame", asked(wb.blame, store, "We move house on 1 October. The kettle is red.", answer)
        yield "blame text", asked(wb.blame, store, "We move house on 1 October.", returned=True)
        yield (
            "search project",
            asked(wb.search, store, "deploy", project="harbor/api", only_project=True, as_of=NOW, variants=["rollout"]),
        )
        yield "supersessions", asked(wb.supersessions, store, most=20)
        yield "memory", asked(store.memory, STALE)
        yield "queries", asked(lambda: store.queries("few", judged=True))
        yield "imports", asked(lambda: store.imports())
        yield "plan_undo", asked(lambda: store.plan_undo())
        for name, call in (
            ("empty query", lambda: wb.search(store, " ")),
            ("unknown preset", lambda: wb.search(store, "tea", "cemss")),
            ("unknown memory", lambda: wb.why(answer, "none")),
            ("no store", lambda: wb.open_store("none")),
            ("unknown parameter", lambda: wb.load_config("cems", {"fusion.kk": 1})),
            ("bad value", lambda: wb.load_config("cems", {"fusion.k": -1})),
            ("unknown set", lambda: wb.gather(store, "none")),
        ):
            yield f"error {name}", asked(call)


def api_set() -> Answers:
    """A query set: gather, evaluate, compare, drift, memory use, tune."""
    import cems_workbench as wb

    with wb.open_store("s") as store:
        evidence = wb.gather(store, "few", "cems")
        yield "gather", shown(evidence)
        before = wb.evaluate(evidence)
        yield "evaluate", shown(before)
        yield "per_query", shown(before.per_query)
        yield "to_run", json.dumps(before.to_run(), indent=1)
        yield "losses", asked(before.losses, 5)
        yield "evaluate measures", asked(wb.evaluate, evidence, "cems", "hit@5 nDCG@10", grade=2)
        after = wb.evaluate(evidence, wb.load_config("cems", {"lists.vector.weight": 2.0}))
        compared = wb.compare(before, after)
        yield "compare", shown(compared)
        yield "compare losses", asked(compared.losses)
        yield "compare markdown", compared.to_markdown()
        yield "compare changed", asked(compared.changed)
        yield "compare verdict", asked(compared.verdict)
        yield "check", asked(wb.check, before, "hit@5>=0.99")
        yield "check compared", asked(wb.check, compared, "nDCG@10", cannot_tell="pass")
        yield "memory_use", asked(wb.memory_use, store, LOST, "cems", query_set="few")
        yield "memory_use hubs", asked(wb.memory_use, "in/few_cems.evidence", config="cems")
        yield "drift", asked(wb.drift, "in/few_cems.evidence", "in/few_workbench.evidence", "cems", k=5)
        yield "load_evidence", asked(wb.load_evidence, "in/few_workbench.evidence")
        yield (
            "tune",
            asked(wb.tune, "in/few_cems.evidence", "cems", trials=6, space=["fusion.k=10:120:5"], group_by="query"),
        )
        yield "load_evidence error", asked(wb.load_evidence, "in/answers/empty.jsonl")


# MCP

CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("overview", {}),
    ("find_memories", {"words": "kubectl"}),
    ("read_memory", {"memory_id": STAYING}),
    ("search", {"query": MOVING, "as_of": NOW, "config": "workbench", "limit": 15}),
    ("search", {"query": FAILING, "as_of": NOW, "config": "cems", "explain": True}),
    ("why", {"query": MOVING, "memory_id": STAYING, "as_of": NOW, "config": "workbench"}),
    ("why", {"query": FAILING, "memory_id": LOST, "as_of": NOW, "config": "cems"}),
    ("blame", {"text": "We move house on 1 October.", "query": MOVING, "as_of": NOW}),
    ("what_if", {"query": MOVING, "changes": {"fusion.k": 1}, "memory_id": STAYING, "as_of": NOW, "config": "cems"}),
    ("what_if_memory", {"query": MOVING, "memory_id": "m001", "content": "We move house on 3 October.", "as_of": NOW}),
    ("what_if_memory", {"query": MOVING, "memory_id": STALE, "absent": True, "as_of": NOW}),
    ("parameters", {}),
    ("parameters", {"section": "fusion", "limit": 100}),
    ("parameters", {"words": "decay"}),
    ("evaluate", {"query_set": "few", "config": "cems"}),
    ("compare", {"query_set": "few", "config": "cems", "changes": {"lists.vector.weight": 2.0}}),
    ("memory", {"memory_id": LOST, "query_set": "few", "config": "cems"}),
    ("memory", {"query_set": "few", "config": "cems"}),
    ("losses", {"query_set": "few", "config": "cems"}),
    ("losses", {"query_set": "few", "config": "cems", "against": {"lists.vector.weight": 2.0}}),
    ("label", {"memory_id": STAYING, "grade": 2, "query": MOVING}),
    ("undo_label", {}),
    ("search", {"query": " "}),
    ("search", {"query": "tea", "config": "cemss"}),
    ("search", {"query": "tea", "changes": {"fusion.kk": 1}}),
    ("why", {"query": "tea", "memory_id": "none"}),
    ("evaluate", {"query_set": "none"}),
    ("read_memory", {"memory_id": "none"}),
    ("label", {"memory_id": "none", "grade": 9, "qid": "q01"}),
)


def mcp() -> Answers:
    """The tools and what each of them replies."""
    import anyio
    from mcp import Client, StdioServerParameters

    async def replies() -> list[tuple[str, str]]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "cems_workbench", "mcp", "--write", "--store", "s"],
            env={**os.environ},
            cwd=Path.cwd(),
        )
        found = []
        async with Client(server, mode="legacy") as client:
            for tool in (await client.list_tools()).tools:
                found.append((f"tool {tool.name}", tool.model_dump_json(indent=1)))
            for number, (name, arguments) in enumerate(CALLS, 1):
                reply = await client.call_tool(name, dict(arguments))
                text = "\n".join(str(getattr(each, "text", each)) for each in reply.content)
                with suppress(ValueError):
                    text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
                question = f"{name} {json.dumps(arguments)}\nerror: {reply.is_error}\n"
                found.append((f"{number:02} {name}", f"{question}{text}\n"))
        return found

    yield from anyio.run(replies)


# Pages


class App:
    """The app under AppTest on a page."""

    def __init__(self, page: str = "inspect") -> None:
        from streamlit.testing.v1 import AppTest

        self.test: Any = AppTest.from_file(str(Path(os.environ["PYTHONPATH"]) / "app.py"), default_timeout=150)
        self.test.session_state["inspect:form"] = "Cards"
        self.test.run()
        if page != "inspect":
            self.test.switch_page(f"pages/{page}.py").run()

    def state(self, values: Mapping[str, Any]) -> App:
        """Set values of the session and draw."""
        for key, value in values.items():
            self.test.session_state[key] = value
        self.test.run()
        return self

    def find(self, kind: str, name: str) -> Any:
        """The first element of a kind with this key or label; None if it is not there."""
        elements = (each for each in (*self.test.main, *self.test.sidebar) if each.type == kind)
        return next((each for each in elements if name in (each.key, getattr(each, "label", None))), None)

    def give(self, kind: str, name: str, value: Any) -> App:
        """Fill in a widget, if it is there."""
        widget = self.find(kind, name)
        if widget is not None:
            widget.set_value(value).run()
        return self

    def press(self, name: str) -> bool:
        """Press a button; whether it was there to be pressed."""
        button = self.find("button", name)
        if button is None or button.disabled:
            return False
        button.click().run()
        return True

    def options(self, name: str, kind: str = "button_group") -> list[str]:
        """What a switch offers; nothing if it is not there."""
        return list(getattr(self.find(kind, name), "options", ()))

    def text(self, *parts: str) -> str:
        """The elements of the page, or of these parts of it."""
        lines: list[str] = []
        for part in parts or ("main",):
            write_tree(getattr(self.test, part), 0, lines)
        return "\n".join(lines) + "\n"

    def each(self, key: str, name: str) -> Answers:
        """The page with each choice of a switch."""
        for choice in self.options(key):
            self.state({key: choice})
            yield f"{name} {choice}".replace("/", " "), self.text()

    def unfolded(self, closed: str = "") -> str:
        """Page and sidebar with all that can be folded or hidden open, twice over, but for one."""
        for _ in range(2):
            blocks = [
                each
                for each in (*self.test.main, *self.test.sidebar)
                if each.type in ("popover", "expander", "expandable")
            ]
            self.state({each.key: True for each in blocks if each.key and each.key != closed})
        return self.text("main", "sidebar")


def write_tree(node: Any, depth: int, lines: list[str]) -> None:
    """The lines of an element and of what is in it."""
    indent = " " * depth
    if hasattr(node, "children"):
        if node.type not in ("flex_container", "container", "vertical"):
            lines.append(f"{indent}{node.type} {getattr(node, 'label', '')}".rstrip())
        for child in node.children.values():
            write_tree(child, depth + 1, lines)
        return
    proto = node.proto
    if node.type == "html":
        body = str(proto.body)
        asset = body.lstrip().startswith(("<style", "<script"))
        lines.append(f"{indent}asset" if asset else f"{indent}html {body}")
    elif node.type == "dataframe":
        lines.append(f"{indent}table {proto.columns}\n{node.value.to_csv()}".rstrip())
    elif node.type == "plotly_chart":
        lines.append(f"{indent}chart {proto.spec}")
    elif type(node).__name__ == "UnknownElement":
        lines.append(
            f"{indent}{node.type} " + " ".join(line for line in str(proto).splitlines() if not line.startswith("id:"))
        )
    else:
        said = [f"{indent}{node.type}"]
        for name in ("label", "value", "help", "options", "min", "max", "step", "placeholder", "disabled"):
            value = getattr(node, name, None)
            if value not in (None, "", False, []) and not (
                name in ("min", "max") and isinstance(value, date)
            ):  # years from now
                said.append(f"{name}={value!r}")
        lines.append(" ".join(said))


STEPS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "Blame": (
        ("text_area", "What the agent said", "We move house on 1 October. The kettle is red."),
        ("button", "Find the memories behind it", ""),
    ),
    "What if it were different?": (("button", "Try", ""),),
    "Text evidence": (("button", "Compare token by token", ""),),
    "Against production": (("text_area", "Answer of production", "m312\nm249\nm050\n"),),
    "Expansion": (("text_input", "Another variant of the query", "leave the flat"), ("button", "Search this too", "")),
}
"""What is filled in and pressed in a tool of Inspect: kind, label, value."""


def inspect_page(query: str = MOVING, memory_id: str = STAYING, preset: str = "workbench") -> Answers:
    """Inspect: the ranking in both forms, every view, every tool, and all that can be opened."""
    app = App()
    yield "empty", app.text("main", "sidebar")
    app.state({"inspect:as_of": date.fromisoformat(NOW)}).give("selectbox", "Preset", preset)
    app.give("text_input", "inspect:query", query)
    yield "ranking", app.text("main", "sidebar")
    app.state({"inspect:form": "Side by side"})
    yield "side by side", app.text()
    app.state({"inspect:form": "Cards"})
    follow = next((each for each in app.options("inspect:follow", "selectbox") if each.startswith(memory_id)), None)
    if follow:
        app.find("selectbox", "inspect:follow").select(follow).run()
    yield from app.each("inspect:view", "view")
    section = app.options("inspect:section")[-1]
    for tool in app.options("inspect:tool") or app.state({"inspect:section": section}).options("inspect:tool"):
        app.state({"inspect:section": section, "inspect:tool": tool})
        yield f"tool {tool}", app.text()
        for kind, label, value in STEPS.get(tool, ()):
            app.press(label) if kind == "button" else app.give(kind, label, value)
        if tool in STEPS:
            yield f"tool {tool} used", app.text()
    yield "unfolded", app.unfolded(closed="inspect:picker")  # which searches every query


def inspect_traced() -> Answers:
    """Inspect on a query of another pipeline's traces."""
    run(f"search '{MOVING}' --as-of {NOW} --preset cems --bundle b.json")
    run("replay b.json --preset cems --spans traced.jsonl")
    run("import traced.jsonl --store n")
    os.environ["CEMS_WORKBENCH_STORE"] = str(Path("n").resolve())
    query = json.loads(run("judgments --format queries-jsonl --query-set traced --store n"))
    app = App()
    yield "opened", app.unfolded()
    held = app.test.session_state["inspect:state"]
    traced = get_args(get_type_hints(type(held))["traced"])[0]  # a table's click, which AppTest has not
    app.state({"inspect:state": replace(held, traced=traced("traced", query["qid"], MOVING)), "inspect:query": MOVING})
    yield "stages", app.text("main", "sidebar")
    yield from app.each("inspect:view", "view")
    section = app.options("inspect:section")[-1]
    app.state({"inspect:section": section, "inspect:why:chosen": (MOVING, STAYING)})
    yield "why", app.text()


def evaluate_page() -> Answers:
    """Evaluate: each view of a set under two presets, recorded answers, and over time."""
    for line in ("import in/answers/hook_events.jsonl", "watch few --preset cems"):
        run(line)
    app = App("evaluate")
    yield "opened", app.text()
    app.give("selectbox", "evaluate:set", "few").give("multiselect", "evaluate:configs", ["cems", "workbench"])
    app.press("evaluate:gather")
    yield from app.each("evaluate:view", "view")
    yield "unfolded", app.unfolded()
    yield from app.each("evaluate:against", "against")


def tune_page() -> Answers:
    """Tune: the set-up, a search, and each view of what it found."""
    app = App("tune")
    app.give("selectbox", "tune:set", "few")
    app.press("tune:gather")
    app.give("selectbox", "tune:group_by", "query").give("number_input", "tune:trials", 8)
    app.give("multiselect", "tune:paths", ["fusion.score_blend"])
    yield "opened", app.unfolded()
    if app.press("tune:start"):
        for _ in range(120):
            time.sleep(0.5)
            app.test.run()
            if app.options("tune:view") and app.find("button", "Stop") is None:
                break
    yield from app.each("tune:view", "view")


def label_page() -> Answers:
    """Label: each view, at work on a queue."""
    app = App("label")
    yield "opened", app.text()
    app.give("text_input", "reviewer:name", "ada")
    yield from app.each("label:view", "view")
    yield "unfolded", app.unfolded()


def memories_page() -> Answers:
    """Memories: each view, a search, and a memory."""
    app = App("memories")
    yield from app.each("memories:view", "view")
    app.state({"memories:view": "Browse"}).give("text_input", "memories:find:text", "kubectl")
    yield "found", app.text()
    with suppress(KeyError, TypeError):
        app.state({"memories:state": replace(app.test.session_state["memories:state"], selected=STAYING)})
        yield "memory", app.unfolded()


def memories_source() -> Answers:
    """Memories on a store that follows a live source, and Inspect with its lists."""
    address = f"sqlite:{Path('in/stores/langgraph_sqlite/store.sqlite').resolve()}"
    run(f"connect {address} --store n")
    os.environ["CEMS_WORKBENCH_STORE"] = str(Path("n").resolve())
    app = App("memories")
    for view in ("Sources", "Store", "Browse"):
        app.state({"memories:view": view})
        yield view, app.text()


def run(line: str) -> str:
    """What a command prints, which goes before a page."""
    command = [sys.executable, "-m", "cems_workbench", *shlex.split(line)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# Registries


def registries() -> Answers:
    """What the generated pages of the documentation say of parameters, presets, measures, sources and scores; schemas; exported names."""
    import cems_workbench as wb
    from docs.make_reference import PAGES

    for name, document in PAGES.items():
        yield name, document()
    yield "config schema", json.dumps(wb.PipelineConfig.model_json_schema(), indent=1, ensure_ascii=False)
    names = []
    for name in wb.__all__:
        one = getattr(wb, name)
        call = signature(one) if callable(one) else ""
        names.append(f"{name}{call}\n    {(inspect.getdoc(one) or '').replace(chr(10), chr(10) + '    ')}\n")
    yield "python", "\n".join(names)


SURFACES: Mapping[str, Mapping[str, Callable[[], Answers]]] = {
    "api": {"query": api_query, "set": api_set},
    "mcp": {"stdio": mcp},
    "pages": {
        "inspect": inspect_page,
        "inspect cems": lambda: inspect_page(FAILING, LOST, "cems"),
        "inspect traced": inspect_traced,
        "evaluate": evaluate_page,
        "tune": tune_page,
        "label": label_page,
        "memories": memories_page,
        "memories source": memories_source,
    },
    "registries": {"all": registries},
}
"""The answers of each part, by the case that they come from."""
