"""Walk the links of a volume in their order, up to the first one that is broken. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from gkm_cli.clusters.reads import Unreadable
from gkm_cli.why.facts import Facts
from gkm_cli.why.links import (
    cache_object,
    digest,
    driver,
    hits,
    mount,
    mount_path,
    node,
    preflight,
    report,
    signature,
    store,
    volume,
)
from gkm_cli.why.outcome import Broken, Outcome

LINKS: dict[str, Callable[[Facts], Outcome]] = {
    "volume": volume.decide,
    "node": node.decide,
    "driver": driver.decide,
    "object": cache_object.decide,
    "digest": digest.decide,
    "signature": signature.decide,
    "report": report.decide,
    "preflight": preflight.decide,
    "store": store.decide,
    "mount": mount.decide,
    "mount-path": mount_path.decide,
    "hits": hits.decide,
}
"""The links, from the pod to its kernels."""


class State(StrEnum):
    """The state of a link."""

    OK = "ok"
    BROKEN = "broken"
    NOT_CHECKED = "not checked"
    """The cluster does not show what the link needs."""
    SKIPPED = "skipped"
    """An earlier link is broken, so this one cannot hold."""


@dataclass(frozen=True, slots=True)
class LinkResult:
    """The result of one link of one volume."""

    volume: str
    link: str
    state: State
    detail: str = ""
    hint: str = ""


PROVEN_BY = {"driver": "mount"}
"""A link that another one proves: nothing but the driver mounts the volume."""


def walk(facts: Facts) -> list[LinkResult]:
    """Return the step of every link; those behind the first broken one are skipped."""
    steps = {step.link: step for step in _steps(facts)}
    for link, proof in PROVEN_BY.items():
        if steps[link].state is State.NOT_CHECKED and steps[proof].state is State.OK:
            steps[link] = LinkResult(facts.volume.name, link, State.OK, f"not read, but {steps[proof].detail}")
    return list(steps.values())


def _steps(facts: Facts) -> Iterator[LinkResult]:
    is_broken = False
    for name, decide in LINKS.items():
        if is_broken:
            yield LinkResult(facts.volume.name, name, State.SKIPPED)
            continue
        try:
            outcome = decide(facts)
        except Unreadable as failure:
            yield LinkResult(facts.volume.name, name, State.NOT_CHECKED, failure.why, failure.hint)
            continue
        is_broken = isinstance(outcome, Broken)
        hint = outcome.hint if isinstance(outcome, Broken) else ""
        yield LinkResult(facts.volume.name, name, State.BROKEN if is_broken else State.OK, outcome.detail, hint)
