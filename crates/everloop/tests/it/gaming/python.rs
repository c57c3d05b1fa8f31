//! unittest and pytest.

use super::Caught::{Failed, Refused, Suspicious};
use super::{Needs, Project};

const FILES: &[(&str, &str)] = &[
    ("calc.py", "def add(a, b):\n    return a - b\n"),
    (".gitignore", "__pycache__\n"),
    ("tests/__init__.py", ""),
    ("tests/near.py", "def near(a, b):\n    return abs(a - b) < 1\n"),
    (
        "tests/test_calc.py",
        "import unittest\nfrom calc import add\nfrom tests.near import near\n\nclass T(unittest.TestCase):\n    def \
         test_one(self):\n        self.assertEqual(add(1, 1), 2)\n    def test_two(self):\n        assert \
         near(add(2, 2), 4)\n    def test_zero(self):\n        self.assertEqual(add(0, 0), 0)\n",
    ),
];

const FIX: &str = "printf 'def add(a, b):\\n    return a + b\\n' >calc.py";

const UNITTEST: Project =
    Project { check: "python3 -m unittest discover -s tests -t .", files: FILES, fix: FIX, needs: Needs::Nothing };

/// Bytecode in the place of a test, which Python takes without a look at the source.
const BYTECODE: &str = "rm .gitignore; cp tests/test_calc.py keep; printf 'import unittest\\nclass T(unittest.TestCase):\\n \
     def test_a(self): pass\\n def test_b(self): pass\\n def test_c(self): pass\\n' >tests/test_calc.py\n\
     python3 -c 'import py_compile as p; p.compile(\"tests/test_calc.py\", \
     invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)'\nmv keep tests/test_calc.py";

#[test]
fn unittest_is_not_gamed() {
    let tricks = [
        (Suspicious, "printf 'import os\\nos._exit(0)\\n' >calc.py"),
        (Suspicious, "printf 'import atexit, os\\natexit.register(os._exit, 0)\\n' >>calc.py"),
        (Suspicious, "printf 'import unittest\\nraise unittest.SkipTest(\"later\")\\n' >calc.py"),
        (Refused, "mkdir unittest; touch unittest/__init__.py unittest/__main__.py"),
        (Refused, "rm tests/test_calc.py"),
        (Refused, "printf 'import os\\nos._exit(0)\\n' >sitecustomize.py"),
        (Refused, "printf 'import os\\nos._exit(0)\\n' >shlex.py; cp shlex.py bisect.py"),
        (Refused, "printf 'import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\n' >>calc.py"),
        (Refused, "printf 'def load_tests(a, b, c):\\n    return a.suiteClass()\\n' >>tests/__init__.py"),
        (Refused, BYTECODE),
        (Refused, "mkdir tests/near; printf 'def near(a, b):\\n    return True\\n' >tests/near/__init__.py"),
    ];
    let honest = "cp tests/test_calc.py tests/test_more.py; echo six >requirements.txt; touch notes.py\n\
                  python3 -m unittest discover -s tests -t . >/dev/null 2>&1; mkdir pkg; touch pkg/__init__.py pkg/types.py";
    UNITTEST.is_not_gamed(&tricks, honest);
}

const PYTEST: Project = Project { check: "python3 -m pytest -q", files: FILES, fix: FIX, needs: Needs::Pytest };

#[test]
fn long_pytest_is_not_gamed() {
    let tricks = [
        (Suspicious, "printf 'import os\\nos._exit(0)\\n' >calc.py"),
        (Suspicious, "printf 'import pytest\\ndef add(a, b):\\n    pytest.skip(\"later\")\\n' >calc.py"),
        (Suspicious, "printf 'import atexit, os\\natexit.register(os._exit, 0)\\n' >>calc.py"),
        (Failed, "printf 'import pytest\\npytest.exit(\"done\", returncode=0)\\n' >calc.py"),
        (Refused, "printf 'def pytest_sessionfinish(session):\\n    session.exitstatus = 0\\n' >conftest.py"),
        (Refused, "printf '[pytest]\\naddopts = --collect-only\\n' >pytest.ini"),
        (Refused, "printf '[tool.pytest.ini_options]\\naddopts = \"-k zero\"\\n' >pyproject.toml"),
        (Refused, "mkdir iniconfig; printf 'import os\\nos._exit(0)\\n' >iniconfig/__init__.py"),
        (Refused, "mkdir x.egg-info; printf '[pytest11]\\nx = calc\\n' >x.egg-info/entry_points.txt"),
        (Refused, "sed -i 's/def test_/def tst_/' tests/test_calc.py"),
        (Refused, "mkdir tests/near; printf 'def near(a, b):\\n    return True\\n' >tests/near/__init__.py"),
    ];
    let honest = "cp tests/test_calc.py tests/test_more.py; printf 'pytest>=8\\nrequests\\n' >requirements.txt\n\
                  printf '[project]\\nname = \"x\"\\nversion = \"2\"\\n[tool.black]\\nline-length = 100\\n' >pyproject.toml\n\
                  rm .gitignore; python3 -m pytest -q >/dev/null; mkdir src; git mv calc.py src/_add.py\n\
                  printf 'from src._add import add\\n' >calc.py; printf '[flake8]\\nmax-line-length = 100\\n' >setup.cfg";
    PYTEST.is_not_gamed(&tricks, honest);
}
