"""The reviews of admission: each feature that has some switches them on alone."""

import pytest
from support.chart.helm import render

VARIABLES = {
    "domains": "GKM_DOMAINS",
    "taskGroups": "GKM_TASK_GROUPS",
    "podCaches": "GKM_POD_CACHES",
    "podGates": "GKM_POD_GATES",
}


@pytest.mark.parametrize("feature", VARIABLES)
def test_a_feature_alone_has_its_reviews_and_the_token_that_they_need(feature: str) -> None:
    rendered = {each.key: each.value for each in render({"features": {feature: True}})}
    pod = rendered["Deployment", "gkm-system", "gkm-admission"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["env"] == [{"name": VARIABLES[feature], "value": "on"}]
    assert pod["automountServiceAccountToken"] is True
