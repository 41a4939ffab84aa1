//! The page that a browser gets at `/`: what this server is, its resources, and the state of its agents.
//!
//! It has no content that the directory and the `meta` of responses do not have, except for the names and kinds of the
//! agents. Agents are shown as out of date if their facts are marked so; locations of their sources are not shown.

use std::fmt::{Display, Write as _};

use http::{HeaderMap, HeaderValue, Response, header};
use towpath_alto::{
    directory::{DIRECTORY, TIPS, UPDATES},
    media,
    resource::{Kind, Resource},
};
use towpath_proto::http::media_type;
use towpath_server::{
    application::Body,
    web_page::{self, Escaped},
};

use crate::{
    rucio,
    service::Snapshot,
    settings::DirectoryOptions,
    updates::{EVENT_STREAM, TIPS_PARAMS, UPDATE_STREAM_PARAMS},
};

/// Kind of the agents that have no facts of their own.
const DELEGATE: &str = "delegate";

/// Returns whether the client wants a page: it names `text/html`, and no form of JSON. A client that accepts any media
/// type gets the directory.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    let is_json = |range: &&str| range.contains("json") || media_type::is(range, "application/*");
    let is_refused = |range: &str| super::service::quality(range) == Some(0.0);
    ranges.iter().any(|range| media_type::is(range, "text/html") && !is_refused(range)) && !ranges.iter().any(is_json)
}

/// Returns the page.
pub(super) fn respond(snapshot: &Snapshot, options: &DirectoryOptions, host: &str, has_rucio: bool) -> Response<Body> {
    let mut html = web_page::head(format_args!("ALTO server – {host}"), web_page::STYLE);
    write!(
        html,
        "<h1>ALTO server – {}</h1>\n<p>This server publishes what network paths cost, for programs that choose between \
         replicas of data and schedule transfers (ALTO, RFC 7285). Clients start at its <a href=\"./{DIRECTORY}\">\
         information resource directory</a>.</p>\n",
        Escaped(host)
    )
    .ok();
    write_resources(&mut html, snapshot, has_rucio);
    write_agents(&mut html, snapshot, options);
    if !snapshot.violations.is_empty() {
        html.push_str("<h2>Problems of the configuration</h2>\n<ul>\n");
        snapshot.violations.iter().for_each(|problem| writeln!(html, "<li>{}", Escaped(problem)).unwrap_or_default());
        html.push_str("</ul>\n");
    }
    html.push_str("</body></html>\n");
    let mut response = Response::new(Body::Whole(html.into_bytes()));
    let fields = [
        (header::CONTENT_TYPE, web_page::HTML),
        (header::CONTENT_SECURITY_POLICY, web_page::security_policy(web_page::STYLE, None)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    response.headers_mut().extend(fields);
    response
}

fn write_resources(html: &mut String, snapshot: &Snapshot, has_rucio: bool) {
    html.push_str("<h2>Resources</h2>\n");
    write_table_head(html, ["Resource", "Media type"]);
    for resource in snapshot.directory.resources() {
        let Resource { id, kind, .. } = resource;
        write_resource(html, id, &description(kind), resource.media_type(), resource.accepts());
    }
    write_resource(
        html,
        UPDATES,
        "changes of resources, as a stream of events",
        EVENT_STREAM,
        Some(UPDATE_STREAM_PARAMS),
    );
    write_resource(html, TIPS, "changes of a resource, version by version", crate::updates::TIPS, Some(TIPS_PARAMS));
    if has_rucio {
        write_resource(html, rucio::PATH, "distances for Rucio's sorter", rucio::CSV, None);
    }
    for (id, linked) in snapshot.directory.linked() {
        let url = Escaped(linked.url.as_str());
        write!(html, "<tr><td><a href=\"{url}\">{}</a><small>directory of another server</small>", Escaped(id)).ok();
        writeln!(html, "<td>{}", media::DIRECTORY).ok();
    }
    html.push_str("</tbody></table>\n");
}

/// Writes the row of a resource, with a link if it is read by GET.
fn write_resource(html: &mut String, id: impl Display, what: &str, media_type: &str, accepts: Option<&str>) {
    let (id, what) = (Escaped(id), Escaped(what));
    match accepts {
        None => writeln!(html, "<tr><td><a href=\"./{id}\">{id}</a><small>{what}</small><td>{media_type}").ok(),
        Some(body) => {
            writeln!(html, "<tr><td>{id}<small>{what}</small><td>{media_type}<small>by POST of {body}</small>").ok()
        }
    };
}

fn write_agents(html: &mut String, snapshot: &Snapshot, options: &DirectoryOptions) {
    if options.agents.is_empty() {
        return;
    }
    html.push_str("<h2>Data sources</h2>\n");
    write_table_head(html, ["Agent", "State"]);
    for (name, kind) in &options.agents {
        write!(html, "<tr><td>{}<small>{}</small><td>", Escaped(name), Escaped(kind)).ok();
        match snapshot.network_state.stale_agents().get(name) {
            Some(since) => writeln!(html, "out of date since {}", Escaped(since)).ok(),
            None if kind == DELEGATE => writeln!(html, "queried on demand").ok(),
            None => writeln!(html, "no known problem").ok(),
        };
    }
    html.push_str("</tbody></table>\n");
}

fn write_table_head(html: &mut String, [first, second]: [&str; 2]) {
    let head = format!("<th scope=\"col\">{first}</th><th scope=\"col\">{second}</th>");
    write!(html, "<table><thead><tr>{head}</tr></thead>\n<tbody>\n").ok();
}

/// Returns the description of a kind of resource.
fn description(kind: &Kind) -> String {
    match kind {
        Kind::NetworkMap(_) => "all PIDs with their prefixes".into(),
        Kind::FilteredNetworkMap(map) => format!("selected PIDs of {map}"),
        Kind::CostMap(map, costs) => {
            format!("{} ({}) between all PIDs of {map}", costs.cost_metric, costs.cost_mode.name())
        }
        Kind::FilteredCostMap(map) => format!("costs between selected PIDs of {map}"),
        Kind::EndpointProperties => "properties of endpoints".into(),
        Kind::EndpointCosts => "costs between endpoints".into(),
        Kind::PathVector => "paths between endpoints".into(),
        Kind::PidPathVector(map) => format!("paths between PIDs of {map}"),
        Kind::OpenAlto => "paths between endpoints, in the form of OpenALTO".into(),
        Kind::PropertyMap => "properties of all entities".into(),
        Kind::FilteredPropertyMap => "properties of selected entities".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_browsers_want_a_page() {
        let wants = |accept: &'static str| {
            is_wanted(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert!(!is_wanted(&HeaderMap::new()));
        for accept in
            ["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html", "TEXT/HTML; q=0.5"]
        {
            assert!(wants(accept), "{accept}");
        }
        for accept in [
            "*/*",
            "text/*",
            "text/html;q=0, */*",
            "text/html, application/*;q=0.5",
            "application/alto-directory+json;q=0.1, text/html",
            "text/html, application/json",
        ] {
            assert!(!wants(accept), "{accept}");
        }
    }
}
