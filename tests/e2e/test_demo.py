"""`make demo` needs no root: its mounts lie in a user and mount namespace of their own."""

import os
import site
import subprocess
import sys
import tempfile
from pathlib import Path

from support.peers import require

NOBODY = 65534
ROOTS = ("scripts", "tests", "core", "agent", "csi", "operator", "cli")


def test_an_unprivileged_user_sees_every_step_with_publish_and_unpublish() -> None:
    require.root()  # to become another user
    require.gcc()
    # A short path, since it holds the socket of the CSI driver: 107 bytes at most (unix(7)).
    with tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as home:
        os.chown(home, NOBODY, NOBODY)
        done = _demo(Path(home))
    assert (done.returncode, done.stderr) == (0, "")
    assert "NodePublishVolume" in done.stdout
    assert "NodeUnpublishVolume" in done.stdout
    assert "All of it came true. " in done.stdout
    assert home not in Path("/proc/self/mountinfo").read_text()


def _demo(home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_interpreter(), "-m", "demo.local"],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env=_environment(home),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


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
