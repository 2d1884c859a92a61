"""Which containers of a pod get its cache."""

import pytest
from support.grove.objects import Json
from support.operator.pod_caches import GPU, a_pod, container, pod_caches


def mounting(pod: Json) -> list[str]:
    return [each["name"] for each in pod["spec"]["containers"] if "volumeMounts" in each]


@pytest.mark.parametrize(
    ("containers", "wishes", "expected"),
    [
        ([container("a"), container("b", resources=GPU), container("c", resources=GPU)], {}, ["b", "c"]),
        ([container("a"), container("b")], {}, ["a"]),
        ([container("mesh"), container("kserve-container")], {}, ["kserve-container"]),
        ([container("a"), container("b", resources={"claims": [{"name": "gpu"}]})], {}, ["b"]),
        ([container("a", resources=GPU), container("b")], {"gkm.io/cache-container": "b"}, ["b"]),
        ([container("a", resources=GPU), container("b")], {"gkm.io/cache-container": "c"}, []),
        ([container(f"c{n}", resources=GPU) for n in range(20)], {}, [f"c{n}" for n in range(16)]),
    ],
)
def test_containers_that_request_gpus_or_the_named_or_the_main_one_get_the_cache(
    containers: list[Json], wishes: Json, expected: list[str]
) -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "x"}]
    found = pod_caches("llama").review(a_pod(*containers, annotations=wishes, resourceClaims=claims))
    assert mounting(found.object) == expected
    assert [each["name"] for each in found.object["spec"].get("volumes", ())] == (["gkm-cache"] if expected else [])


def test_init_containers_stay_as_they_are() -> None:
    init = [container("fetch", resources=GPU)]
    found = pod_caches("llama").review(a_pod(initContainers=init))
    assert found.object["spec"]["initContainers"] == init
    assert mounting(found.object) == ["main"]
