"""The moment from which an API server enforces the policies that a test applied, and no longer those it deleted.

The server takes changed ValidatingAdmissionPolicies up once a second, all at once and after both of its watches
(policies, bindings) brought them. A probe that is applied last and refuses therefore proves that every earlier policy
holds too, and that no policy deleted before it does.
"""

import itertools

from support.cluster.cluster import Cluster
from support.cluster.objects import RequestFailed

_numbers = itertools.count(1)
_KINDS = ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")


def until_policies_hold(cluster: Cluster) -> None:
    """Wait until the API server enforces the policies as they were applied and deleted before this call."""
    name = f"probe-{next(_numbers)}.test.gkm.io"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "probe", "expression": f"request.name == '{name}'"}],
        "validations": [{"expression": "false", "message": name}],
    }
    cluster.apply([head | {"kind": "ValidatingAdmissionPolicy", "spec": spec}])
    binding = {"policyName": name, "validationActions": ["Deny"]}
    cluster.apply([head | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding}])
    try:
        cluster.until(lambda: _refused(cluster, name), "the policies to hold")
    finally:
        for kind in _KINDS:
            cluster.objects.delete(head | {"kind": kind})


def _refused(cluster: Cluster, name: str) -> bool:
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    try:
        cluster.objects.create(probe, dry_run=True)
    except RequestFailed as failed:
        if name not in str(failed):
            raise
        return "ValidatingAdmissionPolicy" in str(failed)
    return False
