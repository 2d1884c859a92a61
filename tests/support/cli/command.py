"""The command `gkm` as a person runs it, in a process of its own."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from gkm_cli.main import main
from support.host import fork_server
from support.host.fork_server import startup
from support.host.waiting import scaled
from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey

SECONDS = scaled(120.0)
"""For one command."""
_STARTUP = startup(os.environ)
_IMPORTED = "support.cli.imported_gkm:main"
KEY = SigningKey()
CACHE = Path(__file__).parents[2] / "data" / "triton-cache"


def gkm(*arguments: object, env: dict[str, str] | None = None, typed: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, forked from one that has imported it where that changes nothing.

    `typed` is its standard input.
    """
    environment = dict(os.environ) if env is None else env
    words = [str(argument) for argument in arguments]
    if startup(environment) == _STARTUP:
        return forked(words, environment, typed=typed)
    command = [sys.executable, "-m", "gkm_cli.main", *words]
    done = subprocess.run(command, input=typed, capture_output=True, timeout=SECONDS, check=False, env=environment)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def forked(
    words: Sequence[str], environment: dict[str, str], user: tuple[str, ...] = (), typed: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run the command in a fork of a process that starts as one in `environment` would, by the command `user`."""
    return fork_server.server(_IMPORTED, environment, user).run(words, environment, SECONDS, typed)


def gkm_in_this_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, for hundreds of examples."""
    typed, out, err = ["gkm", *map(str, arguments)], io.StringIO(), io.StringIO()
    nothing = io.TextIOWrapper(io.BytesIO())
    code: object = 0
    within = (patch.object(sys, "argv", typed), patch.object(sys, "stdin", nothing))
    with ExitStack() as stack:
        for each in (*within, redirect_stdout(out), redirect_stderr(err)):
            stack.enter_context(each)
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(typed, code, out.getvalue(), err.getvalue())


def pushed(registry_server: Registry, name: str = "vector-add") -> str:
    """Build and push the real Triton cache; return the image, pinned."""
    ref = f"{registry_server.host}/team/{name}:1"
    done = gkm("cache", "build", CACHE, "--image", ref, "--push", "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    return f"{registry_server.host}/team/{name}@{json.loads(done.stdout)['digest']}"


def content(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
