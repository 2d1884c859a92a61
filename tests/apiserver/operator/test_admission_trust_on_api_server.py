"""Replicas of the webhook on a real kube-apiserver, with the account and the role that ship: trust, renewal, outage."""

import base64
import copy
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHENODES, GKMCACHES, VALIDATING_WEBHOOKS, Json
from support.cluster.cluster import Cluster
from support.host import listening, pages, ports
from support.host.processes import Process
from support.operator.ca_copies import copied
from support.operator.deployment import cache, manifests, node, operator_command

NAMESPACE = "default"
NAME = "gkm-caches"
ACCOUNT = "system:serviceaccount:gkm-system:gkm-admission"
NOT_ALLOWED = "127.0.0.1:9/not/allowed:1"
JUDGED = "is an address of this machine"
"""What only a webhook of ours says of it."""
RENEWING = (sys.executable, str(Path(__file__).parents[2] / "support" / "operator" / "rotating_admission.py"))


@dataclass
class Replicas:
    """Webhook processes by letter; the API server calls replica `a` for caches named two-a-…"""

    cluster: Cluster
    directory: Path
    stack: ExitStack
    ports: dict[str, int] = field(default_factory=dict)
    health: dict[str, str] = field(default_factory=dict)

    def start(self, letter: str, *, renewing: bool = False) -> Process:
        directory = self.directory / letter
        directory.mkdir()
        self.ports.setdefault(letter, ports.free())
        arguments = (
            f"--listen=127.0.0.1:{self.ports[letter]}",
            "--health=127.0.0.1:0",
            f"--self-signed={directory / 'tls'}",
            "--tls-names=127.0.0.1",
            f"--webhook-configuration={NAME}",
            f"--kubeconfig={self.cluster.kubeconfig_for(ACCOUNT)}",
        )
        command = [*RENEWING, *arguments] if renewing else operator_command("admission", *arguments)
        process = Process.start(f"admission-{letter}", command, directory / "log")
        self.stack.callback(process.stop)
        self.health[letter] = listening.address(process, besides=self.ports[letter])
        process.ready(lambda: self.page(letter, "healthz") == 200, "it answers")
        return process

    def configure(self, letters: str) -> None:
        """Apply what ships, with a hook for each replica in place of the Service."""
        found = shipped()
        (hook,) = found["webhooks"]
        found["webhooks"] = []
        for letter in letters:
            mine = copy.deepcopy(hook)
            mine["name"] = f"{letter}.{hook['name']}"
            port = self.ports.setdefault(letter, ports.free())
            mine["clientConfig"] = {"url": f"https://127.0.0.1:{port}/validate"}
            mine["matchConditions"].append(called(f"two-{letter}-"))
            found["webhooks"].append(mine)
        self.cluster.apply(found)

    def page(self, letter: str, name: str) -> int:
        """Return the status of a page by plain HTTP, 0 for no answer."""
        return pages.fetch(self.health[letter], name)[0]

    def ready(self, letter: str) -> None:
        self.cluster.until(lambda: self.page(letter, "readyz") == 200, f"{letter} to be ready")

    def asked(self, letter: str) -> str:
        """Return why a cache that no replica admits cannot be made."""
        return refusal(self.cluster, cache(f"two-{letter}-x", NOT_ALLOWED, NAMESPACE))

    def judges(self, letter: str) -> None:
        # An API server takes a moment to see a changed configuration.
        self.cluster.until(lambda: JUDGED in self.asked(letter), f"the API server to ask {letter}")

    def served(self, letter: str) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self.ports[letter]))

    def trusted(self) -> set[x509.Certificate]:
        """Return the CAs that every hook trusts."""
        api = connect(str(self.cluster.kubeconfig))
        bundles = [hook["clientConfig"]["caBundle"] for hook in api.get(VALIDATING_WEBHOOKS, NAME)["webhooks"]]
        assert len(set(bundles)) == 1
        return set(x509.load_pem_x509_certificates(base64.b64decode(bundles[0])))


def shipped() -> Json:
    (found,) = (manifest for manifest in manifests() if manifest["kind"] == "ValidatingWebhookConfiguration")
    return found


def called(prefix: str) -> Json:
    """Return the condition that keeps other tests of this cluster out."""
    return {"name": "ours", "expression": f"object.metadata.name.startsWith('{prefix}')"}


def refusal(cluster: Cluster, wanted: dict[str, Any]) -> str:
    """Return the API server's error for a new cache; "" when it accepts the cache, which is then deleted."""
    api = connect(str(cluster.kubeconfig))
    resource: Any = GKMCACHES if wanted["kind"] == "GKMCache" else CLUSTERGKMCACHES
    meta = wanted["metadata"]
    try:
        api.create(resource, wanted)
    except ApiError as error:
        return error.message
    api.delete(resource, meta["name"], meta.get("namespace"))
    return ""


@pytest.fixture
def replicas(gkm_cluster: Cluster, tmp_path: Path) -> Iterator[Replicas]:
    with ExitStack() as stack:
        stack.callback(gkm_cluster.objects.delete_named, "validatingwebhookconfiguration", NAME)
        stack.enter_context(copied(gkm_cluster, [NAME]))
        yield Replicas(gkm_cluster, tmp_path, stack)


def test_two_replicas_are_trusted_and_requests_survive_a_killed_one(replicas: Replicas) -> None:
    replicas.configure("ab")
    first, _ = replicas.start("a"), replicas.start("b")
    for letter in "ab":
        replicas.ready(letter)
        replicas.judges(letter)
    assert len(replicas.trusted()) == 2
    first.kill()
    replicas.cluster.until(lambda: "failed calling webhook" in replicas.asked("a"), "the first to be missed")
    assert JUDGED in replicas.asked("b")
    # What a Service does with the endpoint of a dead pod; the bundle that was made for both is left as it is.
    url = f"https://127.0.0.1:{replicas.ports['b']}/validate"
    step = {"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": url}
    replicas.cluster.objects.patch("validatingwebhookconfiguration", NAME, [step])
    replicas.judges("a")


def test_a_replica_is_ready_when_its_ca_is_trusted_and_not_before(replicas: Replicas) -> None:
    process = replicas.start("a")
    process.ready(
        lambda: "CA of this replica not in all webhook configurations" in process.log.read_text(encoding="utf-8"),
        "it says what is missing",
    )
    assert replicas.page("a", "readyz") == 503
    replicas.configure("a")
    replicas.ready("a")
    assert len(replicas.trusted()) == 1
    replicas.judges("a")
    assert replicas.page("a", "metrics") == 200


def test_server_side_apply_of_the_configuration_leaves_the_cas(replicas: Replicas) -> None:
    replicas.configure("a")
    replicas.start("a")
    replicas.ready("a")
    before = replicas.trusted()
    replicas.configure("a")
    assert replicas.trusted() == before


def test_every_request_is_reviewed_while_two_replicas_renew_their_certificates(replicas: Replicas) -> None:
    replicas.configure("ab")
    for letter in "ab":
        replicas.start(letter, renewing=True)
    first = {}
    for letter in "ab":
        replicas.ready(letter)
        first[letter] = replicas.served(letter)
        replicas.judges(letter)

    def renewed() -> bool:
        for letter in "ab":
            said = replicas.asked(letter)
            assert JUDGED in said, said
        return all(replicas.served(letter) != first[letter] for letter in "ab")

    replicas.cluster.until(renewed, "both to renew")
    assert len(replicas.trusted()) >= 4


@pytest.fixture
def outage(gkm_cluster: Cluster) -> Iterator[Cluster]:
    """The shipped configuration, with a Service without endpoints."""
    for name in ("out-old", "out-going"):
        gkm_cluster.apply(cache(name, "registry.test/team/cache:1", NAMESPACE, finalizers=["test.gkm.io/x"]))
    found = shipped()
    found["webhooks"][0]["matchConditions"].append(called("out-"))
    new = cache("out-new", "registry.test/team/cache:1", NAMESPACE)
    try:
        gkm_cluster.apply(found)
        gkm_cluster.until(lambda: refusal(gkm_cluster, new), "the configuration to be in force")
        yield gkm_cluster
    finally:
        gkm_cluster.objects.delete_named("validatingwebhookconfiguration", NAME)
        # The next test creates such caches.
        gkm_cluster.until(lambda: not refusal(gkm_cluster, new), "the configuration to be gone")
        for name in ("out-old", "out-going"):
            gkm_cluster.objects.delete_named("gkmcache", name, NAMESPACE)


def test_an_outage_of_the_webhook_blocks_only_new_images_and_names_the_webhook(outage: Cluster) -> None:
    api = connect(str(outage.kubeconfig))
    for namespace in (NAMESPACE, None):
        said = refusal(outage, cache("out-new", "registry.test/team/cache:1", namespace))
        assert 'failed calling webhook "caches.gkm.io"' in said
        assert "gkm-admission" in said
    with pytest.raises(ApiError, match="gkm-admission"):
        api.merge(GKMCACHES, "out-old", {"spec": {"image": "registry.test/team/other:1"}}, NAMESPACE)


def test_our_outage_blocks_no_other_kind(outage: Cluster) -> None:
    for kind in ("ConfigMap", "ServiceAccount"):
        outage.objects.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": "out-other"}})
        outage.objects.delete_patiently(kind, "out-other")
    api = connect(str(outage.kubeconfig))
    whole = node("out-node", {}, NAMESPACE)
    api.create(GKMCACHENODES, {part: value for part, value in whole.items() if part != "status"})
    api.delete(GKMCACHENODES, "out-node", NAMESPACE)
    assert outage.exists("namespace", NAMESPACE)


def test_our_outage_blocks_no_edit_of_our_caches_and_no_deletion(outage: Cluster) -> None:
    change = partial(outage.objects.merge, "gkmcache", namespace=NAMESPACE)
    change("out-old", {"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}})
    change("out-old", {"spec": {"nodeSelector": {"gpu": "yes"}}})
    controllers = connect(str(outage.kubeconfig_for("system:serviceaccount:gkm-system:gkm-controllers")))
    told = cache("out-old", "", NAMESPACE) | {"status": {"readyNodes": 1}}
    del told["spec"]
    controllers.apply(GKMCACHES, told, field_manager="gkm-controllers", subresource="status")
    found = outage.get("gkmcache", "out-old", NAMESPACE)
    assert found["metadata"]["labels"] == {"a": "1"}
    assert found["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert found["status"]["readyNodes"] == 1
    outage.objects.ask_to_delete("gkmcache", "out-going", NAMESPACE)
    change("out-going", {"metadata": {"finalizers": None}})
    outage.until(lambda: not outage.exists("gkmcache", "out-going", NAMESPACE), "it is gone")
