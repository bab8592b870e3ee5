PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Without bytecode every process of the tests compiles the library again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-long testbed learning-generic learning-compatible lint docs pictures settings notebooks bench clean

setup: $(READY)

# Torch goes first and by its exact version, so that nothing else can pull in another build of it.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt torch==2.13.0
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e ".[dev,minari,onnx,ray]"
	touch $(READY)

# The three fits are independent: make runs two at a time.
demo: setup
	mkdir -p demo
	$(BIN)/sept-offline collect navigation2d --seed 0 --restart -o demo/navigation.h5
	$(BIN)/sept-offline inspect demo/navigation.h5
	$(BIN)/sept-offline validate demo/navigation.h5
	$(MAKE) -j2 demo-sept demo-avg demo-oracle
	$(BIN)/sept-offline evaluate demo/sept demo/avg demo/oracle --episodes-per-instance 10
	$(BIN)/sept-offline report demo/sept demo/avg demo/oracle -o demo/report.html

demo-%:
	$(BIN)/sept-offline fit demo/navigation.h5 --method $* --restart -o demo/$*

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A file stays with one worker, which makes once what its tests share; the longest files come first.
# Two workers compute, a third has the tests that wait for other programs (tests/conftest.py). Long
# tests share little: each goes to the worker that is free.
# Tests make and remove tens of thousands of small files: in memory, where there is enough of it.
MEMORY := $(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4e6 {print "/dev/shm"}')
WORKERS := $(if $(MEMORY),TMPDIR=$(MEMORY) )$(BIN)/pytest --no-loadscope-reorder
PYTEST := $(WORKERS) -n 3 --dist loadfile

# The types are checked beside the tests, while these wait; what is said of them comes after theirs.
test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build; nice -n 10 $(BIN)/mypy >build/mypy.txt 2>&1 & types=$$!; \
	echo '$(PYTEST) -m "not long"'; $(PYTEST) -m "not long"; tests=$$?; \
	wait $$types; typed=$$?; echo $(BIN)/mypy; cat build/mypy.txt; \
	test $$tests = 0 -a $$typed = 0

# The packages of benchmarks/families and MuJoCo; simglucose pins gym and Gymnasium of years ago.
testbed: setup
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e ".[mujoco,testbed]"
	$(BIN)/pip install --disable-pip-version-check -q --no-deps -c constraints.txt simglucose

# `make test` with every optional package, the long tests, the learning tests on other processors.
test-long: testbed
	$(MAKE) test
	$(WORKERS) -n 2 --dist loadgroup --durations 10 -m long
	$(MAKE) learning-generic learning-compatible

# What was trained must hold on every processor: these make torch, MKL and NumPy take plainer kernels.
LEARNING := $(WORKERS) -n 2 --dist loadfile -m "learning and not long"
learning-generic: setup
	ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Prescott $(LEARNING)

learning-compatible: setup
	MKL_CBWR=COMPATIBLE NPY_DISABLE_CPU_FEATURES=X86_V3 $(LEARNING)

# Strict: a warning is an error. From nothing, so that the same pages give the same bytes.
docs: setup
	rm -rf build/site build/doctrees
	$(BIN)/sphinx-build -q -W --keep-going -n -d build/doctrees docs build/site
	@echo build/site/index.html

# From the runs of the demo; drawn again only by hand, as notebooks are run again only by hand.
pictures: setup
	test -f demo/report.html || $(MAKE) demo
	$(BIN)/python benchmarks/pictures/navigation.py demo/avg demo/sept demo/oracle -o docs/images/navigation.png
	$(BIN)/python benchmarks/pictures/episode.py -o docs/images/idea-episode.png
	$(BIN)/python benchmarks/pictures/latent.py demo/navigation.h5 -o docs/images/idea-latent.png
	$(BIN)/python benchmarks/pictures/probe.py demo/navigation.h5 -o docs/images/idea-probe.png
	$(BIN)/python benchmarks/pictures/report.py demo/report.html -o docs/images

# The tables of docs/settings.md, from the records; a test says when they are out of date.
settings: setup
	$(BIN)/python docs/write_settings.py

notebooks: setup
	$(BIN)/python docs/notebooks/build.py

bench: setup
	$(BIN)/python benchmarks/simulator_speed.py

clean:
	rm -rf $(VENV) demo build dist
