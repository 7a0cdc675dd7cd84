"""Measure what the library guarantees: each script attacks one promise and writes what came of it as JSON."""
