"""End a program that lacks its dependencies with one line: `pip install .` alone installs no dependency.

No dependency is required by default, because the CSI process installs only its own extra.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gkm.hoststate.command_line import installed_version


@contextmanager
def needed(program: str, extra: str) -> Iterator[None]:
    """End the process with exit code 1 and one line when a third-party module of `extra` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing.startswith("gkm"):
            raise
        if sys.argv[1:] == ["--version"]:  # it needs no extra
            sys.stdout.write(f"{program} {installed_version()}\n")
            return
        sys.stderr.write(
            f"{program}: the Python module {missing} is not installed; install GKM with the extra that this program "
            f"needs: pip install '.[{extra}]' in GKM's sources, or pip install 'gkm-VERSION.whl[{extra}]'\n"
        )
        raise SystemExit(1) from None
