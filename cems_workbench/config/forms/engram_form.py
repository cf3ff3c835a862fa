"""A config as the constants of engram's source, each with the file that it is in.

engram reads none of them from a setting: tuning it means to edit the file. A constant that differs has the value at `HEAD` behind it. What
no constant sets is listed in comments.

Source: engram (claude-memory) at 10a2fe6, processor/recollection-writer.ts.
"""

from __future__ import annotations

import json
import re

from cems_workbench.config.export_names import RECOLLECTION, TARGET_PRESETS
from cems_workbench.config.forms.codecs import Plain
from cems_workbench.config.forms.sheet import Reading, exported, filled, lay_over, leftover
from cems_workbench.config.forms.yaml_form import commented
from cems_workbench.config.model import PipelineConfig
from cems_workbench.config.presets import preset
from cems_workbench.errors import InputError

HEAD = "10a2fe6"
INTRODUCTION = (
    f"Constants of engram's recollection at {HEAD}: FILE: CONSTANT = VALUE. engram has no setting for them;\nedit the file and restart the "
    "daemon. memory_recall (mcp/server.ts) and memory_search (mcp/search.ts)\nhave separate constants, which these do not change."
)
_LINE = re.compile(rf"^({re.escape(RECOLLECTION)}: .+?) = (.+?)(?:\s+# .*)?$", re.MULTILINE)


def dump_engram(config: PipelineConfig, header: str = "") -> str:
    """The constants, a line each. `header` (name, evidence card) comes first, as comments."""
    sheet = filled(config, "engram", _written)
    usual = filled(preset(TARGET_PRESETS["engram"]).config, "engram", _written).read
    lines = [
        f"{name} = {text}" + (f"   # {usual[name]} at {HEAD}" if usual.get(name, text) != text else "")
        for name, text in sheet.read.items()
    ]
    return "\n".join(
        [
            commented(f"{header}\n{INTRODUCTION}"),
            "\n".join(lines) + "\n",
            commented(leftover(config, "engram", sheet, "constant")),
        ]
    )


def read_engram(text: str, present: PipelineConfig, source: str = "engram.txt") -> Reading:
    """Lay the constants over `present`. Raises InputError when there is none."""
    reading = Reading(present)
    known = {export.name: (spec, export) for spec, export in exported("engram")}
    found = _LINE.findall(text)
    if not found:
        raise InputError(f"{source}: no constant of engram is set in it")
    for name, value in found:
        if name in known:
            lay_over(reading, known[name], value.strip('"'), f"{source}: {name}")
        else:
            reading.warnings.append(f"{source}: {name[:80]}: no parameter of the pipeline; left out")
    return reading


def has_engram(text: str) -> bool:
    """Whether a text has a constant of engram."""
    return _LINE.search(text) is not None


def _written(value: Plain) -> str:
    return value if isinstance(value, str) else json.dumps(value)
