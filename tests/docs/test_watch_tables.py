"""The tables about the watch say what the figures say, and say so where there are none."""

import json

FIGURES = {
    "attacks": {
        "clean_samples_after": 1000,
        "never_attacked": {"test": 1.9, "style": 7.6},
        "clean_digits_instead": {"samples": 10000, "test": 0.1, "style": 1.6},
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
        "NOTE, MNIST-C, fog": {
            "samples": 2048,
            "without": 12.0,
            "with": 12.25,
            "not_calibrated": {"with": 13.5, "alarms": 2},
            "alarms": 1,
            "returns": 0,
            "commit": "abcdef0123",
        },
        "NOTE, MNIST-C, shear": {
            "samples": 512,
            "levels": {"forgetting": 1.0},
            "without": 3.0,
            "with": 3.0,
            "alarms": 0,
            "returns": 0,
            "commit": "0123456789",
        },
    },
    "estimates": {
        "NOTE, digits, test": {
            "truth": 2.0,
            "estimate": 3.0,
            "low": 1.0,
            "high": 5.0,
            "aetta": 8.0,
            "constant": 1.0,
        },
        "Source, digits, style": {
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
        },
        "RoTTA": {
            "window": 512,
            "period": 2,
            "errors": [1.0, 9.0, 4.0, 8.0, 9.0, 15.0, 50.0],
            "errors_of_source": [10.0] * 7,
            "first_alarm": 2000,
            "doubled_at": 1536,
            "commit": "abcdef0123",
        },
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
    assert (
        "by: *a turn*, +1.0, +3.1 points, for 10,000 samples in a row and control of every input. "
        "(As many clean digits instead of an attack leave +0.1, +1.6 points.)"
    ) in attacks
    assert "several commits of the library: `abcdef0`: noise; `0123456`: a turn." in attacks
    honest = tables.honest_table(path)
    assert "| drifting | 60,000 | 0.6 | 1 | 2 | 2,048 | 3.21 % |" in honest
    assert "In all 60,000 samples there were 1 alarms; at most 0.6 were promised." in honest
    published = tables.published_table(path)
    assert "| NOTE, MNIST-C | 2 | 512 to 2,048 | 7.50 % | 7.62 % | 1 | 0 |" in published
    assert "at most +0.25 points of error on a column (NOTE, MNIST-C, fog)." in published
    assert "return: NOTE, MNIST-C, fog: 12.00 % without, 12.25 % with, 1 alarms, 0 returns." in published
    assert "some runs (NOTE, MNIST-C). With the default limits, 1 of these 1 runs have an alarm" in published
    assert "2 of the 49 columns (0 of 3 of digits, 0 of 9 of HAPT" in published
    assert "in 1 of 2 runs the watch was calibrated" in published
    assert "costs up to +1.50 points" in published
    assert "`abcdef0`: NOTE, MNIST-C, fog; `0123456`: NOTE, MNIST-C, shear." in published
    estimates = tables.estimate_table(path)
    assert "| NOTE, digits | 1 | 2.0 % | 1.0 | 6.0 | 1.0 |" in estimates
    assert "| **all** | 2 | 5.0 % | 2.0 | 5.0 | 4.0 |" in estimates
    assert "contains the truth in 1 of 2 runs." in estimates
    collapses = tables.collapse_table(path)
    assert (
        "| TENT | 10, 60, 50 % | 9 % | 1,024 | – | 512 |" in collapses and "several commits" not in collapses
    )
    assert "| RoTTA | 1, 50, 50 % | 10 % | 1,536 | 3,072 | 2,000 |" in collapses
    cost = tables.cost_line(path)
    assert "ResNet-20: +2.4 %" in cost and "The mean is +1.9 %." in cost


def test_attacks_that_leave_little_are_said_to(tool, tmp_path):
    path, rows = tmp_path / "watch.json", {"noise": FIGURES["attacks"]["rows"]["noise"]}
    path.write_text(json.dumps({"attacks": {**FIGURES["attacks"], "rows": rows}}))
    assert "No attack leaves more than 3 points." in tool("watch_tables").attack_table(path)


def test_without_figures_it_is_said(tool, tmp_path):
    tables = tool("watch_tables")
    for table in ("attack", "honest", "published", "estimate", "collapse"):
        assert "Not measured yet" in getattr(tables, f"{table}_table")(tmp_path / "absent.json")
    assert "Not measured yet" in tables.cost_line(tmp_path / "absent.json")
