"""Files, context and namespace are those that the real kubectl chooses."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from gkm_cli.clusters.connection import choose
from support.cli.kubeconfig_files import config
from support.peers import build, require


def kubectl(environment: dict[str, str], *arguments: str) -> tuple[str, str]:
    """Return current-context and namespace as the real kubectl sees them."""
    command = [str(build.binary("kubectl")), "config", "view", "--minify", "-o", "json", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    return seen["current-context"], seen["contexts"][0]["context"].get("namespace") or "default"


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ({}, ()),
        ({"KUBECONFIG": "one"}, ()),
        ({"KUBECONFIG": "one:two"}, ()),
        ({"KUBECONFIG": "two:one"}, ()),
        ({"KUBECONFIG": "none:missing:two"}, ()),
        ({"KUBECONFIG": "one:two"}, ("--context", "b")),
        ({"KUBECONFIG": "one:two"}, ("--context", "both")),
        ({"KUBECONFIG": "two:one"}, ("--context", "both")),
        ({"KUBECONFIG": "one"}, ("--kubeconfig", "two")),
        ({"KUBECONFIG": "one"}, ("--kubeconfig", "two", "--context", "both")),
    ],
)
def test_the_choice_is_that_of_kubectl(tmp_path: Path, environment: dict[str, str], arguments: tuple[str, ...]) -> None:
    config(tmp_path / "one", {"a": "team-a", "both": "first"}, "a")
    config(tmp_path / "two", {"b": None, "both": "second"}, "b")
    config(tmp_path / "none", {"c": "team-c"})
    (tmp_path / ".kube").mkdir()
    config(tmp_path / ".kube" / "config", {"home": "mine"}, "home")
    absolute = {
        name: ":".join(str(tmp_path / part) for part in value.split(":")) for name, value in environment.items()
    }
    given = [str(tmp_path / one) if one == "two" else one for one in arguments]
    options = dict(zip(given[::2], given[1::2], strict=True))
    around = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], **absolute}
    with require.absences():
        expected = kubectl(around, *given)

    found = choose(options.get("--kubeconfig"), options.get("--context"), around)

    assert (found.context, found.namespace) == (
        expected[0] if "--context" not in options else options["--context"],
        expected[1],
    )
