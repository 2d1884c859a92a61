"""Secrets: an existing one has its data in base64; any other is UNAUTHORIZED by name; no error shows a value."""

import base64
from pathlib import Path
from threading import Event

import pytest
from gkm.api.errors import GKMError, Reason
from gkm.images.registries.credentials import Secrets
from gkm.kube.secrets import SECRETS, KubeSecrets
from gkm_agent.standalone.source import FileSource
from support.kube.fake_api import FakeApi

VALUE = base64.b64encode(b"hidden-text").decode()
DATA = {".dockerconfigjson": VALUE}


def kube(_: Path) -> Secrets:
    api = FakeApi()
    api.create(
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "team", "namespace": "ml-apps"}, "data": DATA},
    )
    return KubeSecrets(api)


def files(directory: Path) -> Secrets:
    (directory / "secret.yaml").write_text(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: team, namespace: ml-apps}\n"
        f"data: {{.dockerconfigjson: {VALUE}}}\n"
    )
    source = FileSource(directory, Event())
    source.scan()
    return source


@pytest.fixture(params=[kube, files], ids=lambda make: make.__name__)
def implementation(request: pytest.FixtureRequest, tmp_path: Path) -> Secrets:
    made: Secrets = request.param(tmp_path)
    return made


def test_a_secret_has_its_data_in_base64_each_time(implementation: Secrets) -> None:
    assert implementation.data("ml-apps", "team") == DATA
    assert implementation.data("ml-apps", "team") == DATA


@pytest.mark.parametrize(("namespace", "name"), [("ml-apps", "other"), ("other", "team"), ("ml-apps", "tea")])
def test_a_secret_that_does_not_exist_is_unauthorized(implementation: Secrets, namespace: str, name: str) -> None:
    with pytest.raises(GKMError) as caught:
        implementation.data(namespace, name)
    assert caught.value.reason is Reason.UNAUTHORIZED
    assert f"{namespace}/{name}" in str(caught.value)
    assert VALUE not in str(caught.value)


def test_an_implementation_does_not_show_its_secrets(implementation: Secrets) -> None:
    assert VALUE not in repr(implementation)
    assert "hidden-text" not in repr(implementation)
