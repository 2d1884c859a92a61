"""Which marks `gkm cache promote` removes, and what `pin` and `drop` say about a family."""

from typing import Any

import pytest
from gkm.api.caches import CacheSpec, CacheStatus, GKMCache
from gkm.api.meta import Condition, ObjectMeta
from gkm_cli.cache.generations import also_pinned, marks_of, may_come_back, use_of
from gkm_cli.cache.list_caches import _entry, _generation, _print
from msgspec.structs import replace

KEY, OTHER = "cuda-sm_90-r570-triton-3.4.0", "cuda-sm_100-r570-triton-3.4.0"


def generation(number: int, hardware: str = KEY, *, earlier: str = "", pods: int = 0, pinned: bool = False) -> GKMCache:
    annotations = {
        "gkm.io/captured-hardware": hardware,
        "gkm.io/captured-content": f"sha256:{number:012x}{'c' * 52}",
        "gkm.io/captured-earlier": earlier,
    }
    labels = {"gkm.io/captured-namespace": "ml-apps", "app.kubernetes.io/managed-by": "gkm", "team": "a"}
    metadata = ObjectMeta(name=f"captured-{number}", namespace="ml-apps", labels=labels, annotations=annotations)
    spec = CacheSpec(image="registry.test/x:1", family="llama", generation=number, pinned=pinned)
    return GKMCache(metadata, spec, CacheStatus(pods_using=pods))


def own(**spec: Any) -> GKMCache:  # noqa: ANN401 -- any field
    return GKMCache(ObjectMeta(name="llama", namespace="ml-apps"), CacheSpec(image="registry.test/x:1", **spec))


def test_all_marks_of_the_controllers_go_and_no_other_label() -> None:
    assert marks_of(generation(1)) == {
        "labels": {"gkm.io/captured-namespace": None, "app.kubernetes.io/managed-by": None},
        "annotations": {
            "gkm.io/captured-hardware": None,
            "gkm.io/captured-content": None,
            "gkm.io/captured-earlier": None,
        },
    }


def test_a_cache_of_a_user_has_no_marks_whoever_manages_it() -> None:
    mine = GKMCache(
        ObjectMeta(name="llama", labels={"app.kubernetes.io/managed-by": "gkm"}), CacheSpec(image="registry.test/x:1")
    )
    assert marks_of(mine) == {}


def test_other_pinned_members_for_the_same_hardware_are_named() -> None:
    one, two, elsewhere = (
        generation(1, pinned=True),
        generation(2, pinned=True),
        generation(3, OTHER, pinned=True),
    )
    assert also_pinned(one, [one, two, elsewhere, generation(4), own(pinned=True)]) == ["captured-2", "llama"]


@pytest.mark.parametrize(
    ("cache", "use"),
    [
        (generation(1), ""),
        (generation(1, pods=3), "is used by 3 volumes of pods"),
        (generation(1, pods=1), "is used by 1 volume of pods"),
        (generation(1, pinned=True), "is pinned"),
    ],
)
def test_what_pods_use_and_what_is_pinned_is_not_dropped_without_a_word(cache: GKMCache, use: str) -> None:
    assert use_of(cache, [cache]) == use


def test_a_generation_that_is_held_back_is_not_dropped_where_it_would_come_back_without_that() -> None:
    bad = generation(2)
    held = replace(bad, status=CacheStatus(conditions=[Condition("HeldBack", "True", "PodsFailed", "", "", 1)]))
    assert (
        use_of(held, [generation(1), held]) == "is held back, and the controllers would register it again for new pods"
    )
    assert use_of(held, [held, generation(3, earlier=f"{2:012x}")]) == ""


def test_only_a_later_generation_of_the_same_hardware_remembers_a_content() -> None:
    content = f"{2:012x}"
    two = generation(2)
    assert may_come_back(two, [generation(1), two])
    assert may_come_back(two, [two, generation(3, OTHER, earlier=content)])
    assert not may_come_back(two, [two, generation(3, earlier=f"{1:012x} {content}")])
    assert not may_come_back(own(family="llama"), [two])


def test_a_list_shows_the_number_of_a_member_and_whether_it_is_pinned() -> None:
    assert (_generation(own()), _generation(generation(3))) == ("", "3")
    assert (_generation(generation(3, pinned=True)), _generation(own(pinned=True))) == ("3 (pinned)", "(pinned)")
    entry = _entry(generation(3, pinned=True))
    assert (entry["family"], entry["generation"], entry["pinned"]) == ("llama", 3, True)


@pytest.mark.parametrize(("cache", "shown"), [(own(), False), (own(family="x"), True), (own(pinned=True), True)])
def test_the_columns_of_families_are_there_where_a_family_is(
    capsys: pytest.CaptureFixture[str], cache: GKMCache, *, shown: bool
) -> None:
    _print([cache], "", is_complete=True)
    assert ("FAMILY" in capsys.readouterr().out) is shown
