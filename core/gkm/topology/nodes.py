"""The fields of Node (v1) that GKM reads: labels, taints, allocatable resources and two conditions. Pure.

Equal values of all nodes are stored once, and other fields not at all: 25,000 nodes with 40 labels and 7 conditions
each take 30 MiB instead of 220 (bench/packing_snapshot.py).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil
from sys import intern
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, field, structs

from gkm.api.meta import TRUE
from gkm.api.runs import Toleration

MAX_GPUS = 1024
"""Limit of GPUs of one node or pod. Machines have up to 16; with time slicing each counts several times."""

_QUANTITY = re.compile(
    r"\+?(?P<number>\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?P<suffix>[a-zA-Z]?i?|[eE][+-]?\d{1,2})", re.ASCII
)
# k8s.io/apimachinery, pkg/api/resource: suffixes. Large suffixes may give a few GPUs: 0.000001M is one.
# Fractions are exact: a Decimal of 28 digits would round 36 digits to a whole number.
_FACTORS = {suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", 1)}
_FACTORS |= {suffix: Fraction(1000**power) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))}
_FACTORS |= {f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)}

Quantity = str | int | float


@lru_cache(maxsize=1 << 10)  # nearly always one of a few
def gpu_count(quantity: Quantity) -> int:
    """Return the number of GPUs in a Kubernetes quantity; `8`, `"8"`, `"8000m"` and `"8e0"` are all eight.

    Raises:
        ValueError: the text is no quantity, or not whole, or negative, or more than MAX_GPUS.
    """
    text = str(quantity)
    number = _number(text, "GPUs")
    if number > MAX_GPUS:
        raise ValueError(f"{text[:32]!a} GPUs are more than the maximum of {MAX_GPUS}")
    if number.denominator != 1:
        raise ValueError(f"{text[:32]!a} is no whole number of GPUs")
    return int(number)


@lru_cache(maxsize=1 << 12)
def thousandths(quantity: Quantity, of: str) -> int:
    """Return a quantity of CPUs or memory in thousandths, rounded up as Kubernetes does; errors call it `of`.

    Raises:
        ValueError: the text is no quantity, or negative.
    """
    return ceil(1000 * _number(str(quantity), of))


def _number(text: str, of: str) -> Fraction:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:32]!a} is no number of {of}")
    number, suffix = Fraction(found["number"]), found["suffix"]
    if suffix in _FACTORS:
        return number * _FACTORS[suffix]
    if not suffix[-1:].isdigit():  # a final digit belongs to an exponent
        raise ValueError(f"{text[:32]!a} is no number of {of}")
    return number * Fraction(f"1{suffix}")


_Text = Annotated[str, Meta(max_length=317)]
_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


class Taint(Struct, frozen=True, gc=False):
    """A taint of a node."""

    key: _Text
    effect: _Text
    value: _Text = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


DEFAULT_TOLERATIONS = (Toleration(key="nvidia.com/gpu", operator="Exists"),)
"""The tolerations of a run without tolerations: the taint that repels other pods from GPU nodes."""


def untolerated(taints: Sequence[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """Return the first taint that repels a pod with these tolerations, None if no taint does."""
    for taint in taints:
        if taint.effect in _BLOCKING_EFFECTS and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint."""
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)


# RFC 1123, section 2.1, as Kubernetes applies it to the names of nodes.
Name = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")]
_Word = Annotated[str, Meta(max_length=317)]
_Labels = Annotated[dict[_Word, _Word], Meta(max_length=4096)]
_Taints = Annotated[tuple[Taint, ...], Meta(max_length=256)]
_Message = Annotated[str, Meta(max_length=32_768)]
READY = "Ready"
FABRIC_HEALTHY = "NVLinkFabricHealthy"
"""The condition that the controllers write (docs/reference/fabric.md)."""


T = TypeVar("T")


@lru_cache(maxsize=1 << 8)  # nearly always one of a few
def _deduplicated(value: T) -> T:
    """Return the first equal value, so that later ones need not be stored."""
    return value


class NodeCondition(Struct, frozen=True, rename="camel", gc=False):
    """A condition of a node, without the time of its heartbeat."""

    type: _Word
    status: _Word
    reason: _Message = ""
    message: _Message = ""
    last_transition_time: _Message | None = None


_IS_READY = (NodeCondition(READY, TRUE),)
"""The condition that nearly all nodes have, stored once: no reader needs the time since which a node is ready."""


def _in_use(conditions: Iterable[NodeCondition]) -> tuple[NodeCondition, ...]:
    """Return the condition Ready without its message, then the condition of GKM. A node has each type once."""
    ready = next((each for each in conditions if each.type == READY), None)
    fabric = tuple(each for each in conditions if each.type == FABRIC_HEALTHY)[:1]
    if ready is None:
        return fabric
    if ready.status == TRUE:
        return _IS_READY + fabric
    return (NodeCondition(READY, ready.status, last_transition_time=ready.last_transition_time), *fabric)


_Conditions = Annotated[tuple[NodeCondition, ...], Meta(max_length=256)]


class KubeNodeMetadata(Struct, frozen=True, gc=False):
    """Name, labels and uid of a Node; another uid means another Node of the same name."""

    name: Name
    labels: _Labels | None = None
    uid: _Word = ""

    def __post_init__(self) -> None:
        """Store equal keys and values of all nodes once: a string of 20 characters takes 69 bytes."""
        labels = self.labels
        if labels:
            values = map(intern, labels.values())
            structs.force_setattr(self, "labels", dict(zip(_deduplicated(tuple(labels)), values, strict=True)))


class KubeNodeSpec(Struct, frozen=True, gc=False):
    """The Node's spec: whether it is cordoned, and its taints."""

    unschedulable: bool = False
    taints: _Taints | None = None

    def __post_init__(self) -> None:
        """Store equal taints of all nodes once."""
        if self.taints:
            structs.force_setattr(self, "taints", _deduplicated(self.taints))


class Resources(Struct, frozen=True, gc=False):
    """GPUs, CPUs and memory among the resources of a node or a container; a node also has slots for `pods`."""

    gpus: Quantity | None = field(default=None, name="nvidia.com/gpu")
    cpu: Quantity | None = None
    memory: Quantity | None = None
    pods: Quantity | None = None


class KubeNodeStatus(Struct, frozen=True, gc=False):
    """The status of a Node, reduced to allocatable resources and the conditions in use."""

    allocatable: Resources | None = None
    conditions: _Conditions | None = None

    def __post_init__(self) -> None:
        """Drop other conditions, and store equal values of all nodes once."""
        if self.allocatable is not None:
            structs.force_setattr(self, "allocatable", _deduplicated(self.allocatable))
        if self.conditions:
            structs.force_setattr(self, "conditions", _in_use(self.conditions))


class Node(Struct, frozen=True, gc=False):
    """A Node. Its GPUs are the allocatable nvidia.com/gpu; MIG devices and GPUs of DRA are not read."""

    metadata: KubeNodeMetadata
    spec: KubeNodeSpec = field(default_factory=KubeNodeSpec)
    status: KubeNodeStatus = field(default_factory=KubeNodeStatus)
    kind: str = "Node"

    @property
    def name(self) -> str:
        """Return the name of the node."""
        return self.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels of the node."""
        return self.metadata.labels or {}

    @property
    def taints(self) -> tuple[Taint, ...]:
        """Return the taints of the node."""
        return self.spec.taints or ()

    @property
    def gpus(self) -> Quantity | None:
        """Return the allocatable GPUs as a Kubernetes quantity, None if the node has no such resource."""
        return self.status.allocatable.gpus if self.status.allocatable else None

    @property
    def ready(self) -> bool:
        """Return whether the kubelet reports the node as Ready; False without this condition."""
        found = self.condition(READY)
        return found is not None and found.status == TRUE

    def condition(self, kind: str) -> NodeCondition | None:
        """Return the condition of the node with this type, READY or FABRIC_HEALTHY; None if absent."""
        for each in self.status.conditions or ():
            if each.type == kind:
                return each
        return None
