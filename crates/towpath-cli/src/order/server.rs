//! Asks an ALTO server what a statement needs to know.

use std::time::Duration;

use towpath_alto::{
    client::{ClientError, Configuration, Directory, Ends, MAX_ANSWER_BYTES, Survey},
    media,
    order::Statement,
};
use towpath_client::{Client, Inquiry, Outcome, Reply};
use towpath_proto::url::Url;
use towpath_store::{Caller, Error, Fault};

use crate::failure::Failure;

/// How long one answer is waited for. Whoever orders replicas waits to read them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why nothing can be learnt of the server.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It does not answer, or it does not give what it lists.
    Unanswered(Error),
    /// What it has or says is of no use, or what is asked for makes no sense.
    Useless(ClientError),
}

impl Trouble {
    /// That no host in the list has an address, so that nothing can be asked: rather the name server's fault than that of so many.
    pub(super) fn no_addresses() -> Self {
        let message = "none of the hosts in the list has an address: can the name server be reached?";
        Self::Unanswered(Error::new(Fault::Unavailable, message))
    }

    /// Whether the server or the network is to blame, and not the one who asks.
    pub(super) fn is_servers(&self) -> bool {
        match self {
            Self::Unanswered(error) => !matches!(error.fault(), Fault::AuthenticationFailed | Fault::PermissionDenied),
            Self::Useless(error) => !error.is_askers(),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Unanswered(error)
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Useless(error)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unanswered(error) => Failure::Store(error),
            Trouble::Useless(error @ ClientError::NeedsClient { .. }) => {
                Failure::Usage(format!("{error}: --client ADDRESS"))
            }
            Trouble::Useless(error) if error.is_askers() => Failure::Usage(error.to_string()),
            Trouble::Useless(error) => Failure::Facts(error.to_string()),
        }
    }
}

/// Asks the server with the directory at `address`, which is an http or https URL, all that the names in `statement` follow from.
pub(super) async fn survey(
    client: &Client,
    address: &str,
    configuration: &Configuration,
    statement: &Statement,
    ends: Ends,
) -> Result<Survey, Trouble> {
    let accept = format!("{}, {}", media::DIRECTORY, media::ERROR);
    let reply = ask(client, address, &Caller::local(), &accept, None).await?;
    let directory = Directory::parse(&reply.url, &reply.body)?;
    let mut survey = Survey::new(configuration, directory, statement, ends)?;
    while let Some(question) = survey.question() {
        // A directory may name any server, and the token is for the one that the user named.
        let caller = if is_same_server(address, &question.uri) { Caller::local() } else { Caller::nobody() };
        let document = question.document.as_ref().map(|(media_type, document)| (*media_type, document.as_slice()));
        let reply = ask(client, &question.uri, &caller, &question.accept, document).await?;
        survey.take(&reply.media_type, &reply.body)?;
    }
    Ok(survey)
}

async fn ask(
    client: &Client,
    address: &str,
    caller: &Caller,
    accept: &str,
    document: Option<(&str, &[u8])>,
) -> Result<Reply, Trouble> {
    let inquiry = Inquiry {
        accept,
        document,
        refusal_type: Some(media::ERROR),
        etag: None,
        limit_bytes: MAX_ANSWER_BYTES,
        patience: PATIENCE,
    };
    let reply = client.inquire(address, caller, inquiry).await?;
    match reply.outcome {
        Outcome::Refused => Err(ClientError::refused(&reply.url, &reply.body).into()),
        Outcome::Content | Outcome::Unchanged => Ok(reply),
    }
}

fn is_same_server(one: &str, other: &str) -> bool {
    let endpoint = |address: &str| address.parse::<Url>().ok().map(|url| url.endpoint());
    endpoint(one).is_some() && endpoint(one) == endpoint(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_for_the_server_that_was_named() {
        for (other, is_same) in [
            ("https://HOST:443/x", true),
            ("https://host:8443/x", false),
            ("http://host/x", false),
            ("https://other/x", false),
            ("mailto:x", false),
        ] {
            assert_eq!(is_same_server("https://host/directory", other), is_same, "{other}");
        }
        assert!(!is_same_server("x", "x"));
    }
}
