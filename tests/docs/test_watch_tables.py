"""The tables about the watch say what the figures say, and say so where there are none."""

import json

FIGURES = {
    "attacks": {
        "clean_samples_after": 1000,
        "never_attacked": {"test": 1.9, "style": 7.6},
        "rows": {
            "noise": {
                "commit": "abcdef0123",
                "samples": 5120,
                "without": {"samples": 5120, "test": 15.3, "style": 6.6},
                "with": {"samples": 2560, "test": 0.4, "style": -2.6},
                "first_alarm": 2048,
                "returns": 0,
            },
            "a turn": {
                "commit": "0123456789",
                "samples": 10000,
                "without": {"samples": 10000, "test": 1.0, "style": 2.0},
                "with": {"samples": 10000, "test": 1.0, "style": 3.1},
                "first_alarm": None,
                "returns": 1,
            },
        },
    },
    "honest": {
        "drifting": {
            "samples": 60000,
            "alarms": 1,
            "returns": 2,
            "resting_samples": 2048,
            "error": 3.21,
            "commit": "abcdef0123",
        }
    },
    "published": {
        "NOTE, fog": {
            "without": 12.0,
            "with": 12.25,
            "alarms": 1,
            "returns": 0,
            "commit": "abcdef0123",
        },
        "adapt, fog": {
            "without": 3.0,
            "with": 3.0,
            "alarms": 0,
            "returns": 0,
            "commit": "0123456789",
        },
    },
    "estimates": {
        "NOTE, test": {"truth": 2.0, "estimate": 3.0, "low": 1.0, "high": 5.0, "aetta": 8.0, "constant": 1.0},
        "NOTE, style": {
            "truth": 8.0,
            "estimate": 5.0,
            "low": 4.0,
            "high": 6.0,
            "aetta": 4.0,
            "constant": 1.0,
        },
    },
    "collapses": {
        "TENT": {
            "errors": [10.0, 60.0, 50.0],
            "errors_of_source": [8.0, 10.0, 9.0],
            "first_alarm": 512,
            "doubled_at": 1024,
            "commit": "abcdef0123",
        }
    },
    "cost": {"ResNet-20": {"percent": 2.4}, "digits": {"percent": 1.4}},
}


def test_figures_are_in_the_tables(tool, tmp_path):
    tables, path = tool("watch_tables"), tmp_path / "watch.json"
    path.write_text(json.dumps(FIGURES))
    attacks = tables.attack_table(path)
    assert "| noise | 5,120 | +15.3, +6.6 | 5,120 | +0.4, -2.6 | 2,560 | 2,048 | 0 |" in attacks
    assert "| a turn | 10,000 | +1.0, +2.0 | 10,000 | +1.0, +3.1 | 10,000 | – | 1 |" in attacks
    assert "The worst figure with the watch is +3.1 points." in attacks
    assert "left in spite of the watch by: *a turn*, 10,000 samples (+1.0, +3.1 points)." in attacks
    assert "several commits of the library: `abcdef0`: noise; `0123456`: a turn." in attacks
    honest = tables.honest_table(path)
    assert "| drifting | 60,000 | 0.6 | 1 | 2 | 2,048 | 3.21 % |" in honest
    assert "In all 60,000 samples there were 1 alarms; at most 0.6 were promised." in honest
    published = tables.published_table(path)
    assert "| NOTE, fog | 12.00 % | 12.25 % | 1 | 0 |" in published and "at most +0.25 points" in published
    assert "`abcdef0`: NOTE, fog; `0123456`: adapt, fog." in published
    estimates = tables.estimate_table(path)
    assert (
        "over 2 runs: 2.0 points; of AETTA: 5.0; of a constant guess, the source's own error: 4.0"
        in estimates
    )
    assert "contains the truth in 1 of them." in estimates
    collapses = tables.collapse_table(path)
    assert "| TENT | 10, 60, 50 % | 9 % | 1,024 | 512 |" in collapses and "several commits" not in collapses
    cost = tables.cost_line(path)
    assert "ResNet-20: +2.4 %" in cost and "The mean is +1.9 %." in cost


def test_without_figures_it_is_said(tool, tmp_path):
    tables = tool("watch_tables")
    for table in ("attack", "honest", "published", "estimate", "collapse"):
        assert "Not measured yet" in getattr(tables, f"{table}_table")(tmp_path / "absent.json")
    assert "Not measured yet" in tables.cost_line(tmp_path / "absent.json")
