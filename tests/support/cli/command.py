"""The command `gkm` as a person runs it, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

from support.registry.server import Registry
from support.sigstore.key_signatures import SigningKey

KEY = SigningKey()
CACHE = Path(__file__).parents[2] / "data" / "triton-cache"


def gkm(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gkm_cli.main", *map(str, arguments)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False, env=env
    )


def pushed(registry_server: Registry, name: str = "vector-add") -> str:
    """Build and push the real Triton cache; return the image, pinned."""
    ref = f"{registry_server.host}/team/{name}:1"
    done = gkm("cache", "build", CACHE, "--image", ref, "--push", "--plain-http", "-o", "json")
    assert done.returncode == 0, done.stderr
    return f"{registry_server.host}/team/{name}@{json.loads(done.stdout)['digest']}"


def content(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
