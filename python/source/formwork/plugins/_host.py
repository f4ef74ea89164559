"""The versions of the packages that the plug-ins are made for."""

from __future__ import annotations

from importlib import metadata

__all__ = ["SERIES", "require"]

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
