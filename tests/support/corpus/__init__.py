"""Adapters that nobody may register, each wrong in its own way, and everything that is to be said of it."""

from tests.support.corpus.announcements import ANNOUNCEMENTS
from tests.support.corpus.bad import Bad
from tests.support.corpus.files import FILES
from tests.support.corpus.places import PLACES
from tests.support.corpus.targets import TARGETS

BAD_ADAPTERS: dict[str, Bad] = {**ANNOUNCEMENTS, **TARGETS, **FILES, **PLACES}
