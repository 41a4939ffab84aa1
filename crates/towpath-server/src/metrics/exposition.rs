//! The two text formats of metrics: OpenMetrics, and the classic format of Prometheus.

use http::{HeaderMap, header};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// [OpenMetrics 1.0](https://prometheus.io/docs/specs/om/open_metrics_spec/).
    OpenMetrics,
    /// [Version 0.0.4](https://prometheus.io/docs/instrumenting/exposition_formats/), understood by all tools.
    Classic,
}

impl Exposition {
    /// Returns OpenMetrics for clients that accept it, and else the classic format.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let accepts = |value: &http::HeaderValue| {
            value.to_str().is_ok_and(|value| value.contains("application/openmetrics-text"))
        };
        if headers.get_all(header::ACCEPT).iter().any(accepts) { Self::OpenMetrics } else { Self::Classic }
    }

    /// Returns the media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts `text` from OpenMetrics to this format.
    pub(super) fn convert(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Classic => classic(&text),
        }
    }
}

/// Converts to the classic format, in which the name of a counter includes `_total`, and units and the end are not
/// marked.
fn classic(open_metrics: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in open_metrics.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "UNIT", ..] | ["#", "EOF"] => {}
            ["#", "TYPE", name, "counter"] => {
                // The line before is the help of the same metric.
                if let Some(help) = lines.last_mut() {
                    *help = help.replacen(name, &format!("{name}_total"), 1);
                }
                lines.push(format!("# TYPE {name}_total counter"));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_format_has_counters_with_their_whole_names() {
        let open_metrics = "# HELP a_seconds Help.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1\n\
                            # HELP b Help, # UNIT too.\n# TYPE b gauge\nb{c=\"# EOF\"} 2\n# EOF\n";
        let classic = "# HELP a_seconds_total Help.\n# TYPE a_seconds_total counter\na_seconds_total 1\n\
                       # HELP b Help, # UNIT too.\n# TYPE b gauge\nb{c=\"# EOF\"} 2\n";
        assert_eq!(Exposition::Classic.convert(open_metrics.into()), classic);
        assert_eq!(Exposition::OpenMetrics.convert(open_metrics.into()), open_metrics);
    }
}
