"""The rights on the kinds that templates may create: exactly those of the allow-list."""

from gkm.api.cluster_roles import PolicyRule
from gkm.api.task_group_rights import VERBS, manifests, rules
from gkm.api.task_group_settings import AllowedKind, TaskGroups


def allowed(settings: TaskGroups) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in rules(settings)
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_each_allowed_kind_has_the_verbs_and_no_other_kind_has_any() -> None:
    settings = TaskGroups(allowed_kinds=[AllowedKind("Secret"), AllowedKind("Thing", "a.test", "thingies")])
    expected = {(verb, "", "secrets") for verb in VERBS} | {(verb, "a.test", "thingies") for verb in VERBS}
    assert allowed(settings) == expected


def test_there_is_no_rule_without_allowed_kinds_and_never_a_wildcard() -> None:
    assert rules(TaskGroups(allowed_kinds=[])) == []
    assert all("*" not in part for right in allowed(TaskGroups()) for part in right)
    for rule in rules(TaskGroups()):
        assert PolicyRule(tuple(rule["verbs"]), tuple(rule["apiGroups"]), tuple(rule["resources"])).allows(
            "delete", rule["apiGroups"][0], rule["resources"][0]
        )


def test_kinds_of_a_group_share_a_rule_whatever_their_order() -> None:
    kinds = [AllowedKind("Service"), AllowedKind("Deployment", "apps"), AllowedKind("ConfigMap")]
    assert rules(TaskGroups(allowed_kinds=kinds)) == rules(TaskGroups(allowed_kinds=kinds[::-1]))
    assert [rule["resources"] for rule in rules(TaskGroups(allowed_kinds=kinds))] == [
        ["configmaps", "services"],
        ["deployments"],
    ]


def test_admission_may_only_try_and_only_in_the_namespace_of_dry_runs() -> None:
    role, binding = manifests(TaskGroups(allowed_kinds=[AllowedKind("Secret")]))[2:]
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "gkm-dry-runs")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    assert (binding["kind"], binding["metadata"]["namespace"]) == ("RoleBinding", "gkm-dry-runs")
