"""What the answers of an API server mean: kinds, rights and dry runs (the real ones: tests/partners/operator)."""

from typing import Any

import pytest
from gkm.kube.errors import ApiError, from_body
from gkm.kube.resources import CONFIGMAPS, Resource
from gkm_operator.admission.domains.cluster_view import ViewUnavailable
from gkm_operator.admission.domains.requests import UserInfo
from gkm_operator.admission.groups.cluster_view import ApiChecks, ObjectRefused
from support.grove.tables import table
from support.kube.fake_api import FakeApi
from support.operator.group_templates import Json, config_map


class CheckingApi(FakeApi):
    """An API in memory whose dry runs and access reviews fail as a test sets it."""

    error: ApiError | None = None
    sent: Json | None = None

    def dry_run(self, resource: Resource[Any], value: Json) -> None:
        assert resource.path(value["metadata"]["namespace"]) == "/api/v1/namespaces/gkm-dry-runs/configmaps"
        if self.error:
            raise self.error

    def create(self, resource: Resource[Any], value: Any, *, field_manager: str = "") -> Any:  # noqa: ANN401, ARG002 -- an Api
        if self.error:
            raise self.error
        self.sent = value
        return resource.type()


def refusal(*causes: str) -> ApiError:
    details = ",".join(f'{{"reason":"{cause}","field":"spec","message":"x"}}' for cause in causes)
    body = f'{{"reason":"Invalid","code":422,"message":"spec: wrong","details":{{"causes":[{details}]}}}}'
    return from_body(422, body.encode())


@table(
    "error, incomplete",
    [
        ("a wrong value", refusal("FieldValueInvalid"), False),
        ("a missing field", refusal("FieldValueRequired"), True),
        ("both", refusal("FieldValueInvalid", "FieldValueRequired"), True),
        ("no cause", ApiError(422, "Invalid", "spec: wrong"), False),
        ("an unknown field", ApiError(400, "BadRequest", 'unknown field "spec.x"'), False),
    ],
)
def test_a_refused_object_is_wrong_or_incomplete(error: ApiError, incomplete: bool) -> None:  # noqa: FBT001 -- a row
    api = CheckingApi()
    api.error = error
    with pytest.raises(ObjectRefused, match=error.message) as caught:
        ApiChecks(api).dry_run(CONFIGMAPS, config_map())
    assert caught.value.incomplete is incomplete


@pytest.mark.parametrize("status", [0, 401, 403, 404, 409, 429, 500, 503])
def test_any_other_answer_proves_nothing(status: int) -> None:
    api = CheckingApi()
    api.error = ApiError(status, "Reason", "message")
    assert ApiChecks(api).dry_run(CONFIGMAPS, config_map()) == "Reason: message"


def test_an_object_that_passes_gives_no_reason() -> None:
    value = config_map()
    assert ApiChecks(CheckingApi()).dry_run(CONFIGMAPS, value) == ""
    assert value == config_map()


def test_a_right_that_cannot_be_asked_for_is_not_assumed() -> None:
    api = CheckingApi()
    assert not ApiChecks(api).may_create(UserInfo("eve"), "", "configmaps")
    api.error = ApiError(0, "Unreachable", "away")
    with pytest.raises(ViewUnavailable, match="the rights of user 'eve' cannot be read"):
        ApiChecks(api).may_create(UserInfo("eve"), "", "configmaps")


def test_the_authorizer_is_asked_about_the_whole_user_and_all_namespaces() -> None:
    api = CheckingApi()
    user = UserInfo("eve", "7", ("people", "system:authenticated"), {"example.org/scope": ("a", "b")})
    ApiChecks(api).may_create(user, "apps", "deployments")
    assert api.sent is not None
    assert api.sent["spec"] == {
        "user": "eve",
        "uid": "7",
        "groups": ("people", "system:authenticated"),
        "extra": {"example.org/scope": ("a", "b")},
        "resourceAttributes": {"group": "apps", "resource": "deployments", "verb": "create"},
    }


def test_kinds_that_cannot_be_discovered_are_not_taken_for_missing() -> None:
    api = CheckingApi()
    api.fault = lambda _verb, _plural: ApiError(503, "ServiceUnavailable", "away")
    with pytest.raises(ViewUnavailable, match="the API server's kinds of apiVersion 'v1' cannot be read"):
        ApiChecks(api).served(config_map())
