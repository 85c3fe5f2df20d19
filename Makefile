# Each target makes what it needs first. `make demo` and `make test` are all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLOWER := .flower
# The paper's settings are for long runs of a large model; these are for 30 rounds of a small one.
SETTINGS := eta_l=0.05 decay=0.9 eta_g=30.0 lam=0.001 mu=0.00003 personal_epochs=4 settle_epochs=6
DEMO := --hospitals 3 --method fedslr --rounds 30 --seed 7 $(foreach pair,$(SETTINGS),--set $(pair))

.PHONY: demo test lint bench bench-compile bench-wire clean

# Recorded traces where AUSCULT_DATA names them, generated ones elsewhere.
demo: $(READY)
ifndef AUSCULT_DATA
	$(BIN)/auscult traces synth runs/demo-traces --devices 12 --seed 7 --overwrite
endif
	$(BIN)/auscult replay $(if $(AUSCULT_DATA),$(AUSCULT_DATA)/wrist,runs/demo-traces) $(DEMO)

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict -p edge_sdk -p aggregator -p models

bench: $(READY)
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/wire.py --sizes 10x10k

bench-compile: $(READY)
	$(BIN)/python benchmarks/compile.py

# Beside raw paho and beside Flower, which has an environment of its own.
bench-wire: $(READY) $(FLOWER)/.ready
	$(BIN)/python benchmarks/wire.py --flower $(FLOWER)/bin/python
	$(BIN)/python benchmarks/transfer.py
	$(BIN)/python benchmarks/large.py

$(FLOWER)/.ready:
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/pip install --quiet --disable-pip-version-check flwr
	touch $@

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps seglearn  # recordings; it is never imported
	touch $@

clean:
	rm -rf $(VENV) $(FLOWER) build *.egg-info
