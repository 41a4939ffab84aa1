# Two commands do everything on a fresh Debian 12 machine: `make demo` and `make test`.
# What is compiled lies outside of the checkout, so that a fresh clone does not build the world again. Two clones share it: give
# each a CARGO_TARGET_DIR of its own if they are to run at the same time.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(or $(HOME),$(error HOME is not set))/.cache)/towpath/target
TOWPATH = $(CARGO_TARGET_DIR)/release/towpath
WHEELS = $(CARGO_TARGET_DIR)/wheels

SCRIPTS = fuzz/run $(addprefix .ci/,deny run wasm) $(addprefix bench/,peers run) $(addprefix interop/,demo demo-far peers run xrootd-captures.sh)

.PHONY: demo test fuzz bench bench-wan bench-alto bench-starvation bench-versions bench-fuzz build lint fmt unit wheel python interop peers tools

demo: tools build ## two servers, real ROOT files, a verified copy, physics read over the wire, a long path explained, replicas ordered
	interop/demo $(TOWPATH)

test: lint unit build python interop demo ## everything that must hold
	.ci/alto-conformance --check
	fuzz/run
	# Last: on a fresh machine the tool is built first, which takes minutes.
	.ci/deny
	@echo "all tests passed"

tools: ## a C compiler and linker, without which nothing builds
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

unit: peers ## some tests speak with a real xrootd and nginx
	TOWPATH_REQUIRE_PEERS=1 cargo test --workspace --locked

peers: ## the software that towpath is tested with, from apt and PyPI
	interop/peers

wheel: peers ## the Python package, for Python 3.10 and newer
	rm -f $(WHEELS)/towpath-*.whl
	venv=$$(interop/peers --venv) && cd python && "$$venv/bin/maturin" build --release --strip --locked --quiet --out $(WHEELS)

python: build wheel ## the Python package in the environment of the peers, and its tests
	venv=$$(interop/peers --venv) && \
	"$$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps $(WHEELS)/towpath-*.whl && \
	TOWPATH_BINARY=$(TOWPATH) PYTHONDONTWRITEBYTECODE=1 "$$venv/bin/python" -m pytest -q -p no:cacheprovider --rootdir python python/tests

interop: build wheel ## real peers from apt and PyPI against us, and we against them
	interop/run $(TOWPATH)

bench: build ## we and the peers, interleaved; results under bench/results; BENCH="--quick" and the like go to bench/run
	cargo build --release --locked --package towpath-testkit --examples
	bench/run $(TOWPATH) $(BENCH)

bench-wan: build ## the same over emulated long paths, as root; results under bench/results/wan
	bench/run $(TOWPATH) --suite wan $(BENCH)

bench-starvation: build ## how long others wait while a server is attacked; results under bench/results/starvation
	bench/run $(TOWPATH) --suite starvation $(BENCH)

bench-versions: build ## this version against an earlier one, BENCH="--before BINARY"; results under bench/results/versions
	cargo build --release --locked --package towpath-testkit --examples
	bench/run $(TOWPATH) --suite versions $(BENCH)

bench-fuzz: build ## memory of the server while it gets fuzzed requests; results under bench/results/fuzz
	bench/run $(TOWPATH) --suite fuzz $(BENCH)

bench-alto: build ## the ALTO server with a million routes; results under bench/results/alto
	bench/run $(TOWPATH) --suite alto $(BENCH)

fuzz: tools ## every decoder that reads from the network, two minutes each; `make test` runs the corpus and 20,000 inputs more
	fuzz/run --seconds 120

fmt:
	cargo fmt --all
	cd fuzz && cargo fmt
