from note_tta.cli import bench


def test_options_reach_the_benchmarks(program, capfd):
    assert program("bench", "--fleet", "--only", "nothing") == 2
    assert "--only must be among limit, flat, separate" in capfd.readouterr().err


def test_without_a_clone_it_says_what_to_do(program, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    assert program("bench") == 2
    assert "run this in a clone" in capsys.readouterr().err
