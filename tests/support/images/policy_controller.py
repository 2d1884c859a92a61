"""The ClusterImagePolicies of deploy/examples/admission, for a row of the matrix of signatures."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from support.images.matrix import Ground, Row
from support.sigstore.keyless import Person
from support.sigstore.policy_tester import TRUST_ROOT

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "admission" / "policy-controller.yaml"
Json = dict[str, Any]


def documents() -> dict[str, Json]:
    """Return the policies of the example by their names."""
    found = yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8"))
    return {document["metadata"]["name"]: document for document in found}


def policy_of(row: Row, ground: Ground) -> Json:
    """Return the example's policy for the signers that the row wants, in the form of the row."""
    name = "key" if row.wants == "key" else "person" if row.form == "bundle" else "person-legacy"
    policy = with_authority("gkm-caches", name, ground)
    authority = policy["spec"]["authorities"][0]
    if row.form == "legacy" and row.log:
        # Without a URL, version v1beta1 loses the whole of ctlog, and the log is not checked.
        authority["ctlog"] = {"url": "https://rekor.testbed", "trustRootRef": TRUST_ROOT}
    if name == "person-legacy":
        authority["keyless"]["trustRootRef"] = TRUST_ROOT
    return policy


def with_authority(policy: str, name: str, ground: Ground) -> Json:
    """Return a policy of the example with one of its authorities, for the ground's repository and signers."""
    found = deepcopy(documents()[policy])
    found["spec"]["images"] = [{"glob": f"{ground.target}**"}]
    (authority,) = (each for each in found["spec"]["authorities"] if each["name"] == name)
    if "key" in authority:
        authority["key"]["data"] = ground.key.public_pem.decode()
    else:
        authority["keyless"]["identities"] = [identity(ground.person)]
    found["spec"]["authorities"] = [authority]
    return found


def identity(person: Person) -> dict[str, str]:
    return {"issuer": person.issuer, "subject": person.subject}
