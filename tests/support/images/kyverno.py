"""The ImageValidatingPolicies of deploy/examples/admission, with signers and repositories of a test."""

from typing import Any

from support.images.admission_examples import policies
from support.images.matrix import Ground, Row
from support.sigstore.key_signatures import SigningKey
from support.sigstore.keyless import Person

SIGNERS, PROVENANCE, VOLUMES = "gkm-caches", "gkm-caches-provenance", "image-volumes"
STRANGER = Person("stranger@example.test", "https://stranger.example.test")
SIGNATURE = "https://sigstore.dev/cosign/sign/v1"
Json = dict[str, Any]


def policy_of(row: Row, ground: Ground, tuf: Json) -> Json:
    """Return the example's policy for signers; of its two, the one that the row does not want is a stranger.

    `tuf` is where Kyverno gets the trusted root from, which it needs for logs and identities.
    """
    policy = policy_for(SIGNERS, str(ground.target), ground.key if row.wants == "key" else SigningKey())
    person = ground.person if row.wants == "person" else STRANGER
    by_key, by_person = (each["cosign"] for each in policy["spec"]["attestors"])
    by_person["keyless"]["identities"] = [{"issuer": person.issuer, "subject": person.subject}]
    by_person["tuf"] = tuf
    if row.log:
        del by_key["ctlog"]
        by_key["tuf"] = tuf
    return policy


def policy_for(name: str, repository: str, key: SigningKey) -> Json:
    """Return a policy of the example for one repository and one key."""
    policy = policies("kyverno")[name]
    policy["spec"]["matchImageReferences"] = [{"glob": f"{repository}**"}]
    policy["spec"]["attestors"][0]["cosign"]["key"]["data"] = key.public_pem.decode()
    return policy


def signatures_only(policy: Json) -> Json:
    """Return the policy by which other attestations of a signer are no signatures, as the how-to says.

    It reads bundles only: the legacy form of a signature is no attestation.
    """
    types = [{"name": "signature", "intoto": {"type": SIGNATURE}}]
    verified = "verifyAttestationSignatures(image, attestations.signature, [attestors.{}]) > 0"
    expression = f"images.caches.all(image, {verified.format('key')} || {verified.format('person')})"
    validation = policy["spec"]["validations"][0] | {"expression": expression}
    return policy | {"spec": policy["spec"] | {"attestations": types, "validations": [validation]}}
