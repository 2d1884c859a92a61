"""Whoever creates a pod whose volume cannot be mapped to its user namespace gets a warning from a real API server."""

from typing import Any

import pytest
from support.cluster.cluster import Cluster
from support.cluster.warnings import warned

Json = dict[str, Any]
WARNING = "no container of this Pod can start with hostUsers: false and the volume cache of csi.gkm.io"
OTHER = {"name": "other", "emptyDir": {}}


def pod(*volumes: Json, **spec: object) -> Json:
    containers = [{"name": "main", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mapped"},
        "spec": {"containers": containers, "volumes": list(volumes), **spec},
    }


def volume(driver: str = "csi.gkm.io", **attributes: str) -> Json:
    return {"name": "cache", "csi": {"driver": driver, "volumeAttributes": attributes}}


@pytest.fixture(scope="module")
def place(gkm_cluster: Cluster) -> Cluster:
    """Return the shared cluster, which has the policies of deploy/base."""
    gkm_cluster.until(lambda: gkm_cluster.exists("serviceaccount", "default", "default"), "the account of pods")
    gkm_cluster.until(
        lambda: WARNING in warned(gkm_cluster, pod(volume(), hostUsers=False)), "the policy to be in force"
    )
    return gkm_cluster


@pytest.mark.parametrize(
    "made",
    [
        pod(volume(), hostUsers=False),
        pod(OTHER, volume(cacheName="llama"), hostUsers=False),
        pod(volume(userNamespace="false"), hostUsers=False),
        pod({"name": "cache", "csi": {"driver": "csi.gkm.io"}}, hostUsers=False),
    ],
)
def test_a_volume_that_cannot_be_mapped_causes_a_warning_with_the_attribute(place: Cluster, made: Json) -> None:
    said = warned(place, made)
    assert WARNING in said
    assert "its volumeAttributes need userNamespace with the value true" in said


@pytest.mark.parametrize(
    "made",
    [
        pod(),
        pod(volume()),
        pod(volume(), hostUsers=True),
        pod(OTHER, hostUsers=False),
        pod(volume(driver="other.example"), hostUsers=False),
        pod(volume(cacheName="llama", userNamespace="true"), hostUsers=False),
    ],
)
def test_another_pod_causes_none(place: Cluster, made: Json) -> None:
    assert warned(place, made) == ""
