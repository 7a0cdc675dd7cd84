import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE.parent / "methods", HERE.parents[1]):  # for `networks` and for `benchmarks`
    sys.path.insert(0, str(folder))
