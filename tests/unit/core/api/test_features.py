"""The names of GKM's parts in messages are those of the chart and of kustomize."""

import pytest
import yaml
from gkm.api.features import INSTALL, RESTORE_RIGHTS, Feature, install
from kustomizations.directories import COMPONENTS
from support.operator.deployment import ROOT


def test_each_feature_is_a_value_of_the_chart() -> None:
    values = yaml.safe_load((ROOT / "deploy/chart/gkm/values.yaml").read_text())
    assert set(Feature) == set(values["features"])


@pytest.mark.parametrize("feature", Feature)
def test_a_feature_has_the_directory_of_its_value(feature: Feature) -> None:
    component = next(one for one in COMPONENTS if one.values == {"features": {feature.value: True}})
    assert feature.component == f"deploy/components/{component.name}"


def test_a_message_names_both_ways_of_installation() -> None:
    assert install(Feature.TASK_GROUPS) == (
        "apply deploy/components/task-groups, or set features.taskGroups=true in the Helm chart"
    )
    for text in (INSTALL, RESTORE_RIGHTS):
        assert "apply deploy/base" in text
        assert "Helm chart" in text
