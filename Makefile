# Every command that a person or the continuous integration runs. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help test demo lint bench servers clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## everything that must pass before a change goes in
	@tools/test.sh

demo: ## processes share a lock while they are killed and frozen; uses $ONELOCK_URL, or a server of its own
	@tools/demo.sh

lint: ## formatting and clippy, without a server
	@tools/lint.sh

bench: ## measurements against the peers, as one table; about three minutes
	@tools/cargo.sh
	@bench/setup.sh
	@cargo run --quiet --release --package onelock-bench --bin onelock-bench -- $(BENCH)

servers: ## fetch the servers and the other clients that the tests run against into .tools
	@tools/servers.sh
	@tools/peers.sh

clean: ## remove what was built and fetched
	cargo clean
	rm -rf .tools
