"""Decide which nodes a run may use, given a survey of nodes and the GPUs in use; the others get a reason. Pure.

In this package, only this file knows more of gkm.topology than places. Where no node is left, the refusal is made here:
the planner sees only nodes that the run may use, and cannot tell why there is no node.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gkm.api.grammar import count_of
from gkm.packing.hashing import canonical
from gkm.packing.values import Level, Node, Refusal
from gkm.topology.eligibility import Excluded, Exclusion, NodeDemand, excluded, startable_pods
from gkm.topology.labels import flavor
from gkm.topology.pods import NodeLoad
from gkm.topology.quarantine import Quarantined, QuarantineReason
from gkm.topology.survey import TopologySurvey
from gkm.topology.usage import Usage

MAX_HOLDERS = 3
"""Limit of pods that a message about GPUs in use names."""


@dataclass(frozen=True, slots=True)
class Overcommitted:
    """A node on which pods and plans take more GPUs than it has, so that no GPU is free."""

    node: str
    taken: int
    total: int


@dataclass(frozen=True, slots=True)
class GpusInUse:
    """How many GPUs are in use on the nodes that a run may use: by pods, and by plans whose pods do not run yet.

    `named` are the pods that hold most, as namespace/name, where they may be named.
    """

    total: int = 0
    pods: int = 0
    plans: int = 0
    named: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class UsableNodes:
    """The nodes for a Run, and the nodes that it cannot use with the reasons; each node of the survey once.

    `nodes` come by place and name, the rest by name. `version` is the version of the nodes, see `version`.
    `quarantined` has nodes of any flavor, `quarantined_of_flavor` the nodes among them whose labels have the flavor of
    the run.
    """

    nodes: tuple[Node, ...]
    version: str
    excluded: tuple[Excluded, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    overcommitted: tuple[Overcommitted, ...] = ()
    quarantined_of_flavor: tuple[Quarantined, ...] = ()
    held: GpusInUse = GpusInUse()

    @property
    def counts(self) -> Mapping[Exclusion | QuarantineReason, int]:
        """Return the number of unusable nodes by reason."""
        reasons: list[Exclusion | QuarantineReason] = [entry.why for entry in self.excluded]
        return Counter([*reasons, *(entry.why for entry in self.quarantined)])


def usable_nodes(
    survey: TopologySurvey,
    usage: Usage,
    demand: NodeDemand,
    held: Mapping[str, int] | None = None,
    own: Collection[str] = (),
) -> UsableNodes:
    """Return the nodes that a run may use; `held` are GPUs by node that plans reserve and no pod uses yet.

    A node with free GPUs where no pod of the run can start is not used, unless it is one of its `own`: the nodes of its
    plan and pods.
    """
    nodes: list[Node] = []
    wanted = flavor(demand.flavor)
    of_flavor = [entry for entry in survey.quarantined if survey.quarantined_flavors.get(entry.node) == wanted]
    aside = list(survey.quarantined)
    others = [Excluded(name, Exclusion.NO_GPUS) for name in survey.bare]
    overcommitted: list[Overcommitted] = []
    for located in survey.located:
        name, total = located.node.name, located.gpus
        if name in usage.faults:
            fault = Quarantined(name, QuarantineReason.POD_INVALID, usage.faults[name])
            aside.append(fault)
            of_flavor += [fault] if located.flavor == wanted else []
        elif (wrong := excluded(located, demand)) is not None:
            others.append(wrong)
        else:
            taken = usage.gpus.get(name, 0) + (held or {}).get(name, 0)
            if taken > total:
                overcommitted.append(Overcommitted(name, taken, total))
            free = max(0, total - taken)
            # Where the GPUs are in use, so may be the CPUs: such a node could be freed.
            unchecked = name in own or free < demand.pod.gpus
            load = usage.loads.get(name, NodeLoad())
            pods = total if unchecked else startable_pods(located, load, demand.pod)
            if isinstance(pods, Excluded):
                others.append(pods)
                continue
            free = min(free, pods * demand.pod.gpus)
            nodes.append(Node(name, located.location, total, free, demand.scopes_of(located), located.rack))
    nodes.sort(key=lambda node: (node.place, node.name))
    others.sort(key=lambda entry: entry.node)
    return UsableNodes(
        tuple(nodes),
        version(nodes),
        tuple(others),
        tuple(sorted(aside)),
        tuple(overcommitted),
        tuple(sorted(of_flavor)),
        _gpus_in_use(nodes, usage, held or {}),
    )


def _gpus_in_use(nodes: Sequence[Node], usage: Usage, plans: Mapping[str, int]) -> GpusInUse:
    total = sum(node.total for node in nodes)
    by_pods = sum(usage.gpus.get(node.name, 0) for node in nodes)
    by_plans = sum(plans.get(node.name, 0) for node in nodes)
    named: Counter[str] = Counter()
    for node in nodes if usage.holders else ():
        named.update(usage.holders.get(node.name, {}))
    most = heapq.nsmallest(MAX_HOLDERS, named.items(), key=lambda item: (-item[1], item[0]))
    return GpusInUse(total, by_pods, by_plans, tuple(most))


def version(nodes: Iterable[Node]) -> str:
    """Return the version of an inventory: equal nodes in any order have equal versions.

    It is the sha256, in hex, of canonical JSON (RFC 8785): one row for each node, `[name, region, cluster, block,
    domain, total, free, [scopes]]`, rows and scopes sorted; the rack follows where it is known.
    """
    rows = sorted(
        [node.name, *node.place, node.total, node.free, sorted(node.scopes), *([node.rack] if node.rack else [])]
        for node in nodes
    )
    return hashlib.sha256(canonical(rows)).hexdigest()


_NOT_OF_GPUS = frozenset({Level.SCOPE, Level.BALANCE})
"""Levels of a refusal that are not about GPUs: the run would fit on the free GPUs."""
_LONGEST_NAME = 128
_BEFORE_FLAVOR = frozenset({Exclusion.NO_GPUS, Exclusion.FLAVOR})
_LEVELS = {Exclusion.SELECTOR: Level.SELECTOR, Exclusion.SCOPE: Level.SCOPE}
_CONTRADICTED = {
    QuarantineReason.DOMAIN_IN_SEVERAL_REGIONS: Level.REGION,
    QuarantineReason.DOMAIN_IN_SEVERAL_CLUSTERS: Level.CLUSTER,
    QuarantineReason.DOMAIN_IN_SEVERAL_BLOCKS: Level.BLOCK,
    QuarantineReason.RACK_IN_SEVERAL_BLOCKS: Level.RACK,
    QuarantineReason.NO_FABRIC_DOMAIN: Level.DOMAIN,
    QuarantineReason.DOMAIN_IN_SEVERAL_DOMAINS: Level.DOMAIN,
}
"""The level that each reason of quarantine is about; other reasons concern a single node."""


def no_usable_node(usable: UsableNodes) -> Refusal | None:
    """Return the refusal of a run for which no node is usable; None if a node is."""
    if usable.nodes:
        return None
    reached = {entry.why for entry in usable.excluded} - _BEFORE_FLAVOR
    if not reached and usable.quarantined_of_flavor:
        return _all_quarantined(usable.quarantined_of_flavor)
    # The levels after the scopes concern correct nodes that cannot be used now.
    last = max(reached, key=list(Exclusion).index, default=Exclusion.FLAVOR)
    level = Level.FLAVOR if last is Exclusion.FLAVOR else _LEVELS.get(last, Level.NODE)
    counted = ", ".join(f"{why} {count}" for why, count in sorted(usable.counts.items()))
    nodes = sum(usable.counts.values())
    message = f"0 of {count_of(nodes, 'node')} can be used: {counted}" if nodes else "there are no nodes"
    return Refusal(level, message, 0)


def with_holders(refusal: Refusal, usable: UsableNodes) -> Refusal:
    """Return the refusal with the pods that use GPUs of these nodes added to its message.

    Where no pod may be named the message has no numbers either: it would change with every pod of the cluster.
    """
    held = usable.held
    if not held.pods + held.plans or refusal.level in _NOT_OF_GPUS:
        return refusal
    named = ", ".join(f"{ascii(name[:_LONGEST_NAME])[1:-1]} {gpus}" for name, gpus in held.named)
    pods = (f"pods hold {held.pods} (most: {named})" if named else "pods hold some") if held.pods else ""
    plans = f"plans of other runs {f'hold {held.plans}' if named else 'hold some'}" if held.plans else ""
    text = " and ".join(filter(None, (pods, plans)))
    of = f"Of {count_of(held.total, 'GPU')}" if named else "Of the GPUs"
    return replace(refusal, message=f"{refusal.message}. {of} {text}")


def _all_quarantined(entries: Sequence[Quarantined]) -> Refusal:
    """Return the refusal of a run whose nodes are all quarantined, by the reason that most of them have."""
    counts = Counter(entry.why for entry in entries)
    reasons = sorted(counts, key=lambda why: (-counts[why], list(QuarantineReason).index(why)))
    counted = ", ".join(f"{counts[why]:,} {why.value}" for why in reasons)
    # The message of POD_INVALID names a pod, maybe of a namespace that the user of the run must not see.
    shown = [why for why in reasons if why is not QuarantineReason.POD_INVALID]
    example = next((f". {entry.message}" for why in shown for entry in entries if entry.why is why), "")
    message = f"0 of {count_of(len(entries), 'node')} of its flavor can be used: {counted}{example}"
    return Refusal(_CONTRADICTED.get(reasons[0], Level.NODE), message, 0)
