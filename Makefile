# Every target does its own set-up; run any of them on a fresh clone.
#
#   make demo    a real file over several paths at once, and incast over a lossless class, on two fabrics
#   make test    every test (root for those in network namespaces; REQUIRE_NETNS=1 forbids skipping)
#   make lab     brings a fabric up and leaves it up: `make lab LAB="--leaves 2 --spines 4"`
#   make twin    fabrics in virtual time: every shipped scenario against its reviewed figures, and lossless incasts
#   make bench   the numbers of the README, with the peers they are compared with; BENCH=NAME for one
#   make lint    formats, clippy, architecture rules, licences and duplicates of dependencies
#   make build   the release binaries, in target/release
#   make setup   what a Debian 12 with only a Rust toolchain lacks
#   make clean   what was built

SHELL := /bin/bash
CARGO ?= cargo
LAB ?=
BENCH ?=
# Colours and progress bars stay readable in logs.
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo test lab twin bench lint build setup clean
.DEFAULT_GOAL := help

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

setup:
	@scripts/setup

build: setup
	$(CARGO) build --release --workspace --bins

demo: build
	target/release/fabric demo

lab: build
	target/release/fabric lab up $(LAB)

# The release build: the tests do the same with the other one, so both have to find the same digests. And every lossless
# incast for 10 ms of virtual time with three seeds, for which the other one is too slow.
twin: setup
	$(CARGO) build --release -p fabric --bin fabric
	target/release/fabric twin check
	target/release/fabric twin soak --lossless --lasting 10ms --count 63 --seed 1

# Binaries first: the tests in namespaces run the daemons that cargo built.
test: setup
	$(CARGO) build --workspace --bins
	$(CARGO) test --workspace --no-fail-fast

bench: build
	scripts/setup --bench
	target/release/bench $(BENCH)

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --quiet -p fabric-tests --test tidy --test dependencies
	shellcheck scripts/setup .ci/run

clean:
	$(CARGO) clean
