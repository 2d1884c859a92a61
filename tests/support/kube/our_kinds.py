"""Installs the CustomResourceDefinitions of GKM in a cluster of a test."""

from pathlib import Path

import yaml
from gkm.kube.resources import GKMCACHES, Json
from support.chart.deploy_files import rendered
from support.cluster.cluster import ADMINS, Cluster
from support.kube.whole_objects import whole

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "registry.test/team/cache:1"
THIN = whole(GKMCACHES)
CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"


def install(cluster: Cluster) -> None:
    """Apply crds/ and wait until the API server serves them; idempotent."""
    cluster.apply(ROOT / "crds")
    cluster.until_kinds_established()


def install_agents_rights(cluster: Cluster) -> None:
    """Apply what agents may do; not their DaemonSet, or nodes would be silent to the controllers of other tests."""
    texts = [(rendered() / "base" / f"{name}.yaml").read_text() for name in ("namespace", "agent", "agent-policy")]
    documents = [document for text in texts for document in yaml.load_all(text, yaml.CSafeLoader)]
    cluster.apply([document for document in documents if document["kind"] != "DaemonSet"])


def status_writer(cluster: Cluster) -> Path:
    """Return a kubeconfig for whoever says of caches what the controllers would, where none run.

    It has every right, and the name of the controllers: deploy/base/caches-policy.yaml lets nobody else write that.
    """
    control_plane = cluster.control_plane
    path = control_plane.directory / "kubeconfigs" / "status-writer.json"
    return path if path.exists() else control_plane.client_kubeconfig("status-writer", CONTROLLERS, ADMINS)


def a_cache(name: str, image: str = IMAGE, **meta: object) -> Json:
    """A GKMCache in the namespace `default`."""
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache",
        "metadata": {"name": name, "namespace": "default", **meta},
        "spec": {"image": image},
    }
