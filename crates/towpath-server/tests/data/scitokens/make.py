"""Writes tokens of the SciTokens reference library (PyPI: scitokens), and the public keys to verify them with.

The private keys are thrown away, so each run replaces all files. The tokens begin in 2026 and end in 2096.
"""

import base64
import json
from pathlib import Path
from unittest import mock

import scitokens
from cryptography.hazmat.primitives.asymmetric import ec, rsa

HERE = Path(__file__).parent
ISSUED = 1767225600  # 2026-01-01
LIFETIME = 70 * 365 * 86400
ISSUER = "https://issuer.example"


def encoded(number: int, length: int) -> str:
    """A number as JWK writes it."""
    return base64.urlsafe_b64encode(number.to_bytes(length, "big")).rstrip(b"=").decode()


def jwk(key_id: str, key) -> dict:
    """The public half of a key."""
    public = key.public_key().public_numbers()
    if isinstance(key, rsa.RSAPrivateKey):
        return {"kty": "RSA", "kid": key_id, "alg": "RS256", "use": "sig", "n": encoded(public.n, 256), "e": "AQAB"}
    return {"kty": "EC", "kid": key_id, "crv": "P-256", "x": encoded(public.x, 32), "y": encoded(public.y, 32)}


def main() -> None:
    """Two keys, two versions."""
    keys = {
        "es256": ec.generate_private_key(ec.SECP256R1()),
        "rs256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    }
    for name, key in keys.items():
        for version, claims in {"v1": {}, "v2": {"ver": "scitoken:2.0"}}.items():
            token = scitokens.SciToken(key=key, key_id=name)
            token.update_claims({"sub": "alice", "aud": "ANY", "scope": "read:/data write:/home/alice", **claims})
            with mock.patch("time.time", return_value=ISSUED):
                serialized = token.serialize(issuer=ISSUER, lifetime=LIFETIME)
            (HERE / f"{name}-{version}.jwt").write_bytes(serialized + b"\n")
    (HERE / "jwks.json").write_text(json.dumps({"keys": [jwk(*item) for item in keys.items()]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
