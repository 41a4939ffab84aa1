//! Client side of HTTP-TPC: a `COPY` between a site and another one, and its progress markers.

use std::time::Duration;

use http::{HeaderName, StatusCode};
use towpath_proto::{
    http::tpc::{CopyOutcome, Event, Reader},
    url::{Url, without_secrets},
};
use towpath_store::{Blame, Caller, Error, Fault, Overwrite, Result, StorePath, sys::clock};

use super::{refusal, request::Request, response::HttpResponse, stat, store::HttpStore, target::is_loopback};
use crate::third_party::{OnProgress, TransferMode};

/// Maximum time without a message from a site: three times the limit of HTTP-TPC.
const SILENCE: Duration = Duration::from_secs(90);

/// The other end of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerSite<'a> {
    pub(crate) url: &'a Url,
    pub(crate) mode: TransferMode,
    pub(crate) overwrite: Overwrite,
}

impl HttpStore {
    /// Fails if this site is known to interpret `path`, which the other site will request, as another file.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(crate) fn check_name(&self, path: &StorePath) -> Result<()> {
        self.site.check_name(&self.target(path)).map_err(|error| error.at(path))
    }

    /// Requests this site to copy `path` from or to another one.
    pub(crate) async fn copy_with(
        &self,
        caller: &Caller,
        path: &StorePath,
        other: PeerSite<'_>,
        written: OnProgress<'_>,
    ) -> Result<()> {
        let site = &self.site;
        let request = self.request(caller, other)?;
        let mut answer = site.send_request(caller, &mut site.retry_state(&self.target(path)), &request).await?;
        if !answer.status.is_success() {
            return Err(refusal::of(answer, &request.method, &site.credentials(caller)?).await.at(path));
        }
        let is_done = answer.status == StatusCode::NO_CONTENT || answer.remaining_bytes() == Some(0);
        if is_done && answer.status != StatusCode::ACCEPTED {
            return Ok(());
        }
        copy_outcome(&mut answer, site.options.patience, written).await.map_err(|error| error.at(path))
    }

    fn request(&self, caller: &Caller, other: PeerSite<'_>) -> Result<Request> {
        let PeerSite { url, mode, overwrite } = other;
        let has_secrets = url.query().is_some_and(|query| without_secrets(query) != query);
        if has_secrets && !self.site.is_confidential() {
            let message = "the secret in the other server's URL is sent only over TLS";
            return Err(Error::new(Fault::Unsupported, message));
        }
        let overwrites = if overwrite == Overwrite::Replace { "T" } else { "F" };
        let field = HeaderName::from_static(if mode == TransferMode::Pull { "source" } else { "destination" });
        let mut request = Request::new(&self.site, stat::method("COPY"))
            .with(field, url.expose())
            .with(HeaderName::from_static("overwrite"), overwrites)
            .with(HeaderName::from_static("credential"), "none")
            .with(HeaderName::from_static("requirechecksumverification"), "false");
        let other_may_have_token = url.scheme().demands_tls() || is_loopback(url.host());
        if other_may_have_token && let Some(token) = self.site.credentials(caller)?.token() {
            request = request.with_secret(
                HeaderName::from_static("transferheaderauthorization"),
                &format!("Bearer {}", token.expose()),
            );
        }
        request.wait = self.site.options.patience;
        request.repeatable = false;
        request.prompt = false;
        Ok(request)
    }
}

/// Follows the markers to the result. They may report no new byte for `patience`, because a storage may have to recall
/// or verify the file.
async fn copy_outcome(answer: &mut HttpResponse, patience: Duration, written: OnProgress<'_>) -> Result<()> {
    let mut reader = Reader::default();
    let mut stripes: Vec<u64> = Vec::new();
    let (mut last_progress, mut most) = (clock::now(), 0);
    loop {
        answer.allow(SILENCE);
        let data = answer.next().await.map_err(stat::error_of)?;
        let (events, is_end) = match data {
            Some(data) => (reader.take(&data), false),
            None => (std::mem::take(&mut reader).finish().into_iter().collect(), true),
        };
        for event in events {
            match event {
                Event::Marker(marker) => {
                    count(&mut stripes, marker.stripe, marker.bytes);
                    let sum = stripes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
                    if sum > most {
                        (last_progress, most) = (clock::now(), sum);
                    }
                    written(sum);
                }
                Event::Outcome(CopyOutcome::Success) => return Ok(()),
                Event::Outcome(CopyOutcome::Failure(reason)) => {
                    let message = format!("{} could not copy the file: {reason}", answer.target.root());
                    return Err(Error::new(Fault::Unavailable, message).blamed_on(Blame::Storage));
                }
            }
        }
        if last_progress.elapsed() >= patience {
            let waited = patience.as_secs();
            let message = format!("{} reported no copy progress for {waited} s", answer.target.root());
            return Err(Error::new(Fault::TimedOut, message).blamed_on(Blame::Storage));
        }
        if is_end {
            let message = format!("{} did not report the result of the copy", answer.target.root());
            return Err(Error::new(Fault::Unavailable, message).blamed_on(Blame::Storage));
        }
    }
}

/// Maximum number of stripes that are counted separately; the last one stands for all further stripes.
const MAX_STRIPES: usize = 64;

fn count(stripes: &mut Vec<u64>, stripe: u32, bytes: u64) {
    let number = usize::try_from(stripe).unwrap_or(usize::MAX).min(MAX_STRIPES - 1);
    if stripes.len() <= number {
        stripes.resize(number + 1, 0);
    }
    if let Some(stripe) = stripes.get_mut(number) {
        *stripe = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_added_up_and_bounded() {
        let mut stripes = Vec::new();
        for (stripe, bytes) in [(0, 5), (2, 7), (0, 6), (u32::MAX, 1)] {
            count(&mut stripes, stripe, bytes);
        }
        assert_eq!((stripes.len(), stripes.iter().sum::<u64>()), (MAX_STRIPES, 14));
    }
}
