"""`gkm cache explain`: a pod in a file beside an image in a registry."""

import json
from pathlib import Path

import pytest
from support.cli.command import gkm
from support.images.vllm import binary, ptx
from support.registry.server import Registry

POD = """
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: server
    env:
    - {name: VLLM_CACHE_ROOT, value: /cache}
    - {name: VLLM_NIXL_SIDE_CHANNEL_PORT, value: "GIVEN"}
    volumeMounts:
    - {name: kernels, mountPath: /cache}
  volumes:
  - name: kernels
    csi: {driver: csi.gkm.io, volumeAttributes: {cacheName: llama, mountPath: /cache}}
"""


@pytest.fixture
def llama(registry_server: Registry, tmp_path: Path) -> str:
    """An image of a vLLM cache that was compiled with the port 5600."""
    cache = binary(tmp_path / "cache", ptx("75"), env={"VLLM_NIXL_SIDE_CHANNEL_PORT": 5600, "VLLM_API_KEY": "secret"})
    ref = f"{registry_server.host}/team/llama:1"
    assert gkm("cache", "build", cache, "--image", ref, "--push", "--plain-http").returncode == 0
    return ref


def explained(tmp_path: Path, ref: str, text: str, *options: str) -> tuple[int, str, str]:
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    done = gkm("cache", "explain", ref, "--pod", file, "--plain-http", *options)
    return done.returncode, done.stdout, done.stderr


def test_one_variable_is_named_with_both_values(llama: str, tmp_path: Path) -> None:
    code, stdout, stderr = explained(tmp_path, llama, POD.replace("GIVEN", "20097"))
    assert (code, stderr) == (3, "")
    text = "it misses because of VLLM_NIXL_SIDE_CHANNEL_PORT (the cache has 5600, the pod has 20097)"
    assert text in " ".join(stdout.split())
    assert "next: give the pod the value" in stdout


def test_the_template_of_a_workload_is_a_pod(llama: str, tmp_path: Path) -> None:
    spec = POD.split("spec:\n")[1].replace("GIVEN", "20097").replace("\n", "\n    ")
    workload = f"kind: Deployment\nspec:\n  template:\n    spec:\n    {spec}"
    code, stdout, _ = explained(tmp_path, llama, workload, "-o", "json")
    result = json.loads(stdout)
    assert (code, result["verdict"], result["factor"]) == (3, "misses", "VLLM_NIXL_SIDE_CHANNEL_PORT")


def test_without_a_difference_it_is_not_known_and_never_a_hit(llama: str, tmp_path: Path) -> None:
    code, stdout, stderr = explained(tmp_path, llama, POD.replace("GIVEN", "5600"), "-o", "json")
    result = json.loads(stdout)
    assert (code, result["verdict"]) == (1, "not known")
    equal = [each["factor"] for each in result["factors"] if each["result"] == "equal"]
    assert equal == ["mount path", "VLLM_NIXL_SIDE_CHANNEL_PORT"]
    assert "not known whether the pod can use the kernels of the cache; start the pod: gkm why POD" in stderr
    assert "secret" not in stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: ConfigMap\n", "holds no pod: Object missing required field `spec`"),
        ("[", "holds no pod"),
        ("", "holds no pod"),
        ("kind: Pod\nspec: {containers: 5}", "Expected `array | null`, got `int`"),
        ("kind: Pod\n---\nkind: Pod\n", "it holds 2 documents"),
        (" " * (1 << 20) + "#", "has more than 1048576 bytes"),
    ],
)
def test_a_file_without_one_pod_is_wrong_usage(tmp_path: Path, text: str, problem: str) -> None:
    code, stdout, stderr = explained(tmp_path, "registry.example/team/caches/llama:1", text)
    assert (code, stdout) == (2, "")
    assert problem in stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = gkm("cache", "explain", "registry.example/team/caches/llama:1", "--pod", tmp_path / "no.yaml")
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
