"""The versions of the packages that the plug-ins are made for, and the variables that turn them on."""

from __future__ import annotations

import os
from importlib import metadata

__all__ = ["SERIES", "is_on", "require"]

# The series of each package whose classes the tests drive (python/plugins_test.sh); they are no public API, so
# another series may work otherwise without an error.
SERIES = {
    "vllm": "0.33",
    "sglang": "0.5.23",
    "outlines": "1.3",
    "llama-cpp-python": "0.3",
    "mlx-lm": "0.32",
}


def require(package: str) -> None:
    """Checks that a package is installed in the series that its plug-in is made for.

    Raises:
        ImportError: it isn't; the message names the series and how to install it.
    """
    series = SERIES[package]
    install = f"pip install '{package}=={series}.*'"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"Formwork's plug-in for {package} needs {package} {series}: {install}") from None
    # Without a local part, as in 0.33.0+cu128.
    numbers = version.split("+")[0].split(".")
    wanted = series.split(".")
    if numbers[: len(wanted)] != wanted:
        raise ImportError(
            f"Formwork's plug-in for {package} is made for {package} {series}, not {version}: {install}, or do "
            "without the plug-in"
        )


def is_on(variable: str) -> bool:
    """True if an environment variable is 1, False if it is 0, empty or not set.

    Raises:
        ValueError: it is something else.
    """
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{variable} is {value[:40]!r}, but it must be 1 (on) or 0 (off)")
    return value == "1"
