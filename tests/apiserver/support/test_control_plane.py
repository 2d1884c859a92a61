"""The control plane is a whole one: identities, admission, controllers; and it goes away."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

import pytest
from support.cluster.certificates import Authority
from support.cluster.cluster import Cluster, KubectlFailed
from support.cluster.objects import refusal
from support.host.waiting import until

ROOT = Path(__file__).resolve().parents[3]


def namespace_object(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    name = f"test-{secrets.token_hex(4)}"
    cluster.objects.create(namespace_object(name))
    cluster.until(lambda: cluster.exists("serviceaccount", "default", name), "its service account")
    return name


def whoami(cluster: Cluster, kubeconfig: Path) -> dict[str, Any]:
    answer = json.loads(cluster.kubectl("auth", "whoami", "--output=json", kubeconfig=kubeconfig))
    found: dict[str, Any] = answer["status"]["userInfo"]
    return found


def test_our_kinds_are_accepted_and_listed(cluster: Cluster, namespace: str) -> None:
    cluster.apply(ROOT / "crds")
    cluster.until_kinds_established()
    assert cluster.kubectl("get", "gkmcache", "--namespace", namespace) == ""


def test_text_and_objects_are_applied_as_files_are(cluster: Cluster, namespace: str) -> None:
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}}
    cluster.apply({**value, "data": {"from": "object"}})
    cluster.apply(json.dumps({**value, "data": {"from": "text"}}))
    assert cluster.get("configmap", "a", namespace)["data"] == {"from": "text"}


def test_a_service_account_is_itself(cluster: Cluster, namespace: str) -> None:
    user = f"system:serviceaccount:{namespace}:default"
    kubeconfig = cluster.kubeconfig_for(user)
    assert whoami(cluster, kubeconfig)["username"] == user
    with pytest.raises(KubectlFailed, match="forbidden"):
        cluster.kubectl("get", "secrets", "--all-namespaces", kubeconfig=kubeconfig)


def test_a_token_names_the_node_it_is_bound_to(cluster: Cluster, namespace: str) -> None:
    name = f"n-{namespace}"
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    kubeconfig = cluster.kubeconfig_for(f"system:serviceaccount:{namespace}:default", node=name)
    assert whoami(cluster, kubeconfig)["extra"]["authentication.kubernetes.io/node-name"] == [name]


def test_anybody_else_has_a_certificate(cluster: Cluster) -> None:
    found = whoami(cluster, cluster.kubeconfig_for("system:node:n1", ["system:nodes"]))
    assert found["username"] == "system:node:n1"
    assert "system:nodes" in found["groups"]


def test_a_deleted_namespace_goes_away(cluster: Cluster, namespace: str) -> None:
    cluster.objects.delete_patiently("namespace", namespace)
    assert not cluster.exists("namespace", namespace)


def test_an_admission_policy_refuses(cluster: Cluster, namespace: str) -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    validations = [{"expression": "false", "message": "no such thing here"}]
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": validations}
    binding = {
        "policyName": namespace,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    cluster.apply({**kind, "kind": "ValidatingAdmissionPolicy", "spec": policy})
    cluster.apply({**kind, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    cluster.until(lambda: "no such thing here" in refused(cluster, namespace), "the policy to be in force")


def test_a_webhook_on_the_loopback_address_is_asked(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    with webhook(tmp_path, "asked and refused") as (url, authority):
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        hook = {
            "name": "refuse.gkm.test",
            "clientConfig": {"url": url, "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
        cluster.apply({**kind, "metadata": {"name": namespace}, "webhooks": [hook]})
        cluster.until(lambda: "asked and refused" in refused(cluster, namespace), "the webhook to be asked")
        cluster.objects.delete_named("validatingwebhookconfiguration", namespace)


def test_two_control_planes_live_side_by_side(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster.start(tmp_path / "second") as second:
        second.objects.create(namespace_object("only-here"))
        assert not cluster.exists("namespace", "only-here")


@pytest.mark.partners
def test_the_end_of_a_cluster_ends_its_processes(tmp_path: Path) -> None:
    with Cluster.start(tmp_path / "c", scheduler=True) as cluster:
        pids = [process.pid for process in cluster.control_plane.processes]
        assert len(pids) == 4
    assert not any(alive(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux")
def test_processes_do_not_outlive_an_owner_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from support.cluster.control_plane import ControlPlane, Options\n"
        "plane = ControlPlane(Path(sys.argv[1]), Options()); plane.start()\n"
        "print(*[process.pid for process in plane.processes], flush=True); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-c", program, str(tmp_path / "plane")]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        owner.send_signal(signal.SIGKILL)
    assert len(pids) == 3
    until(lambda: not any(alive(pid) for pid in pids), "the partners to end")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    # A zombie has ended; whoever adopted it has not looked yet.
    return state != "Z"


def refused(cluster: Cluster, namespace: str) -> str:
    """Return why a ConfigMap cannot be created, or nothing."""
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "refused", "namespace": namespace}}
    return refusal(lambda: cluster.objects.create(wanted, dry_run=True))


@contextlib.contextmanager
def webhook(directory: Path, message: str) -> Iterator[tuple[str, str]]:
    """Refuse everything at an https URL; yield it and the authority in base64."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": message}}
            body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    authority = Authority.create()
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server(["127.0.0.1"]).write(directory, "webhook"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/", authority.base64
        server.shutdown()
        thread.join()
