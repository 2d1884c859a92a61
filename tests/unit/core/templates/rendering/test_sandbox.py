"""Ways out of the sandbox: every one is refused, when it is compiled or when it is rendered."""

import pytest
from gkm.templates.groups import SAMPLE_GROUP, variables
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import RenderingFailed
from support.templates.hostile import ESCAPES
from support.templates.objects import config_map

SAMPLE = variables(SAMPLE_GROUP)


@pytest.mark.parametrize("expression", ESCAPES)
def test_an_escape_gives_no_value(renderer: RenderingProcess, expression: str) -> None:
    with pytest.raises(RenderingFailed) as failed:
        renderer.render([config_map(value=expression)], SAMPLE)
    message = str(failed.value)
    assert message.startswith("'ConfigMap my-cm': value: ")
    assert " object at 0x" not in message
    assert "root:" not in message


@pytest.mark.parametrize("expression", ESCAPES)
def test_an_escape_in_a_branch_that_is_not_taken_gives_no_value_either(
    renderer: RenderingProcess, expression: str
) -> None:
    text = "{% if WF_ID == 'x' %}" + expression + "{% endif %}safe"
    try:
        values = renderer.render([config_map(value=text)], SAMPLE).objects[0]["value"]
    except RenderingFailed:
        return
    assert values == "safe"


def test_templates_cannot_change_the_variables_of_one_another(renderer: RenderingProcess) -> None:
    texts = ["{% set WF_ID = 'changed' %}{{ WF_ID }}", "{{ WF_ID }}", "{% for WF_ID in [1] %}{{ WF_ID }}{% endfor %}"]
    result = renderer.render([config_map(value=[*texts, "{{ WF_ID }}"])], SAMPLE)
    assert result.objects[0]["value"] == ["changed", "sample-workflow", "1", "sample-workflow"]
