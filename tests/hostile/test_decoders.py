"""No decoder of JSON from outside takes much more memory than the text has bytes; none is forgotten."""

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.host.memory import MemoryGroup
from support.hostile.decoders import DECODERS, GROUPS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("core", "agent", "csi", "operator", "cli")
MEMORY_LIMIT = 256 << 20
"""Of a process that has everything of ours loaded, and decodes one text."""
DECODES = {
    "msgspec.json.decode",
    "msgspec.json.Decoder",
    "msgspec.yaml.decode",
    "json.decode",
    "json.load",
    "json.loads",
    "documents.decode",
    "program_output.decode",
    "documents.decode_all",
    "yaml.load",
    "yaml.load_all",
    "yaml.safe_load",
    "yaml.safe_load_all",
}
IMAGES = "core/gkm/images/"
MEASURED = {
    "agent/gkm_agent/standalone/source.py": {"manifests of the agent"},
    "cli/gkm_cli/cache/machines.py": {"GPUs in a file"},
    "cli/gkm_cli/credential_helpers.py": {"credential helper"},
    "cli/gkm_cli/login.py": {"docker config"},
    "cli/gkm_cli/why/injection.py": {"report about a pod"},
    "core/gkm/api/config.py": {"configuration file"},
    "core/gkm/gpus/inventory.py": {"probe of GPUs"},
    f"{IMAGES}archives/docker_archive.py": {"listing of docker's archive", "configuration of docker's archive"},
    f"{IMAGES}archives/layout_store.py": {"index that is written back", "kind of a manifest"},
    f"{IMAGES}archives/oci_layout.py": {"mark of a layout", "index"},
    f"{IMAGES}assembly/triton.py": {"metadata of a kernel", "version of a kernel"},
    f"{IMAGES}assembly/vllm.py": {"factors of vLLM"},
    f"{IMAGES}cache.py": {"summary label"},
    f"{IMAGES}cache_entries.py": {"cache manifest"},
    f"{IMAGES}cache_mounts.py": {"label of further trees"},
    f"{IMAGES}captured/statement.py": {"statement about captured files"},
    f"{IMAGES}configuration.py": {"configuration"},
    f"{IMAGES}manifest.py": {"image manifest", "index", "referrers"},
    f"{IMAGES}registries/auth.py": {"token"},
    f"{IMAGES}registries/registry.py": {"tags"},
    f"{IMAGES}registries/credentials.py": {"docker config", ".dockercfg"},
    f"{IMAGES}signatures/entry_body.py": {
        "log entry _Body",
        "log entry _Hashed",
        "log entry _DSSE",
        "log entry _Spec2",
    },
    f"{IMAGES}signatures/log_entries.py": {
        "log entry of an annotation",
        "answer of a log",
        "answers of a log",
        "kind of a log entry",
    },
    f"{IMAGES}signatures/signature_formats.py": {
        "bundle",
        "simple signing",
        "statement",
        "attestation",
        "attested statement",
    },
    f"{IMAGES}signatures/trust_material.py": {"trusted root"},
    f"{IMAGES}signing/ambient.py": {"answer of GitHub"},
    f"{IMAGES}signing/keyless.py": {"answer of Fulcio"},
    f"{IMAGES}signing/keys.py": {"encrypted key"},
    f"{IMAGES}signing/store.py": {"legacy tag", "fallback tag"},
    "core/gkm/kube/decoding.py": {"list page", "watch event", "GKMCache of the library"},
    "core/gkm/kube/errors.py": {"refusal"},
    "core/gkm/topology/fabrics/lldpd.py": {"lldpcli", "lldpcli of several nodes"},
    "core/gkm/topology/fabrics/tree_file.py": {"tree file"},
    "core/gkm/topology/fabrics/ufm.py": {"ports of UFM"},
    "core/gkm/topology/lists.py": {"NodeFabrics offline", "nodes offline", "one node offline", "one pod offline"},
    "core/gkm/templates/rendering/process.py": {"reply of a rendering child"},
    "core/gkm/api/domain_capacity.py": {"capacity"},
    "core/gkm/api/domain_readiness.py": {"readiness"},
    "core/gkm/api/topology_status.py": {"topology report"},
    "operator/gkm_operator/admission/domains/requests.py": {
        "ReviewedSet",
        "ReviewedClique",
        "ReviewedScalingGroup",
        "ReviewedPod",
        "CachePod",
    },
    "operator/gkm_operator/admission/groups/objects.py": {"GroupTemplate of admission", "TaskGroup of admission"},
    "operator/gkm_operator/admission/review.py": {"admission review"},
    "core/gkm/topology/provider_trees.py": {"tree of a provider"},
    "operator/gkm_operator/pods.py": {"Pod of the controllers"},
}
NOT_FOREIGN = {
    "agent/gkm_agent/capturing/inspection.py": "at most 64 KiB of a group file",
    "agent/gkm_agent/capturing/progress.py": "the agent's own file",
    "agent/gkm_agent/caches/approvals.py": "the agent's own file",
    "agent/gkm_agent/standalone/sinks.py": "the agent's own files",
    "agent/gkm_agent/store/catalog.py": "the agent's own file",
    "agent/gkm_agent/store/integrity.py": "the agent's own file, line by line",
    "cli/gkm_cli/cache/attest.py": "a file that the user names; gkm.api.json_limits limits its values",
    "cli/gkm_cli/cache/build.py": "a manifest that this process has made",
    "cli/gkm_cli/cache/explain.py": "a file that the user names; gkm.api.documents limits its values",
    "cli/gkm_cli/inputs/objects.py": "a file that the user names; it limits its values itself",
    "operator/gkm_operator/config_check.py": "a file that the user names; gkm.api.documents limits its values",
    "core/gkm/api/documents.py": "what the others call",
    "core/gkm/api/msgspec_warmup.py": "decodes nothing",
    "core/gkm/hoststate/files.py": "our own files, at most 4 MiB",
    f"{IMAGES}assembly/damage.py": "a file of the builder; gkm.api.json_limits limits its values",
    f"{IMAGES}assembly/factors_file.py": "a file of the builder; one that it cannot read is packed as an empty object",
    f"{IMAGES}assembly/table_entries.py": "at most 4 MiB, and no value becomes an object",
    f"{IMAGES}signatures/rules_child.py": "its memory is limited by the kernel",
    f"{IMAGES}signatures/required_attestations.py": "a signed statement; gkm.api.json_limits limits its values",
    f"{IMAGES}pulling/file_list.py": "the agent's own file, line by line",
    "core/gkm/mounts/relocation/triton.py": "at most 64 KiB",
    "core/gkm/runtimes/triton.py": "at most 64 KiB",
    "core/gkm/runtimes/vllm.py": "at most 256 KiB",
    "core/gkm/templates/rendering/child.py": "its memory is limited by the kernel",
    "core/gkm/templates/rendering/sandbox.py": "runs in that child",
    "core/gkm/topology/lists.py": "the head of a list, at most one block",
    "operator/gkm_operator/hypernodes/providers/channel.py": "what this process has encoded",
    "operator/gkm_operator/hypernodes/providers/view.py": "what this process has decoded before",
    "operator/gkm_operator/plans/state/objects.py": "what this process has encoded",
    "operator/gkm_operator/plans/planning/draft.py": "a plan that this process has made",
}


def decoding_files() -> Iterator[str]:
    """Yield the files of ours that decode something."""
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            nodes = list(ast.walk(tree))
            called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
            of_images = any(
                isinstance(node, ast.ImportFrom)
                and node.module == "gkm.images.manifest"
                and any(name.name == "decode" for name in node.names)
                for node in nodes
            )
            if called & DECODES or (of_images and "decode" in called):
                yield path.relative_to(ROOT).as_posix()


def test_every_decoder_is_measured_or_not_foreign() -> None:
    assert set(decoding_files()) == {*MEASURED, *NOT_FOREIGN}
    assert set().union(*MEASURED.values()) <= set(DECODERS)


@pytest.mark.timeout(900)  # thousands of texts are measured, each by a collection of garbage
@pytest.mark.parametrize("group", GROUPS)
def test_no_decoder_takes_more_memory_than_its_text_allows(group: str) -> None:
    names = [decoder.name for decoder in GROUPS[group]]
    measured = list(measurements(names))
    assert all(count >= 10 for count in Counter(each["decoder"] for each in measured).values())
    assert {each["decoder"] for each in measured} == set(names)
    assert [each for each in measured if not 0 <= each["growth"] <= allowed(each)] == []


def allowed(measured: dict[str, Any]) -> int:
    """Return how many bytes the decoder of a measurement may take."""
    return DECODERS[measured["decoder"]].allowed(measured["size"])


def measurements(names: list[str]) -> Iterator[dict[str, Any]]:
    """Measure decoders in one process: it imports everything of ours, which takes longer than most decoders."""
    script = Path(__file__).resolve().parents[1] / "support" / "hostile" / "decoders_process.py"
    with MemoryGroup.of(MEMORY_LIMIT) as group:
        done = subprocess.run(
            group.command([sys.executable, str(script), *names]), stdout=subprocess.PIPE, check=True, text=True
        )
    yield from map(json.loads, done.stdout.splitlines())
