"""Each seeded fault of a pod breaks its link, and `gkm why` names the line to change; not known is never ok."""

import copy
from collections.abc import Callable

import pytest
from gkm.api.caches import GKMCache
from gkm.api.nodes import GKMCacheNode
from gkm_cli.inputs.pods import RegisteredDrivers
from gkm_cli.why.facts import Facts, PodFacts, ReadResult
from gkm_cli.why.injection import no_volume
from gkm_cli.why.links import LINKS, LinkResult, State, walk
from gkm_cli.why.observation import cache_name
from msgspec import convert
from support.cli.why_faults import FAULTS, SEVERAL, UNKNOWN
from support.cli.why_site import Json, objects, with_volume_id

Change = Callable[[dict[str, Json]], object]


def steps(change: Change) -> dict[str, LinkResult]:
    """Return the result of each link for the healthy objects with one change."""
    made = copy.deepcopy(objects())
    change(made)
    made = with_volume_id(made, "")
    pod = convert(made["pod"], PodFacts)
    return {step.link: step for step in (walk(_facts(made, pod)) if pod.spec.volumes else [no_volume(pod)])}


def _facts(made: dict[str, Json], pod: PodFacts) -> Facts:
    (volume,) = pod.spec.volumes or ()
    assert volume.csi is not None
    name = cache_name(volume.csi.volume_attributes or {}, pod.metadata.namespace)
    cache, node = made.get("cache"), made.get("report") if pod.spec.node_name else None
    is_there = cache is not None and name is not None and cache["metadata"]["name"] == name.name
    return Facts(
        pod=pod,
        volume=volume,
        has_driver=ReadResult(made.get("driver")),
        csi_node=ReadResult(convert(made["csinode"], RegisteredDrivers) if "csinode" in made else None),
        cache_name=name,
        cache=ReadResult(convert(cache, GKMCache) if is_there else None),
        node=(report := ReadResult(convert(node, GKMCacheNode) if node else None)),
        captures=report,
    )


def test_without_a_fault_every_link_holds() -> None:
    found = steps(lambda _: None)
    assert {step.state for step in found.values()} == {State.OK}
    assert list(found) == list(LINKS)


def test_there_are_thirty_faults() -> None:
    assert len(FAULTS) + len(UNKNOWN) + len(SEVERAL) >= 30


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_its_link_and_names_the_line_to_change(name: str) -> None:
    link, change, hint = FAULTS[name]
    broken = [step for step in steps(change).values() if step.state is State.BROKEN]
    assert [step.link for step in broken] == [link]
    assert hint in broken[0].hint


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_state_that_the_cluster_does_not_show_is_not_checked(name: str) -> None:
    link, change, hint = UNKNOWN[name]
    found = steps(change)
    assert {name: step.state for name, step in found.items() if step.state is not State.OK} == {link: State.NOT_CHECKED}
    assert hint in found[link].hint


@pytest.mark.parametrize("name", SEVERAL)
def test_each_of_several_faults_is_named(name: str) -> None:
    links, change = SEVERAL[name]
    assert {step.link for step in steps(change).values() if step.state is State.BROKEN} == links
