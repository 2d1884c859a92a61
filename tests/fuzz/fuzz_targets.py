"""What is fuzzed: every parser that reads bytes from outside. A target returns, or raises an error of ours."""

from collections.abc import Callable

import fuzz_archives
import fuzz_credentials
import fuzz_device_code
import fuzz_fabric
import fuzz_images
import fuzz_kube
import fuzz_templates
import fuzz_topology
import fuzz_trees
import fuzz_vllm
import fuzz_webhook
from fuzz_mutators import (
    Blind,
    Mutator,
    of_json,
    of_laid_out_json,
    of_lines,
    of_quantities,
    of_tar,
    of_topology,
    of_words,
)
from gkm.api import config
from gkm.api.config import ConfigInvalid
from gkm.api.errors import GKMError
from gkm.images.archives.compression import inflated
from gkm.images.signatures import entry_body, keyless, transparency, trust_material
from gkm.images.signatures.bundles import Checkpoint, InclusionProof, KindVersion, LogEntry, LogId
from gkm.images.signatures.certificates import Untrusted
from gkm.images.signatures.signature_formats import Signature, SignatureForm
from gkm.mounts.relocation import triton as relocation_triton
from gkm.mounts.relocation import vllm as relocation_vllm

OURS = (GKMError, ConfigInvalid, Untrusted)
_ROOT = trust_material.root(fuzz_images.ROOT)


def _keyless(data: bytes) -> None:
    """Judge a bundle, or an object of payload and annotations, as far as it goes; the seeds are good ones."""
    found = fuzz_images.signature_in(data)
    if found.certificate:
        keyless.signer(found, _ROOT)
    elif found.entry:
        transparency.check(found.entry, _ROOT.trusted)


def _log_entry(data: bytes) -> None:
    signature = Signature(SignatureForm.BUNDLE, b"signed", b"signature", payload=b"payload")
    entry_body.check(LogEntry(LogId(b""), KindVersion("", ""), data), signature, b"verifier")


def _checkpoint(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    log_id = next(iter(_ROOT.trusted.logs[0].ids))
    proof = InclusionProof("1", b"root", Checkpoint(text))
    entry = LogEntry(LogId(log_id), KindVersion("", ""), b"body", inclusion_proof=proof)
    transparency.check(entry, _ROOT.trusted)


def _trusted_root(data: bytes) -> None:
    trust_material.parse(data, "trusted root")


def _layer(data: bytes) -> None:
    for _ in inflated([data[:99], data[99:]]):
        pass


def _group(data: bytes) -> None:
    relocation_triton.rewritten(data, "/cache/KEY", {"a.json", "a.cubin"})


def _index(data: bytes) -> None:
    relocation_vllm.rewritten(data, "/cache/KEY", {"a.py"})


TARGETS: dict[str, Callable[[bytes], None]] = {
    "reference": fuzz_images.reference,
    "manifest": fuzz_images.manifest,
    "labels": fuzz_images.labels,
    "signature": fuzz_images.signature,
    "keyless": _keyless,
    "log-entry": _log_entry,
    "checkpoint": _checkpoint,
    "trusted-root": _trusted_root,
    "tar": fuzz_images.tar,
    "layer": _layer,
    "triton-group": _group,
    "vllm-index": _index,
    "vllm-artifact": fuzz_vllm.artifact,
    "vllm-factors": fuzz_vllm.factors,
    "device-code": fuzz_device_code.device_code,
    "gpu-file": fuzz_vllm.gpu_file,
    "kube-list": fuzz_kube.lists_of_objects,
    "quantity": fuzz_kube.amounts,
    "lldp": fuzz_fabric.neighbours,
    "ibnetdiscover": fuzz_fabric.topology,
    "topology-file": fuzz_topology.topology_file,
    "ufm": fuzz_topology.ufm_ports,
    "lldpcli": fuzz_topology.lldpcli,
    "tree-file": fuzz_topology.tree,
    "topology-tree": fuzz_trees.labels_and_hypernodes,
    "provider-events": fuzz_trees.events_of_a_provider,
    "provider-trees": fuzz_trees.tree_of_a_provider,
    "webhook-http": fuzz_webhook.http,
    "review": fuzz_webhook.review,
    "workload": fuzz_webhook.workload,
    "group-templates": fuzz_templates.pool,
    "docker-config": fuzz_credentials.configuration,
    "credential-helper": fuzz_credentials.helper,
    "docker-archive": fuzz_archives.docker_archive,
    "oci-layout": fuzz_archives.oci_layout,
    "config": config.parse,  # type: ignore[dict-item]  # what it returns is of no interest here
}


MUTATORS: dict[str, Callable[[Blind], Mutator]] = {
    "reference": of_words,
    "tar": of_tar,
    "vllm-artifact": fuzz_vllm.of_marks,
    "vllm-factors": of_json,
    "device-code": fuzz_device_code.of_headers,
    "gpu-file": of_json,
    "docker-archive": of_tar,
    "group-templates": of_json,
    "quantity": of_quantities,
    "kube-list": of_laid_out_json,
    "topology-file": of_topology,
    "provider-events": of_lines(of_json),
    "provider-trees": of_json,
    **dict.fromkeys(("ufm", "lldpcli", "tree-file", "topology-tree"), of_json),
    **dict.fromkeys(("lldp", "review", "workload", "docker-config", "credential-helper", "oci-layout"), of_json),
    **dict.fromkeys(
        ("manifest", "labels", "signature", "keyless", "log-entry", "trusted-root", "triton-group", "vllm-index"),
        of_json,
    ),
}
"""How the inputs of a target are changed; without an entry, blindly."""


def quiet(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return the target with our own errors taken as answers, if a person can read them; the rest is a finding."""

    def run(data: bytes) -> None:
        try:
            target(data)
        except GKMError as error:
            fuzz_images.check_message(error)
        except OURS:
            return

    return run
