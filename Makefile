# All development tasks of this repository; `make help` lists them.
#
# Requirements: Linux, Rust (rustup installs the version in rust-toolchain.toml),
# Go and a C compiler; a C++ compiler for `make fuzz` and `make soak`. Nothing is
# installed and root is not required: missing programs of the test cluster are
# downloaded to target/.

CARGO ?= cargo
GO ?= go

# The control plane and the tools are shared by the demo and all tests. Both
# scripts return immediately if everything is up to date.
PLANE := e2e/plane/build.sh target/plane
TOOLS := e2e/tools.sh target/tools
# Only the tests of the chart need it.
HELM := e2e/helm/build.sh target/tools

.DEFAULT_GOAL := help
# Targets run sequentially: they share cargo's locks, and cargo and go already
# use all cores.
.NOTPARALLEL:
.PHONY: help demo demo-share demo-dhcp demo-shell test test-before test-crds fuzz soak check build image bench crds chart clean plane tools helm \
	check-format check-scripts check-repository check-clippy check-docs check-crds check-go check-deny

help: ## List the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## Run the demo: a control plane, virtual machines, load balancers and traffic on this machine
	@e2e/demo.sh

demo-share: ## The demo of an address that several load balancers share
	@e2e/demo.sh share

demo-dhcp: ## The demo of an address that is leased from a DHCP server
	@e2e/demo.sh dhcp

demo-shell: ## The same, with a shell in the test cluster
	@e2e/demo.sh shell

# Unit and property tests, the fuzz targets with their seeds, tests of the test
# cluster, end-to-end tests on a real control plane, and the examples in the
# documentation. All run even if one fails; a test that cannot run fails. The
# checks run first, because the end-to-end tests apply the CRDs; their duration
# is passed to the test runner.
BEGAN := $(shell date +%s)
test: check plane tools helm ## Run the checks, then all tests; FILTER=alc_8 selects tests by name
	@$(CARGO) run --quiet --locked --package xtask -- test --checks $$(($$(date +%s) - $(BEGAN))) $(FILTER)

# An operator that does not know the annotations that ask for an address leads in turn with this one (IPA-9). `make test` runs the
# same test with this version on both sides.
test-before: plane tools ## Run the test of the version before beside this one: BEFORE=revision selects another version
	@HLB_OPERATOR_BEFORE=$$(e2e/before.sh target/before $(BEFORE)) && export HLB_OPERATOR_BEFORE && \
	$(CARGO) run --quiet --locked --package xtask -- test ipa_9_the_version_before_leads_in_turn

# `make test` runs each of these tests on one of the two kinds of CRDs (API-1).
test-crds: plane tools ## Run the tests of leases, traffic, kills, late writes, warnings on the other CRDs, ours or Harvester's, than `make test` does
	@$(CARGO) test --quiet --workspace --locked --no-run
	@HLB_DEFINITIONS=own $(CARGO) test --quiet --workspace --locked --test dhcp
	@HLB_DEFINITIONS=harvester $(CARGO) test --quiet --workspace --locked --test dhcp-faults --test traffic
	@for some in killed_amid _late_ annotations_are_judged are_warned_about; do \
		HLB_DEFINITIONS=harvester $(CARGO) run --quiet --locked --package xtask -- test $$some || exit 1; \
	done

# Continues where the last call stopped; crates/xtask/src/soak defines the parts.
soak: plane tools ## Run the long forms of the tests, for hours, in pieces: PARTS="crash leaders" FOR=20m; NEW=1 starts over
	@$(CARGO) run --quiet --locked --package xtask -- soak $(if $(FOR),--for $(FOR)) $(if $(NEW),--new) $(PARTS)

# A short run of each target; the corpus is kept for the next run.
fuzz: ## Fuzz decoders and decisions; SECONDS=600 sets the duration, TARGETS="ranges ledger" selects targets
	fuzz/run.sh $(or $(SECONDS),20000r) $(TARGETS)

check: ## Run the checks: format, scripts, repository, clippy, rustdoc, CRDs, go vet, licences
	@$(CHECK) format scripts repository clippy docs crds go deny

# Runs the targets check-NAME for these names and prints the duration of each.
# Stops at the first failure.
CHECK := run() { for name; do began=$$(date +%s%3N); \
	$(MAKE) --no-print-directory check-$$name || exit 1; \
	took=$$(($$(date +%s%3N) - began)); printf '%7d.%d s  %s\n' $$((took / 1000)) $$((took / 100 % 10)) $$name; \
	done; echo "all checks passed"; }; run

check-format:
	@$(CARGO) fmt --all --check
	@$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	@bad=$$(gofmt -l e2e/plane) && test -z "$$bad" || { echo "gofmt would change: $$bad"; exit 1; }

# Shell syntax: errors would otherwise show late, and not on every machine.
check-scripts:
	@for script in e2e/before.sh e2e/tools.sh e2e/plane/*.sh e2e/helm/*.sh image/*.sh docs/examples/*.sh; do sh -n "$$script" || exit 1; done
	@for script in .ci/run e2e/demo.sh fuzz/run.sh; do bash -n "$$script" || exit 1; done

# Dependencies between crates, purity, licences, permissions, rules, and whether the documents match the code.
check-repository:
	@$(CARGO) run --quiet --locked --package xtask

check-clippy:
	@$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

check-docs:
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# Same build arguments as the tests (e2e/src/world.rs), so that nothing is built twice.
check-crds:
	@mkdir -p target/tmp
	@$(CARGO) build --locked --profile test --workspace --bin harvester-load-balancer --example ledger
	@"$${CARGO_TARGET_DIR:-target}"/debug/harvester-load-balancer crd >target/tmp/crds.yaml
	@diff -u crds/crds.yaml target/tmp/crds.yaml || { echo "crds/crds.yaml does not match the API types; run make crds"; exit 1; }

# After the build, so that its progress is visible; skipped if the sources have not changed.
check-go: plane
	@GO=$(GO) e2e/plane/vet.sh target/plane

# Bans, licences and sources of dependencies, in addition to check-repository.
# Only if cargo-deny is installed, and offline, so that the result does not
# depend on the date.
check-deny:
	@if command -v cargo-deny >/dev/null 2>&1; then \
		$(CARGO) deny --offline check bans licenses sources; \
	fi

build: ## Build the release binary target/release/harvester-load-balancer
	$(CARGO) build --release --locked --package harvester-load-balancer

# crates/xtask/src/image.rs says what is written. HLB_IMAGE=target/image/harvester-load-balancer-amd64.oci.tar make test
# FILTER=image tests it; `make test` alone tests an image whose program is built faster.
image: ## Build the container image and its bill of materials, in target/image: ARCH=amd64 selects one architecture
	@$(CARGO) run --quiet --locked --package xtask -- image $(ARCH)

# Measures the program of the image, or the one that HLB_OPERATOR names. It is built alone, as it is shipped; the measuring
# programs are optimised too.
# ROWS="name name" selects measurements: size ledger ledger-scale admission prober cluster machines events verdicts scale
# check large webhook dhcp api-cpu. The results are also written to target/bench.md and target/bench.json.
bench: plane tools ## Measure the operator, compared with what the API server and the kernel can do: an hour
	$(CARGO) build --release --locked --package harvester-lb-prober --package harvester-lb-ipam --package harvester-lb-core \
		--example load --example ledger --example admission
	$(CARGO) build --release --locked --package harvester-lb-e2e --bin bench
	HLB_OPERATOR=$${HLB_OPERATOR:-$$($(CARGO) run --quiet --locked --package xtask -- image --program)} && \
	export HLB_OPERATOR && \
	$(CARGO) run --release --quiet --locked --package harvester-lb-e2e --bin bench -- $(ROWS)

crds: ## Regenerate crds/crds.yaml from the API types, and from that the chart's copy and docs/api.md
	@mkdir -p target/tmp
	$(CARGO) run --quiet --package harvester-load-balancer -- crd >target/tmp/crds.yaml
	@mv target/tmp/crds.yaml crds/crds.yaml
	@$(MAKE) --no-print-directory chart
	@$(CARGO) run --quiet --locked --package xtask -- api

# crates/xtask/src/chart.rs defines which.
chart: ## Regenerate the parts of the chart that follow from other files: CRDs, table of values
	@$(CARGO) run --quiet --locked --package xtask -- write-chart

plane:
	@$(PLANE) >/dev/null

tools:
	@$(TOOLS)

helm:
	@$(HELM) >/dev/null

clean: ## Remove everything that was built or downloaded, including the control plane
	$(CARGO) clean
	rm -rf target
