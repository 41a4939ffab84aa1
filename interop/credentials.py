"""Creates certificates and tokens for the tests.

`Authority` is a certificate authority with one server certificate for 127.0.0.1 and localhost. `Issuer` signs tokens of
the WLCG profile and SciTokens, and writes the key set with which servers verify them.
"""

import base64
import datetime
import ipaddress
import json
import subprocess
import time
import uuid
from pathlib import Path

import jwt
import scitokens
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """A certificate authority in `directory`: `ca.pem`, `ca/` (with the hashed names that OpenSSL expects),
    `server.pem`, `server.key`."""

    def __init__(self, directory: Path):
        self.file = directory / "ca.pem"
        self.directory = directory / "ca"
        self.certificate = directory / "server.pem"
        self.key = directory / "server.key"
        directory.mkdir(parents=True, exist_ok=True)
        self.directory.mkdir()
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _authority(authority_key)
        server_key = ec.generate_private_key(ec.SECP256R1())
        server = _server(authority, authority_key, server_key)
        self.file.write_bytes(_pem(authority))
        self.certificate.write_bytes(_pem(server))
        self.key.write_bytes(_private_pem(server_key))
        self.key.chmod(0o600)  # xrootd rejects a key that other users can read
        hashed = subprocess.run(["openssl", "x509", "-noout", "-subject_hash", "-in", self.file],
                                check=True, capture_output=True, text=True).stdout.strip()
        (self.directory / f"{hashed}.0").write_bytes(_pem(authority))


class Issuer:
    """A token issuer; `keys` is the path of its key set (JWKS)."""

    def __init__(self, directory: Path, url: str = "https://issuer.towpath.test"):
        self.url = url
        self.keys = directory / "jwks.json"
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        directory.mkdir(parents=True, exist_ok=True)
        numbers = self._key.public_key().public_numbers()
        public = {"kty": "RSA", "kid": "test", "alg": "RS256", "use": "sig", "n": _number(numbers.n), "e": _number(numbers.e)}
        self.keys.write_text(json.dumps({"keys": [public]}))

    def wlcg(self, scope: str, *, audience: str, lifetime_s: int = 600) -> str:
        """Returns a token of the WLCG profile."""
        now = int(time.time())
        claims = {
            "wlcg.ver": "1.0", "sub": "tester", "iss": self.url, "aud": audience, "scope": scope,
            "iat": now - 5, "nbf": now - 5, "exp": now + lifetime_s, "jti": str(uuid.uuid4()),
        }
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "test"})

    def scitoken(self, scope: str, *, audience: str) -> str:
        """Returns a SciToken from the scitokens library."""
        token = scitokens.SciToken(key=self._key, key_id="test", algorithm="RS256")
        token.update_claims({"scope": scope, "aud": audience, "ver": "scitoken:2.0", "sub": "tester"})
        return token.serialize(issuer=self.url, lifetime=600).decode()


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "towpath test authority")])
    usage = x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
                          key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
    return (_builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256()))


def _server(authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey,
            key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    return (_builder(name, authority.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
            .add_extension(names, critical=False)
            .sign(authority_key, hashes.SHA256()))


def _builder(subject: x509.Name, issuer: x509.Name, key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
            .serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + 7 * DAY))


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _number(value: int) -> str:
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
