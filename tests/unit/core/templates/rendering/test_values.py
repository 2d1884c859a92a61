"""Rendered values: text stays text, and only a filter at the end gives another type."""

from typing import Any

import pytest
from gkm.templates.groups import SAMPLE_GROUP, variables
from gkm.templates.rendering.process import RenderingProcess
from gkm.templates.values import Json, RenderingFailed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.templates.json_values import VALUES
from support.templates.objects import config_map

SAMPLE = variables(SAMPLE_GROUP)
MARKS = ("{{", "{%", "{#")
TEXT = st.text(max_size=30) | st.text("0123456789eE+-._ \r\n{}%#", max_size=12)
PLAIN = TEXT.filter(lambda text: not any(mark in text for mark in MARKS))
# One child serves all examples, as it serves all groups. The first example starts it.
shared_renderer = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def rendered(renderer: RenderingProcess, value: object, values: Json = SAMPLE) -> Any:  # noqa: ANN401 -- any JSON value
    return renderer.render([config_map(value=value)], values).objects[0]["value"]


@shared_renderer
@given(st.lists(PLAIN, max_size=5))
def test_text_without_an_expression_stays_as_it_is(renderer: RenderingProcess, texts: list[str]) -> None:
    assert rendered(renderer, texts) == texts


@shared_renderer
@given(PLAIN.filter(lambda text: "\r" not in text and not text.endswith("{")))
def test_text_around_an_expression_stays_as_it_is(renderer: RenderingProcess, text: str) -> None:
    assert rendered(renderer, f"{text}{{{{ a }}}}{text}", {"a": "b"}) == f"{text}b{text}"


@shared_renderer
@given(TEXT)
def test_the_text_of_a_variable_is_never_interpreted(renderer: RenderingProcess, text: str) -> None:
    assert rendered(renderer, "{{ a }}", {"a": text}) == text
    assert rendered(renderer, {"{{ a }}": "x{{ a }}"}, {"a": text}) == {"{{ a }}": f"x{text}"}


@shared_renderer
@given(VALUES)
def test_values_that_are_no_text_stay_as_they_are(renderer: RenderingProcess, value: object) -> None:
    assert rendered(renderer, {"x": [value]}) == {"x": [value]}


@pytest.mark.parametrize("text", ["12e45678", "1", "1.0", "true", "null", "0x10", "[1]", '{"a":1}', "~", "2026-01-01"])
def test_text_that_looks_like_something_else_is_text(renderer: RenderingProcess, text: str) -> None:
    assert rendered(renderer, "{{ a }}", {"a": text}) == text
    assert rendered(renderer, [text, "{{ a ~ '' }}"], {"a": text}) == [text, text]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("{{ TASKS | length | int }}", 4),
        ("{{- TASKS | length | int -}}", 4),
        ("{{ (TASKS | length * 2) | int }}", 8),
        ("{{ TASKS | sum(attribute='USER_GPUS') | int }}", 32),
        ("{{ ' 7 ' | int }}", 7),
        ("{{ '-007' | int }}", -7),
        ("{{ (7 / 2) | int }}", 3),
        ("{{ 9223372036854775807 | int }}", 9223372036854775807),
        ("{{ '1.5' | float }}", 1.5),
        ("{{ '1e3' | float }}", 1000.0),
        ("{{ (TASKS | length > 3) | bool }}", True),
        ("{{ 'False' | bool }}", False),
        ("{{ TASKS[0].LABELS | json }}", {}),
        ("{{ '{\"a\": [1, null]}' | json }}", {"a": [1, None]}),
        ("{{ ['a', 1.5, none] | json }}", ["a", 1.5, None]),
        ("{{ ('a', 'b') | json }}", ["a", "b"]),
        ("{{ none | json }}", None),
    ],
)
def test_a_value_that_is_one_expression_gets_the_type_of_its_last_filter(
    renderer: RenderingProcess, expression: str, value: object
) -> None:
    result = rendered(renderer, expression)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("{{ TASKS | length }}", "4"),
        ("{{ '7' | int + 1 }}", "8"),
        (" {{ '7' | int }}", " 7"),
        ("{{ '7' | int }}\n", "7\n"),
        ("{{ '7' | int }}{{ '8' | int }}", "78"),
        ("{{ '7' | int | round }}", "7"),
        ("{{ '7' | int | default(1) }}", "7"),
        ("{% if true %}{{ '7' | int }}{% endif %}", "7"),
        ("{# a comment #}x", "x"),
        ("{{ [1, {'a': 'é'}] }}", '[1, {"a": "é"}]'),
        ("{% for task in TASKS %}{{ loop.index }}{{ ',' if not loop.last }}{% endfor %}", "1,2,3,4"),
        ("{% for task in TASKS %}{{ task.WF_TASK_NAME }}{% endfor %}", "task-0task-1task-2task-3"),
        ("{% set a = 'x' %}{{ a }}", "x"),
        ("{{ WF_ID.upper().replace('-', '_') }}", "SAMPLE_WORKFLOW"),
        ("{{ TASKS[0].LABELS.get('a', 'b') }}", "b"),
        ("{{ 'x' if WF_SUBMITTED_BY is defined else 'y' }}", "x"),
        ("{{ '%02d' % 7 }}", "07"),
    ],
)
def test_every_other_expression_gives_text(renderer: RenderingProcess, expression: str, text: str) -> None:
    assert rendered(renderer, expression) == text


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("{{ 'x' | int }}", "no integer"),
        ("{{ '1.5' | int }}", "no integer"),
        ("{{ '1_000' | int }}", "no integer"),
        ("{{ '٣' | int }}", "no integer"),
        ("{{ TASKS | int }}", "no integer"),
        ("{{ 9223372036854775808 | int }}", "cannot have"),
        ("{{ 'x' | float }}", "no number"),
        ("{{ 'nan' | float }}", "cannot have"),
        ("{{ '1e999' | float }}", "cannot have"),
        ("{{ 'yes' | bool }}", "not true or false"),
        ("{{ 1 | bool }}", "not true or false"),
        ("{{ '{' | json }}", "no JSON"),
        ("{{ 'NaN' | json }}", "cannot have"),
        ("{{ {1: 2} | json }}", "cannot have"),
        ("{{ [WF_ID.lower] | json }}", "cannot have"),
        ("{{ WF_ID.lower }}", "no text"),
        ("{{ none }}", "no text"),
        ("{{ range(3) }}", "no text"),
        ("{{ WF_NOPE }}", "'WF_NOPE' is undefined"),
        ("{{ WF_NOPE | int }}", "'WF_NOPE' is undefined"),
        ("{{ TASKS[0].NOPE }}", "has no attribute 'NOPE'"),
        ("{{ TASKS[9] }}", "has no element 9"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ WF_ID + 1 }}", "TypeError"),
        ("{{ '\\ud800' }}", "lone surrogate"),
        ("{{ a }}\r\n", "carriage return"),
        ("{{ a", "line 1"),
        ("\n\n{% if %}", "line 3"),
        ("{% endif %}", "endif"),
        ("{{ WF_ID | tojson }}", "there is no filter 'tojson'"),
        ("{{ WF_ID is callable }}", "there is no test 'callable'"),
        ("{{ 2 ** 3 }}", r"\*\* cannot be used"),
    ],
)
def test_a_value_that_cannot_be_rendered_fails_with_its_place(
    renderer: RenderingProcess, expression: str, problem: str
) -> None:
    with pytest.raises(RenderingFailed, match=problem) as failed:
        renderer.render([config_map("cm-{{ WF_ID }}", spec={"channel": [expression]})], SAMPLE)
    message = str(failed.value)
    if "surrogate" not in problem:
        assert message.startswith("'ConfigMap cm-{{ WF_ID }}': spec.channel[0]: ")
    assert message.isprintable()
    assert len(message) < 500


def test_the_type_of_a_null_is_not_lost(renderer: RenderingProcess) -> None:
    assert rendered(renderer, None) is None


def test_a_carriage_return_can_be_written_in_an_expression(renderer: RenderingProcess) -> None:
    assert rendered(renderer, '{{ "a\\r\\n" }}') == "a\r\n"


def test_messages_about_secrets_quote_no_value(renderer: RenderingProcess) -> None:
    secret = {**config_map(value="{{ [1]['s3cr3t' ~ WF_ID] }}"), "kind": "Secret"}
    with pytest.raises(RenderingFailed, match=r"'Secret my-cm': value: UndefinedError, not shown") as failed:
        renderer.render([secret], SAMPLE)
    assert "s3cr3t" not in str(failed.value)
    with pytest.raises(RenderingFailed, match="s3cr3t"):
        renderer.render([{**secret, "kind": "ConfigMap"}], SAMPLE)
