"""What pip builds the wheel formwork by, from the source distribution that python/sdist.sh makes (PEP 517).

The wheel carries executables beside its extension module, so python/build.sh makes it: with Rust, and maturin as the packer.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[3]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return ["maturin>=1.9,<2"]


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None) -> str:
    """Builds the wheel into a folder; its name. WHEEL_PROFILE and FORMWORK_BIN are those of python/build.sh."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["bash", str(ROOT / "python/build.sh"), folder, "--compatibility", "linux"],
            check=True,
            env={**os.environ, "WHEELS": "python/engine/Cargo.toml"},
        )
        (wheel,) = pathlib.Path(folder).glob("formwork-*.whl")
        shutil.copy(wheel, wheel_directory)
        return wheel.name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    raise NotImplementedError("python/sdist.sh of the repository makes source distributions")
