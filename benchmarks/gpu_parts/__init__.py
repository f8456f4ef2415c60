"""The steps of benchmarks/gpu.py, a file each. A step is a generator of rows, dictionaries."""
