# Everything runs from a checkout and stays in it: .venv (Python), target (Rust), out (results).
#   make demo    hosts that hold and hosts that do not, with their reports
#   make test    every test, as CI runs it
#   make test-quick  what is soon told, in minutes, for the working day
#   make bench   the benchmarks, against SimSo
# What needs a Debian package is installed when these run as root; without it the tests that need it are
# skipped and say so.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAXITY := $(BIN)/laxity
# After `laxity … ||`: goes on if it said no (exit code 1), stops at anything else.
VERDICT := test $$? = 1
# Optimized, with debug assertions and overflow checks, and quick to link.
CARGO_TEST := cargo test --profile checked
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Where that leaves programs: Python's tests find them first, and nothing is built for them once more.
WITH_CHECKED := PATH=$(TARGET)/checked:$$PATH
# An extension is not linked with Python, whether maturin has it built or cargo alone.
export PYO3_BUILD_EXTENSION_MODULE := 1

RUST_SOURCES := $(shell find crates -name '*.rs' -o -name '*.toml' -o -name 'Cargo.toml' 2>/dev/null) Cargo.toml Cargo.lock
POLICY_SOURCES := $(wildcard policy/src/*.[ch] policy/models/*.[ch] policy/include/laxity/*.h policy/test/*.[ch] crates/laxity-policy/src/*.c)
POLICY_TABLES := $(wildcard policy/*.def)
KVM_SOURCES := $(wildcard kvm/programs/*.[ch] kvm/bpf/*.[ch] guest/*.[ch] python/tests/steady/*.c)
XEN_SOURCES := $(wildcard xen/adapter/*.[ch] xen/include/*.h xen/programs/*.[ch] xen/programs/test/*.[ch])
C_SOURCES := $(POLICY_SOURCES) $(XEN_SOURCES) $(KVM_SOURCES) $(wildcard bench/partsim/*.cpp)

.PHONY: help
help: ## What there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

# The Python environment. Packages come first, so that a change of sources does not install them again.
$(VENV)/.programs: tools/build/packages.sh
	tools/build/packages.sh
	mkdir -p $(VENV)
	touch $@

$(VENV)/.packages: pyproject.toml | $(VENV)/.programs
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet 'maturin>=1.9,<2' --group dev
	touch $@

# The extension module: as fast as can be; with EXTENSION=checked as tests want it, which is built sooner;
# with EXTENSION=compiled as `make compiled` has built it beside all that tests run.
BUILT := $(VENV)/.built$(EXTENSION:%=-%)
EXTRAS := plots,voice,calibrate,design,cluster
$(BUILT): $(VENV)/.packages $(RUST_SOURCES) $(POLICY_SOURCES) $(POLICY_TABLES) reproduce/pyproject.toml
ifeq ($(EXTENSION),compiled)
	$(MAKE) compiled
	$(BIN)/python tools/build/editable.py $(TARGET)/checked/lib_core.so $(EXTRAS)
else
	$(BIN)/maturin develop --profile $(or $(EXTENSION),release) --quiet --extras $(EXTRAS)
endif
	$(BIN)/python -m pip install --quiet --editable reproduce
	rm -f $(VENV)/.built*
	touch $@

.PHONY: programs packages
programs: $(VENV)/.programs
packages: $(VENV)/.packages

.PHONY: setup
setup: $(BUILT) ## .venv/bin/laxity and what it needs

.PHONY: demo
demo: setup ## A host that holds and one that does not, with deadlines and with calls; reports in out/
	@echo '== A machine controller: will every deadline hold? =='
	$(LAXITY) check examples/integrator.toml
	$(LAXITY) run examples/integrator.toml -o out/integrator
	$(LAXITY) report out/integrator
	@echo '== Telephony with 200 streams: are the calls good enough? =='
	$(LAXITY) run examples/telephony.toml --duration '20 s' --set calls.sample=20 --set calls.streams=200 -o out/telephony
	$(LAXITY) report out/telephony
	@echo '== The controller with a guest that wants more than it owns: who pays for it? =='
	$(LAXITY) compare examples/overload.toml -o out/overload
	$(LAXITY) report out/overload
	@echo '== Telephony with 800 streams: what gives out? =='
	$(LAXITY) run examples/telephony.toml --duration '20 s' --set calls.sample=20 -o out/telephony-overload
	$(LAXITY) report out/telephony-overload
	@echo 'Held: out/integrator/report.html, out/telephony/report.html.'
	@echo 'Did not, and why: out/overload/report.html, out/telephony-overload/report.html.'

.PHONY: test
test: export EXTENSION := compiled
# Programs for guests are those of `make compiled`.
test: export LAXITY_STATIC := $(TARGET)/static/checked
# Tests import a third of what pip installs: Python compiles that when it does, and pip nothing.
test: export PIP_COMPILE := 0
# Three parts run at a time, in this order, each once what it needs is there. What takes longest
# begins as early as it can: mutations and fuzzers wait for the set-up, so that they take no place
# from longer parts that wait for it.
test: ## Every test, as CI runs it: all parts, whichever fails, and a line for each at the end
	@$(PYTHON) tools/build/parts.py programs compiled:programs hypervisors:programs \
	    packages:programs setup:packages,compiled lab:setup,hypervisors test-xen:lab \
	    test-python:setup test-failover:setup test-rust:compiled test-policy:programs \
	    mutations-quick:setup test-fuzz:setup lint:setup

.PHONY: test-quick
test-quick: export EXTENSION := compiled
test-quick: export LAXITY_CASES := 20%
test-quick: ## What is soon told: lint, fewer random hosts, no real guests, packets and papers; minutes, once things are built
	@$(PYTHON) tools/build/parts.py compiled setup:compiled test-rust:compiled test-python-quick:setup \
	    lint:setup

# All that tests run of Rust, once: what others build later of the same sources, they find here. The
# whole workspace has one choice of its crates' features; a part of it would have another, and build
# what is below it once more. For guests one program is linked without libraries, of the same crates;
# a test is built beside it, since cargo chooses other features where there is none.
.PHONY: compiled
compiled: $(VENV)/.programs
	cargo build --profile checked --workspace --quiet --lib --bins --tests --bench daemon
	$(CARGO_TEST) --workspace --quiet --no-run --test failover --test faults --test disks
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tools/build/static.sh CARGO_BUILD_BUILD_DIR=$(TARGET) \
	    cargo build --profile checked --workspace --quiet --bin laxity-media --test rtp \
	    --target-dir $(TARGET)/static

.PHONY: lint
lint: setup ## Formatting and lint of the three languages
	cargo fmt --check
	cargo clippy --quiet --profile checked --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check python reproduce tools bench
	$(BIN)/ruff check python reproduce tools bench
	$(BIN)/mypy
	$(BIN)/python tools/build/python_types.py --check
	$(BIN)/python tools/pages/host_file.py --check
	$(BIN)/python tools/pages/policies.py --check
	$(BIN)/python tools/pages/doctor.py --check
	$(BIN)/python tools/pages/which.py --check
	$(BIN)/python tools/pages/reproduced.py --check
	$(BIN)/python tools/check/dependencies.py
	$(PYTHON) tools/check/cycles.py
	$(PYTHON) tools/check/module_files.py
	$(PYTHON) tools/check/english.py
	@if command -v clang-format >/dev/null; then clang-format --dry-run -Werror $(C_SOURCES); \
	else echo 'SKIPPED: the formatting of C is not checked without clang-format'; fi

.PHONY: audit
audit: setup ## Known weaknesses and licences of all packages, from public databases; needs cargo-deny
	cargo deny check
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/python -m pip_audit --local --progress-spinner off

.PHONY: format
format: setup ## Formats the three languages
	cargo fmt
	$(BIN)/ruff format python reproduce tools bench
	$(BIN)/ruff check --fix python reproduce tools bench
	clang-format -i $(C_SOURCES)

.PHONY: test-policy
test-policy: ## The policies in C: freestanding, under sanitizers, under a fuzzer
	$(MAKE) -C policy test

.PHONY: protect-guest
protect-guest: setup ## The guest that the tests of protection kill the hosts of
	$(BIN)/python tools/build/counter_guest.py || echo 'SKIPPED: real failovers need that guest'

.PHONY: test-rust
test-rust: compiled ## All crates, with 10,000 random hosts against the reference
	$(CARGO_TEST) --workspace --quiet --no-fail-fast

.PHONY: test-failover
test-failover: protect-guest compiled ## Real guests, whose hosts are killed
	$(CARGO_TEST) --workspace --quiet --no-fail-fast --test failover --test faults --test disks

# What the tests of a file share is made once, by the one process that has the file.
BY_FILE := -n 2 --dist loadfile
.PHONY: test-python test-python-quick
test-python: setup compiled ## Command line, report, reproduction, SimSo
	$(BIN)/python -m pip install --quiet --group bench --group docs
	$(WITH_CHECKED) $(BIN)/python -m pytest -q --durations=10 $(BY_FILE) -m 'not xen and not dist'
test-python-quick: setup compiled
	$(WITH_CHECKED) $(BIN)/python -m pytest -q $(BY_FILE) -m 'not xen and not dist and not slow' python/tests

# What one installs. Pages have the date of the last commit, so that the same sources give the same files.
DIST := out/dist
MANUAL := out/manual
DATE = $(shell git log -1 --format=%cs 2>/dev/null || date +%F)
PROGRAMS := laxity-bandwidth laxity-media laxity-protect
CARGO_DEB := target/tools/bin/cargo-deb

# Without optimization, which would take it longer to build than to pack.
$(CARGO_DEB):
	cargo install cargo-deb --version 3.8.0 --locked --debug --quiet --root target/tools

.PHONY: manual
manual: setup ## Man pages and shell completion of all commands, in out/manual
	rm -rf $(MANUAL)
	cargo run --quiet --profile checked --package laxity-manual -- $(MANUAL) $(DATE)
	$(BIN)/python tools/build/manual.py $(MANUAL) $(DATE)

.PHONY: dist
dist: manual $(CARGO_DEB) ## The wheels and the Debian packages, in out/dist
	rm -rf $(DIST)
	$(BIN)/python -m pip install --quiet --group dist
	$(BIN)/maturin build --release --quiet --out $(DIST)/bare
	tools/build/wheel_with_manual.sh $(DIST)/bare/*.whl $(MANUAL) $(DIST)
	rm -r $(DIST)/bare
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(DIST) ./reproduce
	cargo build --release --quiet --locked $(PROGRAMS:%=--package %)
	for program in $(PROGRAMS); do \
	    PATH=$(dir $(CARGO_DEB)):$$PATH cargo deb --quiet --no-build --package $$program --output $(DIST); \
	done

.PHONY: test-dist
test-dist: dist protect-guest ## Installs each wheel and package into a bare Debian 12, as root, and runs it there, the units under systemd
	$(BIN)/python -m pytest -q -m dist python/tests/test_dist.py python/tests/test_dist_units.py

.PHONY: lab
lab: setup ## The hypervisor, dom0 and guests of --on xen
	$(LAXITY) lab build

# Both variants that tests boot, built beside what needs a CPU of its own.
.PHONY: hypervisors
hypervisors: $(VENV)/.programs
	xen/build.sh release
	xen/build.sh debug

# The longest first, so that both who run them are done at about the same time. Each file has its
# name: pytest leaves out a file of a directory that it is given, too, and collects no others.
LONG_ON_XEN := $(patsubst %,python/tests/test_lab_%.py,ssh soak run) python/tests/test_docs.py
XEN_TESTS := $(LONG_ON_XEN) $(filter-out $(LONG_ON_XEN),$(shell grep -l 'mark\.xen' python/tests/test_*.py))

.PHONY: test-xen
test-xen: lab ## Real Xen: boots, runs, repeats to the byte, and keeps every budget in a short soak
	$(WITH_CHECKED) $(BIN)/python -m pytest -q --durations=10 -n 2 --dist load --maxschedchunk 1 -m xen $(XEN_TESTS)

.PHONY: compare-kvm
compare-kvm: export LAXITY_SCX_EVENTS ?= 1000000
compare-kvm: setup ## Policies in BPF against the simulator's, a million random events each, in the emulated KVM host
	$(BIN)/python -m pytest -q -m xen python/tests/test_kvm_policies.py -k decides

.PHONY: remus
remus: lab ## Xen's Remus through the failure of a host, in both modes, with SEED: ten minutes, not part of `make test`
	$(LAXITY) lab remus --mode net --seed $(or $(SEED),1) -o out/remus/net
	$(LAXITY) lab remus --mode no-net --seed $(or $(SEED),1) -o out/remus/no-net

.PHONY: fuzz test-fuzz
fuzz: ## Fuzzes all that parses, SECONDS each
	$(MAKE) -C fuzz --jobs $$(nproc) --output-sync=target run SECONDS=$(or $(SECONDS),10)
test-fuzz: ## Gives each fuzzer RUNS inputs, the same each time; slow ones get fewer
	$(MAKE) -C fuzz --jobs $$(nproc) --output-sync=target run RUNS=$(or $(RUNS),20000)

.PHONY: fuzz-hours
fuzz-hours: ## Gives each fuzzer, or each of FUZZERS, CPU seconds (3600); says what each got and did
	$(PYTHON) tools/check/fuzz_hours.py $(or $(CPU),3600) $(FUZZERS)

.PHONY: mutations mutations-quick
mutations: ## Breaks the policies in many ways; the tests must notice every one
	$(PYTHON) tools/check/mutate.py
mutations-quick:
	$(PYTHON) tools/check/mutate.py --quick

.PHONY: compare
compare: ## HOSTS random hosts, from SEED on, against the reference
	LAXITY_CASES=$(or $(HOSTS),1000000) LAXITY_SEED=$(or $(SEED),0) \
	    $(CARGO_TEST) --package laxity-sim --test reference

.PHONY: why
why: setup ## Causes of jobs and packets, and what helps, on TIMES as many random hosts as in the tests, from SEED on
	LAXITY_CASES=$(or $(TIMES),20)00% LAXITY_SEED=$(or $(SEED),0) \
	    $(CARGO_TEST) --package laxity-why --test causes -- --nocapture
	LAXITY_CASES=$(or $(TIMES),20)00% LAXITY_SEED=$(or $(SEED),0) \
	    $(BIN)/python -m pytest -q -s python/tests/test_why.py -k random_hosts

.PHONY: same
same: setup ## Results beside those of BASE, a built checkout, byte for byte; with FULL=1 the papers in full
	@test -n '$(BASE)' || { echo 'BASE is missing: make same BASE=../other' >&2; exit 2; }
	$(PYTHON) tools/check/same_results.py $(BASE) $(if $(FULL),--full)

.PHONY: histories
histories: ## HISTORIES random histories of protection, from SEED on
	LAXITY_CASES=$(or $(HISTORIES),1000000) LAXITY_SEED=$(or $(SEED),0) \
	    $(CARGO_TEST) --package laxity-protect --test histories

.PHONY: failovers
failovers: protect-guest ## COUNT real failovers of a protected guest, of one with a disk, and of three with databases, with SEED
	LAXITY_FAILOVERS=$(or $(COUNT),1000) LAXITY_SEED=$(or $(SEED),1) \
	    $(CARGO_TEST) --package laxity-protect --test failover --test disks -- --nocapture

.PHONY: protect-soak
protect-soak: protect-guest ## SECONDS of protection under load: no false takeover, nothing lost, no growth
	LAXITY_SOAK_S=$(or $(SECONDS),3600) \
	    $(CARGO_TEST) --package laxity-protect --test failover -- --nocapture --ignored soak

.PHONY: hanging-disk
hanging-disk: protect-guest ## A disk that hangs in the kernel, and fails, beneath a protected guest; not part of `make test`
	$(CARGO_TEST) --package laxity-protect --test faults -- --nocapture --ignored --exact a_disk_that_hangs_and_fails

.PHONY: flood
flood: protect-guest ## ROUNDS with and without a flood of strangers at a protected guest's host: what it delays
	LAXITY_ROUNDS=$(or $(ROUNDS),5) \
	    $(CARGO_TEST) --package laxity-protect --test failover -- --nocapture --ignored --exact flood

# Silences the theme's notice of its successor; pyproject.toml says what is used, and until when.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.PHONY: docs
docs: setup ## The documentation as a site that works offline, in out/docs
	$(BIN)/python -m pip install --quiet --group docs
	cargo build --quiet --profile checked $(PROGRAMS:%=--package %)
	$(WITH_CHECKED) $(MKDOCS) build --strict --quiet
	@echo 'Open out/docs/index.html.'

.PHONY: report-picture
report-picture: setup ## The picture of a report in README and in the site; needs Chromium
	$(BIN)/python tools/pages/picture.py

.PHONY: bench
bench: setup ## Speed, against SimSo in the same run; writes docs/results/speed.md
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench
	cargo bench --quiet --package laxity-media --bench lateness

.PHONY: bench-beside
bench-beside: setup ## Speed beside that of BASE, a checkout after `make setup`, in each row; fails where it is below 0.97
	@test -n '$(BASE)' || { echo 'BASE is missing: make bench-beside BASE=../other' >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench.beside $(BASE)

# What PARTSim is and how it is built: docs/results/partsim.md.
.PHONY: compare-partsim
compare-partsim: setup ## Job by job against a build of PARTSim at PARTSIM, SEEDS sets of each kind from FIRST on, and speed; writes docs/results/partsim.md
	@test -n '$(PARTSIM)' || { echo 'PARTSIM is missing: make compare-partsim PARTSIM=PARTSim/build' >&2; exit 2; }
	$(BIN)/python -m bench.partsim '$(PARTSIM)' --first $(or $(FIRST),0) --seeds $(or $(SEEDS),50)

.PHONY: threads
threads: setup ## The models of Linux's schedulers against real threads of this machine; needs root
	$(BIN)/python -m bench.threads

.PHONY: tightness
tightness: ## How tight the bounds of check are; writes docs/results/analysis.md
	cargo run --quiet --release --package laxity-analysis --example tightness -- $(or $(HOSTS),100) $(or $(RUNS),60) \
		crates/laxity-analysis/examples/tightness-841644c.md \
		> docs/results/analysis.md

.PHONY: cpus
cpus: setup ## Capacity and cost of every policy on 1 to 64 CPUs; writes docs/results/cpus.md
	$(BIN)/python tools/pages/cpus.py

.PHONY: clusters
clusters: ## What check accepts of hosts whose VCPUs share several CPUs; writes docs/results/clusters.md
	cargo run --quiet --release --package laxity-analysis --example clusters -- $(or $(HOSTS),100) $(or $(RUNS),20) \
		> docs/results/clusters.md

.PHONY: results
results: setup ## Re-runs RT-Xen's evaluation in full; writes docs/results/rt-xen.md
	$(LAXITY) reproduce rt-xen -o out/rt-xen-results --docs docs/results/rt-xen.md || $(VERDICT)

.PHONY: results-kvm
results-kvm: setup ## Re-runs RT-Xen's experiments on KVM; writes docs/results/kvm.md
	$(LAXITY) reproduce rt-xen --on kvm -o out/rt-xen-on-kvm --docs docs/results/kvm.md || $(VERDICT)

.PHONY: results-lending
results-lending: setup ## Lending servers on RT-Xen's task sets, beside the others; writes docs/results/lending.md
	$(BIN)/python tools/pages/lending.py

.PHONY: results-xen
results-xen: lab ## Re-runs RT-Xen's experiments on Xen; writes docs/results/xen.md
	$(LAXITY) reproduce rt-xen --on xen -o out/rt-xen-on-xen --docs docs/results/xen.md || $(VERDICT)

.PHONY: results-telephony
results-telephony: setup ## Re-runs the telephony servers' evaluation; writes docs/results/telephony.md
	$(LAXITY) reproduce telephony -o out/telephony-results --docs docs/results/telephony.md || $(VERDICT)

.PHONY: results-soft-real-time
results-soft-real-time: setup ## Re-runs the evaluation of scheduler S; writes docs/results/soft-real-time.md
	$(LAXITY) reproduce soft-real-time -o out/soft-real-time-results --docs docs/results/soft-real-time.md || $(VERDICT)

.PHONY: results-bandwidth
results-bandwidth: setup ## Re-runs the bandwidth allocator's evaluation; writes docs/results/bandwidth.md
	$(LAXITY) reproduce bandwidth -o out/bandwidth-results --docs docs/results/bandwidth.md || $(VERDICT)

.PHONY: results-availability
results-availability: setup ## Re-runs the evaluation of protection; writes docs/results/availability.md
	$(LAXITY) reproduce availability -o out/availability-results --docs docs/results/availability.md || $(VERDICT)

.PHONY: results-availability-linux
results-availability-linux: setup ## The same with real guests and real failures, as root; writes docs/results/availability-linux.md
	$(LAXITY) reproduce availability --on linux -o out/availability-on-linux --docs docs/results/availability-linux.md || $(VERDICT)

.PHONY: results-bandwidth-xen
results-bandwidth-xen: lab ## The same with real netbacks on Xen; writes docs/results/bandwidth-xen.md
	$(LAXITY) reproduce bandwidth --on xen -o out/bandwidth-xen --docs docs/results/bandwidth-xen.md || $(VERDICT)

.PHONY: results-bandwidth-linux
results-bandwidth-linux: setup ## The same with real packets, as root; writes docs/results/bandwidth-linux.md
	$(LAXITY) reproduce bandwidth --on linux -o out/bandwidth-on-linux --docs docs/results/bandwidth-linux.md || $(VERDICT)

.PHONY: results-protection
results-protection: protect-guest ## Measures checkpoints, failures and epochs of a real guest, or ONLY=postgresql; writes docs/results/protection.md
	$(BIN)/python tools/pages/protection.py $(ONLY)

.PHONY: results-media-failures
results-media-failures: setup ## Kills hosts of media servers, rtpengine with Redis among them, as root; writes docs/results/media-failures.md
	$(BIN)/python tools/pages/media_failures.py

.PHONY: results-remus
results-remus: lab ## Measures failures of Xen hosts, protected by Remus; writes docs/results/remus.md
	$(BIN)/python tools/pages/remus.py

.PHONY: results-voice
results-voice: setup ## What loss costs the reference speech; writes docs/results/voice.md
	$(BIN)/python tools/pages/voice.py

.PHONY: fidelity-hosts
fidelity-hosts: lab ## Random hosts on Xen and in the simulator, HOSTS of them; writes docs/results/fidelity.md
	$(BIN)/python tools/pages/fidelity.py --hosts $(or $(HOSTS),68)

.PHONY: results-calibration
results-calibration: setup ## Real packets against the simulator with measured costs, as root; writes docs/results/calibration.md
	cargo build --quiet --release -p laxity-media
	$(BIN)/python tools/pages/calibration.py

.PHONY: observe-hosts
observe-hosts: lab ## Random hosts of the labs of Xen and KVM, found again by observe; writes docs/results/observe.md
	$(BIN)/python tools/pages/observe.py --hosts $(or $(HOSTS),20)

.PHONY: soak
soak: lab ## Ten emulated minutes of everything at once, on the hypervisor with assertions
	$(LAXITY) lab soak

SOAKED := deferrable credit sedf s-allc lending

.PHONY: soak-kvm
soak-kvm: setup ## Ten emulated minutes of guests that come, go, change and pause on KVM, under each of SOAKED's policies
	for policy in $(SOAKED); do \
	    $(LAXITY) lab kvm soak --policy $$policy --seed $(or $(SEED),1) -o out/soak-kvm/$$policy || exit 1; \
	done

.PHONY: clean
clean: ## Removes what make made
	rm -rf $(VENV) target out policy/build fuzz/target fuzz/*/corpus fuzz/*/artifacts
