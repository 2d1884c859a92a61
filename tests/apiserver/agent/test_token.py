"""The API server refuses the agent's token: the next one is taken up without a restart, and no log holds any of them.

Tokens are bound to a Pod on the agent's Node, as kubelet's are, and end with it. The API server goes on taking a token
that it has taken for 10 s more.
"""

from collections.abc import Iterator
from functools import partial

import pytest
from gkm.kube import client, credentials
from gkm.kube.api import ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import GKMCACHES
from gkm_agent.kubernetes.source import OWN_NODE
from kubernetes.config import incluster_config
from support.agent.agent_on_api_server import ACCOUNT, ACCOUNT_NAMESPACE, Site, site
from support.agent.machine import Machine
from support.cluster.cluster import Cluster
from support.host.waiting import until

NAMESPACE, NODE = "api-token", "api-token-node"
PODS = ("api-token-1", "api-token-2")
PATIENCE = 180.0


@pytest.fixture
def place(cluster: Cluster, machine: Machine) -> Iterator[Site]:
    with site(cluster, machine, NAMESPACE, NODE) as made:
        yield made
        for pod in PODS:
            end(made, pod)


def issue(place: Site, pod: str) -> str:
    """Start a Pod of the agent on its Node, and put its token into the file."""
    spec = {"serviceAccountName": ACCOUNT, "nodeName": NODE, "containers": [{"name": "agent", "image": "none"}]}
    metadata = {"name": pod, "namespace": ACCOUNT_NAMESPACE}
    place.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return place.issue("Pod", pod)


def end(place: Site, pod: str) -> None:
    """End a Pod, and every token that is bound to it."""
    place.cluster.objects.delete_named("pod", pod, ACCOUNT_NAMESPACE)


def is_refused(place: Site, token: str) -> bool:
    kubeconfig = place.cluster.control_plane.kubeconfig("api-token-look", {"token": token})
    try:
        next(client.connect(str(kubeconfig)).list_pages(GKMCACHES))
    except ApiError as error:
        return error.status == 401
    return False


def test_an_agent_with_an_expired_token_loads_the_next_token(place: Site) -> None:
    tokens = [issue(place, PODS[0])]
    place.declare("before")
    with place.agent(NODE) as agent:
        place.cluster.until(lambda: place.states(NODE) == {"before": "Ready"}, "the cache is Ready", PATIENCE)
        end(place, PODS[0])

        until(partial(is_refused, place, tokens[0]), "the API server to forget the token", PATIENCE)
        # A watch that runs is not asked for its token again: break it off.
        place.gate.open()
        until(lambda: agent.heard("watch", "401"), "the watches are refused", PATIENCE)
        place.mount("before")
        until(lambda: agent.heard("apply", "401"), "the status is refused", PATIENCE)
        pointer = place.pointer("before")
        assert pointer is not None
        assert agent.page("healthz") == (200, "ok\n")

        tokens.append(issue(place, PODS[1]))
        place.declare("after")

        expected = {"before": "Ready", "after": "Ready"}
        place.cluster.until(lambda: place.states(NODE) == expected, f"it works again\n{agent.process.tail()}", PATIENCE)
        assert place.object_of(NODE)["status"]["caches"]["before"]["pods"]
        assert agent.process.popen.poll() is None
    log = agent.process.log.read_text()
    assert "Unauthorized" in log
    for token in tokens:
        # Each of the three parts would do harm or tell who we are; none is there, not even cut off at its end.
        assert not [part for part in token.split(".") if part[:40] in log]


def test_in_a_pod_the_token_that_kubelet_has_replaced_is_taken_up(
    place: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    tokens = [issue(place, PODS[0])]
    authority = place.cluster.control_plane.pki / "ca.crt"
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(place.token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(place.gate.port))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(credentials, "RELOAD_SECONDS", 1.0)
    api = client.connect()

    def outcome() -> int:
        try:
            list(api.list_pages(GKMCACHES))
            watch = api.watch(OWN_NODE, "0", ListSelector(fields=f"metadata.name={NODE}"))
            watch.close()
        except ApiError as error:
            return error.status
        return 200

    assert outcome() == 200
    end(place, PODS[0])
    until(lambda: outcome() == 401, "the token is refused", PATIENCE)

    tokens.append(issue(place, PODS[1]))

    until(lambda: outcome() == 200, "the next token is taken up", PATIENCE)
    for token in tokens:
        assert token[-40:] not in caplog.text
