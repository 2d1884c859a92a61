"""The checks of an installation: pure decisions on values of any shape. tests/partners/cli plants each fault."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import yaml
from gkm.api.crds import definitions
from gkm.api.rollouts import RolloutPolicy, RolloutStatus
from gkm.kube.resources import NEEDED
from gkm_cli.clusters.reads import Unreadable
from gkm_cli.doctor.checks import CHECKS
from gkm_cli.doctor.findings import Finding, Severity, moment
from gkm_cli.doctor.installation import caches, configuration, controllers, daemons, kinds, nodes, webhook
from gkm_cli.doctor.installation.objects import NodeLease
from gkm_cli.doctor.installation.observation import OURS, SOURCES, observe
from gkm_cli.doctor.installation.observed import InstallationFacts
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace
from support.cli.observations import GPUS, NOW, OLD, YOUNG, Json, cache, config, hook, node, observed, pod, report
from support.operator.upstream import upstream

INSTALLATION = [check for check in CHECKS if check.observe is observe]
KEYS = st.sampled_from(
    [
        *("spec", "status", "metadata", "webhooks", "clientConfig", "caBundle", "data", "config.yaml", "template"),
        *("endpoints", "annotations", "notAfter", "renewTime", "holderIdentity", "containers", "versions", "schema"),
    ]
)
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["2026-11-23", "0001-01-01T00:00Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, ANY_JSON, max_size=4)
JSON_FIELDS = ("config_map", "webhook", "certificate", "driver", "lease")
MAPS = ("daemon_sets", "deployments", "bindings", "runtime_classes", "priority_classes")
NAMES = ("gkm-agent", "gkm-csi", "gkm-controllers", "gkm-admission", "nvidia")


@pytest.mark.parametrize("text", ["2026-11-23", "2026-11-23T12:00:00", "soon", "", None, 7])
def test_a_time_without_a_zone_or_of_another_shape_is_none(text: object) -> None:
    assert moment(text) is None
    certificate = {"status": {"notAfter": text}}
    made = observed(webhook=hook(by_cert_manager=True), certificate=certificate)
    assert list(webhook.certificate(made)) == []
    lease = {"spec": {"holderIdentity": "a", "renewTime": text}}
    assert len(list(controllers.leader(observed(deployments={"gkm-controllers": {}}, lease=lease)))) == 1


def test_every_field_that_a_check_wants_can_be_read() -> None:
    assert {field for check in INSTALLATION for field in check.fields} == set(SOURCES)


@given(OBJECTS)
def test_objects_of_any_shape_are_findings_and_never_errors(made: Json) -> None:
    fields: dict[str, Any] = dict.fromkeys(JSON_FIELDS, made)
    fields |= {name: dict.fromkeys(NAMES, made) for name in MAPS}
    everywhere = observed(**fields, definitions=dict.fromkeys([*OURS][:1], made), slices=[made], nodes=[node(**GPUS)])
    for check in INSTALLATION:
        with suppress(Unreadable):  # the configuration cannot be used
            for finding in check.decide(everywhere):
                assert finding.detail
                assert finding.hint
                assert finding.severity in {Severity.PROBLEM, Severity.WARNING}


def test_kinds_that_a_later_version_extended_are_ours() -> None:
    extended = {one["metadata"]["name"]: one for one in yaml.safe_load(yaml.safe_dump(list(definitions().values())))}
    for one in extended.values():
        properties = one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        properties["metadata"] = {"type": "object"}
    made = observed(definitions=extended)
    assert [*kinds.missing(made), *kinds.foreign(made), *kinds.outdated(made)] == []


def test_a_missing_kind_stops_the_controllers_only_if_they_need_it() -> None:
    plurals = {"gkmcaches", "clustergkmcaches", "gkmcachenodes", "clustergkmcachenodes", "runs", "placementplans"}
    assert {resource.plural for resource in NEEDED} == plurals
    made = observed(definitions=dict.fromkeys(["gkmcaches.gkm.io", "pools.gkm.io"]))
    needed, optional = (finding.why for finding in kinds.missing(made))
    assert needed == "no object of this kind can be created, and the controllers do not start without it"
    assert optional == "no object of this kind can be created"


@pytest.mark.parametrize("name", ["gkm-agent", "gkm-csi"])
def test_a_daemon_set_of_another_owner_is_deleted_first(name: str) -> None:
    check = daemons.agent_missing if name == "gkm-agent" else daemons.csi_missing
    (found,) = check(observed(daemon_sets={name: {"metadata": {"labels": {}}}}))
    assert found.detail == "it is not GKM's"
    assert found.hint.startswith(f"kubectl delete daemonset {name} -n gkm-system, then install the Helm chart")


def test_a_binding_of_another_role_is_deleted_first() -> None:
    ours = {name: {"roleRef": {"name": name}} for name in ("gkm-controllers", "gkm-admission")}
    theirs = {"gkm-agent": {"roleRef": {"name": "view"}}}
    (found,) = configuration.account_bindings(observed(bindings={**ours, **theirs}))
    assert found.hint.startswith("kubectl delete clusterrolebinding gkm-agent, then install the Helm chart")


def test_a_foreign_kind_is_not_called_outdated() -> None:
    made = observed(definitions={"gkmcaches.gkm.io": upstream()})
    assert len(list(kinds.foreign(made))) == 1
    assert list(kinds.outdated(made)) == []


@pytest.mark.parametrize(
    ("version", "old"), [("v1.31.9", True), ("v1.32.0", False), ("v1.40.0-rc.1", False), ("odd", False)]
)
def test_only_an_old_kubelet_is_a_finding(version: str, *, old: bool) -> None:
    made = observed(nodes=[node(nodeInfo={"kubeletVersion": version})], pods=[pod("gkm-agent", node="n")])
    assert bool(list(nodes.kubelet(made))) is old


@pytest.mark.parametrize(("seconds", "found"), [(0, 0), (29, 0), (-29, 0), (31, 1), (-3600, 1)])
def test_the_clock_of_a_node_is_compared_with_that_of_the_api_server(seconds: int, found: int) -> None:
    # Both lie in the past: the time of this machine plays no part.
    written = NOW - timedelta(days=1)
    renewed = f"{written + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%fZ}"
    fields = [{"time": "2020-01-01T00:00:00Z"}, {"time": f"{written:%Y-%m-%dT%H:%M:%SZ}"}, {}]
    lease = convert({"metadata": {"name": "n", "managedFields": fields}, "spec": {"renewTime": renewed}}, NodeLease)
    made = observed(nodes=[node()], pods=[pod("gkm-agent", node="n")], node_leases=[lease])
    assert len(list(nodes.clock(made))) == found


def test_the_lease_of_a_leader_may_be_a_minute_old() -> None:
    def found(seconds: int) -> int:
        renewed = f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S.%fZ}"
        lease = {"spec": {"holderIdentity": "a", "renewTime": renewed}}
        return len(list(controllers.leader(observed(deployments={"gkm-controllers": {}}, lease=lease))))

    assert [found(5), found(59), found(61)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("images", "several"),
    [
        (("r:5000/gkm-agent:1", "r:5000/gkm-csi:1"), False),
        (("r:5000/gkm-agent:1", "r:5000/gkm-csi:2"), True),
        (("r/gkm-agent@sha256:aa", "r/gkm-csi:2"), False),
        (("r:5000/gkm-agent", "r:5000/gkm-csi"), False),
    ],
)
def test_versions_are_the_tags_of_images(images: tuple[str, str], *, several: bool) -> None:
    sets = {
        name: {"spec": {"template": {"spec": {"containers": [{"image": image}]}}}}
        for name, image in zip(("gkm-agent", "gkm-csi"), images, strict=True)
    }
    assert bool(list(controllers.versions(observed(daemon_sets=sets)))) is several


@pytest.mark.parametrize(("minutes", "found"), [(1, 0), (29, 0), (31, 1)])
def test_a_pull_may_take_half_an_hour(minutes: int, found: int) -> None:
    since = f"{NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
    assert len(list(caches.stuck(observed(reports=[report("n", state="Extracting", lastUpdated=since)])))) == found


@pytest.mark.parametrize(
    ("state", "open_rank", "found"),
    [
        ("Pending", None, 0),
        ("Pending", "0" * 16, 0),
        ("Pending", "f" * 16, 1),
        ("Downloading", "0" * 16, 1),
    ],
)
def test_a_node_that_the_rollout_has_not_reached_is_not_stuck(state: str, open_rank: str | None, found: int) -> None:
    digest = f"sha256:{'a' * 64}"
    made = cache(verified=("True", "CosignSuccess"))
    reached = None if open_rank is None else RolloutStatus(digest, open_rank)
    spec = replace(made.spec, rollout=RolloutPolicy(1))
    status = replace(made.status, image=spec.image, resolved_digest=digest, rollout=reached)
    waiting = report("n", state=state, lastUpdated=f"{NOW - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}")
    facts = observed(caches=[replace(made, spec=spec, status=status)], reports=[waiting])
    assert len(list(caches.stuck(facts))) == found


@pytest.mark.parametrize(("created", "severities"), [(OLD, ["warning"]), (YOUNG, [])])
def test_a_cache_at_which_the_controllers_have_not_looked_is_not_ok(created: str, severities: list[str]) -> None:
    made = cache()
    made = replace(made, metadata=replace(made.metadata, creation_timestamp=created))
    found = [each.severity.value for each in caches.refused(observed(caches=[made]))]
    assert found == severities, "without a finding the check says that every other image is verified"


@pytest.mark.parametrize("reason", ["SignatureMissing", "Unauthorized", "MetadataInvalid"])
def test_a_verdict_on_an_earlier_image_is_no_finding(reason: str) -> None:
    made = cache(verified=("False", reason))
    policy = {"images": ["*"], "keys": ["/etc/gkm/cosign.pub"]}
    facts = observed(config_map=config(policies=[policy]), caches=[made])
    checks = (caches.signature, caches.credentials, caches.refused)
    assert len([each for check in checks for each in check(facts)]) == 1
    changed = replace(made, spec=replace(made.spec, image="registry.example/team/caches/other:1"))
    facts = observed(config_map=config(policies=[policy]), caches=[changed])
    assert [each for check in checks for each in check(facts)] == [], "the image of the finding was replaced"


REASONED: list[tuple[str, Callable[[InstallationFacts], Iterator[Finding]]]] = [
    ("DiskFull", nodes.disk_full),
    ("SignatureInvalid", caches.failed),
    ("Unauthorized", caches.failed),
    ("NodeError", caches.failed),
    ("", caches.failed),
]


@pytest.mark.parametrize(("reason", "owner"), REASONED)
def test_a_failure_of_a_node_is_found_by_one_check(
    reason: str, owner: Callable[[InstallationFacts], Iterator[Finding]]
) -> None:
    made = observed(reports=[report("n", state="Failed", reason=reason)])
    found = [check for check in (nodes.disk_full, nodes.driver, caches.failed, caches.stuck) if list(check(made))]
    assert found == [owner]


def test_one_failure_on_many_nodes_is_one_finding() -> None:
    made = [report(f"n{number}", state="Failed", reason="NodeError", message="m") for number in range(9)]
    (finding,) = caches.failed(observed(reports=made))
    assert finding.detail == "NodeError on n0, n1, n2, n3, n4 and 4 more: m"
