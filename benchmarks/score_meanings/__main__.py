"""Run the probes that this Python can, print their facts, and compare them with the table."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path

import benchmarks.score_meanings as here


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where a fact differs from the table, or a probe fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.score_meanings", description=here.__doc__)
    parser.add_argument("probes", nargs="*", metavar="PROBE", help="probes to run; all by default")
    parser.add_argument("--json", action="store_true", help="print the facts alone, without a comparison")
    parser.add_argument("--write", action="store_true", help="record the facts in the table")
    options = parser.parse_args(arguments)
    for module in pkgutil.iter_modules(here.__path__):
        if not module.name.startswith("__"):
            importlib.import_module(f"{here.__name__}.{module.name}")
    if unknown := set(options.probes) - here.PROBES.keys():
        parser.error(f"no probe {', '.join(sorted(unknown))}; there are {', '.join(sorted(here.PROBES))}")
    measured: dict[str, here.Facts] = {}
    by: dict[str, here.Probe] = {}
    failed = 0
    for name, each in here.PROBES.items():
        if options.probes and name not in options.probes:
            continue
        if each.lacking:
            print(f"{name}: not run: {', '.join(each.lacking)} not installed", file=sys.stderr)
            continue
        try:
            found = each.run()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            failed += 1
            continue
        measured |= found
        by |= dict.fromkeys(found, each)
        print(f"{name}: run with {each.versions}", file=sys.stderr)
    if options.json:
        print(json.dumps(measured, indent=1, ensure_ascii=False))
        return 1 if failed else 0
    from cems_workbench.sources.score_meanings import FACTS, differences

    lines = differences(measured)
    print("\n".join(lines) or f"{len(measured)} rows as recorded")
    if options.write:
        path = Path(str(FACTS))
        known = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        for key, facts in measured.items():
            known[key] = {"versions": by[key].versions, "probe": by[key].name, "seen": facts}
        path.write_text(json.dumps(dict(sorted(known.items())), indent=1, ensure_ascii=False) + "\n", "utf-8")
        return 1 if failed else 0
    return 1 if lines or failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
