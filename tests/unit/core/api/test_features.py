"""The names of GKM's parts in messages are those of the chart and of kustomize."""

import manifests
import pytest
import yaml
from gkm.api.features import INSTALL, RESTORE_RIGHTS, Feature, install
from kustomizations.directories import COMPONENTS
from support.operator.deployment import ROOT


def test_each_feature_is_a_value_of_the_chart() -> None:
    values = yaml.load((ROOT / "deploy/chart/gkm/values.yaml").read_text(), yaml.CSafeLoader)
    assert set(Feature) == set(values["features"])


@pytest.mark.parametrize("feature", Feature)
def test_a_feature_has_the_directory_of_its_value(feature: Feature) -> None:
    component = next(one for one in COMPONENTS if one.values == {"features": {feature.value: True}})
    assert feature.component == f"components/{component.name}"


def test_a_message_names_what_users_of_the_chart_of_a_release_and_of_a_clone_do() -> None:
    assert install(Feature.TASK_GROUPS) == (
        "set features.taskGroups=true in the Helm chart, or apply components/task-groups of the release's manifests "
        "(in a clone, make manifests writes them to build/deploy)"
    )
    where = "of the release's manifests (in a clone, make manifests writes them to build/deploy)"
    assert f"install the Helm chart, or apply base {where}" == INSTALL
    assert f"upgrade the Helm chart, or apply base/controllers.yaml {where}: both have the rule" == RESTORE_RIGHTS


def test_the_directory_in_messages_is_the_one_that_make_manifests_writes() -> None:
    assert manifests.DEFAULT == ROOT / "build/deploy"
