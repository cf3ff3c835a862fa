"""docs/reference/targets.md: the targets of targets.json, and the settings of each of targets.csv with where they are set."""

from __future__ import annotations

from cems_workbench.config import FieldSpec, preset
from cems_workbench.config.forms.targets import NAMED, SYSTEMS, ExportName, System, exported
from cems_workbench.jobs.tuning import HOW_MANY, gathers_anew, tunable
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.tuning.space import axis_for
from docs.reference_pages.markdown import code, notice, table, table_cell

HEAD = f"""\
# Targets

The systems that a config runs in. `connect` knows the target by the kind of source, `import` and `tune` take `--target`, Tune asks for it
first. From it follow the preset that such a store is ranked with, the parameters that are tuned, and the format of the export with what is
there anyway: of the target's programs the one nearest to the config. Every other parameter is fixed there. A search tunes what is marked
*tuned*; a setting that is idle under the target's first preset is tuned where another config uses it.

{notice("cems_workbench/config/forms/targets.json and targets.csv")}
"""


def document() -> str:
    """The whole page as Markdown."""
    return HEAD + "\n".join(map(_section, SYSTEMS.values()))


def _section(system: System) -> str:
    facts = [
        f"`--target {system.name}`. Programs: {', '.join(map(code, system.presets))}. Export: `--format {system.form}`. "
        f"{system.about}"
    ]
    facts += [f"From its source: `{path}` is `FOLDER/{place}`." for path, place in system.needs.items()]
    rows = [
        (code(export.name), code(spec.path), code(export.where), _tuned(system, spec, export))
        for spec, export in exported(system.form)
    ]
    return f"\n## {system.title}\n\n{' '.join(facts)}\n\n{table(('setting', 'parameter', 'file and line', 'in a search'), rows)}"


def _tuned(system: System, spec: FieldSpec, export: ExportName) -> str:
    plain = preset(system.presets[0]).config
    if spec.path in tunable(system, plain):
        return f"only with `--space {spec.path}`" if spec.path in HOW_MANY else "tuned"
    if export.codec in NAMED or spec.type is str:
        return "chooses a part or a model"
    if spec.cost == "gather" or gathers_anew(plain, axis_for(spec.path)):
        return "needs new evidence at every value"
    return table_cell(idle_parameters(plain).get(spec.path, "no effect with one list and no further wordings"))
