"""What is observed of other objects around a ComputeDomain: whose its nodes and its claim template are, and which pods
lack its claim.
"""

from typing import Any

import pytest
from gkm.api.computedomains import CHANNEL_CLASS
from gkm.kube.resources import COMPUTEDOMAINS, NODES
from gkm_operator.computedomains.status.readiness import ObservedDomain
from support.grove.objects import NAMESPACE, claim_template
from support.grove.observed import NAME, Json, domain_json, node_json, template_json
from support.grove.pods import pod
from support.operator.domain_status import StatusScene
from support.operator.domains import DOMAINS, TEMPLATES


class Surroundings(StatusScene):
    """The scene with nodes and other ComputeDomains."""

    def put_other(self, name: str, *, namespace: str = NAMESPACE, uid: str = "of-another") -> None:
        made = domain_json(name, uid=uid)
        made["metadata"]["namespace"] = namespace
        made["spec"]["channel"]["resourceClaimTemplate"]["name"] = NAME
        self.api._store(COMPUTEDOMAINS, ("computedomains", namespace, name), None, made)

    def put_node(self, made: Json) -> None:
        self.api._store(NODES, ("nodes", "", made["metadata"]["name"]), None, made)

    def observed(self) -> ObservedDomain:
        self.status.observer.follow_nodes()
        self.status.observer._nodes._list()
        self.reconcile()
        found = self.status.observer.observe((NAMESPACE, NAME))
        assert found is not None
        return found


def late(name: str = "late", claim: Json | None = None) -> Json:
    """A labeled pod that requests GPUs, with a claim of its own if one is given."""
    made = pod(name, domain=NAME)
    if claim:
        made["spec"]["resourceClaims"] = [{"name": "mine"} | claim]
    return made


def unclaimed(scene: Surroundings) -> list[str]:
    return [found.metadata.name for found in scene.observed().unclaimed]


def test_a_node_of_another_domain_shows_its_name_in_its_namespace_only() -> None:
    """Whoever reads a ComputeDomain may not read those of other namespaces."""
    scene = Surroundings()
    for number, uid in enumerate(("ours", "theirs", "of-nothing", "")):
        scene.put_node(node_json(f"n{number}", held_by=uid))
        scene.put(pod(f"p{number}", template=NAME, node=f"n{number}"))
    scene.put_other("inference", uid="ours")
    scene.put_other("secret-project", uid="theirs", namespace="competitor")
    assert scene.observed().taken == {
        "n0": "inference",
        "n1": "one of another namespace",
        "n2": "a domain that does not exist (uid of-nothing)",
    }


def test_a_template_of_another_domain_shows_its_name() -> None:
    scene = Surroundings(template=False)
    scene.api.create(TEMPLATES, template_json(uid="of-another"))
    assert scene.observed().template_owner == ""
    scene.put_other("inference")
    assert scene.observed().template_owner == "inference"
    scene.api.delete(DOMAINS, "inference", NAMESPACE)
    assert scene.observed().template_owner == ""


def test_a_template_that_names_a_domain_of_another_namespace_is_of_none_here() -> None:
    scene = Surroundings(template=False)
    scene.put_other("secret-project", namespace="competitor")
    scene.api.create(TEMPLATES, template_json(uid="of-another"))
    assert scene.observed().template_owner == ""


def test_a_change_of_the_domain_that_has_the_template_moves_the_condition_on() -> None:
    """No other object changes then."""
    scene = Surroundings(template=False)
    scene.api.create(TEMPLATES, template_json(uid="of-another"))
    scene.put(pod("a", template=NAME))
    scene.reconcile()
    scene.watcher.domains._list()  # with what was written
    changes: list[Any] = []
    scene.status.observer._changed = lambda key, _urgent: changes.append(key)
    scene.put_other("inference")
    scene.watcher.domains._list()
    assert (NAMESPACE, NAME) in changes


def test_a_labeled_pod_that_admission_missed_has_no_claim() -> None:
    scene = Surroundings()
    scene.put(late(), pod("in-time", domain=NAME, template=NAME))
    assert unclaimed(scene) == ["late"]


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({"resourceClaimTemplateName": "theirs"}, "its claim is a channel of another ComputeDomain"),
        ({"name": "mnnvl-claim", "resourceClaimTemplateName": "gpus"}, "it has a claim of the name that GKM adds"),
        ({"resourceClaimName": "theirs"}, "its claim may be a channel: GKM reads no single claim"),
        ({"resourceClaimTemplateName": "not-there-yet"}, "the same"),
    ],
)
def test_a_pod_to_which_admission_adds_no_claim_lacks_none(claim: dict[str, str], why: str) -> None:
    """Created again it would get none either."""
    scene = Surroundings()
    scene.api.create(TEMPLATES, claim_template("theirs", CHANNEL_CLASS))
    scene.api.create(TEMPLATES, claim_template("gpus", "gpu.nvidia.com"))
    scene.put(late(claim=claim))
    assert unclaimed(scene) == [], why
    scene.put(late("other"))
    assert unclaimed(scene) == ["other"]


def test_a_pod_with_other_devices_lacks_the_claim_as_soon_as_gkm_knows_them() -> None:
    scene = Surroundings()
    scene.put(late(claim={"resourceClaimTemplateName": "network"}))
    assert unclaimed(scene) == []
    changes: list[Any] = []
    scene.status.observer._changed = lambda key, _urgent: changes.append(key)
    scene.api.create(TEMPLATES, claim_template("network", "rdma.example"))
    scene.watcher.templates._list()
    assert (NAMESPACE, NAME) in changes
    assert unclaimed(scene) == ["late"]
