"""Files, context and namespace are those that the real kubectl chooses."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gkm_cli.clusters import kubeconfig
from gkm_cli.clusters.kubeconfig import KubeconfigSelection, choose
from support.peers import build, require


def config(path: Path, contexts: dict[str, str | None], current: str | None = None) -> str:
    """Write a kubeconfig: its contexts by name with their namespaces."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": path.name, "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": path.name, "user": {}}],
        "contexts": [
            {
                "name": name,
                "context": {"cluster": path.name, "user": path.name, **({"namespace": space} if space else {})},
            }
            for name, space in contexts.items()
        ],
        **({"current-context": current} if current else {}),
    }
    path.write_text(json.dumps(content))
    return str(path)


def kubectl(environment: dict[str, str], *arguments: str) -> tuple[str, str]:
    """Return current-context and namespace as the real kubectl sees them."""
    command = [str(build.binary("kubectl")), "config", "view", "--minify", "-o", "json", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    return seen["current-context"], seen["contexts"][0]["context"].get("namespace") or "default"


@pytest.mark.partners
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


def test_in_a_pod_the_files_of_the_pod_come_after_those_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    namespace = tmp_path / "namespace"
    monkeypatch.setattr(kubeconfig, "_POD_NAMESPACE", namespace)
    assert choose(None, None, pod) == KubeconfigSelection(None, None, "default")
    namespace.write_text("ml-apps\n")
    assert choose(None, None, pod) == KubeconfigSelection(None, None, "ml-apps")
    assert choose(None, None, {**pod, "POD_NAMESPACE": "other"}) == KubeconfigSelection(None, None, "other")
    (tmp_path / ".kube").mkdir()
    path = config(tmp_path / ".kube" / "config", {"home": "mine"}, "home")
    assert choose(None, None, pod) == KubeconfigSelection(path, "home", "mine")
    assert choose(None, None, {"HOME": "/nowhere"}) == KubeconfigSelection("/nowhere/.kube/config", None, "default")
