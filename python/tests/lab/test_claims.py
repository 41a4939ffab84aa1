"""The table of claims, from runs of a model whose verdicts are known."""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from towpath.lab import models
from towpath.lab.runs import Runs

sys.path.append(str(Path(__file__).parents[3] / "bench"))
lab_claims, lab_evidence = import_module("lab_claims"), import_module("lab_evidence")
CHECKS = vars(import_module("lab_profile_claims")) | vars(lab_claims)

RTTS_S = (0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366)
CAPACITY, DURATION_S, SAMPLES = 9.4e8, 10, 100


def run(transport, streams, buffer, rtt_s, repetition):
    """Returns a run of slow start, up to the capacity or the buffers, with errors of 1 % in each sample."""
    path = {"capacity_bits_per_s": CAPACITY, "buffer_bytes": buffer / 2, "streams": streams}
    ends_s = np.linspace(0, DURATION_S, SAMPLES + 1)[1:]
    sent = np.array([models.ramp(rtt_s, duration_s=end_s, **path).throughput_bits_per_s[0] * end_s / 8 for end_s in ends_s])
    random = np.random.default_rng([streams, buffer, round(1e4 * rtt_s), repetition])
    sizes = (np.diff(sent, prepend=0) * (1 + 0.01 * random.standard_normal(SAMPLES))).astype(int)
    return {
        "run_id": f"{transport} {streams} {buffer} {rtt_s} {repetition}",
        "tool": "iperf3",
        "transport": transport,
        "streams": streams,
        "buffer_bytes": buffer,
        "rtt_s": rtt_s,
        "repetition": repetition,
        "planned_s": DURATION_S,
        "duration_s": DURATION_S,
        "bytes": int(sizes.sum()),
        "throughput_bits_per_s": 8 * int(sizes.sum()) / DURATION_S,
        "capacity_bits_per_s": CAPACITY,
        "intervals": [
            {"stream": 0, "start_s": end_s - DURATION_S / SAMPLES, "end_s": end_s, "bytes": int(size)}
            for end_s, size in zip(ends_s, sizes, strict=True)
        ],
    }


@pytest.fixture(scope="module")
def evidence():
    factors = [
        (transport, streams, buffer) for transport in ("bbr", "cubic", "reno") for streams in (1, 4) for buffer in (8 << 20, 256 << 20)
    ]
    rows = [run(*factor, rtt_s, repetition) for factor in factors for rtt_s in RTTS_S for repetition in range(3)]
    return lab_evidence.Evidence(Runs.of_rows(rows))


VERDICTS = {
    "decreases": "reproduced",
    "is_dual": "mixed",
    "concave_by_buffer": "mixed",
    "sigmoids_confirm": "reproduced",
    "interpolation_is_close": "reproduced",
    "traces_are_periodic": "not testable here",
    "eight_flows": "not decided",
    "grows_with_buffer": "reproduced",
    "grows_with_streams": "not decided",
    "ramp_explains": "reproduced",
    "printed_ramp": "refuted",
    "sustainment_makes_concave": "refuted",
    "convex_is_window": "not decided",
    "chaos": "refuted",
    "profiles_choose": "reproduced",
    "slowest_stage_limits": "not decided",
    "more_flows": "not decided",
    "impedance": "not decided",
    "bbr_beside_cubic": "not decided",
    "printed_confidence": "refuted",
    "game_estimates": "refuted",
    "more_connections": "reproduced",
    "variants_are_similar": "reproduced",
    "credits_model": "not testable here",
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_on_a_model(evidence, name):
    found = CHECKS[name](evidence)
    assert found.verdict == VERDICTS[name], found.measurement


def test_the_page_has_each_claim_and_its_figure(evidence):
    page = lab_claims.page(evidence, {"targets.md": "| a |\n"})
    drawn = {name for name, _ in lab_claims.figures(evidence)}
    for claim in lab_claims.CLAIMS:
        assert page.count(f"| {claim.text} | **") == 1
    linked = {part.split(".svg")[0] for part in page.split("](claims/")[1:]}
    assert linked <= drawn and linked
    assert "## Accuracy of the methods" in page and "## Predictions" not in page


def test_verdicts_on_a_grid(evidence):
    """Twice as many flows gain nothing, and one of two transfers is slower than its stages one after the other."""
    stages = {"read": 3e8, "network": 3e8, "write": 3e8}

    def found(one, two):
        """Returns evidence with the rates of three runs of one flow, and of two flows."""
        runs = {(1, flows, 8192): [stages | {"transfer": rate} for rate in rates] for flows, rates in ((1, one), (2, two))}
        return replace(evidence, grid=runs)

    slow, fast = [8e7, 9e7, 9.4e7], [2.6e8, 2.7e8, 2.8e8]
    assert lab_claims.impedance(found(slow, fast)).verdict == "reproduced"
    assert lab_claims.impedance(found([*slow, 1e8], fast)).verdict == "not decided"
    assert lab_claims.more_flows(found(slow, fast)).verdict == "refuted"
    assert lab_claims.more_flows(found(slow, slow)).verdict == "reproduced"
    assert "grid" in {name for name, _ in lab_claims.figures(found(slow, slow))}
    for one, votes in ((slow, "2 of 2 file"), ([4e8, 4.1e8], "1 of 2 file"), ([3e8, 4e8], "1 of 1, 1 undecided file")):
        assert lab_claims.slowest_stage_limits(found(one, fast)).measurement.startswith(votes)


def test_few_comparisons_decide_nothing():
    votes = lab_evidence.Votes
    assert [votes(3).verdict, votes(4).verdict, votes(4, 0, 4).verdict, votes(4, 0, 5).verdict] == [
        "not decided",
        "reproduced",
        "reproduced",
        "not decided",
    ]
    assert (votes(0, 4).verdict, votes(2, 2).verdict) == ("refuted", "mixed")


def test_correlations_within_strata():
    """The strata differ in both columns, which are related in none of them; then related within each, against the difference."""
    random = np.random.default_rng(1)
    stratum = np.repeat(np.arange(6), 10)
    exponent = stratum + random.random(60)
    unrelated = pd.DataFrame({"stratum": stratum, "exponent": exponent, "rate": -stratum + random.random(60)})
    related = unrelated.assign(rate=10 * stratum - exponent + stratum)
    assert lab_evidence.correlation(unrelated.exponent, unrelated.rate)[0] < -0.9
    assert lab_evidence.correlation_within(unrelated, ["stratum"], "exponent", "rate")[1] > 0.05
    assert lab_evidence.correlation(related.exponent, related.rate)[0] > 0.9
    assert lab_evidence.correlation_within(related, ["stratum"], "exponent", "rate") == (pytest.approx(-1), 0.001)
    assert lab_evidence.correlation_within(related.assign(rate=1.0), ["stratum"], "exponent", "rate") is None


def test_verdicts_on_shares(evidence):
    found = lab_claims.bbr_beside_cubic(replace(evidence, shares={(10, 0.25, 0.0): 12.0, (10, 4, 0.0): 0.5}))
    assert (
        found.verdict == "not decided"
        and "1 of 2 conditions" in found.measurement
        and "0.25: 12.0 to 12.0; 4: 0.5 to 0.5" in found.measurement
    )


@pytest.mark.parametrize(
    ("outcomes", "verdict", "text"),
    [
        ([True] * 9 + [False], "reproduced", "9 of 10"),
        ([True] * 8 + [False] * 2 + [None], "mixed", "8 of 10, 1 undecided"),
        ([True] + [False] * 9, "refuted", "1 of 10"),
        ([None], "not decided", "0 of 0, 1 undecided"),
    ],
)
def test_votes(outcomes, verdict, text):
    found = lab_evidence.votes(iter(outcomes))
    assert (found.verdict, str(found)) == (verdict, text)
