"""ClusterRole (rbac.authorization.k8s.io/v1), reduced to its rules."""

from msgspec import Struct

_ANY = "*"


class PolicyRule(Struct, frozen=True, rename="camel"):
    """A rule of a ClusterRole; it allows only the named objects if it has `resource_names`."""

    verbs: tuple[str, ...] | None = None
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Return whether this rule allows a verb on every object of a resource."""
        return not self.resource_names and all(
            _ANY in (allowed or ()) or value in (allowed or ())
            for allowed, value in ((self.verbs, verb), (self.api_groups, group), (self.resources, resource))
        )


class ClusterRole(Struct, frozen=True):
    """A ClusterRole. The API server fills in the rules of an aggregated ClusterRole."""

    rules: tuple[PolicyRule, ...] | None = None

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Return whether a rule of this role allows a verb on every object of a resource."""
        return any(rule.allows(verb, group, resource) for rule in self.rules or ())
