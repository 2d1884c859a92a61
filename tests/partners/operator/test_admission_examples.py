"""The policies of deploy/examples/admission, against the definitions of Kyverno and policy-controller.

Their webhooks do not run here; tests/partners/images has the verdicts of Kyverno's command line and policy-controller's
tester.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.cluster import Cluster, KubectlFailed
from support.peers import module_files, require

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "deploy" / "examples" / "admission"
DEFINITIONS = {
    "kyverno": (
        "github.com/kyverno/kyverno",
        "config/crds/policies.kyverno.io/policies.kyverno.io_imagevalidatingpolicies.yaml",
    ),
    "policycontroller": ("github.com/sigstore/policy-controller", "config/300-clusterimagepolicy.yaml"),
}


@pytest.fixture(scope="module")
def definitions(gkm_cluster: Cluster) -> None:
    """The kinds of both. policy-controller would convert its own between versions, but it does not run."""
    for partner, (module, path) in DEFINITIONS.items():
        with require.absences():
            text = (module_files.source(partner, module) / path).read_text(encoding="utf-8")
        definition: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)
        definition["spec"].pop("conversion", None)
        gkm_cluster.apply(definition)
    gkm_cluster.until_kinds_established()


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize("name", ["kyverno", "policy-controller"])
def test_the_api_server_accepts_every_policy_of_an_example(gkm_cluster: Cluster, name: str) -> None:
    path = EXAMPLES / f"{name}.yaml"
    printed = gkm_cluster.kubectl("apply", "--dry-run=server", "--filename", str(path))
    assert len(printed.splitlines()) == len(list(yaml.load_all(path.read_text(), yaml.CSafeLoader))) >= 2


@pytest.mark.usefixtures("definitions")
@pytest.mark.parametrize(("name", "field"), [("kyverno", "attestors"), ("policy-controller", "authorities")])
def test_a_field_that_the_kind_does_not_have_is_refused(
    gkm_cluster: Cluster, tmp_path: Path, name: str, field: str
) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text((EXAMPLES / f"{name}.yaml").read_text().replace(f"  {field}:", f"  x{field}:"))
    with pytest.raises(KubectlFailed, match=f"x{field}"):
        gkm_cluster.kubectl("apply", "--dry-run=server", "--filename", str(path))
