# Every target but install does its own set-up; run any of them on a fresh clone.
#
#   make demo       a real file over several paths at once, and incast over a lossless class, on two fabrics
#   make test       every test (root for those in network namespaces; REQUIRE_NETNS=1 forbids skipping)
#   make lab        brings a fabric up and leaves it up: `make lab LAB="--leaves 2 --spines 4"`
#   make interop-long  messages of 1 GiB between hostd and Soft-RoCE in the guest, which takes some minutes
#   make mpi        programs of MPI over hostd with Open MPI 5 and with mpi4py over MPICH, which `make test` has not: from PyPI
#   make twin       fabrics in virtual time: every shipped scenario against its reviewed figures, and lossless incasts
#   make loom       the lock-free cores in every interleaving of their threads
#   make bench      the figures of docs/performance.md, beside what they are compared with; BENCH=NAME for one
#   make lint       formats, clippy, documentation, architecture rules, licences and duplicates of dependencies
#   make msrv       the oldest compiler that Cargo.toml promises builds all; rustup has to have it
#   make fuzz       every reader of outside bytes, each for a minute, guided by coverage: `make fuzz FOR=600 FUZZ=roce`
#   make soak       random fabrics, workloads and faults in the twin for half an hour: `make soak FOR=8h`; then ten
#                   thousand random jobs of in-network compute, two thousand with vectors of up to 16 MiB, and a
#                   thousand whose marks follow the traffic, applications that attack hostd, or are killed, and
#                   collectives while packets are lost
#   make pictures   the dashboards of the manual, drawn from a real Prometheus over a laboratory
#   make build      the release binaries, in target/release, and the C library, in target/library
#   make install    what `make build` built, units and configuration: PREFIX=/usr/local, DESTDIR= for packages
#   make uninstall  removes them, but leaves the configuration
#   make setup      what a Debian 12 with only a Rust toolchain lacks
#   make clean      what was built

SHELL := /bin/bash
CARGO ?= cargo
LAB ?=
BENCH ?=
FOR ?=
FUZZ ?= $(notdir $(wildcard tests/fuzz/corpus/*))
PREFIX ?= /usr/local
DESTDIR ?=
# The folders that programs and the C library are installed from.
BUILT ?= target/release
LIBRARY ?= target/library
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"$$/\1/p' Cargo.toml)
# Colours and progress bars stay readable in logs.
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo test interop-long mpi lab twin loom bench lint msrv fuzz soak pictures build install uninstall setup clean
.DEFAULT_GOAL := help

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --workspace --bins
	$(CARGO) build --profile library -p hostd-client-c

install:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" BUILT="$(BUILT)" LIBRARY="$(LIBRARY)" scripts/install

uninstall:
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install --remove

demo: build
	target/release/fabric demo

lab: build
	target/release/fabric lab up $(LAB)

# The release build: the tests do the same with the other one, so both have to find the same digests. And every lossless
# incast for 10 ms of virtual time with three seeds, and AI ECN on workloads that its model was not trained with: for
# those the other one is too slow.
twin: setup
	$(CARGO) build --release -p fabric --bin fabric
	target/release/fabric twin check
	target/release/fabric twin train etc/aiecn.toml --judge --seeds 3,4,5
	target/release/fabric twin soak --lossless --lasting 10ms --count 63 --seed 1

# Binaries first: the tests in namespaces run the daemons that cargo built. With the examples, they have the features of
# dependencies that the tests have: without, all crates would be built twice.
test: setup
	scripts/setup --guest --jobs
	$(CARGO) build --workspace --bins --examples
	CARGO="$(CARGO)" scripts/test

# The guest is emulated, so these are too slow for `make test`.
interop-long: setup
	scripts/setup --guest
	$(CARGO) build --workspace --bins
	$(CARGO) test -p fabric-tests --test netns_rdma -- --ignored --nocapture large

mpi: setup
	scripts/setup --bench --jobs
	$(CARGO) build --workspace --bins --examples
	REQUIRE_NETNS=1 $(CARGO) test --workspace --test netns_bindings -- --ignored --nocapture mpi::

# In a target folder of its own, for the flag reaches every dependency (and is not called `loom`, for tokio leaves out its
# sockets then).
loom: setup
	CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg common_loom" $(CARGO) test -p common --lib sync::models -- --nocapture

bench: build
	scripts/setup --bench --jobs
	target/release/bench $(BENCH)

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	$(CARGO) test --workspace --quiet --test tidy --test dependencies
	shellcheck scripts/setup scripts/install .ci/run tests/fuzz/guided/run lab/guest/src/init lab/guest/src/agent

msrv: setup
	@rustup run $(MSRV) rustc --version || { echo 'make msrv: first rustup toolchain install $(MSRV) --profile minimal'; exit 1; }
	RUSTUP_TOOLCHAIN=$(MSRV) $(CARGO) check --workspace --all-targets --locked --target-dir target/msrv

# A finding ends it; its input is then in target/fuzz/<target>/.
fuzz: setup
	for target in $(FUZZ); do tests/fuzz/guided/run $$target $(or $(FOR),60) || exit 1; done

pictures: setup
	$(CARGO) build --workspace --bins
	$(CARGO) test -p fabric-tests --test netns_prometheus -- --ignored

soak: setup
	$(CARGO) build --release -p fabric --bin fabric
	target/release/fabric twin soak --for $(or $(FOR),30m)
	target/release/fabric twin soak --jobs --longest 16KiB --count 10000
	target/release/fabric twin soak --jobs --count 2000
	target/release/fabric twin train etc/aiecn.toml --judge --seeds 3,4,5,6,7,8,9,10,11,12
	$(CARGO) test --release -p twin --test aiecn -- --ignored --nocapture
	$(CARGO) build --release -p hostd-client --bins
	$(CARGO) test --release -p hostd --test engine -- --ignored
	$(CARGO) test --release -p hostd --test edge -- --ignored --nocapture --test-threads 1
	$(CARGO) build --workspace --bins
	$(CARGO) test -p fabric-tests --test netns_paths -- --ignored --nocapture
	$(CARGO) test -p hostd-client --test collectives -- --ignored --nocapture

clean:
	$(CARGO) clean
