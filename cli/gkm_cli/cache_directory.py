"""The directory for what this program can fetch again (XDG Base Directory Specification)."""

from collections.abc import Mapping
from pathlib import Path


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of GKM in the user's directory of caches; it may not exist."""
    named = environment.get("XDG_CACHE_HOME", "")
    # The specification: a relative path is invalid and ignored.
    root = Path(named) if named.startswith("/") else Path(environment.get("HOME") or Path.home()) / ".cache"
    return root / "gkm"
