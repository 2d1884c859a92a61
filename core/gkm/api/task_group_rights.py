"""The rights that follow from `taskGroups.allowedKinds`: exactly those on the kinds in it. Pure.

The controllers create and delete objects of these kinds; admission tries samples of them as dry runs.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from gkm.api.task_group_settings import TaskGroups

NAME = "gkm-task-group-kinds"
"""The ClusterRole of the controllers and its binding, and the ConfigMap that remembers the kinds."""
VERBS = ("create", "delete", "get", "list", "watch")
DRY_RUNS = "gkm-dry-runs"
"""The namespace of dry runs: no object is stored in it (deploy/components/task-groups/policies.yaml)."""

_ADMISSION = "gkm-admission-dry-runs"
_SYSTEM = "gkm-system"
_API = "rbac.authorization.k8s.io"


def rules(settings: TaskGroups, verbs: Sequence[str] = VERBS) -> list[dict[str, Any]]:
    """Return one RBAC rule for each API group of the kinds that templates may create."""
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for allowed in settings.allowed_kinds:
        groups[allowed.group].add(allowed.plural)
    return [
        {"apiGroups": [group], "resources": sorted(groups[group]), "verbs": list(verbs)} for group in sorted(groups)
    ]


def manifests(settings: TaskGroups) -> list[dict[str, Any]]:
    """Return the roles for group templates of the controllers and of the admission webhook, with their bindings."""
    dry_runs = {"name": _ADMISSION, "namespace": DRY_RUNS}
    return [
        *_bound("ClusterRole", {"name": NAME}, rules(settings), "gkm-controllers"),
        *_bound("Role", dry_runs, rules(settings, ("create",)), "gkm-admission"),
    ]


def _bound(kind: str, where: dict[str, str], allowed: object, account: str) -> list[dict[str, Any]]:
    """Return a role and the binding that gives it to a ServiceAccount."""
    head = {"apiVersion": f"{_API}/v1"}
    metadata = {"metadata": where | {"labels": {"app.kubernetes.io/part-of": "gkm"}}}
    role = {"apiGroup": _API, "kind": kind, "name": where["name"]}
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": _SYSTEM}]
    return [
        head | {"kind": kind} | metadata | {"rules": allowed},
        head | {"kind": f"{kind}Binding"} | metadata | {"roleRef": role, "subjects": subjects},
    ]
