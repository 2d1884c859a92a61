"""The installed version of GKM; all programs come from one package."""

from importlib import metadata


def version() -> str:
    """Return the version; `unknown` for sources that were never installed."""
    try:
        return metadata.version("gkm")
    except metadata.PackageNotFoundError:
        return "unknown"
