"""The paper's tables and figures as data, the runner that computes their cells, and the result store."""
