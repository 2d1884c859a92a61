"""The view: missing kinds, single reads and what is remembered of them, and objects as they are stored."""

import json
from threading import Event, Thread
from typing import Any

import msgspec
import pytest
from gkm.api.domain_capacity import CONFIG_MAP, DomainCapacity
from gkm.api.grove import PodCliqueSet
from gkm.api.mnnvl_metadata import AUTO_MNNVL, MNNVL_GROUP
from gkm.api.pod_specs import PodClaim
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLAIM_TEMPLATES, CONFIGMAPS, Resource
from gkm_operator.admission.domains import cluster_view
from gkm_operator.admission.domains.cluster_view import (
    CLAIM_SECONDS,
    MAX_CLAIMS,
    REVIEW_SECONDS,
    ClusterView,
    ReviewView,
    SingleReads,
    ThinDomain,
    ThinSet,
    TooManyClaims,
    ViewUnavailable,
)
from gkm_operator.mnnvl.required import SetDomainKey, domain_of, required_domains
from support.grove.objects import (
    NAMESPACE,
    Json,
    claim_template,
    clique,
    container,
    pod_clique_set,
    scaling_group,
    shared_claim,
    sharing_set,
)
from support.grove.typed import GPUS, a_pod_clique, device_classes
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.operator.workloads import DOMAINS, SETS, SYSTEM, Workloads

ENABLED = {AUTO_MNNVL: "enabled"}


def gets(api: FakeApi) -> list[str]:
    return [name for verb, _, name in api.calls if verb == "get"]


def test_while_a_kind_is_missing_the_view_waits_and_the_others_are_read() -> None:
    site = Workloads()
    site.api.served = {("v1", "configmaps")}
    site.publish(grove_manages=True)
    with site.watching():
        site.until(lambda: site.view.grove_manages_domains, "the ConfigMap")
        with pytest.raises(ViewUnavailable, match="not read yet"):
            site.view.compute_domain(NAMESPACE, "x")
        # Its clients get "not found" for every object of such a kind.
        assert site.view.reads.get(SETS, NAMESPACE, "x") is None
        site.api.served = None
        site.create_set(pod_clique_set(annotations=ENABLED), SetDomainKey(0, ""))
        site.until(site.view._domains.synced.is_set, "the kind to be there")
        site.until(lambda: site.view.compute_domain(NAMESPACE, "test-pcs-0"), "the domain")


def test_the_view_follows_the_config_map() -> None:
    site = Workloads()
    assert site.view.grove_manages_domains is None
    with site.watching():
        site.until(lambda: site.view.grove_manages_domains is False, "what the controllers wrote")
        site.publish(DomainCapacity(), grove_manages=True)
        site.until(lambda: site.view.grove_manages_domains, "the condition")
        assert site.view.capacity == DomainCapacity()
        site.api.delete(CONFIGMAPS, CONFIG_MAP, SYSTEM)
        site.until(lambda: site.view.grove_manages_domains is None, "without the ConfigMap it is not known")
        assert site.view.capacity is None


def test_domains_are_those_that_the_set_owns() -> None:
    site = Workloads()
    one = site.create_set(pod_clique_set("one", annotations=ENABLED), SetDomainKey(0, ""))
    two = site.create_set(pod_clique_set("two", annotations=ENABLED), SetDomainKey(0, ""), SetDomainKey(1, ""))
    site.observe()
    assert [domain.metadata.name for domain in site.view.domains_of(one)] == ["one-0"]
    site.api.delete(DOMAINS, "two-1", NAMESPACE)
    site.api.merge(DOMAINS, "two-1", {"metadata": {"finalizers": None}}, NAMESPACE)
    site.observe()
    assert [domain.metadata.name for domain in site.view.domains_of(two)] == ["two-0"]


def test_a_set_that_the_watch_shows_is_not_read() -> None:
    site = Workloads()
    made = site.create_set(pod_clique_set(annotations=ENABLED))
    site.observe()
    view = ReviewView(site.view)
    assert view.pod_clique_set(NAMESPACE, "test-pcs", made.metadata.uid)
    assert gets(site.api) == []
    for _ in range(2):
        assert view.pod_clique_set(NAMESPACE, "test-pcs", "another")
        assert view.pod_clique_set(NAMESPACE, "test-pcs", again=True)
        assert gets(site.api) == ["test-pcs", "test-pcs"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_was_read_is_remembered_for_a_time_and_an_absence_never() -> None:
    api, clock = FakeApi(), Clock()
    cluster = ClusterView(api, api, SYSTEM, clock)

    def read() -> list[str]:
        classes = ReviewView(cluster).device_classes(NAMESPACE)
        list(classes(PodClaim("x", "t")))
        return list(classes(PodClaim("x", "t")))

    assert [read(), read()] == [[], []]
    api.create(CLAIM_TEMPLATES, claim_template("t", "gpu.nvidia.com"))
    assert [read(), read()] == [["gpu.nvidia.com"], ["gpu.nvidia.com"]]
    assert len(gets(api)) == 3
    clock.now += CLAIM_SECONDS
    api.fault = lambda _verb, _plural: ApiError(500, "InternalError", "x")
    with pytest.raises(ViewUnavailable, match="ResourceClaimTemplate t cannot be read: InternalError: x"):
        read()


def test_one_review_reads_an_object_once_even_if_it_fails() -> None:
    api = FakeApi()
    api.fault = lambda _verb, _plural: ApiError(500, "InternalError", "x")
    classes = ReviewView(ClusterView(api, api, SYSTEM)).device_classes(NAMESPACE)
    for _ in range(2):
        with pytest.raises(ViewUnavailable, match="InternalError: x"):
            classes(PodClaim("x", "t"))
    assert gets(api) == ["t"]


class SilentApi(FakeApi):
    """An API server that answers no read before `answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = Event()

    def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:  # noqa: ANN401 -- any type
        self.calls.append(("get", resource.plural, name))
        self.answer.wait(scaled(10))
        return super().get(resource, name, namespace)


def test_a_silent_api_server_occupies_few_threads_and_no_review_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "READ_SECONDS", 0.2)
    api = SilentApi()
    reads = SingleReads(api)
    errors: list[str] = []

    def read(number: int) -> None:
        try:
            reads.get(CLAIM_TEMPLATES, f"team-{number}", "t")
        except ViewUnavailable as error:
            errors.append(str(error))

    threads = [Thread(target=read, args=(number,), daemon=True) for number in range(40)]
    try:
        for thread in threads:
            thread.start()
        until(lambda: len(errors) == 40, "all give up", 8)
        assert all("does not answer in time" in error for error in errors)
        assert len(api.calls) == cluster_view.THREADS
    finally:
        api.answer.set()


def claims(count: int) -> list[PodClaim]:
    """Return as many claims of templates, and after half of them claims by name."""
    return [PodClaim("x", f"t{number}") if number % 2 else PodClaim("x", None, f"c{number}") for number in range(count)]


def test_all_reads_of_one_review_end_before_its_deadline() -> None:
    clock, api = Clock(), FakeApi()

    def take_a_second(_verb: str, _plural: str) -> None:
        clock.now += 1.0

    api.fault = take_a_second
    view = ReviewView(ClusterView(api, api, SYSTEM, clock))
    classes = view.device_classes(NAMESPACE)
    with pytest.raises(ViewUnavailable, match="takes too long to show all claims"):
        [list(classes(one)) for one in claims(10)]
    assert clock.now <= 1000.0 + REVIEW_SECONDS
    assert len(api.calls) < 10


def test_the_last_read_of_a_review_gets_the_seconds_that_remain() -> None:
    clock, api = Clock(), FakeApi()
    view = ReviewView(cluster := ClusterView(api, api, SYSTEM, clock))
    given: list[float] = []
    cluster.reads.get = lambda _resource, _namespace, _name, seconds: given.append(seconds)  # type: ignore[assignment,method-assign,misc]
    clock.now += REVIEW_SECONDS - 0.25
    list(view.device_classes(NAMESPACE)(PodClaim("x", "t")))
    assert given == [0.25]


def test_a_review_reads_at_most_so_many_claims() -> None:
    api = FakeApi()
    view = ReviewView(ClusterView(api, api, SYSTEM))
    classes = view.device_classes(NAMESPACE)
    for one in claims(MAX_CLAIMS) * 2:
        list(classes(one))
    with pytest.raises(TooManyClaims, match="use fewer"):
        classes(PodClaim("y", "another"))
    assert len(api.calls) == MAX_CLAIMS


SET = pod_clique_set(
    "big",
    clique("a", 4, containers=[container("main", 4), container("cpu"), {"name": "bare"}], nodeSelector={"x": "y"}),
    clique("b", 0),
    scaling_groups=[scaling_group("sg", "a", replicas=2)],
    annotations=ENABLED | {"other": "x"},
    replicas=3,
)


def with_shared_claims(of: str) -> Json:
    groups = [scaling_group("sg", "a", replicas=2)]
    made = pod_clique_set("big", clique("a", 0, annotations={MNNVL_GROUP: "x"}), clique("b", 0), scaling_groups=groups)
    return sharing_set(made, "gpu.nvidia.com", shared_claim(), of=of)


@pytest.mark.parametrize(
    "given", [SET, *map(with_shared_claims, ("", "a", "sg"))], ids=["resources", "set", "clique", "group"]
)
def test_a_stored_set_answers_as_the_whole_one(given: Json) -> None:
    text = json.dumps(given)
    thin, whole = msgspec.json.decode(text, type=ThinSet), msgspec.json.decode(text, type=PodCliqueSet)
    assert required_domains(thin, GPUS, device_classes) == required_domains(whole, GPUS, device_classes)
    for name, in_group in (("a", "sg"), ("b", "")):
        made = a_pod_clique("big", "1", name, in_group)
        assert domain_of(thin, made) == domain_of(whole, made)
    assert required_domains(thin, GPUS, device_classes)


def test_a_stored_set_has_what_shows_gpus_and_no_more() -> None:
    thin = msgspec.json.decode(json.dumps(SET), type=ThinSet)
    stored = thin.cliques[0].spec.pod_spec.containers or ()
    assert [one.resources.limits for one in stored if one.resources] == [{"nvidia.com/gpu": "4"}, None]


def test_equal_templates_are_stored_once_and_sets_that_are_not_enrolled_without() -> None:
    other = json.dumps(SET | {"metadata": {**SET["metadata"], "name": "other"}})
    first, second = (msgspec.json.decode(text, type=ThinSet) for text in (json.dumps(SET), other))
    assert first.spec.template is second.spec.template
    plain = json.dumps(SET | {"metadata": {"name": "plain"}})
    assert msgspec.json.decode(plain, type=ThinSet).cliques == ()


def test_a_stored_domain_has_no_status() -> None:
    site = Workloads()
    site.create_set(pod_clique_set(annotations=ENABLED), SetDomainKey(0, ""))
    made = site.api.get(DOMAINS, "test-pcs-0", NAMESPACE)
    nodes = [{"name": f"n{number}", "cliqueID": "a.1", "status": "Ready"} for number in range(18)]
    thin = msgspec.convert(made | {"status": {"status": "Ready", "nodes": nodes}}, ThinDomain)
    assert thin.status.nodes is None
    assert (thin.template, thin.written_by_gkm) == ("test-pcs-0", True)
    assert thin.owner == site.api.get(SETS, "test-pcs", NAMESPACE)["metadata"]["uid"]
