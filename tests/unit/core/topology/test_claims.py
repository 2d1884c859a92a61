"""GPUs that ResourceClaims hold are in use: which GPUs of which node, and whose."""

import msgspec
import pytest
from gkm.kube.memory import MAX_HELD_BYTES, bounded, held_bytes
from gkm.topology.claims import FOR_REQUEST, ResourceClaim, gpus_by_holder
from gkm.topology.lists import ListUnreadable, parse_claims
from gkm.topology.usage import Usage, with_claims
from support.topology.claims import claim


def decoded(*devices: str, **more: object) -> ResourceClaim:
    return msgspec.convert(claim("c", "n1", *devices, **more), ResourceClaim)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [
        (("gpu-0", "gpu-1"), {"gpu-0", "gpu-1"}),
        (("gpu-0-mig-19-0-1", "gpu-0-mig-19-1-1", "gpu-1-mig-1g.5gb-0"), {"gpu-0", "gpu-1"}),
        (("gpu-vfio-3",), {"gpu-3"}),
        (("other",), {"other"}),
        ((), set()),
    ],
    ids=["whole", "parts", "virtual machine", "another name", "not allocated"],
)
def test_a_claim_holds_the_gpus_of_its_devices(devices: tuple[str, ...], gpus: set[str]) -> None:
    assert {(gpu.node, gpu.device) for gpu in decoded(*devices).gpus} == {("n1", device) for device in gpus}


@pytest.mark.parametrize(
    "more",
    [{"driver": "compute-domain.nvidia.com"}, {"admin": True}, {"annotations": {FOR_REQUEST: "true"}}],
    ids=["channels", "admin access", "for a request of nvidia.com/gpu, which is counted"],
)
def test_other_claims_hold_no_gpus(more: dict[str, object]) -> None:
    found = decoded("gpu-0", pods=("p",), **more)
    assert (found.held, found.pods) == ("", ())


def test_a_gpu_that_several_claims_hold_is_one_and_of_nobody_alone() -> None:
    holders = {"a": "run-a", "b": "run-b"}
    claims = [
        msgspec.convert(claim("1", "n1", "gpu-0", "gpu-1-mig-19-0-1", pods=("a",)), ResourceClaim),
        msgspec.convert(claim("2", "n1", "gpu-1-mig-19-1-1", pods=("b",)), ResourceClaim),
        msgspec.convert(claim("3", "n2", "gpu-0"), ResourceClaim),
    ]
    found = gpus_by_holder(claims, lambda _, pod: holders.get(pod))
    assert found == {"run-a": {"n1": 1}, None: {"n1": 1, "n2": 1}}
    used = with_claims(Usage({"n1": 2}, claiming={"n1": 1}), found.values())
    assert (used.gpus, used.claiming) == ({"n1": 4, "n2": 1}, {})


def test_a_claim_keeps_neither_annotations_nor_more_than_may_be_held() -> None:
    large = claim("c", "n1", *(f"gpu-{at}" for at in range(32)), pods=tuple(f"{at}" + "p" * 250 for at in range(256)))
    large["metadata"]["annotations"] = {"note": "x" * 100_000}
    held = bounded(msgspec.convert(large, ResourceClaim))
    assert held_bytes(held) <= MAX_HELD_BYTES
    assert (len(list(held.gpus)), held.pods) == (32, ())


def test_a_list_with_a_claim_that_cannot_be_read_is_an_error() -> None:
    text = msgspec.json.encode({"kind": "List", "items": [claim("c", "n1", "gpu-0"), claim("d", "n1") | {"status": 1}]})
    with pytest.raises(ListUnreadable, match=r"items\[1\] is a ResourceClaim that cannot be read"):
        parse_claims([text])
