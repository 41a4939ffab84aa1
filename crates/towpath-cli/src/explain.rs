//! Reports how a copy spent its time, as text and as JSON. docs/concepts/verdict.md defines the terms.

use std::io::{self, Write};

use serde_json::{Value, json};
use towpath_mover::{Account, Leg, LegTotal, Verdict};

/// Minimum share of the time for a line of its own.
const MIN_SHARE: f64 = 0.005;

/// Duration in seconds after which the verdict of a copy is always printed.
const LONG_S: f64 = 10.0;

/// Prints how the time was spent if `wanted`, and otherwise the verdict of a long copy unless `silent`, on the
/// standard error stream. Write errors are ignored.
pub(crate) fn print(account: &Account, wanted: bool, silent: bool) {
    let _ = match wanted {
        true => write(account, &mut io::stderr()),
        false if account.seconds >= LONG_S && !silent => write_verdict(account, &mut io::stderr()),
        false => Ok(()),
    };
}

/// Writes the shares of the time, largest first, and the verdict.
fn write(account: &Account, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "where {:.2} s went:", account.seconds)?;
    for (cause, leg, seconds) in account.spent() {
        let share = seconds / account.seconds.max(1e-9);
        if share >= MIN_SHARE {
            let leg = leg.map_or("", |leg| match leg {
                Leg::In => " (from the source)",
                Leg::Out => " (to the destination)",
            });
            writeln!(out, "  {:>5.1} %  {:>8.2} s  {}{leg}", share * 100.0, seconds, cause.name())?;
        }
    }
    write_verdict(account, out)
}

/// Writes the verdict alone, in one line.
fn write_verdict(account: &Account, out: &mut impl Write) -> io::Result<()> {
    match Verdict::on(account) {
        Some(verdict) => writeln!(out, "verdict: {verdict}"),
        None => Ok(()),
    }
}

/// Returns the account in JSON.
pub(crate) fn to_json(account: &Account) -> Value {
    let spent: Vec<_> = account
        .spent()
        .into_iter()
        .map(|(cause, leg, seconds)| json!({"cause": cause.name(), "leg": leg.map(leg_name), "seconds": seconds}))
        .collect();
    let verdict = Verdict::on(account).as_ref().map(verdict_to_json);
    json!({
        "seconds": account.seconds,
        "spent": spent,
        "verdict": verdict,
        "legs": {"in": account.leg(Leg::In).map(leg_to_json), "out": account.leg(Leg::Out).map(leg_to_json)},
    })
}

/// Returns a verdict in JSON.
pub(crate) fn verdict_to_json(verdict: &Verdict) -> Value {
    json!({
        "cause": verdict.cause.name(),
        "leg": verdict.leg.map(leg_name),
        "share": verdict.share,
        "finding": verdict.finding,
        "remedy": verdict.remedy,
    })
}

fn leg_name(leg: Leg) -> &'static str {
    match leg {
        Leg::In => "in",
        Leg::Out => "out",
    }
}

fn leg_to_json(leg: &LegTotal) -> Value {
    json!({
        "bytes": leg.bytes,
        "connections": leg.connections,
        "min_rtt_s": leg.round_trip.as_secs_f64(),
        "best_rate_bytes_per_s": leg.best_rate,
        "resent_bytes": leg.resent_bytes,
        "congestion_control": leg.control.name(),
        "most_send_buffer_bytes": leg.most_send_buffer,
        "most_receive_buffer_bytes": leg.most_receive_buffer,
    })
}
