"""The line of gkm doctor about captures, and the nodes that refuse or cannot send them."""

import pytest
import yaml
from gkm.api.nodes import GKMCacheNode
from gkm_cli.doctor.installation import captures
from msgspec import convert
from support.cli.observations import observed

DESTINATION = {"registry": "registry.example/captured"}
SIGNER = {"signing": {"keyFile": "/etc/key"}}


@pytest.mark.parametrize(
    ("capture", "severity", "text"),
    [
        ({}, "ok", "no capture leaves a node: capture.mode is auto without registry and signer; set capture.registry"),
        ({"mode": "request"}, "ok", "no capture leaves a node: capture.mode is request"),
        ({"mode": "off"}, "ok", "capture.mode is off"),
        ({"mode": "off"} | DESTINATION, "ok", "capture.mode is off"),
        (DESTINATION | SIGNER, "ok", "signed images of all private volumes go to registry.example/captured"),
        ({"mode": "request"} | DESTINATION | SIGNER, "ok", 'signed images of volumes with capture: "true" go to'),
        (DESTINATION, "problem", "capture.signing is not set"),
        (SIGNER, "problem", "capture.registry is not set"),
    ],
)
def test_one_line_says_what_leaves_a_node(capture: dict[str, object], severity: str, text: str) -> None:
    config_map = {"data": {"config.yaml": yaml.safe_dump({"capture": capture})}}
    (finding,) = captures.destination(observed(config_map=config_map))
    assert finding.severity == severity
    assert text in finding.detail


def test_refused_and_waiting_captures_name_reason_and_nodes() -> None:
    def report(node: str, *found: tuple[str, str]) -> GKMCacheNode:
        listed = [{"volume": f"v{n}", "state": s, "reason": r, "message": "m"} for n, (s, r) in enumerate(found)]
        made = {"kind": "GKMCacheNode", "metadata": {"name": node, "namespace": "a"}, "spec": {"nodeName": node}}
        return convert(made | {"status": {"captures": listed}}, GKMCacheNode)

    reports = [
        report("n1", ("Refused", "UnsafeContent"), ("Refused", "UnsafeContent"), ("Announced", "")),
        report("n2", ("Refused", "UnsafeContent"), ("Waiting", "Unauthorized"), ("Waiting", "")),
        report("n3", ("Duplicate", "NotRequired")),
    ]
    found = list(captures.refused(observed(reports=reports)))
    assert [(each.severity, each.detail) for each in found] == [
        ("warning", "captures are Refused on n1, n2: UnsafeContent: m"),
        ("problem", "captures are Waiting on n2: Unauthorized: m"),
    ]
    assert found[0].why == "no file left the node: the files are no acceptable cache, or were not copied"
