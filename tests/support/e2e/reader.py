"""A reader of our pages, who runs their commands word for word; one table has what a machine of tests must change."""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.chart.helm import Values
from support.cluster.cluster import Cluster
from support.docs.shell_blocks import ROOT, blocks, commands
from support.host.waiting import scaled
from support.node.container_images import ARCHITECTURES
from support.peers import build as peers

CACHE = ROOT / "tests" / "data" / "triton-cache"
SECONDS = scaled(300.0)
SUBSTITUTES: Mapping[str, str] = {
    # The environment that runs this test is what `make setup` makes.
    "make": 'test "$*" = setup',
    # No docker: the same Dockerfiles, built by buildah, are on the node under the names that are pushed.
    "docker": (
        'test "$1 $2 $3 $5 $7 $9" = "buildx build --platform --file --tag --push"'
        ' && test "$4" = "$(cat platform)" && test -f "$6" && grep --quiet --line-regexp "$8" images'
    ),
    # The registry speaks plain http.
    "gkm": 'if test "$1" = cache; then set -- "$@" --plain-http; fi; command gkm "$@"',
    # Where this node has its directories and its GPU.
    "helm": 'if test "$1" = upgrade; then set -- "$@" --values site.json; fi; command helm "$@"',
}
"""Command to the shell function that stands for it, run in a directory with the checkout's files."""


@dataclass(frozen=True)
class Reader:
    """What a reader has: a cluster with a node, a registry, images of ours in it, and a directory like a checkout."""

    cluster: Cluster
    registry: str
    tag: str
    images: Sequence[str]
    values: Values
    directory: Path

    def quickstart(self) -> str:
        """Make the directory and run the quickstart in it, with another first line; return what was printed.

        Raises:
            AssertionError: a command failed.
        """
        self.directory.mkdir(parents=True)
        for path in (ROOT / "deploy", ROOT / "crds", *ROOT.glob("Dockerfile.*")):
            (self.directory / path.name).symlink_to(path)
        shutil.copytree(CACHE, self.directory / "home" / ".triton" / "cache")
        (self.directory / "platform").write_text(f"linux/{ARCHITECTURES[platform.machine()]}")
        (self.directory / "images").write_text("".join(f"{image}\n" for image in self.images))
        (self.directory / "site.json").write_text(json.dumps(self.values))
        functions = "".join(f"{name}() {{ {body}; }}\n" for name, body in SUBSTITUTES.items())
        (self.directory / "functions").write_text(functions)
        settings, *rest = commands(blocks("docs/quickstart.md", "Quickstart")[0])
        assert settings.startswith("export REGISTRY="), settings
        settings = f"export REGISTRY={self.registry} NODE={self.cluster.node_name} TAG={self.tag}"
        return self.run("\n".join([settings, *rest]))

    def run(self, script: str) -> str:
        """Run commands of a page, after the quickstart; return what they printed.

        Raises:
            AssertionError: one failed.
        """
        places = [Path(sys.executable).parent, *(peers.binary(name).parent for name in ("helm", "kubectl"))]
        environment = {
            **os.environ,
            "BASH_ENV": "functions",
            "COSIGN_PASSWORD": "quickstart",
            "HOME": str(self.directory / "home"),
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "PATH": ":".join([*map(str, places), os.environ["PATH"]]),
            "PS4": "$ ",
        }
        done = subprocess.run(
            # After each other, so that the transcript shows what each printed.
            ["bash", "-c", f"set -xeuo pipefail\n{script}"],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout
