"""Random pods of a TaskGroup on a real kube-apiserver, with and without the webhook: it makes no valid pod invalid."""

from random import Random

import pytest
from gkm.api.task_groups import GROUP_LABEL
from support.examples import examples
from support.operator.group_templates import DOMAIN, planned
from support.operator.random_pods import Json, PodTries, Tried, random_task_pod
from support.operator.template_admission import TEAM, Site

WITHOUT = "other"
NUMBER = examples(2000)
SEED = 34
GROUP = "tried"
TEMPLATE = "tried-claim"
SPEC = {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": TEMPLATE}}}
PLANNED_DOMAIN = DOMAIN | {"metadata": {"name": "tried"}, "spec": SPEC}
UNCALLED = {"name": "not-compared", "expression": f"request.namespace != '{WITHOUT}'"}


@pytest.fixture(scope="module")
def tries(site: Site) -> PodTries:
    site.plan(planned(GROUP, PLANNED_DOMAIN))
    step = {"op": "add", "path": "/webhooks/0/matchConditions", "value": [UNCALLED]}
    site.cluster.objects.patch("mutatingwebhookconfiguration", "gkm-task-groups", [step])
    site.cluster.until(lambda: site.cluster.exists("serviceaccount", "default", WITHOUT), "its account")
    made = PodTries(site.cluster)
    plain = {"containers": [{"name": "c0", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    metadata = {"name": "x", "labels": {GROUP_LABEL: GROUP}}
    pod: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": plain}
    site.cluster.until(lambda: not made.create(pod, WITHOUT).refusal, "the webhook not to be called there")
    site.cluster.until(lambda: joins(made.create(pod, TEAM)), "the webhook to see the group")
    return made


def joins(tried: Tried) -> bool:
    claims = tried.pod.get("spec", {}).get("resourceClaims", ())
    return any(claim.get("resourceClaimTemplateName") == TEMPLATE for claim in claims)


def test_no_task_pod_that_was_valid_is_refused_and_no_field_of_it_changes(tries: PodTries) -> None:
    random = Random(SEED)
    pods = [random_task_pod(random, GROUP) for _ in range(NUMBER)]
    valid = tries.compared(pods, WITHOUT, TEAM)
    joined = [new for _, new in valid if joins(new)]
    placed = [old for old, new in valid if joins(new) and old.pod["spec"].get("affinity", {}).get("podAffinity")]
    # A test of pods that are all refused, or that all stay as they are, would prove no statement.
    assert len(pods) // 4 < len(valid) < len(pods)
    assert min(len(joined), len(valid) - len(joined)) > NUMBER // 20
    assert len(placed) > NUMBER // 50
