"""Speed as ratios, each against its bar: `make bench`, or `python -m benchmarks` from the source tree."""
