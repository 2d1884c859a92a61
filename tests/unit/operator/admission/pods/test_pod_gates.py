"""Which pods of a Run get the scheduling gate."""

import pytest
from gkm.api.config import Config
from gkm.api.runs import GATE, RUN_LABEL
from gkm.api.topology_settings import Packing
from gkm_operator.admission.domains.cluster_view import ClusterView
from gkm_operator.admission.domains.reviewer import ByteBudget
from gkm_operator.admission.workloads import GATES_PATH, gate_reviewers
from support.grove.objects import Json
from support.kube.fake_api import FakeApi
from support.operator.pod_caches import GPU, KIND, a_pod
from support.operator.workloads import answer, review_of


@pytest.mark.parametrize(("switch", "gates"), [(True, [{"name": GATE}]), (False, None)])
def test_a_pod_waits_for_its_plan_only_while_a_controller_lifts_the_gate(
    *, switch: bool, gates: list[Json] | None
) -> None:
    api = FakeApi()
    config = Config(packing=Packing(pod_gates=switch))
    reviewer = gate_reviewers(ClusterView(api, api, "gkm-system"), config, ByteBudget())[GATES_PATH]
    pod = a_pod()
    pod["metadata"]["labels"] = {RUN_LABEL: "llama"}
    assert pod["spec"]["containers"][0]["resources"] == GPU
    body = review_of(KIND, pod)
    found = answer(reviewer(lambda: body, lambda: None), pod)
    assert found.allowed
    assert found.object["spec"].get("schedulingGates") == gates
