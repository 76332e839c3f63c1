"""What an extra lacks is read from the distribution's own requirements."""

from __future__ import annotations

from importlib import metadata

from assay.core import doctor

REQUIREMENTS = [
    "numpy>=1",
    "no-such-package>=1; extra == 'one'",
    "numpy>=999; extra == 'two'",
    "assay[one,two]; extra == 'all'",
    "pytest; extra == 'fine'",
]


def test_missing_and_outdated_packages_are_named_and_extras_of_extras_followed(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda _name: REQUIREMENTS)

    class Metadata:
        def get_all(self, _name):
            return ["one", "two", "all", "fine"]

    monkeypatch.setattr(metadata, "metadata", lambda _name: Metadata())
    outdated = f"numpy>=999 (here {metadata.version('numpy')})"
    assert doctor.extras() == {
        "all": ["no-such-package", outdated],
        "fine": [],
        "one": ["no-such-package"],
        "two": [outdated],
    }
