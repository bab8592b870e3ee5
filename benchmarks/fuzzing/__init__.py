"""The parts of `benchmarks/fuzz.py`: a corpus, mutations, readers and the workers that try them."""
