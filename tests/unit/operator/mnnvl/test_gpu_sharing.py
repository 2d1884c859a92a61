"""Claims that Grove adds to pods (`resourceSharing`): which cliques they reach, and whether they are for GPUs."""

import msgspec
import pytest
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm.api.pod_specs import PodClaim
from gkm_operator.mnnvl.dialect import default_annotation, unread_sharing
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.injection import inject
from gkm_operator.mnnvl.required import required_groups
from support.grove.json_patch import patched
from support.grove.objects import (
    NAMESPACE,
    Json,
    clique,
    container,
    pod_clique_set,
    scaling_group,
    shared_claim,
    sharing_set,
)
from support.grove.tables import table
from support.grove.typed import GPUS, a_pod_spec, device_classes
from support.operator.workloads import ON

GPU, ALL = "gpu.nvidia.com", {"alone", "first", "second"}


def a_sharing_set(*shared: Json, of: str = "", device_class: str = GPU) -> PodCliqueSet:
    """A set without GPU resources: the clique `alone`, and the group `sg` of `first` and `second`."""
    cliques = [clique(name, 0, annotations={MNNVL_GROUP: f"of-{name}"}) for name in ("alone", "first", "second")]
    made = pod_clique_set("test-pcs", *cliques, scaling_groups=[scaling_group("sg", "first", "second")])
    return msgspec.convert(sharing_set(made, device_class, *shared, of=of), PodCliqueSet)


@table(
    "of, shared, reached",
    [
        ("nothing", "", (), set()),
        ("of the set, without a filter", "", (shared_claim(),), ALL),
        ("of the set, a clique", "", (shared_claim(childCliqueNames=["alone"]),), {"alone"}),
        ("of the set, a clique of a group", "", (shared_claim(childCliqueNames=["first"]),), {"first"}),
        ("of the set, a group", "", (shared_claim(childScalingGroupNames=["sg"]),), {"first", "second"}),
        ("of the set, both", "", (shared_claim(childCliqueNames=["alone"], childScalingGroupNames=["sg"]),), ALL),
        ("of the set, a clique that it has not", "", (shared_claim(childCliqueNames=["another"]),), set()),
        ("of the set, an empty filter", "", (shared_claim(childCliqueNames=[]),), set()),
        (
            "of the set, twice",
            "",
            (shared_claim(childCliqueNames=["alone"]), shared_claim(childCliqueNames=["second"])),
            {"alone", "second"},
        ),
        ("of a group, without a filter", "sg", (shared_claim(),), {"first", "second"}),
        ("of a group, a clique", "sg", (shared_claim(childCliqueNames=["second"]),), {"second"}),
        ("of a clique", "first", (shared_claim(),), {"first"}),
        ("of an object of the namespace", "", (shared_claim("gpu-template"),), ALL),
        ("of one of its namespace, by name", "alone", (shared_claim("gpu-template", namespace=NAMESPACE),), {"alone"}),
        ("of an object with the name of a template", "", (shared_claim(namespace=NAMESPACE),), set()),
        ("of an object for others", "", (shared_claim("nic-template"),), set()),
        ("of an unknown object", "", (shared_claim("unknown"),), set()),
        ("of an object of another namespace", "", (shared_claim("gpu-template", namespace="other"),), set()),
    ],
)
def test_a_shared_claim_for_gpus_counts_for_the_cliques_that_it_reaches(
    of: str, shared: tuple[Json, ...], reached: set[str]
) -> None:
    given = a_sharing_set(*shared, of=of)
    assert GPUS.cliques(given, device_classes) == reached
    assert required_groups(given, GPUS, device_classes) == {f"of-{name}" for name in reached}


def test_a_shared_claim_for_other_devices_counts_for_none() -> None:
    assert GPUS.cliques(a_sharing_set(shared_claim(), device_class="nic.example"), device_classes) == set()


def test_a_template_of_the_set_shadows_an_object_of_its_name() -> None:
    def classes(_claim: PodClaim) -> tuple[str, ...]:
        return (GPU,)

    assert GPUS.cliques(a_sharing_set(shared_claim(), device_class="nic.example"), classes) == set()


def test_every_container_of_a_reached_pod_gets_the_claim_once() -> None:
    spec = {
        "containers": [container("main"), {"name": "bare"}, {"name": "null", "resources": None}],
        "initContainers": [container("setup", claims=[{"name": "other"}])],
    }
    operations = inject(a_pod_spec(**spec), "t", "", GPUS, everywhere=True).operations
    found = patched(spec, operations)
    claims = {
        each["name"]: [one["name"] for one in each["resources"]["claims"]]
        for each in (*found["containers"], *found["initContainers"])
    }
    added = ["mnnvl-claim"]
    assert claims == {"main": added, "bare": added, "null": added, "setup": ["other", *added]}
    assert inject(a_pod_spec(**found), "t", "", GPUS, everywhere=True).operations == []


def test_what_cannot_be_decided_enrolls_no_set_and_is_warned_of() -> None:
    given = pod_clique_set("test-pcs", clique("worker", 0))
    sharing_set(given, GPU, shared_claim("gpu-template", namespace="other"))
    found = msgspec.convert(given, PodCliqueSet)
    assert default_annotation(found, GPURequests(ON), device_classes, operation="CREATE") is None
    (warning,) = unread_sharing(found)
    assert "does not read claim template 'gpu-template' of namespace 'other'" in warning
    assert not list(unread_sharing(a_sharing_set(shared_claim(), shared_claim("x", namespace=NAMESPACE))))


@pytest.mark.timeout(20)
def test_many_shared_claims_of_many_cliques_are_read_in_linear_time() -> None:
    names = [f"c{index}" for index in range(1024)]
    groups = [scaling_group(f"sg{index}", *names) for index in range(256)]
    made = pod_clique_set(
        "test-pcs", *(clique(name, 0) for name in names), scaling_groups=groups, annotations={AUTO_MNNVL: "enabled"}
    )
    shared = [shared_claim(childCliqueNames=[f"d{index}"] * 1024) for index in range(256)]
    given = msgspec.convert(sharing_set(made, GPU, *shared), PodCliqueSet)
    assert GPUS.cliques(given, device_classes) == set()
