"""The blocks of columns that `towpath plan` finds, compared with those of uproot, in real files and in those of each layout."""

import json
from pathlib import Path

import pytest

ORACLE = Path(__file__).with_name("root_blocks.py")
GENERATOR = Path(__file__).with_name("root_layouts.py")


@pytest.fixture(scope="session")
def planned(clients, binary):
    """Returns the columns of each tree of a file, as root_blocks.py does."""
    def run(path) -> dict:
        listed = json.loads(clients.run(binary, "plan", "--json", path).text)
        found = {}
        for tree in listed["trees"]:
            if not tree["columns"]:
                # No pattern matches.
                found[tree["tree"]] = []
                continue
            plan = clients.run(binary, "plan", "--json", "--tree", tree["tree"], "--columns", "*", path)
            found[tree["tree"]] = [[column["name"], column["blocks"]] for column in json.loads(plan.text)["columns"]]
        return found

    return run


@pytest.fixture(scope="session")
def oracle(clients, python):
    """Returns what uproot finds in files, by file and tree."""
    def run(*paths) -> dict:
        return json.loads(clients.run(python, ORACLE, *paths, deadline_s=120).text)

    return run


def compare(paths, planned, oracle) -> int:
    """Compares all trees of files, and returns their number."""
    expected = oracle(*paths)
    for path in paths:
        trees = expected[str(path)]
        found = planned(path) if trees else {}
        assert found.keys() == trees.keys(), path
        for tree, columns in trees.items():
            assert sorted(found[tree]) == sorted(columns), f"{tree} in {path}"
    return sum(len(trees) for trees in expected.values())


@pytest.mark.pair("uproot", "where the baskets of real files are")
def test_real_files(data, planned, oracle):
    paths = sorted(path for path in (data / "go-hep").rglob("*.root"))
    if not paths:
        pytest.skip("go-hep's files are not here (no Go)")
    assert compare(paths, planned, oracle) >= 40


@pytest.mark.pair("uproot", "where the baskets of a large tree are")
def test_a_large_tree(data, planned, oracle):
    assert compare([data / "large.root"], planned, oracle) == 1


@pytest.mark.pair("ROOT 6.40", "where the blocks of its layouts are")
def test_layouts(base, clients, python, planned, oracle):
    directory = base / "layouts"
    clients.run(python, GENERATOR, directory, deadline_s=300)
    outside = directory / "inside.root"
    assert compare(sorted(set(directory.glob("*.root")) - {outside}), planned, oracle) >= 31
    # uproot ignores the names of files with baskets.
    found = {name: len(blocks) for name, blocks in planned(outside)["tree"]}
    assert found == {"inside": 3, "elsewhere": 0}
