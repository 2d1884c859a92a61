"""What an attacker may do with the token of each of our processes, under the rights that ship, on a real API server.

The table of stolen tokens in docs/reference/security.md names every right; a right that is added without it fails here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.leases import LEASES
from gkm.kube.resources import CONFIGMAPS, MUTATING_WEBHOOKS, SERVICE_ACCOUNTS, VALIDATING_WEBHOOKS, Json, Resource
from support.cluster.cluster import Cluster
from support.cluster.rights import until_rights_hold
from support.operator.deployment import ROOT, component, manifests
from support.operator.rights import COMPONENTS

SYSTEM = "gkm-system"
DRY_RUNS = "gkm-dry-runs"
ELSEWHERE = "default"
PREFIX = f"system:serviceaccount:{SYSTEM}:"
ADMISSION, CONTROLLERS = "gkm-admission", "gkm-controllers"
ACCOUNTS = ("gkm-agent", "gkm-csi", ADMISSION, CONTROLLERS, "gkm-provider-infiniband")
BASE = "base"
RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount", "Namespace"})
PAGE = (ROOT / "docs" / "reference" / "security.md").read_text(encoding="utf-8")
RESOURCES = {each.kind: each for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}


@dataclass(frozen=True, order=True)
class Power:
    """One verb on one resource, as the API server reports it; an empty name is any, an empty namespace is all."""

    verb: str
    resource: str
    name: str = ""
    namespace: str = ""


Rights = dict[tuple[str, str], set[Power]]
"""By account and feature."""


def documented() -> Rights:
    """Return the rights of the table: `verb,verb resource,resource (name,name) in namespace`."""
    _, _, section = PAGE.partition("## Stolen tokens\n")
    found: Rights = {}
    for line in section.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            account, feature, rights = cells[0].strip("`"), cells[1].strip("`"), cells[2]
            assert all(cells), line
            found[account, feature] = {power for text in re.findall("`([^`]+)`", rights) for power in powers(text)}
    return found


def powers(text: str) -> Iterator[Power]:
    form = r"(?P<verbs>\S+) (?P<resources>\S+)(?: \((?P<names>\S+)\))?(?: in (?P<namespace>\S+))?"
    found = re.fullmatch(form, text)
    assert found, text
    parts = (found["verbs"], found["resources"], found["names"] or "")
    for verb, resource, name in product(*(part.split(",") for part in parts)):
        yield Power(verb, resource, name, found["namespace"] or "")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with deploy/base, its webhook configuration included, and without any component."""
    with Cluster.start(tmp_path_factory.mktemp("stolen")) as cluster:
        cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}])
        cluster.apply([each for each in manifests() if each["kind"] in RBAC or "webhooks" in each])
        until_rights_hold(cluster)
        yield cluster


def allowed(cluster: Cluster, account: str) -> set[Power]:
    """Return what the API server allows to an account, without what it allows to every account."""
    everywhere = reviewed(cluster, f"{PREFIX}{account}", ELSEWHERE)
    found = set(everywhere)
    for namespace in (SYSTEM, DRY_RUNS):
        own = reviewed(cluster, f"{PREFIX}{account}", namespace) - everywhere
        found |= {Power(one.verb, one.resource, one.name, namespace) for one in own}
    return found


def reviewed(cluster: Cluster, user: str, namespace: str) -> set[Power]:
    mine, common = (rules(cluster, each, namespace) for each in (user, f"system:serviceaccount:{ELSEWHERE}:default"))
    return mine - common


def rules(cluster: Cluster, user: str, namespace: str) -> set[Power]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = cluster.objects.as_user(user).create(review)["status"]
    assert not status["incomplete"]
    found = set()
    for rule in status["resourceRules"]:
        parts = (rule["verbs"], rule["apiGroups"], rule["resources"], rule.get("resourceNames") or [""])
        for verb, group, resource, name in product(*parts):
            found.add(Power(verb, f"{resource}.{group}" if group else resource, name))
    return found


@pytest.fixture(scope="module")
def shipped(installed: Cluster) -> Rights:
    """The rights that the API server reports: those of deploy/base, and what each component adds alone."""
    found = {(account, BASE): allowed(installed, account) for account in ACCOUNTS}
    for feature in COMPONENTS:
        objects = [each for each in component(feature) if each["kind"] in RBAC]
        installed.apply(objects)
        until_rights_hold(installed)
        for account in ACCOUNTS:
            added = allowed(installed, account) - found[account, BASE]
            if added:
                found[account, feature] = added
        bindings = [each for each in objects if each["kind"].endswith("Binding")]
        for binding in bindings:
            installed.objects.delete(binding)
        until_rights_hold(installed)
    return found


def test_the_table_names_every_right_of_every_token_and_no_other(shipped: Rights) -> None:
    said = documented()
    assert set(said) == {key for key, rights in shipped.items() if rights} | {("gkm-csi", BASE)}
    for key, rights in said.items():
        assert rights == shipped[key], key


def test_no_token_reads_secrets_or_becomes_another_account(shipped: Rights) -> None:
    every = set().union(*shipped.values())
    assert not {power for power in every if power.resource in {"secrets", "serviceaccounts/token", "*"}}
    assert not {power for power in every if power.verb in {"impersonate", "escalate", "bind", "*"}}
    written = {power for power in every if power.verb not in {"get", "list", "watch"}}
    assert not {power for power in written if power.resource.endswith(RBAC_GROUP)}


@pytest.mark.usefixtures("shipped")  # the rights are read before a test adds some
@pytest.mark.parametrize(
    "feature", [BASE, *(each for each in COMPONENTS if any("webhooks" in o for o in component(each)))]
)
def test_the_token_of_admission_changes_no_webhook_configuration(installed: Cluster, feature: str) -> None:
    objects = manifests() if feature == BASE else component(feature)
    installed.apply([each for each in objects if each["kind"] in RBAC or "webhooks" in each])
    until_rights_hold(installed)
    thief = connect(str(installed.kubeconfig_for(f"{PREFIX}{ADMISSION}")))
    for found in objects:
        if "webhooks" in found:
            resource, name = RESOURCES[found["kind"]], found["metadata"]["name"]
            before = thief.get(resource, name)
            assert before["webhooks"]
            stolen = {"webhooks": [before["webhooks"][0] | {"clientConfig": {"url": "https://192.0.2.1/"}}]}
            with pytest.raises(ApiError, match=f'cannot patch resource "{resource.plural}"'):
                thief.merge(resource, name, stolen)


def named(name: str, kind: str = "ConfigMap", version: str = "v1") -> dict[str, object]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": SYSTEM}}


@pytest.mark.usefixtures("shipped")  # as above
def test_the_token_of_the_controllers_makes_only_its_own_objects_in_its_namespace(installed: Cluster) -> None:
    # Group templates need ConfigMaps of any name, and another test may have installed them.
    for binding in (each for each in component("task-groups") if each["kind"].endswith("Binding")):
        installed.objects.delete(binding)
    objects = [each for feature in COMPONENTS if feature != "task-groups" for each in component(feature)]
    installed.apply([each for each in (*manifests(), *objects) if each["kind"] in RBAC])
    until_rights_hold(installed)
    thief = connect(str(installed.kubeconfig_for(f"{PREFIX}{CONTROLLERS}")))
    leases: Resource[Json] = LEASES.of(dict)
    own = (
        (CONFIGMAPS, ("gkm-domains", "gkm-topology")),
        (SERVICE_ACCOUNTS, ("gkm-flavors",)),
        (leases, ("gkm-controllers",)),
    )
    for resource, names in own:
        for name in names:
            thief.apply(resource, named(name, resource.kind, resource.api_version), field_manager="x")
        for name in ("gkm-config", "gkm-ibnetdiscover-node-1", "gkm-admission", "another"):
            value = named(name, resource.kind, resource.api_version)
            with pytest.raises(ApiError, match=f'cannot patch resource "{resource.plural}"'):
                thief.apply(resource, value, field_manager="x")
            with pytest.raises(ApiError, match=f'cannot create resource "{resource.plural}"'):
                thief.create(resource, value)


def test_the_token_of_admission_writes_one_config_map(installed: Cluster) -> None:
    thief = connect(str(installed.kubeconfig_for(f"{PREFIX}{ADMISSION}")))

    thief.apply(CONFIGMAPS, named("gkm-admission-ca"), field_manager="x")
    thief.merge(CONFIGMAPS, "gkm-admission-ca", {"data": {"ca.crt": ""}}, SYSTEM)
    for name in ("gkm-config", "gkm-flavors", "another"):
        with pytest.raises(ApiError, match="cannot patch resource"):
            thief.apply(CONFIGMAPS, named(name), field_manager="x")
        with pytest.raises(ApiError, match="cannot create resource"):
            thief.create(CONFIGMAPS, named(name))
    with pytest.raises(ApiError, match="cannot delete resource"):
        thief.delete(CONFIGMAPS, "gkm-admission-ca", SYSTEM)
