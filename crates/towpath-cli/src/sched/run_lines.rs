//! The lines of a file of `--periods` beside those of the periods: the first describes the run, the last of each optimiser
//! has the completions of its requests.

use serde_json::{Value, json};
use towpath_sched::{
    network::{ResourceIndex, ResourceKind},
    optimiser::OptimiserName,
    simulation::{KnownNetwork, Outcome, World},
};

/// Returns the line with the network, the pipes and the rules. Pipes and links are named by their index in it.
pub(super) fn description(world: &World, seed: u64) -> Value {
    let capacities = world.resources.capacities().iter().enumerate();
    let links = capacities.map(|(link, capacity)| {
        json!({ "name": world.resources.name(link as ResourceIndex), "capacity_bytes_per_s": capacity })
    });
    let pipes = world.pipes.iter().enumerate().map(|(pipe, plan)| {
        json!({
            "name": plan.name,
            "weight": plan.terms.weight,
            "activity_weight": plan.terms.activity_weight,
            "project": plan.project,
            "links": world.paths.resources_of(pipe),
        })
    });
    let has_loss = world.deterioration.exponent > 0.0;
    json!({
        "simulated": true,
        "run": {
            "seed": seed,
            "period_s": world.period_s,
            "bound_s": world.bound_s(),
            "limit_s": world.limit_s,
            "lossless_connections": has_loss.then_some(world.deterioration.connections),
            "links": links.collect::<Vec<_>>(),
            "pipes": pipes.collect::<Vec<_>>(),
            "rules": rules(&world.known[0]),
        },
    })
}

fn rules(known: &KnownNetwork) -> Vec<Value> {
    let all = 0..known.resources.len() as ResourceIndex;
    let rule = |rule: ResourceIndex| {
        let limit = known.resources.capacities()[rule as usize];
        json!({ "limit_bytes_per_s": limit, "pipes": known.paths.pipes_of(rule) })
    };
    let is_rule = |resource: &ResourceIndex| {
        known.resources.kind(*resource) == ResourceKind::Rate && !known.storage_rates.contains(resource)
    };
    all.filter(is_rule).map(rule).collect()
}

/// Returns the line with the arrivals of all requests in seconds, and the times from there to their completion; `null` for
/// a request that is not complete.
pub(super) fn completions(name: OptimiserName, world: &World, outcome: &Outcome) -> Value {
    let requests = world.requests.iter().zip(&outcome.completions_s).map(|(request, completion_s)| {
        json!({ "pipe": request.pipe, "arrives_s": request.arrives_s, "completion_s": completion_s })
    });
    json!({ "simulated": true, "optimiser": name.name(), "requests": requests.collect::<Vec<_>>() })
}
