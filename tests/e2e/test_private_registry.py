"""An image that only some may read: by pull secrets that its namespace has opened to GKM, and by nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from gkm.api.config import Registries, RegistryHost
from gkm.images.reference import Reference
from gkm.images.registries import credentials, push
from gkm.images.registries.credentials import Keyring
from gkm.images.registries.registry import Registry
from gkm.images.signing import keys
from gkm.images.signing.forms import ImageSigner
from gkm.images.signing.sign import sign
from support.cluster import gkm_objects as objects
from support.e2e.fleet import Fleet
from support.images.archives import cache_image
from support.registry.distribution import PASSWORD, USER, Distribution

SAMPLE = Path(__file__).parent.parent.parent / "deploy" / "samples" / "pull-secret.yaml"
SECRET = "registry"


@pytest.fixture
def private(fleet: Fleet) -> Distribution:
    assert fleet.private is not None
    return fleet.private


def docker_config(host: str) -> str:
    return json.dumps({"auths": {host: {"username": USER, "password": PASSWORD}}})


def pushed(fleet: Fleet, host: str) -> Reference:
    """Push an image that we may read, and sign it."""
    opened = Keyring([credentials.parse(docker_config(host).encode())])
    registry = Registry(Registries(hosts={host: RegistryHost(plain_http=True)}), opened)
    ref = Reference.parse(f"{host}/team/private:1")
    pinned = ref.pinned(push.image(registry, ref, cache_image("private")))
    sign(registry, pinned, ImageSigner.by_key(keys.read(str(fleet.cosign.private_key), b"")))
    return pinned


def make_secret(fleet: Fleet, host: str, namespace: str) -> None:
    who = [f"--docker-server={host}", f"--docker-username={USER}", f"--docker-password={PASSWORD}"]
    fleet.kubectl("create", "secret", "docker-registry", SECRET, "--namespace", namespace, *who)


def opened(namespace: str) -> list[dict[str, Any]]:
    """The sample, for another namespace."""
    documents = list(yaml.load_all(SAMPLE.read_text(), yaml.CSafeLoader))
    for document in documents:
        document["metadata"]["namespace"] = namespace
    return documents


def test_it_is_read_once_its_namespace_has_opened_the_secret(
    fleet: Fleet, private: Distribution, namespace: str
) -> None:
    image = pushed(fleet, private.host)
    wanted = objects.cache("llama", namespace, str(image))
    fleet.cluster.apply(wanted)

    def says(words: str) -> bool:
        return words in fleet.condition("llama", namespace, "Verified").get("message", "")

    fleet.until(lambda: says("denies access to team/private"), "nobody to be let in")
    assert fleet.condition("llama", namespace, "Verified")["status"] == "Unknown"
    made = ["create", "secret", "docker-registry", SECRET, "--namespace", namespace]
    fleet.kubectl(
        *made, f"--docker-server={private.host}", f"--docker-username={USER}", f"--docker-password={PASSWORD}"
    )
    wanted["spec"]["imagePullSecrets"] = [{"name": SECRET}]
    fleet.cluster.apply(wanted)
    fleet.until(lambda: says(f"may not read Secret {namespace}/{SECRET}"), "the Secret to be closed to us")
    for document in opened(namespace):
        fleet.cluster.apply(document)
    fleet.reaches("llama", namespace, "Ready")
    assert fleet.condition("llama", namespace, "Verified")["status"] == "True"
    fleet.pod("reader", namespace, f"ls {objects.MOUNT} | wc -l", cacheName="llama")
    assert fleet.ended("reader", namespace).strip() == "2"
    for log in fleet.gkm.directory.glob("*.log"):
        assert PASSWORD not in log.read_text(), log.name
    assert PASSWORD not in fleet.kubectl(
        "get", "gkmcaches,gkmcachenodes,events", "--namespace", namespace, "-o", "yaml"
    )


def test_who_may_not_read_it_gets_nothing_although_it_lies_on_the_node(
    fleet: Fleet, private: Distribution, namespace: str
) -> None:
    image = pushed(fleet, private.host)
    for document in opened(namespace):
        fleet.cluster.apply(document)
    made = ["create", "secret", "docker-registry", SECRET, "--namespace", namespace]
    fleet.kubectl(
        *made, f"--docker-server={private.host}", f"--docker-username={USER}", f"--docker-password={PASSWORD}"
    )
    mine = objects.cache("mine", namespace, str(image))
    mine["spec"]["imagePullSecrets"] = [{"name": SECRET}]
    fleet.cluster.apply(mine)
    fleet.reaches("mine", namespace, "Ready")
    stranger = fleet.new_namespace()
    try:
        fleet.declare("theirs", stranger, image)
        fleet.until(lambda: fleet.condition("theirs", stranger, "Verified"), "the controller to have tried")
        assert fleet.condition("theirs", stranger, "Verified")["status"] == "Unknown"
        assert fleet.on_node("theirs", stranger).get("state") != "Ready"
    finally:
        fleet.empty(stranger)
