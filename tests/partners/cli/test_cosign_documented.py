"""Every line of docs/reference/cosign.md runs as it stands, with the real cosign 2 and 3 and without a network."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli.command import CACHE, gkm
from support.peers import build as peers
from support.peers import require
from support.registry.olareg import Olareg
from support.sigstore.cosign import Cosign, CosignFailed

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cosign.md"
LINES = re.findall(r"^\$ (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
NO_NETWORK = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:1")
"""A proxy that is not there: what goes beyond this machine fails. Loopback addresses never use one (Go, and we)."""


@pytest.fixture(params=["cosign2", "cosign"])
def cosign(request: pytest.FixtureRequest, tmp_path: Path) -> Cosign:
    require.peer(request.param)
    made = Cosign(tmp_path, request.param)
    made.run("generate-key-pair")
    return made


def pushed(olareg: Olareg, name: str) -> str:
    image = f"{olareg.host}/documented/{name}:1"
    done = gkm("cache", "build", CACHE, "--image", image, "--push")
    assert done.returncode == 0, done.stderr
    return image


def run(cosign: Cosign, line: str, image: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the page where the key pair is."""
    program, *arguments = shlex.split(line.replace("IMAGE", image))
    programs = {"cosign": [str(peers.binary(cosign.command))], "gkm": [sys.executable, "-m", "gkm_cli.main"]}
    environment = {**os.environ, **NO_NETWORK, "COSIGN_PASSWORD": "", "HOME": str(cosign.directory)}
    return subprocess.run(
        [*programs[program], *arguments],
        cwd=cosign.directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_lines_of_the_page_work(olareg: Olareg, cosign: Cosign) -> None:
    assert [line.split()[:2] for line in LINES] == [
        ["cosign", "trusted-root"],
        ["cosign", "signing-config"],
        ["gkm", "cache"],
        ["cosign", "verify"],
        ["cosign", "sign"],
        ["gkm", "cache"],
    ]
    ours, theirs = pushed(olareg, f"ours-{cosign.command}"), pushed(olareg, f"theirs-{cosign.command}")
    for number, line in enumerate(LINES):
        done = run(cosign, line, theirs if number >= 4 else ours)
        assert done.returncode == 0, (line, done.stderr)
    # No line accepts an unsigned image.
    unsigned = pushed(olareg, f"unsigned-{cosign.command}")
    for line, code, why in ((LINES[3], 10, "no signatures found"), (LINES[5], 3, "no signature was found")):
        done = run(cosign, line, unsigned)
        assert (done.returncode, why in done.stdout + done.stderr) == (code, True), done


def test_cosign_2_without_a_trusted_root_fails_as_documented(olareg: Olareg, tmp_path: Path) -> None:
    require.peer("cosign2")
    cosign = Cosign(tmp_path, "cosign2")
    cosign.run("generate-key-pair")
    image = pushed(olareg, "without-root")
    assert run(cosign, LINES[2], image).returncode == 0
    with pytest.raises(CosignFailed, match="trusted root is required when using new bundle format"):
        cosign.run("verify", "--key", "cosign.pub", "--insecure-ignore-tlog=true", image, environment=NO_NETWORK)
