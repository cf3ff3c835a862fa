"""Configs in the forms other programs read: YAML, JSON, TOML and Python losslessly, and the words of the systems that have settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, get_args

from cems_workbench.config.export_names import TARGET_TITLES
from cems_workbench.config.forms.engram_form import dump_engram
from cems_workbench.config.forms.env_form import export_env
from cems_workbench.config.forms.mem0_form import dump_mem0
from cems_workbench.config.forms.python_form import dump_python
from cems_workbench.config.forms.toml_form import dump_toml
from cems_workbench.config.forms.yaml_form import commented, dump_config, nested
from cems_workbench.config.model import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import safe_stem

if TYPE_CHECKING:
    from cems_workbench.config.evidence_card import EvidenceCard

Form = Literal["yaml", "json", "toml", "env", "reranker-env", "ace-env", "mem0", "engram", "python"]
FORMS: tuple[Form, ...] = get_args(Form)
FORM_TITLES: dict[Form, str] = {
    "yaml": "YAML",
    "json": "JSON",
    "toml": "TOML",
    "env": ".env for CEMS",
    "reranker-env": ".env for the memory agent",
    "ace-env": ".env for ACE",
    "mem0": "Python for mem0",
    "engram": "constants of engram",
    "python": "Python",
}
_SUFFIXES = {
    "env": "cems.env",
    "reranker-env": "reranker.env",
    "ace-env": "ace.env",
    "mem0": "mem0.py",
    "engram": "engram.txt",
    "python": "py",
}


def export_config(config: PipelineConfig, form: Form | str, card: EvidenceCard | None = None) -> str:
    """The config as text with every key stated, headed by the evidence card where the form has comments.

    YAML, JSON, TOML and Python are read back to the same config; the forms of other systems hold what those can express and list the
    rest in comments. JSON has no comments: its card is a second file. Raises InputError on an unknown form.
    """
    if form not in FORMS:
        raise InputError(f"export to {form}: not known; allowed: {', '.join(FORMS)}")
    head = card.text if card else ""
    if form == "yaml":
        return dump_config(config, header=head)
    if form == "json":
        return json.dumps(nested(config), ensure_ascii=False, indent=2) + "\n"
    if form == "toml":
        return commented(head) + dump_toml(config)
    if form == "python":
        return commented(head) + dump_python(config)
    title = f"Config {config.name} of CEMS Workbench for {TARGET_TITLES[form]}"
    dump = {"mem0": dump_mem0, "engram": dump_engram}.get(form)
    return dump(config, f"{title}\n{head}") if dump else export_env(config, form, f"{title}\n{head}")


def file_name(config: PipelineConfig, form: str) -> str:
    """A file name for an export: the config's name and the form's suffix, safe on every system."""
    return f"{safe_stem(config.name, 'config')}.{_SUFFIXES.get(form, form)}"
