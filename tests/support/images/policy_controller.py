"""The ClusterImagePolicies of deploy/examples/admission, for a row of the matrix of signatures."""

from typing import Any

from support.images.admission_examples import policies
from support.images.matrix import Ground, Row
from support.sigstore.keyless import Person
from support.sigstore.policy_tester import TRUST_ROOT

Json = dict[str, Any]


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
    found = policies("policy-controller")[policy]
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
