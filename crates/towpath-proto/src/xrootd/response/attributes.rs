//! Responses to `fattr`.

use bytes::{BufMut, Bytes, BytesMut};

use crate::xrootd::wire::Reader;
use crate::xrootd::{DecodeError, ErrorCode, FattrOperation};

/// Result for one attribute of a `get`, `set` or `del`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FattrResult {
    /// Its name.
    pub name: Bytes,
    /// The value read, empty after `set` and `del`; or the error code.
    pub outcome: Result<Bytes, ErrorCode>,
}

/// The response to `get`, `set` and `del`: one result per attribute, in request order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FattrResults(pub Vec<FattrResult>);

impl FattrResults {
    /// Returns the body of the response to `operation`: after a `get`, values follow the results.
    #[must_use]
    pub fn to_body(&self, operation: &FattrOperation) -> Bytes {
        let mut out = BytesMut::new();
        let count = |n: usize| u8::try_from(n).unwrap_or(u8::MAX);
        let failed = self.0.iter().filter(|result| result.outcome.is_err()).count();
        out.put_slice(&[count(failed), count(self.0.len())]);
        for FattrResult { name, outcome } in &self.0 {
            out.put_u16(outcome.as_ref().err().map_or(0, |code| code.0 as u16));
            out.put_slice(name);
            out.put_u8(0);
        }
        if matches!(operation, FattrOperation::Get(_)) {
            for FattrResult { outcome, .. } in &self.0 {
                put_value(&mut out, outcome.as_deref().unwrap_or_default());
            }
        }
        out.freeze()
    }

    /// Decodes the body of the response to `get`, `set` or `del`; values are present if the server sent them.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is malformed.
    pub fn from_body(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let [_failed, count] = reader.array("attribute count")?;
        let results = (0..count).map(|_| {
            let status = reader.u16("attribute status")?;
            Ok((status, reader.until_nul("attribute name")?))
        });
        let results = results.collect::<Result<Vec<_>, DecodeError>>()?;
        let with_values = !reader.is_empty();
        let results = results.into_iter().map(|(status, name)| {
            let value = if with_values { read_value(&mut reader)? } else { Bytes::new() };
            let outcome = if status == 0 { Ok(value) } else { Err(ErrorCode(u32::from(status))) };
            Ok(FattrResult { name, outcome })
        });
        results.collect::<Result<_, DecodeError>>().map(Self)
    }
}

fn put_value(out: &mut BytesMut, value: &[u8]) {
    out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
    out.put_slice(value);
}

fn read_value(reader: &mut Reader) -> Result<Bytes, DecodeError> {
    let length = reader.length("attribute value")? as usize;
    reader.take(length, "attribute value")
}

/// One attribute in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FattrEntry {
    /// Its name, not empty.
    pub name: Bytes,
    /// Its value, if requested.
    pub value: Option<Bytes>,
}

/// The response to `list`. Either all entries have values, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FattrList(pub Vec<FattrEntry>);

impl FattrList {
    /// Decodes the body; `values` is whether the request included values.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is malformed.
    pub fn from_body(body: Bytes, values: bool) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let mut entries = Vec::new();
        while !reader.is_empty() {
            let name = reader.until_nul("attribute name")?;
            let value = if values { Some(read_value(&mut reader)?) } else { None };
            entries.push(FattrEntry { name, value });
        }
        Ok(Self(entries))
    }

    /// Returns the body.
    #[must_use]
    pub fn to_body(&self) -> Bytes {
        let mut out = BytesMut::new();
        for FattrEntry { name, value } in &self.0 {
            out.put_slice(name);
            out.put_u8(0);
            if let Some(value) = value {
                put_value(&mut out, value);
            }
        }
        out.freeze()
    }
}
