//! An issuer of tokens: keys, tokens signed with them, and a site on this machine that publishes the keys.
//!
//! [`SigningKey`] signs whatever it is given, also headers and claims that no honest issuer would write. It signs with
//! aws-lc itself and not with a JWT library, so that a verifier is not tested against its own encoder.

mod site;

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use towpath_store::sys::clock;

pub use site::{CannedResponse, DocumentServer};

/// A private key with its identifier.
#[derive(Debug)]
pub struct SigningKey {
    id: String,
    pair: KeyPair,
}

#[derive(Debug)]
enum KeyPair {
    Es256(EcdsaKeyPair),
    Rs256(Box<RsaKeyPair>),
}

impl SigningKey {
    /// A new P-256 key.
    ///
    /// # Panics
    /// If the system's generator of random numbers fails.
    pub fn es256(id: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("randomness");
        Self { id: id.into(), pair: KeyPair::Es256(pair) }
    }

    /// A new RSA key of 2048 bits. It takes a tenth of a second to make.
    ///
    /// # Panics
    /// If the system's generator of random numbers fails.
    pub fn rs256(id: &str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("randomness");
        Self { id: id.into(), pair: KeyPair::Rs256(Box::new(pair)) }
    }

    /// The key's name for its algorithm, `ES256` or `RS256`.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            KeyPair::Es256(_) => "ES256",
            KeyPair::Rs256(_) => "RS256",
        }
    }

    /// The public key as its algorithm writes it: a point, or an `RSAPublicKey` in DER.
    pub fn public_bytes(&self) -> &[u8] {
        match &self.pair {
            KeyPair::Es256(pair) => pair.public_key().as_ref(),
            KeyPair::Rs256(pair) => pair.public_key().as_ref(),
        }
    }

    /// The public key as a JWK (RFC 7518 §6).
    ///
    /// # Panics
    /// Never: a P-256 point has 65 bytes.
    pub fn jwk(&self) -> Value {
        match &self.pair {
            KeyPair::Es256(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.id,
                    "x": base64url(x), "y": base64url(y)})
            }
            KeyPair::Rs256(pair) => {
                let public = pair.public_key();
                json!({"kty": "RSA", "alg": "RS256", "use": "sig", "kid": self.id,
                    "n": base64url(public.modulus().big_endian_without_leading_zero()),
                    "e": base64url(public.exponent().big_endian_without_leading_zero())})
            }
        }
    }

    /// The header of a token signed with this key.
    pub fn header(&self) -> Value {
        json!({"alg": self.algorithm(), "typ": "JWT", "kid": self.id})
    }

    /// A token with `claims`.
    pub fn token(&self, claims: &Value) -> String {
        self.sign(&self.header(), &claims.to_string())
    }

    /// A token with any `header` and `claims`, signed with this key whatever the header says.
    ///
    /// # Panics
    /// If the system's generator of random numbers fails.
    pub fn sign(&self, header: &Value, claims: &str) -> String {
        let signed = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.as_bytes()));
        let random = SystemRandom::new();
        let signature = match &self.pair {
            KeyPair::Es256(pair) => pair.sign(&random, signed.as_bytes()).expect("randomness").as_ref().to_vec(),
            KeyPair::Rs256(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).expect("randomness");
                signature
            }
        };
        format!("{signed}.{}", base64url(&signature))
    }
}

/// A JWKS with the public halves of `keys`.
pub fn jwks<'a>(keys: impl IntoIterator<Item = &'a SigningKey>) -> Value {
    json!({"keys": keys.into_iter().map(SigningKey::jwk).collect::<Vec<_>>()})
}

/// Claims by the WLCG profile, good for an hour and at every server.
pub fn wlcg_claims(issuer: &str, scope: &str) -> Value {
    let now_s = clock::unix_s();
    json!({"wlcg.ver": "1.0", "iss": issuer, "sub": "alice", "aud": "https://wlcg.cern.ch/jwt/v1/any",
        "iat": now_s, "nbf": now_s, "exp": now_s + 3600, "jti": "1", "scope": scope})
}

/// Claims of a SciToken 2.0, good for an hour and at every server.
pub fn scitoken_claims(issuer: &str, scope: &str) -> Value {
    let now_s = clock::unix_s();
    json!({"ver": "scitoken:2.0", "iss": issuer, "sub": "alice", "aud": "ANY",
        "iat": now_s, "nbf": now_s, "exp": now_s + 3600, "jti": "1", "scope": scope})
}

/// Bytes in the encoding of tokens.
pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
