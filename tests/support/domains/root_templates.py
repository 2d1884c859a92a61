"""/templates, where NVIDIA's compute-domain-controller reads its templates: the path is fixed in its code.

A symbolic link to the module's own directory, shared by all tests of this machine: each user holds a lock, and the
last one removes the link. A test run that was killed leaves the link; the next one takes it over.
"""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.peers.missing import Missing

LINK = Path("/templates")
_LOCKS = Path(tempfile.gettempdir())
_CHANGE, _USE = _LOCKS / "gkm-test-templates.change", _LOCKS / "gkm-test-templates.use"
"""Locks: to change the link, held for moments, and to use it, shared by its users."""


@contextmanager
def linked(templates: Path) -> Iterator[None]:
    """Let /templates lead to a directory until the block ends.

    Raises:
        Missing: this user may not make it, or something else is there.
    """
    with _USE.open("a") as use:
        with _changing():
            _link(use.fileno(), templates)
            fcntl.flock(use, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with _changing():
                if _is_unused(use.fileno()):
                    LINK.unlink(missing_ok=True)


@contextmanager
def _changing() -> Iterator[None]:
    with _CHANGE.open("a") as change:
        fcntl.flock(change, fcntl.LOCK_EX)
        yield


def _link(use: int, templates: Path) -> None:
    if _is_unused(use) and LINK.is_symlink():
        LINK.unlink()
    if not LINK.exists():
        try:
            LINK.symlink_to(templates)
        except OSError as error:
            raise Missing(f"compute-domain-controller reads {LINK}, which cannot be made here: {error}") from error
    if not LINK.is_symlink() or LINK.resolve() != templates.resolve():
        raise Missing(f"compute-domain-controller reads {LINK}, and what is there is not {templates}")


def _is_unused(use: int) -> bool:
    """Return whether no other test uses the link, and hold the lock then."""
    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
