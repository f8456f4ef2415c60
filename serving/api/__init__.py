"""Arguments, results and errors that clients, servers and local models share: no gRPC or NumPy."""
