# Six targets; the first use sets everything up in .venv. The kernel of the tests is compiled during the lint.
export DAGSTER_HOME := $(CURDIR)
export MPLBACKEND := Agg
# Without bytecode every process compiles all it imports anew: 8 CPU-seconds each, and the tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
UV := .venv/bin/uv
FLEETCAST := $(UV) run --frozen fleetcast
COMPILE := $(UV) run --frozen python -c "from fleetcast.models.replay.session.background_compile import compile_kernel; compile_kernel(with_balancer=True)"

AUDIT := data/audit
EXPORT := $(UV) export --frozen --all-extras --no-dev --no-emit-project --quiet

.PHONY: run test ui bench lint audit
run: .venv/ready
	$(FLEETCAST) nightly
test: .venv/ready
	@$(COMPILE) & compiles=$$!; $(MAKE) --no-print-directory lint || { kill $$compiles; exit 1; }; wait $$compiles
	$(UV) run --frozen pytest --numprocesses auto --maxprocesses 4 --dist loadfile
ui: .venv/ready
	$(FLEETCAST) ui
bench: .venv/ready
	$(UV) run --frozen python tests/bench
lint: .venv/ready
	$(UV) run --frozen ruff check . && $(UV) run --frozen ruff format --check . && $(UV) run --frozen mypy
audit: .venv/ready
	@mkdir -p $(AUDIT) && $(EXPORT) --format cyclonedx1.5 --output-file $(AUDIT)/sbom.json && $(EXPORT) --output-file $(AUDIT)/requirements.txt
	@$(UV) tool run pip-audit==2.9.0 --requirement $(AUDIT)/requirements.txt --disable-pip --require-hashes --strict --progress-spinner off > $(AUDIT)/advisories.txt 2>&1; code=$$?; \
	if grep -qE '^(Found [0-9]+|No) known vulnerabilit' $(AUDIT)/advisories.txt; then cat $(AUDIT)/advisories.txt; exit $$code; fi; \
	echo "The advisories could not be read, so nothing was audited ($(AUDIT)/advisories.txt says why). Run make audit again with access to pypi.org. The components are in $(AUDIT)/sbom.json."; exit 1

.venv/ready: pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null || { echo "fleetcast needs Python 3.11, 3.12 or 3.13 and found: $$($(PYTHON) --version 2>&1). Install one (Debian: apt install python3 python3-venv) or name it: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "fleetcast needs Python's venv module. Install it (Debian: apt install python3-venv) and run make again."; exit 1; }
	@echo "Setting up .venv, once: some 140 packages, 1.4 GB."
	@.venv/bin/python -m pip install --quiet uv
	@UV_PROJECT_ENVIRONMENT=.venv $(UV) sync --frozen --quiet
	@touch $@
