"""ProviderTree: what one topology provider knows of the network, as its pod writes it (docs/design/providers.md).

The pod writes `spec`, the controllers write `status`. The whole tree is one compressed text in one object: a reader
sees the whole tree or no tree.
"""

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from gkm.api.caches import DateTime
from gkm.api.meta import API_VERSION, Conditions, HasConditions, ObjectMeta

MAX_PACKED = 1_300_000
"""Characters of a packed tree. With all other fields at their bounds the object stays below etcd's 1.5 MiB."""
MAX_REFUSED = 64
MAX_FAULTS, MAX_TEXT = 16, 300
MAX_NAME = 253
MAX_SECONDS = 10**9

ACCEPTED = "Accepted"
"""The condition: the controllers use the tree of the observed revision."""


class TreeReason(StrEnum):
    """Reasons of the condition Accepted of a ProviderTree (docs/reference/reasons.md)."""

    ACCEPTED = "TreeAccepted"
    SET_ASIDE = "TreeSetAside"
    NOT_CONFIGURED = "ProviderNotConfigured"


SpecState = Literal["Starting", "Serving", "Failed"]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Number = Annotated[int, Meta(ge=0, le=(1 << 53) - 1, extra_json_schema={"format": "int64"})]


class ProviderTreeSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The last good tree of a provider, and the state of its pod."""

    state: SpecState = "Starting"
    """Starting: no read since the pod's start; Serving: the tree is used; Failed: no read since the last failure."""
    reason: Text = ""
    """Why the provider failed last, and what it waits for, without content of its source."""
    revision: Number = 0
    """Number of the tree: it grows with each tree that differs from the one before, and never for a heartbeat."""
    tree: Annotated[str, Meta(max_length=MAX_PACKED)] = ""
    """HyperNodes and quarantined nodes: JSON, compressed by zlib, in base64. The last good ones stay."""
    hypernodes: Number = 0
    """Number of HyperNodes in the tree."""
    nodes: Number = 0
    """Number of Nodes that are members in the tree."""
    faults: Annotated[list[Text], Meta(max_length=MAX_FAULTS)] = field(default_factory=list)
    """Sentences about the source, without content of it."""
    refused: Number = 0
    """Number of the provider's events that its pod has not applied, since the pod's start."""
    refusal: Text = ""
    """The kind of the last one."""
    observed_time: DateTime | None = None
    """When the provider has read its source last."""
    heartbeat_time: DateTime | None = None
    """When the pod of the provider has written last."""
    stale_seconds: Annotated[int, Meta(ge=0, le=MAX_SECONDS)] = 0
    """The age of observedTime at which the tree is stale; 0 is never."""


class RefusedHyperNode(Struct, frozen=True, rename="camel"):
    """A HyperNode of the provider that the API server refuses."""

    name: Annotated[str, Meta(max_length=MAX_NAME)]
    """Name that the provider gives to the HyperNode."""
    error: Text
    """Error of the API server."""


class ProviderTreeStatus(HasConditions, Struct, frozen=True, rename="camel", omit_defaults=True):
    """The controllers' verdict about the tree. The pod passes refused HyperNodes to the provider as replies."""

    observed_revision: Number = 0
    """Revision that this status is about."""
    refused: Annotated[list[RefusedHyperNode], Meta(max_length=MAX_REFUSED)] = field(default_factory=list)
    """HyperNodes of this revision that the API server refuses, after retries; at most 64."""
    conditions: Conditions = field(default_factory=list)
    """Accepted: the controllers use the tree of this revision; otherwise they still use the last accepted one."""


class ProviderTree(Struct, frozen=True, rename="camel", tag_field="kind", tag="ProviderTree"):
    """The network by one topology provider; it has the name of the provider."""

    metadata: ObjectMeta
    spec: ProviderTreeSpec = ProviderTreeSpec()
    status: ProviderTreeStatus = field(default_factory=ProviderTreeStatus)
    api_version: str = API_VERSION
