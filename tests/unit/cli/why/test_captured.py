"""`gkm why` says whether the files that a pod compiled were refused, or cannot be sent."""

import re
from pathlib import Path
from typing import Any

import pytest
from gkm.api.errors import Reason
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, GKMCACHENODES
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.why.facts import Facts
from gkm_cli.why.links import AGAIN, NEXT, decide_capture
from gkm_cli.why.observation import PODS, Observation
from gkm_cli.why.outcomes import Broken, Holds
from support.cli.why_site import VOLUME_ID, with_volume_id
from support.kube.fake_api import FakeApi

REASONS = Path(__file__).parents[4] / "docs" / "reference" / "reasons.md"
PRIVATE = {"readOnly": "false", "ifUnavailable": "wait"}
IMAGE = "registry.example/captured/ml@sha256:0f"
NO_CAPTURE = "no failure; the agent of the node reports no capture of the volume"


def capture(state: str, reason: str = "", message: str = "", volume: str = VOLUME_ID) -> dict[str, Any]:
    return {"volume": volume, "state": state, "reason": reason, "message": message, "pod": "p"}


def api_with(attributes: dict[str, str], *captures: dict[str, Any]) -> FakeApi:
    """Return an API with the pod u-1, and the report of its node about captures of its namespace."""
    api = FakeApi()
    named = {} if "clusterCacheName" in attributes else {"cacheName": "llama"}
    csi = {"driver": "csi.gkm.io", "volumeAttributes": named | attributes}
    containers = [{"name": "server", "volumeMounts": [{"name": "kernels", "mountPath": "/cache"}]}]
    spec = {"nodeName": "node-a", "volumes": [{"name": "kernels", "csi": csi}], "containers": containers}
    metadata = {"name": "p", "namespace": "team", "uid": "u-1"}
    api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    node = {"apiVersion": "gkm.io/v1alpha1", "metadata": {"name": "node-a"}, "spec": {"nodeName": "node-a"}}
    api.create(CLUSTERGKMCACHENODES, node | {"kind": "ClusterGKMCacheNode"})
    api.create(GKMCACHENODES, node | {"kind": "GKMCacheNode", "metadata": {"name": "node-a", "namespace": "team"}})
    status = with_volume_id({"status": {"captures": list(captures)}}, "u-1")
    api.merge(GKMCACHENODES, "node-a", status, "team", subresource="status")
    return api


def observed(api: FakeApi) -> Facts:
    (facts,) = Observation(api).facts(api.get(PODS, "p", "team"))
    return facts


def outcome(*captures: dict[str, Any]) -> Broken | Holds:
    return decide_capture(observed(api_with(PRIVATE, *captures)))


def test_a_refused_capture_has_reason_message_and_next_step() -> None:
    assert outcome(capture("Refused", "UnsafeContent", "a.py is no kernel")) == Broken(
        "the capture was refused: UnsafeContent: a.py is no kernel", "look at who runs in the pod before anything else"
    )


def test_the_place_of_kept_files_has_the_id_of_the_capture() -> None:
    found = outcome(capture("Refused", "MetadataInvalid", "no key", f"{VOLUME_ID}.1764"))
    assert isinstance(found, Broken)
    assert re.match(r"captured/csi-[0-9a-f]{64}\.1764/content on the node has the files until ", found.hint)


def test_a_capture_that_waits_for_a_reason_is_broken_and_one_before_its_first_attempt_is_not() -> None:
    assert outcome(capture("Waiting", "Unauthorized", "401")) == Broken("the capture waits: Unauthorized: 401", AGAIN)
    assert outcome(capture("Waiting")) == Holds("the capture waits")


def test_the_newest_capture_of_the_volume_counts() -> None:
    sent = capture("Announced", volume=f"{VOLUME_ID}.1764") | {"image": IMAGE}
    assert outcome(sent, capture("Refused", "TooLarge", "m")) == Holds(f"captured: {IMAGE}")
    assert outcome(capture("Duplicate", "NotRequired", "generation 3 has them")) == Holds(
        "captured: generation 3 has them"
    )


@pytest.mark.parametrize("volume", ["csi-1", f"{VOLUME_ID}0", "u-1kernels"])
def test_a_capture_of_another_volume_or_of_an_earlier_pod_of_this_name_does_not_count(volume: str) -> None:
    assert outcome(capture("Refused", "TooLarge", "m", volume)) == Holds(NO_CAPTURE)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [({"readOnly": "true"}, "it is read-only"), (PRIVATE | {"capture": "false"}, 'it says capture: "false"')],
)
def test_a_volume_that_is_not_captured_says_so_and_reads_no_report_for_it(attributes: dict[str, str], why: str) -> None:
    api = api_with({"clusterCacheName": "llama"} | attributes)
    assert decide_capture(observed(api)) == Holds(f"the volume is not captured: {why}")
    assert not [call for call in api.calls if call[:2] == ("get", "gkmcachenodes")]


def test_the_report_is_that_of_the_namespace_also_for_a_cluster_wide_cache_and_not_known_is_not_ok() -> None:
    api = api_with(PRIVATE | {"clusterCacheName": "llama"}, capture("Refused", "DiskFull", "no space"))
    assert "DiskFull: no space" in decide_capture(observed(api)).detail
    api.fault = lambda _, plural: ApiError(403, "Forbidden", "no") if plural == "gkmcachenodes" else None
    with pytest.raises(Unreadable, match="missing right: get gkmcachenodes"):
        decide_capture(observed(api))


def test_every_next_step_is_in_the_words_of_the_page_and_every_reason_of_a_refusal_has_one() -> None:
    (section,) = re.findall(r"## Captures\n(.*?)\n## ", REASONS.read_text(), re.DOTALL)
    page = section.replace("`", "").lower()
    for step in (*NEXT.values(), AGAIN):
        assert all(part in page for part in step.lower().split("; ")), step
    (row,) = re.findall(r"^\| `Refused` \| (.*?) \|", section, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {Reason(each).value for each in NEXT}
