# Everything that a newcomer needs to run. The heavy suites are short in `make test` and whole here.

# The real components that tests start: etcd and its client, openssl and ssh-keygen to check certificates, setpriv
# and unshare (util-linux) so that no process and no mount outlives a test, curl for the README's lines,
# valgrind to count instructions, systemd to check our units, and the SELinux compiler for our policy module. For hosts
# with a booted systemd of their own: systemd-container boots them, debootstrap makes their disk, dbus is how they are
# told what to do, binutils makes small archives for them, and sqlite3 looks into their databases; rpm makes and
# manages packages of the other family. Chromium looks at the dashboard, in fonts that are always the same.
TEST_PACKAGES := etcd-server etcd-client openssl openssh-client util-linux curl valgrind systemd checkpolicy semodule-utils \
  systemd-container debootstrap dbus binutils sqlite3 rpm chromium fonts-noto-core fonts-dejavu-core

# npm fetches axe-core. It comes with Debian's npm package, and with the nodejs package of other sources.
NPM_PACKAGE := $(if $(shell command -v npm 2>/dev/null),,npm)

# What the figures are measured against, and with.
BENCH_PACKAGES := $(TEST_PACKAGES) nginx wrk

.PHONY: test test-deps test-packages axe-core bench-deps test-kills test-matrix test-rotation test-rollout test-cuts screenshots lint bench dist

test: test-deps
	cargo test --workspace

# Installs what is missing, and nothing else.
test-deps: test-packages axe-core

test-packages: PACKAGES := $(TEST_PACKAGES) $(NPM_PACKAGE)
bench-deps: PACKAGES := $(BENCH_PACKAGES)
test-packages bench-deps:
	@missing=""; for package in $(PACKAGES); do \
	  dpkg-query -W -f='$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  echo "installing$$missing"; \
	  $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	fi

# The accessibility checker that the browser test runs in its pages. Its version and hash are in AXE_CORE_PIN, and it is
# kept in the cache directory of the tests (crates/testbed/src/cache.rs). The fetched file gets its name only after its
# hash has been checked.
AXE_CORE_PIN := $(CURDIR)/crates/refit/tests/browser/axe-core.sha256
AXE_CORE := $(shell sed 's/.*  //' $(AXE_CORE_PIN))
TEST_CACHE := $(or $(filter /%,$(XDG_CACHE_HOME)),$(HOME)/.cache)/refit-tests

axe-core: test-packages
	@mkdir -p '$(TEST_CACHE)' && cd '$(TEST_CACHE)' && \
	if ! sha256sum --check --status '$(AXE_CORE_PIN)' 2>/dev/null; then \
	  set -e; echo "fetching $(AXE_CORE)"; \
	  fetched=$$(mktemp -d ./axe-core.XXXXXX); trap 'rm -rf "$$fetched"' EXIT; cd "$$fetched"; \
	  npm pack --silent '$(AXE_CORE:axe-core-%.min.js=axe-core@%)' >/dev/null; \
	  tar -xzf axe-core-*.tgz --to-stdout package/axe.min.js >'$(AXE_CORE)'; \
	  sha256sum --check --quiet '$(AXE_CORE_PIN)'; \
	  cd ..; mv "$$fetched/$(AXE_CORE)" .; \
	fi

# 200 kills and 40 stalls of the server that migrates: about 10 minutes.
test-kills: test-deps
	REFIT_SWEEP=full cargo test -p refit --test migration_kills -- --nocapture

# Servers of two releases side by side for hundreds of thousands of operations, agents and refitctl of older releases with
# the present server, and the present ones with an older server: about 10 minutes.
test-matrix: test-deps
	REFIT_SWEEP=full cargo test -p refit-server --test matrix -- --nocapture
	cargo test -p refit-released -p refit-server --test compatible --test older_peers
	cargo test -p refit --test older_server

# Rotations and rollbacks from every phase, under fifty agents.
test-rotation: test-deps
	REFIT_SWEEP=full cargo test -p refit --test rotation -- --nocapture

# Random clusters by the thousand, and three servers with two thousand hosts: about 20 minutes.
test-rollout: test-deps
	REFIT_SWEEP=full cargo test -p refit-rollout --test properties -- --nocapture
	REFIT_SWEEP=full cargo test -p refit --test rollout -- --nocapture --test-threads=1

# The updater cut off before every operation, killed 300 times from outside, in a race with itself 100 times, and on a
# full disk: about 10 minutes.
test-cuts: test-deps
	cargo test -p refit-update --test cuts -- --nocapture
	REFIT_SWEEP=full cargo test -p refit --test updater -- --nocapture

# The pictures of the dashboard in docs/screenshots.
screenshots: test-deps
	REFIT_SCREENSHOTS=update cargo test -p refit --test browser screenshots

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: bench-deps
	cargo bench -p refit-backend --bench sqlite
	cargo bench -p refit-migrations --bench latency
	cargo bench -p refit --bench fleet
	cargo bench -p refit --bench find
	cargo bench -p refit --bench dashboard
	cargo bench -p refit-rollout --bench event_cost
	cargo bench -p refit-rollout --bench simulate
	cargo bench -p refit-update --bench download
	cargo bench -p refit --bench switch

# The archive of one version, for an `artifacts` directory: make dist VERSION=1.2.3. A binary that is there already is
# named by DIST_BINARY.
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
DIST_DIR ?= dist

dist:
ifndef DIST_BINARY
	cargo build --release --locked -p refit
endif
	packaging/dist.sh '$(VERSION)' '$(or $(DIST_BINARY),target/release/refit)' '$(DIST_DIR)'
