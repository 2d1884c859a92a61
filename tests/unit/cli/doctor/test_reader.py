"""Bounded reads: failures become Unreadable, and a list is read once."""

from datetime import UTC, datetime

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import DEFINITIONS, GKMCACHES, Resource
from gkm_cli.clusters import reads
from gkm_cli.clusters.reads import NotServed, Unreadable
from gkm_cli.doctor.domains.listed import read_lists
from gkm_cli.doctor.installation.observation import observe
from gkm_cli.doctor.runner import ClusterReader, Collection
from msgspec import Struct
from support.cli.doctor_lists import CUTOFF, NVIDIA_LABEL
from support.cluster.gkm_objects import cache
from support.grove.kinds import COMPUTE_DOMAIN
from support.grove.objects import Json, claim_template, compute_domain
from support.kube.fake_api import FakeApi

DOMAINS: Resource[Json] = Resource(
    "resource.nvidia.com/v1beta1", "ComputeDomain", "computedomains", namespaced=True, type=dict
)
NODES: Resource[Json] = Resource("v1", "Node", "nodes", namespaced=False, type=dict)
TEMPLATES: Resource[Json] = Resource(
    "resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", namespaced=True, type=dict
)
ALL_DOMAINS = Collection(DOMAINS, "computedomains.resource.nvidia.com")
ALL_NODES = Collection(NODES)


def forbidden(verb: str, plural: str) -> ApiError:
    return ApiError(403, "Forbidden", f"{plural} is forbidden: cannot {verb}")


@pytest.fixture
def api() -> FakeApi:
    made = FakeApi()
    made.create(DOMAINS, compute_domain("a"))
    made.create(DOMAINS, compute_domain("b", namespace="other"))
    return made


def reader(api: FakeApi, namespace: str = "") -> ClusterReader:
    return ClusterReader(api, namespace=namespace, cutoff=CUTOFF)


def names(found: tuple[Json, ...]) -> list[str]:
    return sorted(one["metadata"]["name"] for one in found)


def test_a_list_is_of_all_namespaces_or_of_one(api: FakeApi) -> None:
    assert names(reader(api).list(ALL_DOMAINS)) == ["a", "b"]
    assert names(reader(api, "other").list(ALL_DOMAINS)) == ["b"]


def test_a_list_takes_a_selector(api: FakeApi) -> None:
    api.create(TEMPLATES, claim_template("with", "c", labels={NVIDIA_LABEL: "uid"}))
    api.create(TEMPLATES, claim_template("without", "c"))
    assert names(reader(api).list(Collection(TEMPLATES, labels=NVIDIA_LABEL))) == ["with"]


def test_a_list_and_its_failure_are_requested_once(api: FakeApi) -> None:
    reading = reader(api)
    assert reading.list(ALL_DOMAINS) == reading.list(ALL_DOMAINS)
    api.fault = forbidden
    for _ in range(2):
        with pytest.raises(Unreadable, match="missing right: list nodes"):
            reading.list(ALL_NODES)
    assert [plural for _, plural, _ in api.calls if plural in ("computedomains", "nodes")][2:] == [
        "computedomains",
        "nodes",
    ]


@pytest.mark.parametrize(
    ("collection", "namespace", "right"),
    [
        (ALL_DOMAINS, "", "missing right: list computedomains.resource.nvidia.com in all namespaces"),
        (ALL_DOMAINS, "team", "missing right: list computedomains.resource.nvidia.com in the namespace team"),
        (ALL_NODES, "team", "missing right: list nodes"),
    ],
)
def test_a_refused_list_names_the_right(api: FakeApi, collection: Collection[Json], namespace: str, right: str) -> None:
    api.fault = forbidden
    with pytest.raises(Unreadable) as caught:
        reader(api, namespace).list(collection)
    assert (caught.value.why, "ClusterRole" in caught.value.hint) == (right, True)


def test_a_refused_object_names_the_right(api: FakeApi) -> None:
    api.fault = forbidden
    with pytest.raises(Unreadable, match=r"^missing right: get nodes/n;"):
        reader(api).get(NODES, "n")
    with pytest.raises(
        Unreadable, match=r"^missing right: get computedomains.resource.nvidia.com/a in the namespace t;"
    ):
        reader(api).get(DOMAINS, "a", "t")


def test_all_missing_rights_of_a_check_are_named_at_once(api: FakeApi) -> None:
    api.fault = forbidden
    with pytest.raises(Unreadable) as caught:
        read_lists(reader(api), ("nodes", "domains"))
    assert "list nodes; missing right: list computedomains" in caught.value.why
    assert caught.value.hint.count("ClusterRole") == 1


def not_found(_verb: str, plural: str) -> ApiError | None:
    return ApiError(404, "", "404 page not found") if plural == "computedomains" else None


def test_a_kind_that_is_not_installed_has_no_objects(api: FakeApi) -> None:
    api.fault = not_found
    assert reader(api).list(ALL_DOMAINS) == ()


def test_a_kind_that_is_installed_and_not_served_is_no_empty_list(api: FakeApi) -> None:
    api.fault = not_found
    api.create(DEFINITIONS, COMPUTE_DOMAIN)
    with pytest.raises(NotServed, match=r"does not serve computedomains of resource.nvidia.com/v1beta1"):
        reader(api).list(ALL_DOMAINS)
    with pytest.raises(NotServed, match=r"does not serve computedomains of resource.nvidia.com/v1beta1"):
        reader(api).list(Collection(DOMAINS))


def test_a_kind_that_may_not_be_looked_up_is_no_empty_list(api: FakeApi) -> None:
    api.fault = lambda verb, plural: not_found(verb, plural) or (forbidden(verb, plural) if verb == "get" else None)
    with pytest.raises(Unreadable, match=r"get customresourcedefinitions.apiextensions.k8s.io/computedomains"):
        reader(api).list(ALL_DOMAINS)


@pytest.mark.parametrize("status", [0, 401, 410, 429, 500, 503])
def test_any_other_failure_is_not_checked(api: FakeApi, status: int) -> None:
    api.fault = lambda *_: ApiError(status, "Odd", "the reason of the server")
    with pytest.raises(Unreadable, match=r"cannot list nodes: the reason of the server"):
        reader(api).list(ALL_NODES)


def test_more_objects_than_the_limit_are_not_read(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MAX_OBJECTS", 1)
    with pytest.raises(Unreadable, match=r"there are more than 1 computedomains; name a namespace with -n"):
        reader(api).list(ALL_DOMAINS)
    assert names(reader(api, "other").list(ALL_DOMAINS)) == ["b"]


def test_the_next_step_after_too_many_objects_names_a_namespace_only_where_that_helps(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_OBJECTS", 0)
    api.create(ALL_NODES.resource, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}})
    for made, collection, command in (
        (reader(api, "other"), ALL_DOMAINS, "kubectl get computedomains.resource.nvidia.com -n other"),
        (reader(api), ALL_NODES, "kubectl get nodes"),
    ):
        with pytest.raises(Unreadable) as caught:
            made.list(collection)
        assert caught.value.hint == f"{command} lists them all", "-n is given, or the kind has no namespace"


def test_one_object_that_cannot_be_read_leaves_nothing_known(api: FakeApi) -> None:
    class Numbered(Struct):
        spec: int

    odd = Resource(DOMAINS.api_version, DOMAINS.kind, DOMAINS.plural, namespaced=True, type=Numbered)
    with pytest.raises(Unreadable, match=r"these computedomains cannot be read: other/b, team/a"):
        reader(api).list(Collection(odd))


def test_rights_in_one_namespace_are_enough_for_its_caches(api: FakeApi) -> None:
    api.create(GKMCACHES, cache("llama", "other", "registry.example/llama:1"))
    api.fault = lambda verb, plural: forbidden(verb, plural) if plural == DEFINITIONS.plural else None
    (found,) = observe(reader(api, "other"), ("caches",)).caches
    assert found.metadata.name == "llama"
    assert observe(reader(api, "other"), ("reports",)).reports == ()
    # Without a namespace, the missing right is named.
    with pytest.raises(Unreadable, match="get customresourcedefinitions"):
        observe(reader(api), ("caches",))


def test_the_time_of_checks_is_that_of_the_reader(api: FakeApi) -> None:
    then = datetime(2020, 1, 1, tzinfo=UTC)
    assert observe(ClusterReader(api, cutoff=CUTOFF, now=lambda: then), ()).now == then
