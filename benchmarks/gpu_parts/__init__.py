"""What benchmarks/gpu.py measures, a file a step. A step is a generator of rows, dictionaries."""
