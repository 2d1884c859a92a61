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


@contextmanager
def linked(templates: Path, link: Path = LINK, locks: Path = _LOCKS) -> Iterator[None]:
    """Let the link lead to a directory until the block ends.

    `locks` has two files for the link: a lock to change it, held for moments, and one of its users, which they share.

    Raises:
        Missing: this user may not make it, or something else is there.
    """
    change, use_path = (locks / f"gkm-test-{link.name}.{purpose}" for purpose in ("change", "use"))
    with use_path.open("a") as use:
        with _changing(change):
            _link(use.fileno(), templates, link)
            fcntl.flock(use, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with _changing(change):
                if _is_unused(use.fileno()):
                    link.unlink(missing_ok=True)


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _link(use: int, templates: Path, link: Path) -> None:
    if _is_unused(use) and link.is_symlink():
        link.unlink()
    if not link.exists():
        try:
            link.symlink_to(templates)
        except OSError as error:
            raise Missing(f"compute-domain-controller reads {link}, which cannot be made here: {error}") from error
    if not link.is_symlink() or link.resolve() != templates.resolve():
        raise Missing(f"compute-domain-controller reads {link}, and what is there is not {templates}")


def _is_unused(use: int) -> bool:
    """Return whether no other test uses the link, and hold the lock then."""
    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
