"""Files, context and namespace of a person, of a pod, and of a file that is wrong."""

import re
from pathlib import Path

import pytest
from gkm_cli.clusters import connection
from gkm_cli.clusters.connection import KubeconfigSelection, choose
from support.cli.kubeconfig_files import config


def test_in_a_pod_the_files_of_the_pod_come_after_those_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    namespace = tmp_path / "namespace"
    monkeypatch.setattr(connection, "_POD_NAMESPACE", namespace)
    assert choose(None, None, pod) == KubeconfigSelection(None, None, "default")
    namespace.write_text("ml-apps\n")
    assert choose(None, None, pod) == KubeconfigSelection(None, None, "ml-apps")
    assert choose(None, None, {**pod, "POD_NAMESPACE": "other"}) == KubeconfigSelection(None, None, "other")
    (tmp_path / ".kube").mkdir()
    path = config(tmp_path / ".kube" / "config", {"home": "mine"}, "home")
    assert choose(None, None, pod) == KubeconfigSelection(path, "home", "mine")
    nowhere = tmp_path / "nowhere"
    with pytest.raises(FileNotFoundError, match=re.escape(f"{nowhere}/.kube/config")):
        choose(None, None, {"HOME": str(nowhere)})
