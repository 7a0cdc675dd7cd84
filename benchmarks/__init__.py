"""Speed as ratios, each against its bar: `note-tta bench`, or `python -m benchmarks` from the source tree."""
