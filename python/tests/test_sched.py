"""`towpath.sched`: the simulator, and the fair shares against a linear program."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from towpath import sched

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "simulate-schedules.md"
SCENARIO = """
noise = 0.05
[network]
capacity_bits_per_s = 10e9
deterioration = 1
[[requests]]
pipes = 4
files = 1000
file_bytes = 100e6
size_spread = 0.5
"""
TOPOLOGY = json.dumps(
    {"nodes": [{"id": name} for name in "abc"], "links": [{"source": "a", "target": "b"}, {"source": "b", "target": "c"}]}
)
ENDLESS = "limit_to_bound = 10_000\n" + SCENARIO.replace("pipes = 4", "pipes = 100").replace("1000", "1_000_000")
"""With one connection for each pipe it takes more periods than a test can wait for."""


def with_topology(name: str) -> str:
    """Returns the scenario over the topology in that file."""
    return SCENARIO.replace("[network]", f"[network]\ntopology = '{name}'")


def test_the_same_seed_gives_the_same_result():
    one, again, other = (sched.simulate(SCENARIO, seed=seed) for seed in (1, 1, 2**64 - 1))
    assert one == again != other
    assert one.optimiser == "knee" and one.requests == one.completed == len(one.completions_s) == 4
    assert one.makespan_s == max(one.completions_s) == one.max_completion_s
    assert one.makespan_to_bound == pytest.approx(one.makespan_s / one.bound_s)
    assert one.mean_completion_s == one.mean_elapsed_s == pytest.approx(sum(one.completions_s) / 4)
    assert one.fair_mean_completion_s > 0.9 * one.bound_s


@pytest.mark.parametrize("optimiser", sched.OPTIMISERS)
def test_the_figures_are_those_of_the_command(binary, tmp_path, optimiser):
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    command = [binary, "sched", "simulate", path, "--json", "--periods", "periods"]
    arguments = ["--seed", "3", "--connections", "25", "--optimiser", optimiser]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
    document, periods = json.loads(done.stdout), []
    result = sched.simulate(path, optimiser=optimiser, seed=3, connections=25, on_period=periods.append)
    summary = {"optimiser": optimiser, **document["results"][0]["summary"]}
    assert {name: getattr(result, name) for name in summary} == summary
    assert result.fair_mean_completion_s == document["fair_mean_completion_s"]
    lines = [json.loads(line) for line in (tmp_path / "periods").read_text().splitlines()]
    assert [line for line in lines if "pipes" in line] == periods


MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(status)
"""
"""Runs a command, and prints its largest resident memory in KiB. That of a process includes that of its parent at its start,
so it must not be started by the tests themselves."""


def test_a_million_files_take_little_memory(binary, tmp_path):
    path = tmp_path / "scenario.toml"
    scenario = SCENARIO.replace("pipes = 4", "pipes = 10").replace("1000", "100_000")
    path.write_text(scenario + "[connections]\nstartup_s = 5\n")
    command = [sys.executable, "-c", MEASURED, binary, "sched", "simulate", path, "--optimiser", "knee,fts", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["results"][0]["summary"]["completed"] == 10
    # The program itself takes 13 MiB; 48 bytes per file would be 48 MiB more.
    assert int(done.stderr) < 40 * 1024


def test_requests_that_are_not_complete_have_no_times():
    result = sched.simulate("limit_to_bound = 2\n" + SCENARIO, optimiser="fixed", connections=1)
    assert result.completed == 0 and result.completions_s == (None,) * 4
    assert result.mean_completion_s is None and result.max_completion_s is None
    assert result.makespan_to_bound == pytest.approx(2)


def test_periods_are_reported():
    periods = []
    with_callback = sched.simulate(SCENARIO, on_period=periods.append)
    assert with_callback == sched.simulate(SCENARIO)
    assert [period["end_s"] for period in periods] == [60.0 * index for index in range(len(periods))]
    assert all(period["simulated"] is True and period["optimiser"] == "knee" for period in periods)
    pipes = [pipe for period in periods for pipe in period["pipes"]]
    assert sum(pipe["finished"] for pipe in pipes) <= 4000 and all(pipe["reason"] for pipe in pipes)
    assert [pipe["fair_bytes_per_s"] for pipe in periods[1]["pipes"]] == pytest.approx([1.25e9 / 4] * 4)


def test_an_exception_of_a_callback_ends_the_simulation():
    ends = []

    def observe(period):
        ends.append(period["end_s"])
        if len(ends) == 3:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        sched.simulate(SCENARIO, on_period=observe)
    assert ends == [0.0, 60.0, 120.0]


def test_a_topology_is_read_beside_the_scenario(tmp_path):
    (tmp_path / "scenario.toml").write_text(with_topology("abc.json"))
    (tmp_path / "abc.json").write_text(TOPOLOGY)
    result = sched.simulate(str(tmp_path / "scenario.toml"))
    for topology in (TOPOLOGY, tmp_path / "abc.json", str(tmp_path / "abc.json")):
        assert sched.simulate(with_topology("missing.json"), topology=topology) == result
        assert sched.simulate(SCENARIO, topology=topology) == result
    with pytest.raises(ValueError, match=r"network\.topology: 'missing\.json'"):
        sched.simulate(with_topology("missing.json"))
    (tmp_path / "abc.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"abc\.json"):
        sched.simulate(tmp_path / "scenario.toml")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (SCENARIO.replace("files = 1000", "files = 0"), ["line 8", "files = 0", "from 1 to"]),
        (SCENARIO.replace("files = 1000", "fils = 1000"), ["line 8", "fils", "unknown field"]),
        (SCENARIO.replace("10e9", "nan"), ["line 4", "capacity_bits_per_s", "out of range"]),
        (SCENARIO.replace("100e6", "'many'"), ["line 9", "file_bytes", "invalid type"]),
        (SCENARIO.replace("[network]", "[network"), ["line 3"]),
        (SCENARIO + "[[changes]]\nat_s = 1\nfactor = 1\nlink = 'a -> b'\n", ["a -> b"]),
    ],
)
def test_errors_of_a_scenario_name_the_line_and_the_key(tmp_path, wrong, words):
    path = tmp_path / "scenario.toml"
    path.write_text(wrong)
    for scenario, more in [(wrong, []), (path, ["scenario.toml: "])]:
        with pytest.raises(ValueError) as caught:
            sched.simulate(scenario)
        assert all(word in str(caught.value) for word in words + more)


def test_errors_of_files_name_them(tmp_path):
    path = tmp_path / "scenario.toml"
    for content, words in [(b"\xff\n", "can't decode"), (b"#" * ((1 << 20) + 1), "more than 1048576 bytes")]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"scenario\.toml: .*{words}"):
            sched.simulate(path)
    with pytest.raises(ValueError, match="network.topology: .*no nodes"):
        sched.simulate(SCENARIO, topology="{}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"optimiser": "nee"}, "unknown optimiser .nee.: expected knee, "),
        ({"seed": -1}, "seed: -1 is out of range"),
        ({"seed": 2**64}, "seed: 18446744073709551616 is out of range"),
        ({"connections": 0}, "connections: 0 is out of range: expected a whole number from 1 to 10000"),
        ({"connections": 10_001}, "connections: 10001 is out of range"),
    ],
)
def test_arguments_have_ranges(arguments, words):
    with pytest.raises(ValueError, match=words):
        sched.simulate(SCENARIO, **arguments)


def test_arguments_have_types():
    for arguments in ({"seed": 1.5}, {"connections": "10"}, {"optimiser": None}, {"on_period": "print"}):
        with pytest.raises(TypeError):
            sched.simulate(SCENARIO, **arguments)


@pytest.fixture
def cooperative():
    """Lets another thread run only when the running one releases the interpreter's lock."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10_000)
    yield
    sys.setswitchinterval(interval)


def test_an_interrupt_ends_a_simulation_that_lets_other_threads_run(cooperative):
    main = threading.get_ident()

    def interrupt():
        while sys._current_frames()[main].f_code is not sched.simulate.__code__:
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)

    # The function `simulate` releases the lock nowhere but in the simulation.
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        sched.simulate(ENDLESS, optimiser="fixed", connections=1)
    thread.join()


def test_an_interrupt_ends_a_simulation_with_a_callback():
    ends = []

    def observe(period):
        ends.append(period["end_s"])
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        sched.simulate(ENDLESS, on_period=observe)
    assert ends == [0.0]


def test_the_example_of_the_guide_runs(tmp_path, monkeypatch):
    scenario, python = (re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1] for language in ("toml", "python"))
    (tmp_path / "thirty.toml").write_text(scenario)
    monkeypatch.chdir(tmp_path)
    exec(compile(python, GUIDE, "exec"), {})


def test_shares_of_the_parking_lot():
    shares = sched.max_min([10.0, 20.0, 4.0], [[0, 1, 2], [0], [1], [2, 2]], [1, 1, 1, 1])
    assert shares == sched.Shares((2.0, 8.0, 18.0, 2.0), (2, 0, 1, 2))


def test_weights_and_limits_hold():
    shares = sched.max_min([10.0], [[0], [0], [0], [], [], [0]], [2, 1, 1, 1, 1, 0], [math.inf, math.inf, 1, 1, math.inf, math.inf])
    assert shares == sched.Shares((6.0, 3.0, 1.0, 1.0, math.inf, 0.0), (0, 0, None, None, None, None))
    assert sched.max_min([], [], []) == sched.Shares((), ())


def test_arrays_and_iterators_are_accepted():
    paths = numpy.array([[0, 1], [1, 0]], dtype=numpy.uint64)
    shares = sched.max_min(numpy.array([4.0, 6.0]), paths, (weight for weight in (1, 3)), numpy.array([2, 9], dtype=numpy.int32))
    assert shares == sched.Shares((1.0, 3.0), (0, 0))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([-1.0], [[0]], [1]), "capacities[0]: -1.0 is out of range"),
        (([math.nan], [[0]], [1]), "capacities[0]: nan is out of range"),
        (([1, math.inf], [[0]], [1]), "capacities[1]: inf is out of range"),
        (([10**400], [[0]], [1]), "capacities[0]: 1000"),
        (([1.0], [[0], [1]], [1, 1]), "paths[1]: 1 is not the index of one of 1 capacities"),
        (([1.0], [[-1]], [1]), "paths[0]: -1 is not the index"),
        (([1.0], [[2**64]], [1]), "paths[0]: 18446744073709551616 is not the index"),
        (([1.0], [[0]], [-1]), "weights[0]: -1 is out of range"),
        (([1.0], [[0]], [math.nan]), "weights[0]: nan is out of range"),
        (([1.0], [[0]], [math.inf]), "weights[0]: inf is out of range"),
        (([1.0], [[0]], [1e-101]), "weights[0]: 1e-101 is out of range"),
        (([1.0], [[0]], [1, 1]), "weights: expected one for each of the 1 paths, not 2"),
        (([1.0], [[0]], [1], [-1]), "limits[0]: -1 is out of range"),
        (([1.0], [[0]], [1], [math.nan]), "limits[0]: nan is out of range"),
        (([1.0], [[0]], [1], []), "limits: expected one for each of the 1 paths, not 0"),
    ],
)
def test_wrong_numbers_are_errors_with_their_place(arguments, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        sched.max_min(*arguments)


def test_wrong_types_are_errors():
    for arguments in ((["one"], [[0]], [1]), ([1], [0], [1]), ([1], [[0.0]], [1]), ([1], [[0]], [None]), (1, [[0]], [1])):
        with pytest.raises(TypeError):
            sched.max_min(*arguments)


OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""The smallest tolerances of HiGHS."""

MIN_PRICE = 1e-6
"""The prices of a level add up to 1, so that one of n pipes has at least 1 / n; smaller ones are rounding errors."""

CHECKED = settings(max_examples=300, deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
"""A failing example is printed with the line that reproduces it. Nothing depends on time."""


def lexicographic_rates(capacities, paths, weights, limits):
    """Returns the rates that are maximal in lexicographic order of rate / weight, lowest first, by a sequence of linear programs.

    Each program raises the level that all open pipes have at least. A pipe whose lower bound has a price (its dual value) has exactly
    this level in each optimal solution: it cannot grow, and its rate is fixed.
    """
    rates = [0.0 if weight == 0 else math.inf for weight in weights]
    of_pipes = [pipe for pipe, weight in enumerate(weights) if weight > 0 and (paths[pipe] or limits[pipe] < math.inf)]
    open_pipes, fixed = set(of_pipes), {}
    # The variables are the rates, then the level.
    loads = [[*(float(resource in paths[pipe]) for pipe in of_pipes), 0.0] for resource in range(len(capacities))]
    goal = [*(0.0 for _ in of_pipes), -1.0]
    while open_pipes:
        bounded = sorted(open_pipes)
        levels = [[*(-float(other == pipe) for other in of_pipes), weights[pipe]] for pipe in bounded]
        bounds = [(fixed[pipe], fixed[pipe]) if pipe in fixed else (0, limits[pipe]) for pipe in of_pipes]
        most = [*capacities, *(0.0 for _ in bounded)]
        solved = linprog(goal, [*loads, *levels], most, bounds=[*bounds, (0, None)], method="highs", options=OPTIONS)
        assert solved.status == 0, solved.message
        prices = -solved.ineqlin.marginals[len(capacities) :]
        held = [pipe for pipe, price in zip(bounded, prices, strict=True) if price * weights[pipe] > MIN_PRICE]
        assert held, "the level could rise"
        for pipe in held:
            rates[pipe] = fixed[pipe] = weights[pipe] * solved.x[-1]
        open_pipes -= set(held)
    return rates


@st.composite
def networks(draw):
    """Capacities, paths, weights and limits. Round numbers, so that several resources are full at the same level."""
    number = st.one_of(st.integers(1, 12), st.floats(0.5, 100))
    resources, pipes = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    capacities = draw(st.lists(st.one_of(number, st.just(0)), min_size=resources, max_size=resources))
    path = st.lists(st.integers(0, resources - 1), max_size=4)
    weight = st.one_of(st.integers(0, 4), st.floats(0.1, 10))
    pipe = st.tuples(path, weight, st.one_of(st.just(math.inf), number, st.just(0)))
    paths, weights, limits = zip(*draw(st.lists(pipe, min_size=pipes, max_size=pipes)), strict=True)
    return capacities, paths, weights, limits


@CHECKED
@given(networks())
def test_shares_are_those_of_linear_programs(network):
    rates = sched.max_min(*network).rates
    assert rates == pytest.approx(lexicographic_rates(*network), rel=1e-6, abs=1e-9)


@CHECKED
@given(networks(), st.floats(1e-80, 1e80), st.floats(1e-80, 1e80))
def test_shares_are_valid_at_all_scales(network, scale, weight_scale):
    capacities, paths, weights, limits = network
    capacities, limits = ([scale * number for number in numbers] for numbers in (capacities, limits))
    weights = [weight_scale * weight for weight in weights]
    shares = sched.max_min(capacities, paths, weights, limits)
    for resource, capacity in enumerate(capacities):
        rates = [rate for path, rate in zip(paths, shares.rates, strict=True) if resource in path]
        assert sum(rates) <= capacity * (1 + 1e-9)
    for pipe, bottleneck in enumerate(shares.bottlenecks):
        if bottleneck is None:
            assert shares.rates[pipe] == (limits[pipe] if weights[pipe] else 0)
            continue
        others = [other for other, path in enumerate(paths) if bottleneck in path and weights[other]]
        assert pipe in others and shares.rates[pipe] <= limits[pipe]
        assert sum(shares.rates[other] for other in others) == pytest.approx(capacities[bottleneck], rel=1e-9, abs=0)
        highest = max(shares.rates[other] / weights[other] for other in others)
        assert shares.rates[pipe] / weights[pipe] == pytest.approx(highest, rel=1e-6)
