# Two commands do everything on a fresh Debian 12 machine: `make demo` and `make test`.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/towpath/target
TOWPATH = $(CARGO_TARGET_DIR)/release/towpath

.PHONY: demo test bench build lint fmt unit interop peers

demo: build ## two servers, real ROOT files, a verified copy, physics read over the wire
	interop/demo $(TOWPATH)

test: lint unit build interop demo ## everything that must hold
	@echo "all tests passed"

build:
	cargo build --release --locked --package towpath-cli

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	.ci/deny
	.ci/wasm

unit: peers ## some tests speak with a real xrootd and nginx
	cargo test --workspace --locked

peers: ## the software that towpath is tested with, from apt and PyPI
	interop/peers

interop: build ## real peers from apt and PyPI against us, and we against them
	interop/run $(TOWPATH)

bench: build ## we and the peers, interleaved; results under bench/results; BENCH="--quick" and the like go to bench/run
	cargo build --release --locked --package towpath-testkit --examples
	bench/run $(TOWPATH) $(BENCH)

fmt:
	cargo fmt --all
