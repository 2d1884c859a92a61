"""Which containers request GPUs, beyond Grove's table, and whose claims are left alone."""

import msgspec
from gkm.api.network_settings import Network
from gkm.api.pod_specs import PodClaim
from gkm.api.resource_claims import ResourceClaimTemplate
from gkm_operator.mnnvl.gpu_requests import GPURequests
from gkm_operator.mnnvl.injection import inject
from support.grove.json_patch import patched
from support.grove.objects import Json, claim_template, container
from support.grove.tables import table
from support.grove.typed import GPUS, a_pod_spec, device_classes


def pod_with(*containers: Json, claims: Json | None = None, **fields: object) -> Json:
    made = [{"name": name, "resourceClaimTemplateName": template} for name, template in (claims or {}).items()]
    return {"containers": list(containers), **({"resourceClaims": made} if claims is not None else {}), **fields}


def claiming(name: str, *claims: str) -> Json:
    return {"name": name, "resources": {"claims": [{"name": claim} for claim in claims]}}


@table(
    "resource, quantity, found",
    [
        ("a MIG device", "nvidia.com/mig-1g.10gb", "1", True),
        ("a prefix alone", "nvidia.com/mig-", "1", True),
        ("another vendor", "amd.com/gpu", "1", False),
        ("a name that only begins like a GPU", "nvidia.com/gpu.shared", "1", False),
        ("upper case", "NVIDIA.com/gpu", "1", False),
        ("a number", "nvidia.com/gpu", 8, True),
        ("a fraction", "nvidia.com/gpu", "0.5", True),
        ("with a suffix", "nvidia.com/gpu", "1k", True),
        ("with an exponent", "nvidia.com/gpu", "2e0", True),
        ("zero with an exponent", "nvidia.com/gpu", "0e5", False),
        ("zero with a suffix", "nvidia.com/gpu", "0k", False),
        ("zero in many digits", "nvidia.com/gpu", "0.000", False),
        ("zero as a float", "nvidia.com/gpu", 0.0, False),
        ("negative", "nvidia.com/gpu", "-8", False),
        ("empty", "nvidia.com/gpu", "", False),
        ("a word", "nvidia.com/gpu", "all", False),
    ],
)
def test_a_resource_is_a_gpu_by_name_and_quantity(resource: str, quantity: str | float, found: bool) -> None:  # noqa: FBT001 -- a row
    for field in ("limits", "requests"):
        pod = {"containers": [{"name": "main", "resources": {field: {resource: quantity}}}]}
        assert GPUS.any(a_pod_spec(**pod)) is found


def test_resources_are_configurable() -> None:
    gpus = GPURequests(Network(gpu_resources=["vendor.example/a*", "vendor.example/b"]))
    found = {
        name: gpus.any(a_pod_spec(containers=[container("main", 1, f"vendor.example/{name}")]))
        for name in ("a", "abc", "b", "bc")
    }
    assert found == {"a": True, "abc": True, "b": True, "bc": False}
    assert not gpus.any(a_pod_spec(containers=[container("main", 1)]))


@table(
    "settings, found",
    [
        ("no resources", Network(gpu_resources=[]), [1]),
        ("no classes", Network(gpu_device_classes=[]), [0]),
        ("both", Network(), [0, 1]),
    ],
)
def test_resources_and_device_classes_count_on_their_own(settings: Network, found: list[int]) -> None:
    pod = a_pod_spec(**pod_with(container("main", 8), claiming("other", "gpu"), claims={"gpu": "gpu-template"}))
    assert [location.index for location in GPURequests(settings).containers(pod, device_classes)] == found


@table(
    "claims, found",
    [
        ("of a GPU's device class", {"c": "gpu-template"}, True),
        ("of another device class", {"c": "nic-template"}, False),
        ("of an unknown template", {"c": "unknown"}, False),
        ("that the pod does not have", {"other": "gpu-template"}, False),
        ("of none", {}, False),
    ],
)
def test_a_container_requests_gpus_by_a_claim(claims: Json, found: bool) -> None:  # noqa: FBT001 -- a row
    pod = a_pod_spec(**pod_with(claiming("main", "c"), container("sidecar"), claims=claims))
    assert [location.index for location in GPUS.containers(pod, device_classes)] == ([0] if found else [])


@table(
    "requests, classes",
    [
        ("exactly", [{"exactly": {"deviceClassName": "a"}}], ["a"]),
        ("first available", [{"firstAvailable": [{"deviceClassName": "a"}, {"deviceClassName": "b"}]}], ["a", "b"]),
        ("several requests", [{"exactly": {"deviceClassName": "a"}}, {"firstAvailable": []}], ["a"]),
        ("a request of neither", [{"name": "x"}], []),
        ("no class", [{"exactly": {}}], []),
        ("null lists", [{"exactly": None, "firstAvailable": None}], []),
    ],
)
def test_device_classes_of_a_claim_template(requests: list[Json], classes: list[str]) -> None:
    document = claim_template("t", "-")
    document["spec"]["spec"]["devices"]["requests"] = requests
    assert list(msgspec.convert(document, ResourceClaimTemplate).device_classes()) == classes


@table(
    "claims, skipped",
    [
        ("a claim of the user with our name", {"mnnvl-claim": "own-template"}, "its own claim 'mnnvl-claim'"),
        ("a channel of the user", {"mine": "channel-template"}, "'mine' is a channel"),
        ("another claim", {"mine": "gpu-template"}, ""),
    ],
)
def test_a_claim_of_the_user_is_never_replaced(claims: Json, skipped: str) -> None:
    pod = pod_with(container("main", 8, claims=[{"name": name} for name in claims]), claims=claims)
    injection = inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS, device_classes)
    assert skipped in injection.skipped
    assert bool(injection.operations) is not bool(skipped)
    made = patched(pod, injection.operations)
    assert made["resourceClaims"][:1] == pod["resourceClaims"]
    assert made["containers"][0]["resources"]["claims"][:1] == pod["containers"][0]["resources"]["claims"]


def test_our_claim_by_name_of_a_claim_is_the_users() -> None:
    pod = pod_with(container("main", 8), resourceClaims=[{"name": "mnnvl-claim", "resourceClaimName": "test-pcs-0"}])
    assert inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS).skipped


def test_a_pod_without_gpus_is_left_alone_whatever_claims_it_has() -> None:
    pod = pod_with(container("main"), claims={"mnnvl-claim": "own-template", "mine": "channel-template"})
    assert inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS, device_classes) == inject(a_pod_spec(), "x", "", GPUS)


def test_a_container_that_lost_its_claim_gets_it_again() -> None:
    pod = pod_with(container("a", 8, claims=[{"name": "mnnvl-claim"}]), container("b", 8))
    pod["resourceClaims"] = [{"name": "mnnvl-claim", "resourceClaimTemplateName": "test-pcs-0"}]
    operations = inject(a_pod_spec(**pod), "test-pcs-0", "/spec/podSpec", GPUS).operations
    assert [operation["path"] for operation in operations] == ["/spec/podSpec/containers/1/resources/claims"]


@table(
    "claims, resources",
    [
        ("absent", {}, {}),
        ("null", {"resourceClaims": None}, {"claims": None}),
        ("empty", {"resourceClaims": []}, {"claims": []}),
    ],
)
def test_lists_of_claims_may_be_absent_null_or_empty(claims: Json, resources: Json) -> None:
    pod = pod_with(container("main", 8, **resources), **claims)
    made = patched(pod, inject(a_pod_spec(**pod), "test-pcs-0", "", GPUS).operations)
    assert made["resourceClaims"] == [{"name": "mnnvl-claim", "resourceClaimTemplateName": "test-pcs-0"}]
    assert made["containers"][0]["resources"]["claims"] == [{"name": "mnnvl-claim"}]


def test_only_claims_that_decide_are_looked_at() -> None:
    looked: list[str] = []

    def classes(claim: PodClaim) -> tuple[str, ...]:
        looked.append(claim.name)
        return ("gpu.nvidia.com",) if claim.name == "gpus" else ()

    claims = {"gpus": "t", "nic": "n", "unused": "u", "beside": "b"}
    first = container("first", 8, claims=[{"name": "beside"}])
    spec = a_pod_spec(**pod_with(first, claiming("second", "gpus", "nic"), claims=claims))
    assert GPUS.any(spec, classes)
    assert looked == []
    assert [location.index for location in GPUS.containers(spec, classes)] == [0, 1]
    assert looked == ["gpus", "nic"]
