# Everything that is done with this repository, in one place: `make help`.
#
# Needed: Rust (the toolchain file says which, rustup fetches it), Go and a C
# compiler, on Linux; a C++ compiler for `make fuzz` and `make soak`. Nothing is
# installed and no right of an administrator is needed: what the test bed lacks
# is fetched into target/.

CARGO ?= cargo
GO ?= go

# One control plane and one set of tools for the demo and all tests. Both
# scripts return at once when there is nothing to do.
PLANE := e2e/plane/build.sh target/plane
TOOLS := e2e/tools.sh target/tools

.DEFAULT_GOAL := help
# The targets share cargo's locks and the machine's cores; cargo and go use all
# cores by themselves.
.NOTPARALLEL:
.PHONY: help demo demo-shell test fuzz soak check build bench crds clean plane tools \
	check-format check-scripts check-repository check-clippy check-docs check-crds check-go check-deny

help: ## What there is
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## See it work: a control plane, machines, load balancers and traffic on this machine
	@e2e/demo.sh

demo-shell: ## The same, and then a shell in it
	@e2e/demo.sh shell

# Unit and property tests, the fuzz targets with their seeds, the test bed's own,
# end-to-end tests on a real control plane, and examples in the documentation.
# All are run even if one fails; one that cannot run fails. The crds are checked
# before, because the end-to-end tests apply them. What was done until then
# counts as the checks.
BEGAN := $(shell date +%s)
test: check plane tools ## Everything that can be tested, the checks first; FILTER=alc_8 for some of the tests
	@$(CARGO) run --quiet --locked --package xtask -- test --checks $$(($$(date +%s) - $(BEGAN))) $(FILTER)

# It goes on where it ended, part by part and seed by seed; crates/xtask/src/soak
# has the parts.
soak: plane tools ## The long forms of the tests, for hours, in pieces: PARTS="crash leaders" FOR=20m; NEW=1 begins anew
	@$(CARGO) run --quiet --locked --package xtask -- soak $(if $(FOR),--for $(FOR)) $(if $(NEW),--new) $(PARTS)

# A short run of each target; what it learns is kept for the next.
fuzz: ## Feed made-up bytes to what decodes and decides; SECONDS=600 for a long run, TARGETS="ranges ledger" for some
	fuzz/run.sh $(or $(SECONDS),20000r) $(TARGETS)

check: ## All that can be said without running it
	@$(CHECK) format scripts repository clippy docs crds go deny

# Runs the checks of these names, each a target check-NAME, and says how long
# each took. The first that fails ends it.
CHECK := run() { for name; do began=$$(date +%s%3N); \
	$(MAKE) --no-print-directory check-$$name || exit 1; \
	took=$$(($$(date +%s%3N) - began)); printf '%7d.%d s  %s\n' $$((took / 1000)) $$((took / 100 % 10)) $$name; \
	done; echo "all checks passed"; }; run

check-format:
	@$(CARGO) fmt --all --check
	@$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	@bad=$$(gofmt -l e2e/plane) && test -z "$$bad" || { echo "gofmt would change: $$bad"; exit 1; }

# A script with an error of syntax fails late, and not on every machine.
check-scripts:
	@for script in e2e/tools.sh e2e/plane/*.sh; do sh -n "$$script" || exit 1; done
	@for script in .ci/run e2e/demo.sh fuzz/run.sh; do bash -n "$$script" || exit 1; done

# Arrows between crates, purity, licences, metrics, rights, rules, links.
check-repository:
	@$(CARGO) run --quiet --locked --package xtask

check-clippy:
	@$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

check-docs:
	@RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# Built as the tests build it (e2e/src/world.rs), so that nothing is built twice.
check-crds:
	@mkdir -p target/tmp
	@$(CARGO) build --locked --workspace --bin harvester-load-balancer --example ledger
	@"$${CARGO_TARGET_DIR:-target}"/debug/harvester-load-balancer crd >target/tmp/crds.yaml
	@diff -u crds/crds.yaml target/tmp/crds.yaml || { echo "crds/crds.yaml is not what the types say; run make crds"; exit 1; }

# After the build, so that progress is seen; once for each state of the sources.
check-go: plane
	@GO=$(GO) e2e/plane/vet.sh target/plane

# Known vulnerabilities, and once more what check-repository has looked at.
# Only where it is installed, and only without the network: what it says must
# not depend on the day.
check-deny:
	@if command -v cargo-deny >/dev/null 2>&1; then \
		$(CARGO) deny --offline check bans licenses sources; \
	fi

build: ## The operator, as it is shipped: target/release/harvester-load-balancer
	$(CARGO) build --release --locked --package harvester-load-balancer

# The operator as it is shipped, which is why it is built on its own, and what measures it, optimised too. ROWS="name name"
# measures some only: size ledger ledger-scale prober cluster machines events verdicts scale large api-cpu. What was found is in target/bench.md and
# target/bench.json as well.
bench: build plane tools ## Figures of the operator beside what the API server and the kernel can do: an hour
	$(CARGO) build --release --locked --package harvester-lb-prober --package harvester-lb-ipam --example load --example ledger
	$(CARGO) build --release --locked --package harvester-lb-e2e --bin bench
	$(CARGO) run --release --quiet --locked --package harvester-lb-e2e --bin bench -- $(ROWS)

crds: ## Write crds/crds.yaml anew from the types
	@mkdir -p target/tmp
	$(CARGO) run --quiet --package harvester-load-balancer -- crd >target/tmp/crds.yaml
	@mv target/tmp/crds.yaml crds/crds.yaml

plane:
	@$(PLANE) >/dev/null

tools:
	@$(TOOLS)

clean: ## Remove all that was built or fetched, the control plane too
	$(CARGO) clean
	rm -rf target
