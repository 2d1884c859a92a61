"""`make demo` needs no root: its mounts lie in a user and mount namespace of their own."""

import os
import site
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.peers import require

NOBODY = 65534
ROOTS = ("scripts", "tests", "core", "agent", "csi", "operator", "cli")


def test_every_step_comes_true() -> None:
    require.gcc()
    done = _demo()
    assert (done.returncode, done.stderr) == (0, "")
    assert "All of it came true" in done.stdout


@pytest.mark.usefixtures("as_root")  # to become another user
def test_an_unprivileged_user_sees_every_step_with_publish_and_unpublish() -> None:
    require.gcc()
    done = _demo(NOBODY)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NodePublishVolume" in done.stdout
    assert "NodeUnpublishVolume" in done.stdout
    assert "All of it came true. " in done.stdout


def _demo(user: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run the demo as this user or another one; none of its mounts may be seen outside or left."""
    # A short path, since it holds the socket of the CSI driver: 107 bytes at most (unix(7)).
    with tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as home:
        if user is not None:
            os.chown(home, user, user)
        done = subprocess.run(
            [sys.executable if user is None else _interpreter(), "-m", "demo.local"],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            env=_environment(Path(home)),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert home not in Path("/proc/self/mountinfo").read_text()
    return done


def _interpreter() -> Path:
    """Return a Python of this version that any user can start; the one of the virtual environment may be private."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path("/usr/bin", version)):
        if path.exists() and all(parent.stat().st_mode & 0o001 for parent in path.parents):
            return path
    return require.absent(f"needs a {version} that every user may start (Debian: {version})")


def _environment(home: Path) -> dict[str, str]:
    root = Path(__file__).parents[2]
    paths = [*(str(root / name) for name in ROOTS), *site.getsitepackages()]
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
