"""The section `taskGroups` of the configuration: which objects group templates may create."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

_GROUP = r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?\Z"
_KIND = r"^[A-Z][A-Za-z0-9]{0,62}\Z"
_PLURAL = r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?\Z"


class AllowedKind(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True, order=True):
    """A kind of objects that group templates may create.

    `group` is empty for the core group. `resource` is the plural name in RBAC rules; by default it follows from the
    kind as English plurals do (`NetworkPolicy`: `networkpolicies`).
    """

    kind: Annotated[str, Meta(pattern=_KIND)]
    group: Annotated[str, Meta(pattern=_GROUP)] = ""
    resource: Annotated[str, Meta(pattern=_PLURAL)] = ""

    @property
    def plural(self) -> str:
        """Return the plural name of the resource, as RBAC uses it."""
        return self.resource or _plural(self.kind.lower())

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


def _default_kinds() -> list[AllowedKind]:
    return [
        AllowedKind("ConfigMap"),
        AllowedKind("Service"),
        AllowedKind("Deployment", "apps"),
        AllowedKind("ComputeDomain", "resource.nvidia.com"),
        AllowedKind("PodGroup", "scheduling.volcano.sh"),
        AllowedKind("PodGroup", "scheduling.x-k8s.io"),
        AllowedKind("PodGroup", "scheduling.run.ai"),
    ]


class TaskGroups(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The section `taskGroups` of the configuration: group templates.

    `allowed_kinds` replaces the default list. Secret and kinds of RBAC are allowed only when they are named. With
    `namespaces: enforce` a template that names a namespace is refused; with `warn` the namespace is ignored, with a
    warning. Objects are created in the namespace of their TaskGroup in either case.
    """

    enabled: bool = False
    allowed_kinds: Annotated[list[AllowedKind], Meta(max_length=64)] = field(default_factory=_default_kinds)
    namespaces: Literal["warn", "enforce"] = "warn"

    def allows(self, group: str, kind: str) -> bool:
        """Return whether templates may create a kind."""
        return any((allowed.group, allowed.kind) == (group, kind) for allowed in self.allowed_kinds)

    def plural(self, group: str, kind: str) -> str:
        """Return the plural resource name of an allowed kind."""
        return next(each for each in self.allowed_kinds if (each.group, each.kind) == (group, kind)).plural


def _plural(word: str) -> str:
    """Return the English plural, as apimachinery guesses it (meta.UnsafeGuessKindToResource)."""
    if word.endswith("s"):
        return f"{word}es"
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
