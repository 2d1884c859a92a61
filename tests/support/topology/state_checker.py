"""Checks the whole set of HyperNodes after each change of a real API server, in its order."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from gkm.kube.client import connect
from gkm.kube.reflector import Reflector
from gkm.kube.resources import Json
from gkm.topology.hypernodes import HyperNode
from support.cluster.cluster import Cluster
from support.host.waiting import scaled
from support.operator.topology import LEVELS, RAW_HYPERNODES, read
from support.topology.volcano_rules import doubly_placed, violations


@dataclass
class Checker:
    """Watches HyperNodes. `states` counts what it has checked; `generations` has those of each object that it saw."""

    now: dict[str, HyperNode] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    states: int = 0
    generations: dict[str, list[int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def change(self, old: Json | None, new: Json | None) -> None:
        with self.lock:
            if new is not None:
                self.now[new["metadata"]["name"]] = read(new)
                self.generations.setdefault(new["metadata"]["uid"], []).append(new["metadata"]["generation"])
            elif old is not None:
                del self.now[old["metadata"]["name"]]
            self.states += 1
            nodes = {member.name for one in self.now.values() for member in one.members if member.kind == "Node"}
            self.wrong += [f"state {self.states}: {one}" for one in violations(self.now)]
            self.wrong += [f"state {self.states}: {one} is in two domains" for one in doubly_placed(self.now, nodes)]

    def missed(self) -> list[list[int]]:
        """Return the generations of objects of which a version between two was not seen."""
        return [seen for seen in self.generations.values() if seen != list(range(seen[0], seen[0] + len(seen)))]


@contextmanager
def watched(cluster: Cluster) -> Iterator[Checker]:
    """Check until the block ends."""
    made = Checker()
    reflector = Reflector(connect(str(cluster.kubeconfig)), RAW_HYPERNODES, made.change)
    reflector.start()
    assert reflector.synced.wait(scaled(30))
    # A list comes one by one, in the order of names.
    made.wrong.clear()
    yield made
    reflector.close()


def expected(labels: Mapping[str, Mapping[str, str]]) -> dict[str, set[str]]:
    """The nodes of each HyperNode, from the labels, without GKM's code."""
    found: dict[str, set[str]] = {}
    for name, own in labels.items():
        for level in LEVELS:
            found.setdefault(f"{level}-{own[level]}", set()).add(name)
    return found


def nodes_of(hypernodes: Mapping[str, HyperNode]) -> dict[str, set[str]]:
    """The nodes of each HyperNode, and of those below it."""

    def below(name: str) -> set[str]:
        return {
            node
            for kind, member in (hypernodes[name].members if name in hypernodes else ())
            for node in ({member} if kind == "Node" else below(member))
        }

    return {name: below(name) for name in hypernodes}
