"""Rules for the labels of nodes. Pure.

A rule yields a fault for each node: a problem makes the labels wrong for GKM or for a scheduler, a warning is worth a
look.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from gkm.api.cliques import PLACEHOLDERS
from gkm.api.grammar import count_of
from gkm.api.topology_presets import FAMILIES, HAS_PRESET, NO_TOPOLOGY
from gkm.topology.trees.names import hypernode_name

from gkm_cli.topology.label_values import KAI, KUEUE, Axis, Labeled, LabelFault, LabelReason, LabelSeverity
from gkm_cli.topology.mending import Mend

HOSTNAME = "kubernetes.io/hostname"
PRESET_KEYS = frozenset(chain(*(family.keys for family in FAMILIES.values())))
"""Each source has names of its own for one place, so these keys differ from others of a level."""
_TO_DECIDE = "REPLACE"
_LONGEST_VALUE = 63


def label_faults(nodes: Sequence[Labeled], axes: Sequence[Axis]) -> Iterator[LabelFault]:
    """Yield the faults of all nodes."""
    levels = [axis.name for axis in axes if axis.is_level]
    for at, axis in enumerate(axes):
        for node in nodes:
            yield from _of_value(node, axis, *node.values[at], levels)
        yield from _missing(nodes, axis, at)
        if axis.is_place:
            yield from _cases(nodes, axis, at)
            yield from _several_parents(nodes, axes, at)
        if axis.is_chosen:
            yield from _without_labels(nodes, axis, at)
    yield from _unread(nodes, frozenset(key for axis in axes for key in axis.keys))
    yield from _hostnames(nodes)


def _without_labels(nodes: Sequence[Labeled], axis: Axis, at: int) -> Iterator[LabelFault]:
    """Yield all nodes if none has a label of a level."""
    if any(node.values[at][1] for node in nodes):
        return
    message = f"no node has a label of the level {axis.name} ({', '.join(axis.keys) or 'it has no keys'}): it is empty"
    for node in nodes:
        yield LabelFault(LabelReason.LEVEL_WITHOUT_LABELS, node.name, message, severity=LabelSeverity.WARNING)


def _unread(nodes: Sequence[Labeled], read: frozenset[str]) -> Iterator[LabelFault]:
    """Yield the nodes with labels of a known family of which no key is read."""
    for name, family in FAMILIES.items():
        having = {node.name: keys for node in nodes if (keys := [key for key in family.keys if key in node.labels])}
        if not having or not read.isdisjoint(chain(*having.values())):
            continue
        found = ", ".join(dict.fromkeys(chain(*having.values())))
        step = f"add {name} to topology.presets" if name in HAS_PRESET else "name their keys in topology.levels"
        message = f"labels of {name} say where these nodes are, and no level reads them ({found}): {step}"
        for node in having:
            yield LabelFault(LabelReason.LABELS_UNREAD, node, message, severity=LabelSeverity.WARNING)


def _of_value(node: Labeled, axis: Axis, counting: str, value: str, levels: Sequence[str]) -> Iterator[LabelFault]:
    """Yield empty values, those that stand for none or fit no name, and keys that others may read instead."""
    for key in axis.keys:
        other = node.labels.get(key)
        if other == "":
            message = f"label {key} is empty: GKM takes it as missing, {KUEUE} as one domain of all nodes that have it"
            yield LabelFault(LabelReason.EMPTY_VALUE, node.name, message, (Mend(node.name, key, None, sure=True),))
        elif other is not None and not axis.counts(other):
            message = (
                f"label {key} is {other}, which names no NVLink clique: GKM takes it as missing, other schedulers as "
                "one domain of all nodes that have it; remove it"
            )
            yield LabelFault(LabelReason.PLACEHOLDER, node.name, message, (Mend(node.name, key, None, sure=True),))
        elif axis.is_place and other not in (None, value) and key not in PRESET_KEYS:
            message = f"labels {counting} and {key} differ, and {counting} counts: another scheduler may read {key}"
            mends = (Mend(node.name, key, value, sure=False),)
            yield LabelFault(LabelReason.KEYS_DISAGREE, node.name, message, mends, LabelSeverity.WARNING)
    if value.lower() in (*PLACEHOLDERS, NO_TOPOLOGY):
        message = (
            f"label {counting} is {value}: all nodes with it count as close together; remove it where it is not known"
        )
        yield LabelFault(LabelReason.PLACEHOLDER, node.name, message, (Mend(node.name, counting, None, sure=True),))
    if value and axis.is_level:
        written = hypernode_name(axis.name, value, value, levels, hashed=False)
        if written != f"{axis.name}-{value}":
            message = f"{axis.name} {value} cannot be part of a HyperNode's name, which is {written}"
            yield LabelFault(LabelReason.NO_PLAIN_NAME, node.name, message, severity=LabelSeverity.WARNING)


def _missing(nodes: Sequence[Labeled], axis: Axis, at: int) -> Iterator[LabelFault]:
    """Yield nodes with GPUs that lack a label which others have, and nodes without a flavor."""
    # A label that does not count is a fault of its own.
    lacking = [node.name for node in nodes if node.has_gpus and not any(map(node.labels.get, axis.keys))]
    is_known = any(node.values[at][1] for node in nodes)
    if not axis.keys or (axis.is_level and not is_known) or (axis.is_place and not axis.is_level):
        return
    label = f"no label for {axis.name} ({', '.join(axis.keys)})"
    for name in lacking:
        mends = (Mend(name, axis.keys[0], _TO_DECIDE, sure=False),)
        if axis.is_level:
            message = f"{label}, which other nodes have"
            yield LabelFault(LabelReason.LABEL_MISSING, name, message, mends, LabelSeverity.WARNING)
        else:
            yield LabelFault(LabelReason.FLAVOR_MISSING, name, f"{label}: no run fits on these nodes", mends)


def _cases(nodes: Sequence[Labeled], axis: Axis, at: int) -> Iterator[LabelFault]:
    """Yield values of a level that differ in upper and lower case only. Flavors are compared without it."""
    for same in _grouped(nodes, lambda node: node.values[at][1].lower()).values():
        spellings = _by_frequency(_grouped(same, lambda node: node.values[at][1]))
        (usual, most), *others = spellings.items()
        shown = ", ".join(f"{value} ({len(found)})" for value, found in spellings.items())
        message = f"values of {axis.name} differ in case only, so they are several domains: {shown}"
        for node in (node for _, found in others for node in found):
            mend = Mend(node.name, node.values[at][0], usual, sure=2 * len(most) > len(same))
            yield LabelFault(LabelReason.DIFFERS_IN_CASE, node.name, message, (mend,))


def _several_parents(nodes: Sequence[Labeled], axes: Sequence[Axis], at: int) -> Iterator[LabelFault]:
    """Yield values that are in several values of a wider axis, the closest one that contradicts.

    Volcano makes one HyperNode of a key and a value; with two parents it is invalid, and then no job with a topology is
    scheduled in the whole cluster. A node without a label at the wider level contradicts none.
    """
    axis = axes[at]
    for value, members in sorted(_grouped(nodes, lambda node: node.values[at][1]).items()):
        for above in (above for above in range(at + 1, len(axes)) if axes[above].is_level):
            parents = _by_frequency(_grouped(members, partial(_value, above)))
            if len(parents) == 1 or not parents:
                continue
            shown = ", ".join(f"{parent} ({count_of(len(found), 'node')})" for parent, found in parents.items())
            message = f"{axis.name} {value} is in several of level {axes[above].name}: {shown}"
            severity = LabelSeverity.WARNING if axis.is_scoped else LabelSeverity.PROBLEM
            usual = next(iter(parents))
            for parent, found in parents.items():
                for node in found:
                    moved = Mend(node.name, node.values[above][0], usual, sure=False)
                    renamed = Mend(node.name, node.values[at][0], f"{parent}-{value}", sure=False)
                    mends = (moved, renamed) if len(f"{parent}-{value}") <= _LONGEST_VALUE else (moved,)
                    own = mends if parent != usual else ()
                    yield LabelFault(LabelReason.SEVERAL_PARENTS, node.name, message, own, severity)
            break


def _hostnames(nodes: Sequence[Labeled]) -> Iterator[LabelFault]:
    """Yield nodes without the label of the lowest level of every Topology, and nodes that share its value."""
    for node in nodes:
        if not node.labels.get(HOSTNAME):
            message = f"no label {HOSTNAME}: {KUEUE} and {KAI} ignore these nodes; kubelet writes it when it starts"
            yield LabelFault(LabelReason.HOSTNAME_MISSING, node.name, message, severity=LabelSeverity.WARNING)
    for value, same in sorted(_grouped(nodes, lambda node: node.labels.get(HOSTNAME, "")).items()):
        message = f"label {HOSTNAME} is {value} on several nodes, so they are one node for {KUEUE} and {KAI}"
        yield from (LabelFault(LabelReason.HOSTNAME_SHARED, node.name, message) for node in same if len(same) > 1)


def _value(at: int, node: Labeled) -> str:
    return node.values[at][1]


def _grouped(nodes: Iterable[Labeled], value: Callable[[Labeled], str]) -> dict[str, list[Labeled]]:
    """Return the nodes by their value; those without one are left out."""
    found: dict[str, list[Labeled]] = {}
    for node in nodes:
        found.setdefault(value(node), []).append(node)
    found.pop("", None)
    return found


def _by_frequency(groups: dict[str, list[Labeled]]) -> dict[str, list[Labeled]]:
    return dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))
