# The two commands for everybody are `make run` and `make test`. The other targets are for people who work on Strand.
CARGO ?= cargo
PORT ?= 6379
ARGS ?=
VENV_PYTHON = .venv/bin/python
# The Python binding has a workspace of its own, because the server is built without PyO3.
BINDINGS = bindings/python/Cargo.toml
# The binary that the suites of real clients start.
STRAND = target/debug/strand

.PHONY: help run test test-real lint bench versus cliffs scaling durable kills hostile http foolscap fuzz sequences simulation miri pages docs setup bindings binary slowest bisect sbom release package package-try

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

run: setup-compiler binary ## build, serve on 127.0.0.1:6379 (PORT=n to change), import examples/mail
	@PORT=$(PORT) scripts/run.sh

test: setup-compiler ## all checks: lints, unit and integration tests, real redis-server, redis-py, Foolscap, rclone's servers
	@$(MAKE) --no-print-directory --jobs=2 setup built
	@$(MAKE) --no-print-directory --jobs=4 --output-sync=target suites

# The tests of the workspace, and the tests that run beside real clients and servers. Four suites run at a time, because a suite
# waits for its processes more than it computes. The longest suites come first. Each suite is also a target of its own, for
# example `make test-sources`, once target/debug/strand is built.
SUITES = test-workspace test-real-clients test-sources test-clients test-sinks test-console test-cli test-jobs test-bindings
.PHONY: suites $(SUITES)
suites: $(SUITES)

test-workspace:
	@$(CARGO) xtask test
test-clients:
	@$(VENV_PYTHON) tests/clients.py $(STRAND)
test-cli:
	@$(VENV_PYTHON) tests/cli.py $(STRAND)
test-console:
	@node tests/console/console.mjs $(STRAND)
test-real-clients:
	@CARGO=$(CARGO) $(VENV_PYTHON) tests/real/run.py $(STRAND) --strand-alone
test-sources:
	@$(VENV_PYTHON) tests/sources.py $(STRAND)
test-sinks:
	@$(VENV_PYTHON) tests/sinks.py $(STRAND)
test-jobs:
	@$(VENV_PYTHON) tests/jobs.py $(STRAND)
test-bindings: bindings
	@$(VENV_PYTHON) bindings/python/tests/test_stringchain.py
	@$(VENV_PYTHON) bindings/python/tests/foolscap_suite.py --quick

test-real: setup binary ## clients of the JVM (needs java and mvn); test suites of redis-server, redis-py and go-redis; the importer beside versitygw, rclone, restic and SolrCloud, OBJECTS=n
	$(CARGO) build --workspace --quiet
	CARGO=$(CARGO) $(VENV_PYTHON) tests/real/run.py target/debug/strand
	$(VENV_PYTHON) tests/real/run.py target/debug/strand --jvm
	$(VENV_PYTHON) tests/real/suites.py target/release/strand
	scripts/real.sh target/release/strand

sbom: ## target/package/strand.cdx.json: every library in the binary, with version, licence and checksum (CycloneDX)
	@mkdir -p target/package
	$(CARGO) xtask sbom >target/package/strand.cdx.json

release: ## VERSION=x.y.z: check version, changelog and tag; make the package, the SBOM and the digests; print the steps to do by hand
	@scripts/release.sh $(VERSION)

package-try: package ## build and run an image with the package, and run the package as a service under systemd (needs root, debootstrap, buildah, systemd-nspawn)
	scripts/try_package.sh

package: binary ## make and try target/package/strand.deb: program, man pages, completions, service, alert rules, dashboard
	scripts/package.sh target/release/strand

lint: ## format, clippy with warnings denied, tidy rules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) fmt --manifest-path $(BINDINGS) --check
	$(CARGO) clippy --manifest-path $(BINDINGS) --target-dir $${CARGO_TARGET_DIR:-target} --locked --quiet -- -D warnings
	$(CARGO) xtask tidy

slowest: ## the ten slowest tests of the workspace, with their seconds (runs all of them)
	@$(CARGO) xtask test --slowest $(ARGS)

bench: ## microbenchmarks: chain, decoder, keyspace, container diff
	$(CARGO) bench --workspace --quiet $(ARGS)

versus: binary ## speed and memory beside redis-server in one run (ARGS='--only GET --json')
	$(CARGO) run --release --quiet -p strand-bench --bin versus -- --strand target/release/strand $(ARGS)

bisect: ## find the commit after which a row of make versus costs more instructions (ROW='SET p30' GOOD=commit BAD=HEAD; needs valgrind)
	@ROW='$(ROW)' GOOD='$(GOOD)' BAD='$(BAD)' PROFILE='$(PROFILE)' REQUESTS='$(REQUESTS)' scripts/bisect.sh

cliffs: binary ## what must stay flat, beside redis-server: docs/benchmarks.md has the table (ARGS='--only KEYS --json')
	$(CARGO) run --release --quiet -p strand-bench --bin cliffs -- --strand target/release/strand $(ARGS)

scaling: binary ## the headline workload with 1 to 16 workers, as many as there are cores (ARGS='--workers 1,2')
	$(CARGO) run --release --quiet -p strand-bench --bin scaling -- --strand target/release/strand $(ARGS)

durable: binary ## what keeping data on a disk costs, beside redis-server (ARGS='--only everysec|always|load|bgsave')
	$(CARGO) run --release --quiet -p strand-bench --bin durable -- --strand target/release/strand $(ARGS)

foolscap: setup bindings ## Foolscap's own tests with our chain in place of Foolscap's (95 s), and what receiving a string costs
	$(VENV_PYTHON) bindings/python/tests/foolscap_suite.py
	$(VENV_PYTHON) bindings/python/tests/receive_table.py $(ARGS)

http: binary ## HTTP beside nginx, by wrk (needs Debian's wrk and nginx-light)
	scripts/http_versus.sh target/release/strand $(ARGS)

fuzz: sequences simulation ## fuzz each decoder for SECONDS_EACH, after `make sequences` and `make simulation` (needs cargo-fuzz; the stable toolchain is enough)
	python3 scripts/fuzz_seeds.py
	cd fuzz && for t in $$($(CARGO) fuzz list); do $(CARGO) fuzz run -s none $$t -- -max_total_time=$${SECONDS_EACH:-60} -timeout=10 -rss_limit_mb=1500 || exit 1; done

sequences: binary ## send COMMANDS (1 M) random commands to Strand and redis-server, from SEED on; shorten a sequence whose replies differ
	STRAND_BINARY=$(CURDIR)/target/release/strand STRAND_DIFFERENTIAL_COMMANDS=$${COMMANDS:-1000000} STRAND_SEED=$${SEED:-$${STRAND_SEED:-$$(date +%s)}} \
		$(CARGO) test --release --quiet -p strand-server --test differential -- random --nocapture --test-threads 2

simulation: ## run SEEDS (10,000) seeds of simulated clients, clock and scheduling; print the command that repeats a seed that fails
	STRAND_SEEDS=$${SEEDS:-10000} $(CARGO) test --profile quick --workspace --test session -- simulation::every --nocapture

kills: ## kill a server under load 200 times, let the power of a disk in memory fail 20,000 times, check histories of 10 s each
	STRAND_KILLS=200 $(CARGO) test --workspace --test server -- aof_kills --nocapture
	STRAND_CRASHES=20000 $(CARGO) test --workspace --test session -- durable --nocapture
	STRAND_STRESS_MS=10000 $(CARGO) test --workspace --test server -- linearizable

hostile: binary ## send every command with every hostile shape of its arguments to the release build (make test sends a sample)
	STRAND_BINARY=$(CURDIR)/target/release/strand STRAND_HOSTILE_EVERY=1 $(CARGO) test --workspace --quiet --test server -- budgets

miri: ## the unsafe code of chain under Miri (needs a nightly toolchain with it)
	MIRIFLAGS=-Zmiri-strict-provenance $(CARGO) +nightly miri test -p strand-chain

pages: ## write docs/commands.md, docs/configuration.md and docs/benchmarks.md anew from their tables and figures
	STRAND_WRITE_PAGES=1 $(CARGO) test --workspace --quiet --lib -- page_of

docs: ## rustdoc with warnings denied
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --keep-going --workspace --no-deps --document-private-items

setup: ## install what the tests need and this machine lacks (make test installs it, too; takes 2 s when nothing is missing)
	@scripts/setup.sh

# `make test` first installs a C compiler, and everything else while the tests are built. MAKEFLAGS is unset so that cargo uses all
# cores: with MAKEFLAGS, cargo asks make's jobserver before it starts a job.
.PHONY: setup-compiler built
setup-compiler:
	@scripts/setup.sh compiler
built:
	@env -u MAKEFLAGS $(MAKE) --no-print-directory lint
	env -u MAKEFLAGS $(CARGO) test --workspace --quiet --no-run

bindings:
	@scripts/bindings.sh

# Builds target/release/strand, which `make run`, `make versus` and other targets start. Link-time optimisation takes minutes,
# so cargo shows its progress.
binary:
	$(CARGO) build --release -p strand-server
