# Every command that a person or the continuous integration runs. `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help test test-c test-cli test-kotlin test-node test-python test-ruby test-simulator test-wasm demo lint bench servers header simulator dist install clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## everything that must pass before a change goes in
	@tools/test.sh

test-c: ## the part of it that is about the C library
	@tools/c/test.sh

test-cli: ## the part of it that is about the packages of the command
	@tools/cli/test.sh

test-kotlin: ## the part of it that is about the Kotlin package
	@tools/uniffi/test.sh

test-node: ## the part of it that is about the Node package
	@tools/node/test.sh

test-python: ## the part of it that is about the Python package
	@tools/python/test.sh

test-ruby: ## the part of it that is about the Ruby gem
	@tools/ruby/test.sh

test-simulator: ## the part of it that is about the page of the simulator
	@tools/simulator/test.sh

test-wasm: ## the part of it that is about WebAssembly
	@tools/wasm/test.sh

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

header: ## write bindings-c/include/onelock.h anew from the source
	@tools/cargo.sh
	@cargo run --quiet --package onelock-c-header

simulator: ## the simulator of the tests as a page: dist/simulator/index.html, to be opened in a browser
	@tools/simulator/build.sh

dist: ## what is given away, in dist/: the command, the C library, the packages for Node, Python, Ruby and the JVM
	@tools/cli/dist.sh
	@tools/c/dist.sh
	@tools/node/dist.sh
	@tools/python/dist.sh
	@tools/ruby/dist.sh
	@tools/uniffi/dist.sh

PREFIX ?= /usr/local
install: ## the C library into $(DESTDIR)$(PREFIX)
	@tools/c/install.sh "$$(tools/c/build.sh)" "$(DESTDIR)" "$(PREFIX)"

clean: ## remove what was built and fetched
	cargo clean
	rm -rf .tools
