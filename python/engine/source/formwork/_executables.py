"""Where the wheel's executables are."""

from __future__ import annotations

import os
import sys
import sysconfig


def find(name: str) -> str:
    """Path of one of the executables that this package brings: in the folder of scripts of its environment.

    Raises `FileNotFoundError` where it isn't.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),
        # Of `pip install --user`.
        sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
        # Of `pip install --target FOLDER`.
        os.path.join(os.path.dirname(here), "bin"),
        # Of another environment, whose packages this one sees: <prefix>/lib/python3.X/site-packages/formwork.
        os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(here)))), "bin"),
        os.path.dirname(sys.executable),
    ]
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"{name} is in none of {', '.join(folders)}: install the wheel formwork again")
