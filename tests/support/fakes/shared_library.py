"""Libraries of vendors for tests, built by the C compiler: a process loads them as the real ones."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from support.host.waiting import scaled
from support.peers import build as peers

_OPTIONS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")


def build(sources: Path, name: str) -> Path:
    """Build `name` once for all tests, beside the partners, in a directory named after its sources; return that.

    `sources` is a directory with one C file. Several processes may build at once: each compiles beside and renames.

    Raises:
        RuntimeError: there is no C compiler, or it refused.
    """
    source = b"".join(path.read_bytes() for path in sorted(sources.iterdir()))
    key = hashlib.sha256(" ".join(_OPTIONS).encode() + source).hexdigest()[:16]
    directory = peers.cache_directory().parent / f"{sources.name}-{key}"
    library = directory / name
    if library.exists():
        return directory
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError(f"no C compiler here: {name} for tests needs gcc")
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f".{os.getpid()}.so"
    (file,) = sources.glob("*.c")
    result = subprocess.run(
        [compiler, *_OPTIONS, f"-Wl,-soname,{name}", "-o", str(unfinished), str(file)],
        capture_output=True,
        text=True,
        timeout=scaled(60),
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(f"{name} for tests was not built: {result.stderr.strip()}")
    unfinished.rename(library)
    return directory
