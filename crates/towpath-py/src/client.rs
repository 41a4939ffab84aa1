//! The ALTO client of the Python package, and its subscriptions.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use pyo3::{
    IntoPyObjectExt as _,
    exceptions::PyValueError,
    prelude::*,
    types::{PyDict, PyList},
};
use serde_json::Value as Json;
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};
use towpath_alto::{names::ParseError, order::Value};
use towpath_alto_client::net::{
    self, AltoClient, AltoError, Configuration, DiscoveryOptions, Document, Entry, FollowMethod, FollowTarget,
    RankedReplica, configuration,
};
use towpath_client::{ClientOptions, TokenSource};
use towpath_store::{Error, Fault, Secret};

use crate::{
    error,
    runtime::{Runtime, runtime},
    statement::statement,
};

/// A server whose directory has been read.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Client {
    alto: AltoClient,
    configuration: Configuration,
    limit: Duration,
    runtime: Arc<Runtime>,
}

/// A resource of a directory, as a dictionary. A cost type is a pair of metric and mode.
#[derive(IntoPyObject)]
struct Resource {
    id: String,
    uri: String,
    media_type: String,
    accepts: String,
    capabilities: String,
    uses: Vec<String>,
    cost_types: Vec<(String, &'static str)>,
}

/// The response of a resource: resource, media type, tag, and for each part its id, media type and document.
type ResponseTuple = (String, String, Option<String>, Vec<(Option<String>, String, String)>);

/// A replica in its place: URL, values by name, and whether the condition holds.
type RankedTuple<'py> = (String, Bound<'py, PyDict>, Option<bool>);

#[pymethods]
impl Client {
    /// Reads the directory at `ird`, or at the one that `config` names. Each call may take `limit` seconds.
    #[new]
    fn new(
        py: Python<'_>,
        ird: Option<String>,
        token: Option<String>,
        ca_file: Option<PathBuf>,
        config: Option<&str>,
        limit: f64,
    ) -> PyResult<Self> {
        let configuration = read(py, config)?;
        let none =
            "name the directory of an ALTO server: ird, or default-ird in the file of config, or use Client.discover";
        let ird = ird.or_else(|| configuration.default_ird.clone()).ok_or_else(|| PyValueError::new_err(none))?;
        let runtime = runtime(py)?;
        let client = client(&runtime, token, ca_file);
        let limit = duration(limit)?;
        Self::opened(py, runtime, configuration, limit, AltoClient::open(client, &ird, limit))
    }

    /// Finds a server in the DNS, and reads its directory.
    #[staticmethod]
    fn discover(
        py: Python<'_>,
        domain: Option<&str>,
        address: Option<IpAddr>,
        dns: Option<&str>,
        ca_file: Option<PathBuf>,
        config: Option<&str>,
        limit: f64,
    ) -> PyResult<Self> {
        let invalid = |what: &str| PyValueError::new_err(what.to_owned());
        let domain = domain.map(|domain| domain.parse().map_err(|error: ParseError| invalid(&error.to_string())));
        let dns = dns.map(|dns| dns.parse().map_err(|_| invalid(&format!("dns: '{dns}' is not ADDRESS:PORT"))));
        let search = DiscoveryOptions { domain: domain.transpose()?, address, dns: dns.transpose()? };
        let configuration = read(py, config)?;
        let runtime = runtime(py)?;
        let client = client(&runtime, None, ca_file);
        let limit = duration(limit)?;
        let found = async { AltoClient::discover(client, &search, limit).await.map(|(alto, _)| alto) };
        Self::opened(py, runtime, configuration, limit, found)
    }

    /// Where its directory is.
    #[getter]
    fn ird(&self) -> &str {
        self.alto.ird()
    }

    /// What the server has, in the order of the names.
    fn resources(&self) -> Vec<Resource> {
        self.alto.directory().resources().map(Resource::of).collect()
    }

    /// The network map that is meant if none is named.
    fn default_map(&self) -> Option<&str> {
        self.alto.directory().default_map()
    }

    /// What `resource` answers: by GET, or by POST of `input`, a JSON text.
    fn ask(&self, py: Python<'_>, resource: &str, input: Option<&str>) -> PyResult<ResponseTuple> {
        let input = input.map(json).transpose()?;
        self.wait(py, async { self.alto.request(resource, input.as_ref()).await.map(|document| answer(&document)) })
    }

    /// The same list of replicas in the order of the statement `by`; `client`: where they are read from.
    fn order(&self, py: Python<'_>, list: &[u8], by: &str, client: Option<IpAddr>, strict: bool) -> PyResult<Vec<u8>> {
        let by = statement(by)?;
        let list = list.to_vec();
        let ordering = net::order(&self.alto, list, &by, &self.configuration, client, strict);
        self.wait(py, async { ordering.await.map(|ordered| ordered.bytes) })
    }

    /// Replicas in the order of the statement `by`, with what put them there.
    fn rank<'py>(
        &self,
        py: Python<'py>,
        urls: Vec<String>,
        by: &str,
        client: Option<IpAddr>,
    ) -> PyResult<Vec<RankedTuple<'py>>> {
        let by = statement(by)?;
        let places =
            self.wait(py, async move { net::rank(&self.alto, &urls, &by, &self.configuration, client).await })?;
        places.into_iter().map(|place| placed(py, place)).collect()
    }

    /// Subscribes to resources, each given by name, resource, and a JSON body if the request is a POST.
    fn follow(
        &self,
        py: Python<'_>,
        wanted: Vec<(String, String, Option<String>)>,
        means: Option<&str>,
        every: f64,
    ) -> PyResult<ChangeStream> {
        let every = duration(every)?;
        let means = match means {
            None => FollowMethod::Offered { every },
            Some("stream") => FollowMethod::Stream,
            Some("views") => FollowMethod::Views,
            Some("asking") => FollowMethod::Polling { every },
            Some(_) => return Err(PyValueError::new_err("means: expected 'stream', 'views' or 'asking'")),
        };
        let wanted = wanted.into_iter().map(|(name, resource, input)| {
            let input = input.as_deref().map(json).transpose()?;
            Ok((name, FollowTarget { resource, input }))
        });
        let wanted = wanted.collect::<PyResult<BTreeMap<_, _>>>()?;
        let changes = self.wait(py, self.alto.follow(wanted, means))?;
        let (is_closed, _) = watch::channel(false);
        Ok(ChangeStream { changes: Mutex::new(Some(changes)), is_closed, runtime: Arc::clone(&self.runtime) })
    }
}

impl Client {
    /// The server that `opening` opens in the time that a call may take.
    fn opened(
        py: Python<'_>,
        runtime: Arc<Runtime>,
        configuration: Configuration,
        limit: Duration,
        opening: impl Future<Output = Result<AltoClient, AltoError>> + Send,
    ) -> PyResult<Self> {
        let opened = runtime.wait(py, within(limit, opening))?;
        let alto = opened.map_err(|trouble| error::trouble(py, &trouble))?;
        Ok(Self { alto, configuration, limit, runtime })
    }

    /// Waits for what the server answers.
    fn wait<T: Send>(&self, py: Python<'_>, asking: impl Future<Output = Result<T, AltoError>> + Send) -> PyResult<T> {
        let answered = self.runtime.wait(py, within(self.limit, asking))?;
        answered.map_err(|trouble| error::trouble(py, &trouble))
    }
}

/// The configuration in that text; without one there is nothing in it.
fn read(py: Python<'_>, config: Option<&str>) -> PyResult<Configuration> {
    let configuration = config.map(configuration).transpose().map_err(|trouble| error::trouble(py, &trouble))?;
    Ok(configuration.unwrap_or_default())
}

/// Returns a client with this token and these certificates; calls with neither share one client and its connections.
fn client(runtime: &Runtime, token: Option<String>, ca_file: Option<PathBuf>) -> Arc<towpath_client::Client> {
    if token.is_none() && ca_file.is_none() {
        return runtime.client();
    }
    let token = token.map_or(TokenSource::Discover, |token| TokenSource::Fixed(Secret::new(token)));
    runtime.client_with(ClientOptions { token, ca_file, ..ClientOptions::default() })
}

/// A subscription; any thread may close it.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct ChangeStream {
    /// `None` once closed. Locked by the thread that waits for a change.
    changes: Mutex<Option<net::ChangeStream>>,
    is_closed: watch::Sender<bool>,
    runtime: Arc<Runtime>,
}

#[pymethods]
impl ChangeStream {
    /// Waits for the next change and returns its name and the new document; `None` if the subscription is or becomes
    /// closed.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(String, ResponseTuple)>> {
        let mut is_closed = self.is_closed.subscribe();
        let change = async {
            let change = async {
                let mut changes = self.changes.lock().await;
                match changes.as_mut() {
                    Some(changes) => changes.next().await.map(Some),
                    None => Ok(None),
                }
            };
            tokio::select! {
                biased;
                _ = is_closed.wait_for(|is_closed| *is_closed) => Ok(None),
                change = change => change,
            }
        };
        let change = self.runtime.wait(py, change)?.map_err(|trouble| error::trouble(py, &trouble))?;
        if *self.is_closed.borrow() {
            self.release();
        }
        Ok(change.map(|change| (change.name, answer(&change.document))))
    }

    /// Ends the subscription.
    fn close(&self) {
        self.is_closed.send_replace(true);
        self.release();
    }
}

impl ChangeStream {
    /// Drops the subscription, unless a thread still waits for a change; that thread then drops it.
    fn release(&self) {
        if let Ok(mut changes) = self.changes.try_lock() {
            self.forget(changes.take());
        }
    }

    fn forget(&self, changes: Option<net::ChangeStream>) {
        if !self.runtime.is_of_this_process() {
            // The tasks belong to the parent of this fork, and one of its threads, which do not exist here, may have
            // held their locks.
            return std::mem::forget(changes);
        }
        let _inside = self.runtime.enter();
        drop(changes);
    }
}

impl Drop for ChangeStream {
    fn drop(&mut self) {
        let changes = self.changes.get_mut().take();
        self.forget(changes);
    }
}

impl Resource {
    fn of(entry: &Entry) -> Self {
        let cost_types = entry.cost_types.iter();
        Self {
            id: entry.id.clone(),
            uri: entry.uri.clone(),
            media_type: entry.media_type.clone(),
            accepts: entry.accepts.clone(),
            capabilities: entry.capabilities.to_string(),
            uses: entry.uses.clone(),
            cost_types: cost_types.map(|told| (told.cost_metric.to_string(), told.cost_mode.name())).collect(),
        }
    }
}

fn answer(document: &Document) -> ResponseTuple {
    let parts = document.parts.iter().map(|part| (part.id.clone(), part.media_type.clone(), part.content.to_string()));
    let tag = document.tag().map(str::to_owned);
    (document.resource.clone(), document.media_type.clone(), tag, parts.collect())
}

fn placed<'py>(py: Python<'py>, place: RankedReplica) -> PyResult<RankedTuple<'py>> {
    let values = PyDict::new(py);
    for (name, value) in &place.values {
        values.set_item(name, value.as_ref().map(|value| told(py, value)).transpose()?)?;
    }
    Ok((place.url, values, place.holds))
}

/// A value as an object of Python.
fn told<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Number(number) => number.into_bound_py_any(py),
        Value::Text(text) => {
            let text: &str = text;
            text.into_bound_py_any(py)
        }
        Value::Bool(truth) => truth.into_bound_py_any(py),
        Value::List(elements) => {
            let elements = elements.iter().map(|element| told(py, element)).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, elements)?.into_any())
        }
    }
}

fn json(text: &str) -> PyResult<Json> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn duration(seconds: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| PyValueError::new_err(format!("{seconds}: expected a number of seconds above 0")))
}

/// Runs `asking` with a deadline of `limit`.
async fn within<T>(limit: Duration, asking: impl Future<Output = Result<T, AltoError>>) -> Result<T, AltoError> {
    timeout(limit, asking).await.unwrap_or_else(|_| {
        let message = format!("no response within {} s", limit.as_secs_f64());
        Err(AltoError::Unanswered(Error::new(Fault::TimedOut, message)))
    })
}
