import re
import subprocess
import sys
from pathlib import Path

import pytest

import note_tta
from note_tta import names


def fresh(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_no_torch():
    assert fresh("import sys, note_tta; print('torch' in sys.modules)") == "False\n"


def test_the_compiler_is_not_imported_with_a_method():
    assert fresh("import sys, note_tta; note_tta.NOTE; print('torch._dynamo' in sys.modules)") == "False\n"


def test_a_name_is_imported_when_it_is_used():
    assert fresh("import note_tta; print(note_tta.NOTE.__name__)") == "NOTE\n"


@pytest.mark.parametrize("name", note_tta.__all__)
def test_every_public_name_resolves(name):
    assert getattr(note_tta, name) is not None


def test_the_table_of_names_is_complete():
    assert set(note_tta.__all__) == {*names.homes(), *names.MODULES, "__version__"} == set(dir(note_tta))
    assert {kind.__name__ for kind in note_tta.METHODS.values()} <= set(note_tta.__all__)


def test_type_checkers_find_each_name_where_it_is():
    """A new method without such a line works all the same: to type checkers it is `Any`."""
    imported = re.findall(r"^    from \.(\S*) import (\w+) as \2$", Path(note_tta.__file__).read_text(), re.M)
    at_home = {(home, name) for name, home in names.homes().items()} | {("", name) for name in names.MODULES}
    assert set(imported) <= at_home
    assert {name for _, name in at_home - set(imported)} <= {
        kind.__name__ for kind in note_tta.METHODS.values()
    }


def test_evaluate_stays_the_function_whatever_is_imported_first():
    code = (
        "import note_tta.evaluation, note_tta; print(callable(note_tta.evaluate), note_tta.streams.iid([1]))"
    )
    assert fresh(code) == "True tensor([0])\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'note_tta' has no attribute 'NOPE'"):
        _ = note_tta.NOPE


def test_no_device_is_named_in_the_library():
    files = [
        path
        for part in ("nn", "methods")
        for path in Path(note_tta.__file__).parent.joinpath(part).glob("*.py")
    ]
    package = Path(note_tta.__file__).parent
    files += [package / name for name in ("memory.py", "evaluation.py")]
    files += [*package.glob("streams*"), *package.glob("streams/*.py")]
    files = [path for path in files if path.is_file()]
    named = [
        path.name for path in files if ".cuda(" in path.read_text() or 'device("cuda' in path.read_text()
    ]
    assert files and not named
