"""Rules of templates, and what is found in templates and rules before there is a group."""

import pytest
from gkm.templates.groups import SAMPLE_GROUP, variables
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import RenderingFailed
from support.templates.objects import config_map

SAMPLE = variables(SAMPLE_GROUP)


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("TASKS | length >= 4", True),
        ("TASKS | length > 4", False),
        ("TASKS | sum(attribute='USER_GPUS') % 8 == 0 and WF_POOL == 'sample-pool'", True),
        ("WF_SUBMITTED_BY is defined", True),
        ("WF_ID is undefined", False),
        ("'a' in WF_ID", True),
    ],
)
def test_a_rule_is_true_or_false(renderer: RenderingProcess, rule: str, verdict: bool) -> None:  # noqa: FBT001
    assert renderer.render([], SAMPLE, [rule]).verdicts == [verdict]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("TASKS | length", "of type int"),
        ("WF_ID", "of type str"),
        ("none", "of type NoneType"),
        ("NOPE", "'NOPE' is undefined"),
        ("NOPE > 1", "'NOPE' is undefined"),
        ("true }} {{ false", "one expression"),
        ("{{ true }}", "expected"),
        ("", "expected"),
        ("1 +", "unexpected"),
        ("WF_ID.__class__ == 1", "unsafe"),
        ("2 ** 2 == 4", r"\*\*"),
    ],
)
def test_a_rule_that_is_neither_fails(renderer: RenderingProcess, rule: str, problem: str) -> None:
    with pytest.raises(RenderingFailed, match=problem) as failed:
        renderer.render([config_map()], SAMPLE, ["true", rule])
    assert str(failed.value).startswith(f"rule {rule!r}: ")


def test_rules_come_first_and_a_false_one_spares_the_templates(renderer: RenderingProcess) -> None:
    fourth = config_map(data={"fourth": "{{ TASKS[3].WF_TASK_NAME }}"})
    empty = {**SAMPLE, "TASKS": []}
    result = renderer.render([fourth], empty, ["TASKS | length >= 4", "true"])
    assert (result.verdicts, result.objects) == ([False, True], [])
    assert renderer.render([fourth], SAMPLE, ["TASKS | length >= 4"]).objects != []


def test_all_problems_of_a_template_are_found_at_once(renderer: RenderingProcess) -> None:
    template = config_map(
        "cm-{{ WF_ID }}",
        spec={
            "a": ["{{ NOPE }}", "{{ WF_ID"],
            "b": "{{ x | attr('y') }}",
            "c": "{% for t in TASKS %}{{ t }}{% endfor %}",
        },
    )
    problems = renderer.compile(template, ["TASKS | length > 1", "UNKNOWN == 1", "1 +"])
    places = [problem.partition(": ")[0] for problem in problems]
    assert places == ["spec.a[0]", "spec.a[1]", "spec.b", "validation[1].expression", "validation[2].expression"]
    assert "there is no variable 'NOPE'; there are: TASKS, WF_GROUP_NAME" in problems[0]


def test_a_good_template_has_no_problems(renderer: RenderingProcess) -> None:
    data = {
        "set": "{% set a = WF_ID %}{{ a }}",
        "loop": "{% for task in TASKS %}{{ loop.index }}{{ task.USER_GPUS }}{% endfor %}",
        "range": "{% for i in range(3) %}{{ i }}{% endfor %}",
        "optional": "{{ WF_SUBMITTED_BY | default('x') }}",
    }
    assert renderer.compile(config_map("{{ WF_GROUP_UUID }}", data=data), ["TASKS | length > 1"]) == []


def test_a_filter_is_found_where_it_would_not_be_reached(renderer: RenderingProcess) -> None:
    (problem,) = renderer.compile({"x": "{% if false %}{{ WF_ID | attr('a') }}{% endif %}"})
    assert "there is no filter 'attr'" in problem


def test_the_number_of_problems_is_bounded(renderer: RenderingProcess) -> None:
    problems = renderer.compile({"x": ["{{ \x1b" + "y" * 300] * 500})
    assert len(problems) == 20
    assert all(problem.isprintable() and len(problem) < 500 for problem in problems)
