"""Reads, writes and kinds: one body for the fake API in memory and the real kube-apiserver."""

import pytest
from gkm.kube.api import Api
from gkm.kube.discovery import Discovery, KindName
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHES, GKMCACHES, Json, Resource
from support.kube.fake_api import FakeApi
from support.kube.our_kinds import IMAGE, THIN, a_cache

_BUILT_IN: tuple[Resource[Json], ...] = (
    Resource("v1", "ConfigMap", "configmaps", namespaced=True, type=Json),
    Resource("v1", "Namespace", "namespaces", namespaced=False, type=Json),
    Resource("apps/v1", "Deployment", "deployments", namespaced=True, type=Json),
    *(
        Resource(
            f"autoscaling/{version}",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            namespaced=True,
            type=Json,
        )
        for version in ("v2", "v1")
    ),
)


def test_what_was_created_is_got_typed(api: Api, wiped: str) -> None:
    created = api.create(GKMCACHES, a_cache(wiped))
    got = api.get(GKMCACHES, wiped, "default")
    assert got == created
    assert (got.spec.image, got.metadata.generation) == (IMAGE, 1)
    assert got.metadata.uid
    assert got.metadata.resource_version


def test_creating_twice_is_a_conflict(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(wiped))
    with pytest.raises(ApiError) as caught:
        api.create(GKMCACHES, a_cache(wiped))
    assert (caught.value.conflict, caught.value.reason) == (True, "AlreadyExists")


def test_what_is_not_there_is_not_found_for_every_verb(api: Api, wiped: str) -> None:
    status = a_cache(wiped) | {"status": {"readyNodes": 1}}
    for call in (
        lambda: api.get(GKMCACHES, wiped, "default"),
        lambda: api.delete(GKMCACHES, wiped, "default"),
        lambda: api.merge(GKMCACHES, wiped, {"spec": {"image": IMAGE}}, "default"),
        lambda: api.apply(GKMCACHES, status, field_manager="a", subresource="status"),
        lambda: api.get(CLUSTERGKMCACHES, wiped),
    ):
        with pytest.raises(ApiError) as caught:
            call()
        assert caught.value.not_found


def test_find_returns_none_for_an_object_or_kind_that_does_not_exist(api: Api, wiped: str) -> None:
    not_served = Resource("gkm.io/v1alpha1", "Missing", "missings", namespaced=True, type=Json)
    assert api.find(GKMCACHES, wiped, "default") is None
    if not isinstance(api, FakeApi):  # that one serves each kind
        assert api.find(not_served, wiped, "default") is None
    created = api.create(GKMCACHES, a_cache(wiped))
    assert api.find(GKMCACHES, wiped, "default") == created


def test_apply_makes_changes_and_takes_back_what_it_owned(api: Api, wiped: str) -> None:
    api.apply(THIN, a_cache(wiped, labels={"a": "1", "b": "2"}), field_manager="one")
    assert api.get(THIN, wiped, "default")["metadata"]["labels"] == {"a": "1", "b": "2"}
    api.apply(THIN, a_cache(wiped, labels={"b": "3"}), field_manager="one")
    assert api.get(THIN, wiped, "default")["metadata"]["labels"] == {"b": "3"}


def test_appliers_leave_each_others_fields_alone(api: Api, wiped: str) -> None:
    api.apply(THIN, a_cache(wiped, labels={"a": "1"}), field_manager="one")
    api.apply(THIN, a_cache(wiped, labels={"b": "2"}), field_manager="two")
    assert api.get(THIN, wiped, "default")["metadata"]["labels"] == {"a": "1", "b": "2"}


def test_an_applier_takes_a_field_from_another(api: Api, wiped: str) -> None:
    api.apply(THIN, a_cache(wiped), field_manager="one")
    assert api.apply(GKMCACHES, a_cache(wiped, image="other.test/x:2"), field_manager="two").spec.image == (
        "other.test/x:2"
    )


def test_status_and_the_rest_are_written_apart(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(wiped) | {"status": {"readyNodes": 9}})
    assert api.get(GKMCACHES, wiped, "default").status.ready_nodes == 0
    changed = a_cache(wiped, image="other.test/x:2") | {"status": {"readyNodes": 3}}
    api.apply(GKMCACHES, changed, field_manager="one", subresource="status")
    got = api.get(GKMCACHES, wiped, "default")
    assert (got.spec.image, got.status.ready_nodes, got.metadata.generation) == (IMAGE, 3, 1)


def test_a_merge_into_the_status_leaves_its_other_fields_and_the_spec_alone(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(wiped))
    first = {"status": {"readyNodes": 3, "resolvedDigest": "sha256:" + "0" * 64}}
    api.merge(GKMCACHES, wiped, first, "default", subresource="status")
    second = {"spec": {"image": "other.test/x:2"}, "status": {"readyNodes": 4}}
    got = api.merge(GKMCACHES, wiped, second, "default", subresource="status")
    assert (got.spec.image, got.status.ready_nodes) == (IMAGE, 4)
    assert got.status.resolved_digest == "sha256:" + "0" * 64
    api.merge(GKMCACHES, wiped, {"status": {"readyNodes": None}}, "default", subresource="status")
    assert api.get(THIN, wiped, "default")["status"].get("readyNodes") is None


def test_a_merge_into_the_status_with_an_old_version_is_a_conflict(api: Api, wiped: str) -> None:
    old = api.create(GKMCACHES, a_cache(wiped)).metadata.resource_version
    api.merge(GKMCACHES, wiped, {"metadata": {"labels": {"a": "1"}}}, "default")
    late = {"metadata": {"resourceVersion": old}, "status": {"readyNodes": 3}}
    with pytest.raises(ApiError) as caught:
        api.merge(GKMCACHES, wiped, late, "default", subresource="status")
    assert caught.value.conflict


def test_a_changed_spec_is_a_new_generation(api: Api, wiped: str) -> None:
    api.create(GKMCACHES, a_cache(wiped))
    assert api.merge(GKMCACHES, wiped, {"spec": {"image": "other.test/x:2"}}, "default").metadata.generation == 2


def test_a_merge_with_an_old_version_is_a_conflict(api: Api, wiped: str) -> None:
    version = api.create(GKMCACHES, a_cache(wiped)).metadata.resource_version
    api.merge(GKMCACHES, wiped, {"metadata": {"labels": {"a": "1"}}}, "default")
    late = {"metadata": {"resourceVersion": version, "labels": {"a": "2"}}}
    with pytest.raises(ApiError) as caught:
        api.merge(GKMCACHES, wiped, late, "default")
    assert caught.value.conflict


def test_a_merge_for_another_uid_is_invalid(api: Api, wiped: str) -> None:
    former = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    api.delete(GKMCACHES, wiped, "default")
    present = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    patch = {"metadata": {"uid": former, "labels": {"a": "1"}}}
    with pytest.raises(ApiError) as caught:
        api.merge(GKMCACHES, wiped, patch, "default")
    assert (caught.value.status, caught.value.reason) == (422, "Invalid")
    assert api.get(GKMCACHES, wiped, "default").metadata.labels == {}
    patch["metadata"]["uid"] = present
    assert api.merge(GKMCACHES, wiped, patch, "default").metadata.labels == {"a": "1"}


@pytest.mark.parametrize("subresource", ["", "status"])
def test_an_apply_of_what_was_made_of_an_old_version_is_a_conflict(api: Api, wiped: str, subresource: str) -> None:
    version = api.create(GKMCACHES, a_cache(wiped)).metadata.resource_version
    current = api.merge(GKMCACHES, wiped, {"metadata": {"labels": {"a": "1"}}}, "default").metadata.resource_version
    status = {"status": {"readyNodes": 3}} if subresource else {}
    late = a_cache(wiped, resourceVersion=version) | status
    with pytest.raises(ApiError) as caught:
        api.apply(GKMCACHES, late, field_manager="one", subresource=subresource)
    assert (caught.value.conflict, caught.value.reason) == (True, "Conflict")
    timely = late | {"metadata": a_cache(wiped, resourceVersion=current)["metadata"]}
    made = api.apply(GKMCACHES, timely, field_manager="one", subresource=subresource)
    assert made.status.ready_nodes == (3 if subresource else 0)


def test_an_apply_to_an_object_that_is_gone_makes_it_anew_but_no_status(api: Api, wiped: str) -> None:
    gone = api.create(GKMCACHES, a_cache(wiped)).metadata
    api.delete(GKMCACHES, wiped, "default")
    late = a_cache(wiped, resourceVersion=gone.resource_version)
    with pytest.raises(ApiError) as caught:
        api.apply(GKMCACHES, late, field_manager="one", subresource="status")
    assert caught.value.not_found
    assert api.apply(GKMCACHES, late, field_manager="one").metadata.uid != gone.uid


def test_a_write_that_changes_nothing_keeps_the_version(api: Api, wiped: str) -> None:
    first = api.apply(GKMCACHES, a_cache(wiped), field_manager="one")
    second = api.apply(GKMCACHES, a_cache(wiped), field_manager="one")
    assert first.metadata.resource_version == second.metadata.resource_version


def test_a_delete_of_another_version_is_a_conflict_and_deletes_nothing(api: Api, wiped: str) -> None:
    first = api.create(GKMCACHES, a_cache(wiped)).metadata
    now = api.merge(GKMCACHES, wiped, {"metadata": {"labels": {"a": "1"}}}, "default").metadata
    with pytest.raises(ApiError) as caught:
        api.delete(GKMCACHES, wiped, "default", uid=first.uid, resource_version=first.resource_version)
    assert (caught.value.conflict, caught.value.reason) == (True, "Conflict")
    assert api.get(GKMCACHES, wiped, "default").metadata.resource_version == now.resource_version
    api.delete(GKMCACHES, wiped, "default", uid=now.uid, resource_version=now.resource_version)
    with pytest.raises(ApiError) as caught:
        api.get(GKMCACHES, wiped, "default")
    assert caught.value.not_found


def test_a_delete_of_another_uid_is_a_conflict_and_deletes_nothing(api: Api, wiped: str) -> None:
    gone = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    api.delete(GKMCACHES, wiped, "default", uid=gone)
    second = api.create(GKMCACHES, a_cache(wiped)).metadata.uid
    with pytest.raises(ApiError) as caught:
        api.delete(GKMCACHES, wiped, "default", uid=gone)
    assert (caught.value.conflict, caught.value.reason) == (True, "Conflict")
    assert api.get(GKMCACHES, wiped, "default").metadata.uid == second
    api.delete(GKMCACHES, wiped, "default", uid=second)
    with pytest.raises(ApiError) as caught:
        api.get(GKMCACHES, wiped, "default")
    assert caught.value.not_found


def test_discovery_finds_the_served_versions_of_a_kind(api: Api) -> None:
    if isinstance(api, FakeApi):
        api.kinds = [GKMCACHES, CLUSTERGKMCACHES, *_BUILT_IN]
    discovery = Discovery(api)
    for name, plural, namespaced in (
        ("ConfigMap", "configmaps", True),
        ("Namespace", "namespaces", False),
        ("Deployment.apps", "deployments", True),
        ("GKMCache.gkm.io", "gkmcaches", True),
        ("ClusterGKMCache.gkm.io", "clustergkmcaches", False),
    ):
        kind, _, group = name.partition(".")
        found = [(each.kind, each.plural, each.namespaced) for each in discovery.served(KindName(group, kind))]
        assert found == [(kind, plural, namespaced)]
    for absent in (KindName("gkm.io", "Nothing"), KindName("nothing.gkm.io", "GKMCache"), KindName("a/../b", "X")):
        assert discovery.served(absent) == ()
    versions = [each.api_version for each in discovery.served(KindName("autoscaling", "HorizontalPodAutoscaler"))]
    assert versions[0] == "autoscaling/v2"
    assert sorted(versions) == ["autoscaling/v1", "autoscaling/v2"]


def test_the_log_of_a_pod_that_does_not_exist_is_not_found(api: Api) -> None:
    # The reason is the pod, not the container.
    with pytest.raises(ApiError) as caught:
        api.log("absent", "main", "default", 10, 1000)
    assert caught.value.not_found
