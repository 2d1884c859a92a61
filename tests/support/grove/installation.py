"""Installs Grove's kinds in a cluster, and the account of the Grove operator that tests play."""

from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from support.cluster.cluster import Cluster
from support.cluster.rights import until_rights_hold
from support.grove import kinds
from support.grove.driver import CLIQUES, GROUPS, SETS

_NAMESPACE, _ACCOUNT = "grove-system", "grove-operator"
_CHILDREN = ["podcliques", "podcliquescalinggroups"]
_RULES = [
    {"apiGroups": ["grove.io"], "resources": ["podcliquesets"], "verbs": ["list", "patch"]},
    {"apiGroups": ["grove.io"], "resources": _CHILDREN, "verbs": ["list", "create", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["services", "pods"], "verbs": ["list", "create", "patch", "delete"]},
]
_ROLE = "tests:grove-operator"
"""Not Grove's own name: by its rules GKM would read whether Grove writes ComputeDomains."""


def operator_api(cluster: Cluster) -> Api:
    """Return the API for a GroveDriver: as the ServiceAccount of its own, with no more rights than it needs."""
    rbac = "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": _NAMESPACE}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": _ROLE}
    named = {"metadata": {"name": _ROLE}}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, "namespace": _NAMESPACE}}
    )
    cluster.apply({"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "rules": _RULES} | named)
    cluster.apply(
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]} | named
    )
    until_rights_hold(cluster)
    return connect(str(cluster.kubeconfig_for(f"system:serviceaccount:{_NAMESPACE}:{_ACCOUNT}")))


def install_kinds(cluster: Cluster) -> None:
    """Apply the definitions of Grove's kinds, and wait until objects of them can be listed. Idempotent."""
    cluster.apply(kinds.GROVE)
    api = connect(str(cluster.kubeconfig))

    def served() -> bool:
        try:
            return all(next(iter(api.list_pages(kind, limit=1))) for kind in (SETS, GROUPS, CLIQUES))
        except ApiError:  # 404, then 429: the storage is being initialized
            return False

    cluster.until(served, "Grove's kinds to be served")
