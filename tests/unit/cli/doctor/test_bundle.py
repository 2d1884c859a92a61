"""The bundle for support: all parts or why not, bounded, and no secret that is planted anywhere in the cluster."""

import base64
import json
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from gkm.api import crds
from gkm.kube.errors import ApiError
from gkm.kube.resources import (
    CONFIGMAPS,
    DEFINITIONS,
    EVENTS,
    GKMCACHES,
    GROUPTEMPLATES,
    NODES,
    POOLS,
    PROVIDER_TREES,
    TASKGROUPS,
    Resource,
)
from gkm_cli.clusters.connection import ClusterConnection
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.doctor import diagnosis
from gkm_cli.doctor.bundle import contents
from gkm_cli.doctor.bundle.objects import BundledObject, BundledStatus
from gkm_cli.doctor.bundle.redaction import REDACTED, redacted, redacted_values
from gkm_cli.doctor.options import DoctorOptions
from gkm_cli.output import CommandFailed, NegativeResult
from msgspec import convert
from support.cluster.gkm_objects import cache
from support.kube.fake_api import FakeApi

Json = dict[str, Any]
T = TypeVar("T")
SYSTEM = "gkm-system"
PASSWORD, TOKEN = "hunter2-Correct-Horse", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
SECRETS = (
    PASSWORD,
    TOKEN,
    "cGxhbnRlZC1rZXktYm9keQ",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
)
KEY = f"-----BEGIN EC PRIVATE KEY-----\n{SECRETS[2]}\n-----END EC PRIVATE KEY-----"
PODS: Resource[Json] = Resource("v1", "Pod", "pods", namespaced=True, type=dict)
SECRET: Resource[Json] = Resource("v1", "Secret", "secrets", namespaced=True, type=dict)
LOG = f"""{{"event":"request","headers":{{"Authorization":"Bearer {TOKEN}"}}}}
{{"event":"login","password":"{PASSWORD}"}}
pull from https://robot:{PASSWORD}@registry.example/v2/ failed
GET https://storage.example/blob?X-Signature={PASSWORD}&x=1 403
docker config {{\\"auth\\":\\"{base64.b64encode(PASSWORD.encode()).decode()}\\"}}
export AWS_SECRET_ACCESS_KEY={PASSWORD} AWS_ACCESS_KEY_ID={SECRETS[3]} GH={SECRETS[4]}
{KEY}
the cache llama is ready
"""


def agent(name: str = "gkm-agent-0", *, restarts: int = 1) -> Json:
    env = [{"name": "REGISTRY_PASSWORD", "value": PASSWORD}, {"name": "PLAIN", "value": TOKEN}]
    status = {"name": "agent", "ready": True, "restartCount": restarts, "imageID": "", "image": "gkm-agent:1"}
    status |= {"lastState": {"terminated": {"exitCode": 1, "message": f"token={PASSWORD}"}}}
    labels = {"app.kubernetes.io/name": "gkm-agent"}
    metadata = {"name": name, "namespace": SYSTEM, "labels": labels, "annotations": {"last": PASSWORD}}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n", "containers": [{"name": "agent", "env": env, "args": [f"--token={TOKEN}"]}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def provider() -> Json:
    """The pod of the topology provider ufm, whose process has started again."""
    made = agent("gkm-provider-ufm-0")
    made["metadata"]["labels"] = {"app.kubernetes.io/name": "gkm-provider"}
    made["status"]["containerStatuses"][0]["name"] = "provider"
    return made


OF_USERS: Json = {
    "kind": "Job",
    "metadata": {"name": "tune", "annotations": {"a": PASSWORD}},
    "spec": {"containers": [{"env": [{"name": "PLAIN", "value": PASSWORD}], "args": [PASSWORD]}]},
}
PARSED = {"type": "Parsed", "status": "True", "reason": "Parsed", "message": "", "lastTransitionTime": "2020-01-01"}


def add_groups(api: FakeApi) -> None:
    """Add a pool, its template and a group, each with an object of a user."""
    add(
        api,
        GROUPTEMPLATES.of(dict),
        {"metadata": {"name": "t"}, "spec": {"template": OF_USERS}, "status": {"pools": 1}},
    )
    parsed = {"observedGeneration": 1, "parsedGroupTemplates": [OF_USERS], "conditions": [PARSED]}
    spec = {"description": PASSWORD, "commonGroupTemplates": ["t"]}
    add(api, POOLS.of(dict), {"metadata": {"name": "p"}, "spec": spec, "status": parsed})
    made = {"apiVersion": "batch/v1", "kind": "Job", "name": "tune", "state": "Created", "manifest": OF_USERS}
    status = {"phase": "Running", "objects": [made], "conditions": [PARSED]}
    group = {"metadata": {"name": "g", "namespace": "ml"}, "spec": {"pool": "p", "tasks": [OF_USERS]}}
    add(api, TASKGROUPS.of(dict), group | {"status": status})


class _Versioned(FakeApi):
    """An API that has a version."""

    def discover(self, path: str, document: type[T]) -> T:
        if path == "/version":
            return convert({"gitVersion": "v1.34.1", "platform": "linux/amd64"}, document)
        return super().discover(path, document)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """GKM's kinds, an agent with logs, a cache, and secrets wherever people leave them."""
    made = _Versioned()
    monkeypatch.setattr(diagnosis, "connected", lambda *_: ClusterConnection(made, "default"))
    for definition in crds.definitions().values():
        made.create(DEFINITIONS, definition)
    add(made, PODS, agent())
    made.logs[SYSTEM, "gkm-agent-0", "agent"] = LOG.encode()
    made.logs[SYSTEM, "gkm-agent-0", "agent-previous"] = LOG.encode() + b"\xff ended\n"
    add(made, PODS, provider())
    made.logs[SYSTEM, "gkm-provider-ufm-0", "provider"] = LOG.encode()
    made.logs[SYSTEM, "gkm-provider-ufm-0", "provider-previous"] = LOG.encode()
    add_groups(made)
    tree = {"state": "Serving", "revision": 7, "faults": [f"token={PASSWORD}"], "tree": PASSWORD}
    add(made, PROVIDER_TREES.of(dict), {"metadata": {"name": "ufm"}, "spec": tree, "status": {"observedRevision": 7}})
    node = {"metadata": {"name": "n", "labels": {"example.com/token": PASSWORD}, "annotations": {"a": PASSWORD}}}
    add(
        made,
        NODES,
        node | {"status": {"conditions": [{"type": "Ready", "status": "True", "message": f"password: {PASSWORD}"}]}},
    )
    made.create(SECRET, {"metadata": {"name": "pull", "namespace": SYSTEM}, "data": {"p": PASSWORD}})
    config = f"# password: {PASSWORD}\nverification: {{mode: warn}}\n"
    data = {"config.yaml": config, "key.pem": KEY}
    made.create(CONFIGMAPS, {"metadata": {"name": "gkm-config", "namespace": SYSTEM}, "data": data})
    annotated = cache("llama", "ml", "registry.example/team/caches/llama:1")
    annotated["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": PASSWORD}
    condition = {"type": "Ready", "status": "False", "reason": "NodesIncompatible", "message": f"secret={PASSWORD}"}
    condition["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    add(made, GKMCACHES.of(dict), annotated | {"status": {"conditions": [condition]}})
    regarding = {"kind": "GKMCache", "name": "llama", "namespace": "ml"}
    metadata = {"name": "e", "namespace": "ml", "annotations": {"a": PASSWORD}}
    made.create(EVENTS, {"metadata": metadata, "regarding": regarding, "note": f"Bearer {TOKEN}", "reason": "Failed"})
    other = {"metadata": {"name": "o", "namespace": "ml"}, "regarding": {"kind": "Job"}, "note": PASSWORD}
    made.create(EVENTS, other)
    return made


def add(api: FakeApi, resource: Resource[Any], item: Json) -> None:
    api.create(resource, item)
    name, where = item["metadata"]["name"], item["metadata"].get("namespace")
    api.merge(resource, name, {"status": item["status"]}, where, subresource="status")


def bundled(path: Path, **options: Any) -> dict[str, bytes]:  # noqa: ANN401 -- options of the command
    """Write the bundle, and return its files. The command fails for the faults of the empty installation."""
    # The reason is that GKM is not installed: the checks find problems.
    with suppress(NegativeResult):
        diagnosis.diagnose(ClusterOptions(), DoctorOptions(bundle=path, checks=["kinds", "agent"], **options))
    return unpacked(path)


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as found:
        return {member.name.partition("/")[2]: file.read() for member in found if (file := found.extractfile(member))}


def test_no_planted_secret_enters_in_any_form(api: FakeApi, tmp_path: Path) -> None:
    files = bundled(tmp_path / "b.tar.gz")
    assert b"the cache llama is ready" in files["logs/gkm-agent-0.agent.log"]
    forms = [form for secret in SECRETS for form in (secret, base64.b64encode(secret.encode()).decode().rstrip("="))]
    found = [(name, form) for name, content in files.items() for form in forms if form in name + content.decode()]
    assert found == []
    assert not [call for call in api.calls if call[1] == "secrets" and call[0] != "create"]


def test_a_planted_secret_would_be_found() -> None:
    """Without redaction the same log has each of them."""
    assert all(secret in LOG for secret in SECRETS)


@pytest.mark.usefixtures("api")
def test_all_parts_are_there_and_about_says_so(tmp_path: Path) -> None:
    files = bundled(tmp_path / "b.tar.gz")
    about = json.loads(files["about.json"])
    assert {part["file"] for part in about["parts"]} <= files.keys()
    assert about["kubernetes"]["gitVersion"] == "v1.34.1"
    assert [one["check"] for one in json.loads(files["findings.json"])].count("kinds/missing") == 1
    (found,) = json.loads(files["objects/gkmcaches.json"])["items"]
    assert found["spec"]["image"] == "registry.example/team/caches/llama:1"
    assert json.loads(files["config.json"])["verification"]["mode"] == "warn"
    assert [each["metadata"]["name"] for each in json.loads(files["events.json"])["items"]] == ["e"]
    assert files["logs/gkm-agent-0.agent.previous.log"].endswith("� ended\n".encode())
    (pod, _) = json.loads(files["objects/pods.json"])
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


@pytest.mark.usefixtures("api")
def test_a_topology_provider_is_there_with_its_logs_and_without_its_tree(tmp_path: Path) -> None:
    files = bundled(tmp_path / "b.tar.gz")
    assert b"the cache llama is ready" in files["logs/gkm-provider-ufm-0.provider.log"]
    assert "logs/gkm-provider-ufm-0.provider.previous.log" in files
    assert [each["metadata"]["name"] for each in json.loads(files["objects/pods.json"])][1] == "gkm-provider-ufm-0"
    (found,) = json.loads(files["objects/providertrees.json"])["items"]
    assert found["spec"] == {"state": "Serving", "revision": 7, "faults": [f"token={REDACTED}"]}
    assert found["status"] == {"observedRevision": 7}


@pytest.mark.usefixtures("api")
def test_group_templates_pools_and_groups_are_there_without_the_objects_of_users(tmp_path: Path) -> None:
    files = bundled(tmp_path / "b.tar.gz")

    def item(plural: str) -> Json:
        (found,) = json.loads(files[f"objects/{plural}.json"])["items"]
        return {name: found[name] for name in ("spec", "status") if name in found}

    assert item("grouptemplates") == {"status": {"pools": 1}}
    status = {"observedGeneration": 1, "conditions": [PARSED]}
    assert item("pools") == {"spec": {"commonGroupTemplates": ["t"]}, "status": status}
    made = {"apiVersion": "batch/v1", "kind": "Job", "name": "tune", "state": "Created"}
    assert item("taskgroups") == {"status": {"phase": "Running", "objects": [made], "conditions": [PARSED]}}


def test_a_kind_with_objects_of_users_has_a_type_that_leaves_them_out() -> None:
    free: dict[object, tuple[str, ...]] = {BundledStatus: ("status",), BundledObject: ("spec", "status")}
    schemas = {
        made["spec"]["names"]["plural"]: made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for made in crds.definitions().values()
    }
    for each in contents.KINDS:
        for part in free.get(each.type, ()):
            schema = schemas.get(each.plural, {}).get(part, {})
            assert "x-kubernetes-preserve-unknown-fields" not in json.dumps(schema), (each.plural, part)


def test_a_part_that_cannot_be_read_is_named_and_fails_the_command(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault(verb: str, plural: str) -> ApiError | None:
        return ApiError(403, "Forbidden", "no logs for you") if verb == "log" or plural == "events" else None

    api.fault = fault
    path = tmp_path / "b.tar.gz"
    # The reason is that logs and events were not read; the check itself finds no problem.
    with pytest.raises(CommandFailed, match=r"^5 parts of the bundle could not be read; about.json"):
        diagnosis.diagnose(ClusterOptions(), DoctorOptions(bundle=path, checks=["kinds"]))
    files = unpacked(path)
    unread = {part["file"]: part["notRead"] for part in json.loads(files["about.json"])["parts"] if part["notRead"]}
    assert unread["logs/gkm-agent-0.agent.log"] == "no logs for you"
    assert unread["events.json"] == "missing right: list events.events.k8s.io in all namespaces"
    assert not {"events.json", "logs/gkm-agent-0.agent.log"} & set(files)
    assert "events.json is not in it: missing right" in capsys.readouterr().err


@pytest.mark.usefixtures("api")
def test_the_bundle_of_a_namespace_has_no_nodes_and_no_logs(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    # The cache was made a problem by its condition.
    with suppress(NegativeResult):
        diagnosis.diagnose(ClusterOptions(), DoctorOptions(bundle=path, checks=["caches"], namespace="ml"))
    assert {name for name in unpacked(path) if "gkm" not in name} == {
        *("about.json", "config.json", "events.json", "findings.json"),
        *("objects/runs.json", "objects/placementplans.json", "objects/taskgroups.json", "objects/computedomains.json"),
    }


def test_a_bundle_is_bounded(api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_OBJECTS", 3)
    monkeypatch.setattr(contents, "MAX_LOGGED_PODS", 2)
    monkeypatch.setattr(contents, "LOG_LINES", 1)
    for number in range(5):
        api.create(GKMCACHES, cache(f"c{number}", "ml", "registry.example/team/caches/llama:1"))
        add(api, PODS, agent(f"gkm-agent-1{number}", restarts=0))
    files = bundled(tmp_path / "b.tar.gz")
    found = json.loads(files["objects/gkmcaches.json"])
    assert (found["count"], len(found["items"])) == (6, 3)
    assert files["logs/gkm-agent-0.agent.log"] == b"the cache llama is ready\n"
    assert len({name.split(".")[0] for name in files if name.startswith("logs/gkm-agent-")}) == 2
    monkeypatch.setattr(contents, "MAX_BYTES", 10)
    small = bundled(tmp_path / "small.tar.gz")
    assert sum(len(content) for name, content in small.items() if name != "about.json") <= 10
    assert "the bundle has 10 bytes at most" in small["about.json"].decode()


@pytest.mark.usefixtures("api")
def test_only_its_owner_reads_the_file_and_a_failed_write_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    bundled(path)
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    # The reason is that a file stands where the directory should be.
    with pytest.raises(OSError, match="File exists"):
        diagnosis.diagnose(ClusterOptions(), DoctorOptions(bundle=path / "b.tar.gz", checks=["kinds"]))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=abc123", f"password={REDACTED}"),
        ('{"refresh_token": "abc"}', f'{{"refresh_token": "{REDACTED}"}}'),
        ('{\\"auth\\":\\"abc\\"}', f'{{\\"auth\\":\\"{REDACTED}\\"}}'),
        ("Authorization: Basic dXNlcjpwYXNz", f"Authorization: {REDACTED} {REDACTED}"),
        ("oci://user:pass@host/x", f"oci://{REDACTED}@host/x"),
        ("https://host/x?sig=abc&se=1 failed", f"https://host/x?{REDACTED} failed"),
        (KEY, REDACTED),
        (KEY.partition("\n-----END")[0], REDACTED),
        ("hf_abcdefghijklmnopqrst", REDACTED),
        ("digest sha256:0f0f is ready", "digest sha256:0f0f is ready"),
        ("hunter2 is a word", "hunter2 is a word"),
        ("SignatureMissing: no signature was found", "SignatureMissing: no signature was found"),
    ],
)
def test_what_looks_like_a_credential_is_redacted(text: str, expected: str) -> None:
    assert redacted(text) == expected


def test_a_text_whose_key_names_a_credential_is_redacted_whole() -> None:
    found = redacted_values({"a": [{"db-password": "x y z", "example.com/token": "t", "n": 1}], "tokens": ["plain"]})
    assert found == {"a": [{"db-password": REDACTED, "example.com/token": REDACTED, "n": 1}], "tokens": ["plain"]}


def test_a_hostile_log_takes_linear_time() -> None:
    """Backtracking would take hours for these."""
    for word in ("a-" * 100_000, "eyJaaaaaa-" * 20_000, "-----BEGIN PRIVATE " * 10_000):
        assert redacted(word) == word
