"""Rules in CEL: what compiles, what a configuration says about one that does not, and what is true."""

import json
import subprocess
import sys
from typing import Any

import pytest
from gkm.api import config
from gkm.api.config import ConfigInvalid
from gkm.api.policies import MAX_ATTESTATIONS_REQUIRED, MAX_RULES
from gkm.api.predicate_rules import MAX_EXPRESSION, compile_rule, violation
from hypothesis import given
from hypothesis import strategies as st

KEY = "-----BEGIN PUBLIC KEY-----\n"
PREDICATE: dict[str, Any] = {
    "buildDefinition": {
        "externalParameters": {"ref": "refs/tags/v1", "nothing": None, "count": 3, "large": 9007199254740993},
        "resolvedDependencies": [
            {"uri": "git+https://git.test/ours/cache@main", "digest": {"gitCommit": "ab"}},
            {"uri": "pkg:pypi/triton@3.0", "digest": {"sha256": "00"}},
        ],
    },
    "runDetails": {"metadata": {"startedOn": "2026-01-02T03:04:05Z", "finishedOn": "2026-01-02T03:05:05.5Z"}},
    "list": [1, 2, 3],
    "x-y": "äö😀",
}
DEPENDENCIES = "predicate.buildDefinition.resolvedDependencies"
METADATA = "predicate.runDetails.metadata"
PARAMETERS = "predicate.buildDefinition.externalParameters"


def policies(attestations: object) -> str:
    policy = {"keys": [KEY], "attestations": attestations}
    return json.dumps({"verification": {"policies": [policy]}})


def rule(expression: str) -> str:
    return policies(
        [{"predicateType": "https://t.test/v1", "rules": [{"expression": "true"}, {"expression": expression}]}]
    )


@pytest.mark.parametrize(
    "expression",
    [
        f"{PARAMETERS}.ref == 'refs/tags/v1' && {PARAMETERS}.ref.startsWith('refs/tags/')",
        f"{PARAMETERS}.ref.matches('^refs/tags/v[0-9]+$') && {PARAMETERS}.ref.contains('tags')",
        f"has({PARAMETERS}.nothing) && {PARAMETERS}.nothing == null && !has({PARAMETERS}.other)",
        f"{PARAMETERS}.large == 9007199254740993 && {PARAMETERS}.count == 3.0 && {PARAMETERS}.count < 3.5",
        f"{DEPENDENCIES}.all(d, d.uri.startsWith('git+') || d.uri.startsWith('pkg:'))",
        f"{DEPENDENCIES}.exists(d, d.uri.endsWith('@main')) && {DEPENDENCIES}.exists_one(d, 'sha256' in d.digest)",
        "predicate.list.filter(x, x > 1).map(x, x * 2) == [4, 6] && 2 in predicate.list && !(5 in predicate.list)",
        "predicate.runDetails.all(key, key in ['builder', 'metadata'])",
        f"timestamp({METADATA}.finishedOn) - timestamp({METADATA}.startedOn) < duration('2m')",
        "predicate['x-y'].size() == 3",
        "predicate.other == 1 || true",
        "predicate.list.exists(x, x == 3 || 1 / (x - 1) == 5)",
    ],
)
def test_a_rule_of_the_kind_that_kubernetes_has_is_true(expression: str) -> None:
    assert violation(expression, PREDICATE) == ""


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("predicate.list == [1, 2]", "is false"),
        ("predicate['x-y']", "is not true or false"),
        ("predicate.other == 1", 'cannot be evaluated: Key not found in map : "other"'),
        ("predicate.list[7] == 1", "cannot be evaluated: Index error: index=7 size=3"),
        ("1 / 0 == 1", "cannot be evaluated: divide by zero"),
        ("predicate.list.all(x, x.y)", "cannot be evaluated: Applying SELECT to non-message type"),
        ("predicate.list < 1", "cannot be evaluated: No matching overloads found : _<_(list, int64)"),
        ("'a'.matches('(')", "cannot be evaluated: invalid regular expression: missing ): ("),
    ],
)
def test_an_error_is_never_true(expression: str, reason: str) -> None:
    assert violation(expression, PREDICATE) == reason


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("predicate.a ==", "line 1, column 15: Syntax error"),
        ("predicate.a &&\n  predicat", "line 2, column 3: undeclared reference to 'predicat'"),
        ("predicate.list.sum() == 6", "line 1, column 19: undeclared reference to 'sum'"),
        ("predicate.a == 1 && 'x'", "line 1, column 18: found no matching overload"),
        ("'text'", "a value of the type STRING, not true or false"),
        ("(" * 500, "Expression recursion limit exceeded"),
        ("\0", "line 1, column 1: Syntax error"),
    ],
)
def test_a_configuration_names_policy_rule_and_position_of_an_expression_that_does_not_compile(
    expression: str, reason: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        config.parse(rule(expression), "configuration x")
    message = str(caught.value)
    assert reason in message
    assert "$.verification.policies[0].attestations[0].rules[1]" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "attestations",
    [
        [{"predicateType": ""}],
        [{"predicateType": "x" * 257}],
        [{"predicateType": "https://sigstore.dev/cosign/sign/v1"}],
        [{"predicateType": f"https://t.test/{n}"} for n in range(MAX_ATTESTATIONS_REQUIRED + 1)],
        [{"predicateType": "https://t.test", "rules": [{"expression": "true"}] * (MAX_RULES + 1)}],
        [{"predicateType": "https://t.test", "rules": [{"expression": "true || " * 127 + "true      "}]}],
        [{"predicateType": "https://t.test", "rules": [{"expression": ""}]}],
        [{"predicateType": "https://t.test", "rules": [{"expression": "true", "message": "x" * 257}]}],
        [{"predicateType": "https://t.test", "rule": []}],
    ],
)
def test_what_exceeds_a_limit_is_refused_with_its_path(attestations: object) -> None:
    with pytest.raises(ConfigInvalid, match=r"\$\.verification\.policies\[0\]\.attestations"):
        config.parse(policies(attestations), "configuration x")


def test_an_expression_of_full_length_compiles_and_a_longer_one_does_not() -> None:
    compile_rule("true".ljust(MAX_EXPRESSION))
    with pytest.raises(ValueError, match="the limit is 1024"):
        compile_rule("true".ljust(MAX_EXPRESSION + 1))


@given(st.text(max_size=60) | st.text("predicate.all(x,)[]{}'\"=&|!<>+-*/%?: \n0123", max_size=60))
def test_any_text_compiles_or_is_refused_with_one_line(expression: str) -> None:
    try:
        compile_rule(expression)
    except ValueError as error:
        assert "\n" not in str(error)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, VALUES)
def test_equality_is_that_of_json(one: object, other: object) -> None:
    got = violation("predicate[0] == predicate[1]", [one, other])
    assert got == ("" if json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True) else "is false")
    assert violation("predicate == predicate", one) == ""


@pytest.mark.parametrize(("rules", "loaded"), [("[]", False), ('[{"expression": "true"}]', True)])
def test_only_a_process_with_rules_loads_the_engine(rules: str, loaded: bool) -> None:  # noqa: FBT001
    text = policies([{"predicateType": "https://t.test/v1", "rules": json.loads(rules)}])
    code = (
        f"import sys; from gkm.api import config; config.parse({text!r}, 'x'); print('cel_expr_python' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{loaded}\n"
