# Each target makes what it needs first. `make demo` and `make test` are all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLOWER := .flower
FLOWER_RAY := .flower-ray
PFL := .pfl
FOREIGN := .foreign
FUZZ := .fuzz
OUTSIDER := .outsider
TARGET ?= frames
MINUTES ?= 2
SUPPLY := .supply
PYRIGHT := .pyright
UNCHANGED := .unchanged
ALL ?=
SITE := .site
SBOM := runs/sbom
CPU_WHEELS ?= $(PIP_FIND_LINKS)
UPGRADE ?=
SIGN ?=
WHOLE ?=
# Recorded or generated volunteers with one sensor.
WRISTS := --hospitals 3 --seed 7

AARCH64 := .aarch64
NATIVE := $(VENV)/.native
NATIVE_SOURCES := $(shell find models/native -type f)
INSTALL_NATIVE = $(BIN)/pip install --quiet --disable-pip-version-check ./models/native && touch $(NATIVE)

.PHONY: demo demo-wrists demo-generated native test test-fast test-changed test-long test-aarch64 lint health fuzz outsider bench bench-compile bench-wire bench-peers bench-trust bench-trend docs lock ranges licences sbom dist audit clean

# Physiotherapy patients with smartwatches.
demo: $(READY)
	$(BIN)/auscult replay --demo

# The volunteers in AUSCULT_DATA/wrist.
demo-wrists: $(READY)
	$(BIN)/auscult replay $(AUSCULT_DATA)/wrist $(WRISTS)

# Traces that nobody recorded, for a machine without the package of the recordings.
demo-generated: $(READY)
	$(BIN)/auscult traces synth runs/demo-traces --devices 12 --seed 7 --overwrite
	$(BIN)/auscult replay runs/demo-traces $(WRISTS)

# Products of matrices for onnxruntime, compiled here: needs a C++ compiler. `make test` tests them where they are built.
native: $(NATIVE)

$(NATIVE): $(READY) $(NATIVE_SOURCES)
	$(INSTALL_NATIVE)

test: $(READY)
	@[ ! -f $(NATIVE) ] || $(MAKE) --no-print-directory native  # as it is now
	$(BIN)/python -m pytest

# The same without tests of the compiler that passed here with the same bytes of all that they reach (tests/unchanged.py).
test-changed: $(READY)
	$(BIN)/python -m pytest --unchanged $(UNCHANGED)

# A minute, for the loop of editing: of each room the test files that take least (tests/fast.txt).
test-fast: $(READY)
	$(BIN)/python -m pytest @tests/fast.txt

# What `make test` leaves out, to stay under ten minutes on two cores.
test-long: $(READY)
	$(BIN)/python -m pytest -m long --timeout 2400

# A device on an emulated Raspberry Pi (apt install qemu-user-static); the first time downloads some 60 MB.
test-aarch64: $(READY) $(AARCH64)/.ready
	AUSCULT_AARCH64=$(AARCH64) $(BIN)/python -m pytest -n0 -s tests/hardware/aarch64

$(AARCH64)/.ready: pyproject.toml tests/hardware/aarch64/prepare.py
	$(BIN)/python -m tests.hardware.aarch64.prepare $(AARCH64)

lint: $(READY) $(PYRIGHT)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict -p edge_sdk -p aggregator -p models -p hardware
	$(BIN)/mypy --strict --scripts-are-modules docs/examples/*.py
	$(PYRIGHT)/bin/pyright --pythonpath $(BIN)/python

# What editors check with, on examples and public names; it brings a Node where there is none.
$(PYRIGHT)/.ready:
	$(PYTHON) -m venv $(PYRIGHT)
	$(PYRIGHT)/bin/pip install --quiet --disable-pip-version-check 'pyright[nodejs]>=1.1.380'
	touch $@

# What the code weighs: lines, rooms, parameters of constructors, words of pages. MUTANTS=200 counts what tests find.
health: $(READY)
	$(BIN)/python -m tests.health --mutants $(or $(MUTANTS),0)

# Guided by what its inputs reach, in an environment that has atheris: make fuzz TARGET=messages MINUTES=10
fuzz: $(FUZZ)/.ready
	$(FUZZ)/bin/python -m tests.fuzz $(TARGET) --minutes $(MINUTES)

$(FUZZ)/.ready: pyproject.toml
	$(PYTHON) -m venv $(FUZZ)
	$(FUZZ)/bin/pip install --quiet --disable-pip-version-check --editable '.[service]' atheris hypothesis pytest pytest-timeout
	touch $@

# The API's document, tried by schemathesis as a stranger and as each role on a service of its own; minutes.
outsider: $(READY) $(OUTSIDER)/.ready
	$(BIN)/python -m tests.aggregator.service.outsider --schemathesis $(OUTSIDER)/bin/schemathesis

$(OUTSIDER)/.ready:
	$(PYTHON) -m venv $(OUTSIDER)
	$(OUTSIDER)/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4,<5'
	touch $@

bench: $(READY)
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/wire.py --sizes 10x10k

# This tree beside earlier commits; fails where something costs 10 % more. A quarter of an hour on two quiet cores.
bench-trend: $(READY)
	$(BIN)/python benchmarks/trend.py --write

# Bytes beside accuracy, what rotation, masks and noise cost, and what can be rebuilt from messages. With AUSCULT_DATA, a
# folder with mnist.npz and bonn_eeg.npz, also what needs these.
bench-trust: $(READY)
	$(BIN)/python benchmarks/bytes.py cost
	$(BIN)/python benchmarks/privacy.py
	$(BIN)/python benchmarks/masks.py
	$(BIN)/python benchmarks/trust_costs.py
	$(BIN)/python benchmarks/bytes.py watch
	$(BIN)/python benchmarks/epsilon.py watch --seeds 3 --clips 0.5 --epsilons inf 1000 8
	$(BIN)/python benchmarks/private_phases.py
ifneq ($(AUSCULT_DATA),)
	$(BIN)/python benchmarks/epsilon.py mnist $(AUSCULT_DATA)/mnist.npz --seeds 3 --clips 0.3 --epsilons inf 8 4 2
	$(BIN)/python benchmarks/epsilon.py mnist $(AUSCULT_DATA)/mnist.npz --seeds 3 --clips 0.3 --epsilons inf 8 2 --method fedslr
	$(BIN)/python benchmarks/bytes.py esr $(AUSCULT_DATA)/bonn_eeg.npz --rounds 80
endif

bench-compile: $(READY) $(FOREIGN)/.ready
	$(BIN)/python benchmarks/compile.py
	$(BIN)/python benchmarks/compile_costs.py
	$(BIN)/python benchmarks/small_planes.py
	$(FOREIGN)/bin/python benchmarks/foreign.py
	$(FOREIGN)/bin/python benchmarks/speed.py

# Networks that nobody here wrote, in an environment of their own. An older pip takes very long to choose their versions.
$(FOREIGN)/.ready: pyproject.toml
	$(PYTHON) -m venv $(FOREIGN)
	$(FOREIGN)/bin/pip install --quiet --disable-pip-version-check --upgrade pip
	$(FOREIGN)/bin/pip install --quiet --disable-pip-version-check --editable '.[aggregator]' \
		torchvision torchaudio timm braindecode transformers monai \
		tsai xlstm pykan scikit-learn pandas matplotlib segmentation-models-pytorch einops
	if command -v c++ >/dev/null; then $(FOREIGN)/bin/pip install --quiet --disable-pip-version-check ./models/native; fi
	touch $@

# Beside raw paho and beside Flower, which has an environment of its own.
bench-wire: $(READY) $(FLOWER)/.ready
	$(BIN)/python benchmarks/wire.py --flower $(FLOWER)/bin/python
	$(BIN)/python benchmarks/transfer.py
	$(BIN)/python benchmarks/large.py

# A step, rounds, simulated clients and a replay's start beside torch, raw paho, numpy, Flower and pfl-research, the last
# two with environments of their own, and the tables of pages that show it. Needs a quiet machine for half an hour or more.
bench-peers: $(READY) $(FLOWER)/.ready $(FLOWER_RAY)/.ready $(PFL)/.ready
	$(BIN)/python benchmarks/peers.py --flower $(FLOWER)/bin/python --flower-ray $(FLOWER_RAY)/bin/python \
		--pfl $(PFL)/bin/python --write

$(FLOWER_RAY)/.ready:
	$(PYTHON) -m venv $(FLOWER_RAY)
	$(FLOWER_RAY)/bin/pip install --quiet --disable-pip-version-check 'flwr[simulation]' torch
	touch $@

$(PFL)/.ready:
	$(PYTHON) -m venv $(PFL)
	$(PFL)/bin/pip install --quiet --disable-pip-version-check 'pfl[pytorch]'
	touch $@

$(FLOWER)/.ready:
	$(PYTHON) -m venv $(FLOWER)
	$(FLOWER)/bin/pip install --quiet --disable-pip-version-check flwr
	touch $@

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps seglearn  # recordings; it is never imported
	touch $@
	if command -v c++ >/dev/null; then $(INSTALL_NATIVE) || echo 'native products are left out: they cannot be built'; fi

# The pages as a site, build/site/index.html, in which search needs no network. Warnings and dead links end it.
docs: $(READY) $(SITE)/.ready
	$(BIN)/python docs/site/stage.py build/pages
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --strict --config-file docs/site/mkdocs.yml
	@echo 'build/site/index.html'

$(SITE)/.ready: pyproject.toml
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.6,<10' 'mkdocstrings[python]>=0.29' ruff
	touch $@

# What is installed. CPU_WHEELS: a folder with CPU builds of torch; UPGRADE=--upgrade takes the newest versions.
lock: $(SUPPLY)/.ready
	PATH="$(CURDIR)/$(SUPPLY)/bin:$$PATH" $(PYTHON) requirements/lock.py --cpu-wheels "$(CPU_WHEELS)" $(UPGRADE)

# Tests of what a device loads with the oldest and the newest numpy, onnxruntime, paho-mqtt and msgpack that are allowed.
# WHOLE=1: of a workstation, with torch.
ranges:
	$(PYTHON) requirements/ranges.py $(if $(WHOLE),--whole)

licences: $(READY)
	$(BIN)/python requirements/licences.py

# A bill of materials (CycloneDX) for each lock file, with the hashes that are in it.
sbom: $(SUPPLY)/.ready
	mkdir -p $(SBOM)
	for name in device aggregator aggregator-cuda development; do \
	  PYTHONWARNINGS=ignore $(SUPPLY)/bin/cyclonedx-py requirements requirements/$$name.txt --pyproject pyproject.toml \
	    --output-reproducible -o $(SBOM)/$$name.cdx.json || exit 1; \
	done

# Wheels and sdists of auscult, auscult-edge and auscult-native, each built twice to the same bytes, into dist/. SIGN=KEY
# signs their list with a private key of ssh-keygen (requirements/signing.py).
dist: $(SUPPLY)/.ready sbom
	$(SUPPLY)/bin/python -m requirements.dist --sbom $(SBOM) $(if $(SIGN),--sign $(SIGN))

# Not a part of `lint`: it asks a service on the network for known faults, and fails where there is none.
audit: $(SUPPLY)/.ready
	for name in device aggregator-cuda; do \
	  $(SUPPLY)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/$$name.txt || exit 1; \
	done

$(SUPPLY)/.ready: pyproject.toml
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/pip install --quiet --disable-pip-version-check '.[supply]'
	touch $@

clean:
	rm -rf $(UNCHANGED) $(VENV) $(FLOWER) $(FLOWER_RAY) $(PFL) $(FOREIGN) $(FUZZ) $(OUTSIDER) $(AARCH64) $(SUPPLY) $(PYRIGHT) $(SITE) build dist *.egg-info
