"""Reading one object that may be missing: only 404 means that it is."""

import pytest
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS
from support.kube.fake_api import FakeApi


@pytest.mark.parametrize("status", [0, 401, 403, 410, 429, 500, 503])
def test_an_api_server_that_refuses_or_is_away_does_not_make_an_object_missing(status: int) -> None:
    api = FakeApi()
    api.fault = lambda _verb, _plural: ApiError(status, "Refused", "not now")
    with pytest.raises(ApiError, match="not now") as caught:
        api.find(CONFIGMAPS, "any", "ns")
    assert caught.value.status == status
